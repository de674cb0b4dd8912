"""cuDSS through ctypes, as the peer beside which the solver is timed. Enumerators are those of cuDSS 1.0."""

from __future__ import annotations

import ctypes as c
import sys
import zipfile
from pathlib import Path
from time import perf_counter

import numpy as np
import scipy.sparse as sp

ANALYSIS, FACTOR, REFACTOR, SOLVE = 3, 4, 8, 16 | 32 | 64 | 128 | 256 | 512
IR_N_STEPS, DETERMINISTIC = 5, 24
INDEX32, REAL64 = 10, 1
KIND = {"G": 0, "S": 1, "SPD": 3}


def library(path):
    """Load libcudss; put together from the wheel's pieces beside it if need be."""
    path = Path(path)
    if not path.is_file():
        pieces = sorted(path.parent.glob("cudss.part_*"))
        if not pieces:
            raise FileNotFoundError(f"neither {path} nor pieces of its wheel")
        wheel = path.parent / "cudss.whl"
        with wheel.open("wb") as out:
            for piece in pieces:
                out.write(piece.read_bytes())
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read("nvidia/cu13/lib/libcudss.so.1"))
    for name in ("libcublasLt.so.13", "libcublas.so.13"):
        for folder in [Path(p) / "nvidia" / "cu13" / "lib" for p in sys.path] + [
            Path("/usr/local/cuda/lib64")
        ]:
            if (folder / name).is_file():
                c.CDLL(str(folder / name), mode=c.RTLD_GLOBAL)
                break
    return c.CDLL(str(path))


class Cudss:
    """One system: analysis at once, then `refactorize` and `solve` with the device's values as they are."""

    def __init__(self, lib, a, structure, deterministic=False, refinements=0):
        import cupy

        self.lib, self.cupy = lib, cupy
        m = (sp.tril(a) if structure != "G" else a).tocsr()
        m.sort_indices()
        n = m.shape[0]
        self.keep = [
            cupy.asarray(m.indptr.astype(np.int32)),
            cupy.asarray(m.indices.astype(np.int32)),
            cupy.asarray(m.data),
        ]
        self.b, self.x = cupy.zeros(n), cupy.zeros(n)
        h, config, data, ma, mx, mb = (c.c_void_p() for _ in range(6))
        self.h, self.config, self.data, self.ma, self.mx, self.mb = h, config, data, ma, mx, mb
        self._ok(lib.cudssCreate(c.byref(h)))
        self._ok(lib.cudssConfigCreate(c.byref(config)))
        self._ok(lib.cudssDataCreate(h, c.byref(data)))
        p, i64 = [c.c_void_p(k.data.ptr) for k in self.keep], c.c_int64
        self._ok(
            lib.cudssMatrixCreateCsr(
                c.byref(ma), i64(n), i64(n), i64(m.nnz), p[0], c.c_void_p(0), p[1], p[2], INDEX32, INDEX32, REAL64,
                KIND[structure], 0 if structure == "G" else 1, 0,
            )
        )  # fmt: skip
        for handle, array in ((mb, self.b), (mx, self.x)):
            self._ok(
                lib.cudssMatrixCreateDn(
                    c.byref(handle), i64(n), i64(1), i64(n), c.c_void_p(array.data.ptr), REAL64, 0
                )
            )
        for key, value in ((DETERMINISTIC, int(deterministic)), (IR_N_STEPS, refinements)):
            number = c.c_int(value)
            if value:
                self._ok(lib.cudssConfigSet(config, key, c.byref(number), c.c_size_t(4)))
        self.analysis_seconds = self._run(ANALYSIS)
        self._run(FACTOR)
        self._run(SOLVE)

    def _ok(self, status):
        if status != 0:
            raise RuntimeError(f"cuDSS status {status}")

    def _run(self, phase):
        self.cupy.cuda.runtime.deviceSynchronize()
        begun = perf_counter()
        self._ok(self.lib.cudssExecute(self.h, phase, self.config, self.data, self.ma, self.mx, self.mb))
        self.cupy.cuda.runtime.deviceSynchronize()
        return perf_counter() - begun

    def right_hand_sides(self, b):
        """Solve for the columns of ``b`` (a device array, n x k) from now on."""
        lib, c64 = self.lib, c.c_int64
        n, count = b.shape
        for m in (self.mx, self.mb):
            lib.cudssMatrixDestroy(m)
        self.b, self.x = self.cupy.asfortranarray(b), self.cupy.zeros((n, count), order="F")
        self.mx, self.mb = c.c_void_p(), c.c_void_p()
        for handle, array in ((self.mb, self.b), (self.mx, self.x)):
            self._ok(
                lib.cudssMatrixCreateDn(
                    c.byref(handle), c64(n), c64(count), c64(n), c.c_void_p(array.data.ptr), REAL64, 0
                )
            )

    def refactorize(self):
        return self._run(REFACTOR)

    def solve(self):
        return self._run(SOLVE)

    def close(self):
        for m in (self.ma, self.mx, self.mb):
            self.lib.cudssMatrixDestroy(m)
        self.lib.cudssDataDestroy(self.h, self.data)
        self.lib.cudssConfigDestroy(self.config)
        self.lib.cudssDestroy(self.h)
