"""Sparse products on a GPU beside cuSPARSE, for `tools/device/dense.py`."""

from __future__ import annotations

import numpy as np

from warpfront.bench.collect import collected, gpu_record, refused
from warpfront.bench.record import Row, write

COLUMNS = 32  # of a block of vectors


def matrices():
    """lap3d_64, lap2d_300 and a matrix whose row lengths follow a power law."""
    import scipy.sparse as sp

    def laplacian(n, dims):
        d = sp.diags_array([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1])
        eye, total = sp.eye_array(n), d
        for _ in range(dims - 1):
            total = sp.kron(total, eye) + sp.kron(sp.eye_array(total.shape[0]), d)
        return total.tocsr()

    rng = np.random.default_rng(0)
    n = 400_000
    lengths = np.minimum(n // 4, (rng.pareto(1.2, n) * 4 + 1).astype(np.int64))
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    ind = rng.integers(0, n, ptr[-1])
    power = sp.csr_array((np.ones(len(ind)), ind, ptr), shape=(n, n))
    power.sum_duplicates()
    return {"lap3d_64": laplacian(64, 3), "lap2d_300": laplacian(300, 2), "power law": power}


class Operands:
    """Copies of a matrix's operands, enough that each call starts outside the L2."""

    def __init__(self, x, rows, sets):
        import cupy

        self.xs = [cupy.asarray(x) for _ in range(sets)]
        self.ys = [cupy.full((rows, *x.shape[1:]), np.nan) for _ in range(sets)]

    def pairs(self):
        return zip(self.xs, self.ys, strict=True)


def ours(A, x, sets):
    """Calls and results of each storage that takes the matrix."""
    from warpfront.sparse._product_cuda import _OnDevice
    from warpfront.sparse.products import SparseOperator

    calls, results = {}, {}
    ways = {"csr": ("csr", False), "ell": ("ell", False), "csr balanced": ("csr", True)}
    for name, (storage, balanced) in ways.items() if x.ndim == 1 else [("csr", ("csr", False))]:
        try:
            kind, operator = np.dtype("float64"), SparseOperator(A, storage, "cuda")
            held = [_OnDevice(operator, kind, balanced=balanced) for _ in range(sets)]
        except ValueError as error:
            print(f"{name}: {error}", flush=True)
            continue
        operands = Operands(x, A.shape[0], sets)
        times = [one.times_vector if x.ndim == 1 else one.times_block for one in held]
        calls[f"warpfront {name}"] = [
            lambda stream, t=t, x=x, y=y: t(x, y) for t, (x, y) in zip(times, operands.pairs(), strict=True)
        ]
        results[f"warpfront {name}"] = operands.ys[0]
    return calls, results


def peers(A, x, sets, moved):
    """CuSPARSE by each algorithm, and the copy of as many bytes; calls, results, and why one is missing."""
    import cupy
    from products_cusparse import SPMM, SPMV, Peer

    pairs = [(cupy.empty(moved // 16), cupy.empty(moved // 16)) for _ in range(sets)]
    calls = {"copy": [lambda stream, a=a, b=b: cupy.copyto(a, b) for a, b in pairs]}
    results, missing = {}, {}
    held = [Peer(A) for _ in range(sets)]
    for name, algorithm in (SPMV if x.ndim == 1 else SPMM).items():
        try:
            operands = Operands(x, A.shape[0], sets)
            made = [one.call(a, b, algorithm) for one, (a, b) in zip(held, operands.pairs(), strict=True)]
            made[0](0)
            cupy.cuda.runtime.deviceSynchronize()
        except Exception as error:
            missing[f"cusparse {name}"] = refused("failed", str(error))
            continue
        calls[f"cusparse {name}"], results[f"cusparse {name}"] = made, operands.ys[0]
    return calls, results, missing


def one_row(name, A, columns):
    """Time one product; a ceiling is the copy of as many bytes."""
    import cupy

    from warpfront.bench.gpu import buffer_sets, time_interleaved

    n = A.shape[0]
    x = np.random.default_rng(1).standard_normal((n, columns) if columns > 1 else n)
    moved = A.nnz * 12 + 8 * (n + 1) + 16 * n * columns
    sets = min(4, buffer_sets(moved))
    calls, results = ours(A, x, sets)
    operation = "spmv" if columns == 1 else "spmm"
    others, theirs, found = peers(A, x, sets, moved)
    results |= theirs
    times = time_interleaved({**calls, **others}, samples=9)
    wanted = A @ x
    bound = 1e-12 * (abs(A) @ np.abs(x)) + 1e-300
    for key, one in times.items():
        right = key not in results or bool((np.abs(cupy.asnumpy(results[key]) - wanted) <= bound).all())
        detail = "" if right else "wrong"
        flops = 2 * A.nnz * columns
        found[key] = collected(one.seconds, bytes=moved, flops=flops, right=right, detail=detail)
    shapes, what = {"n": n, "nnz": A.nnz, "columns": columns}, "see tools/device/products.py"
    table = "  ".join(f"{key} {1e6 * v.median:.1f} us" for key, v in found.items() if v.median)
    print(f"{operation} {name}: {table}", flush=True)
    for key, value in found.items():
        if not value.median:
            print(f"   {key}: {value.detail}", flush=True)
    return Row(name, operation, shapes, "float64", what, 0, list(calls), found, reference="copy")


def figures(out, *, blocks=True):
    """Time products by device events, graph replay, cold L2."""
    import cupy

    rows, failed = [], None
    for name, A in matrices().items():
        for columns in (1, COLUMNS) if blocks else (1,):
            try:
                rows.append(one_row(name, A, columns))
            except Exception as error:
                failed = error
                print(f"{name} x {columns}: {type(error).__name__}: {error}"[:300], flush=True)
            write(gpu_record("products_gpu", rows, {"samples": 9}), out / "products_gpu.json")
            cupy.get_default_memory_pool().free_all_blocks()
    if failed is not None:
        raise failed
