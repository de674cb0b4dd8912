"""Sparse products on a GPU beside cuSPARSE, for `tools/device/dense.py`."""

from __future__ import annotations

import numpy as np

from warpfront.bench.collect import collected, gpu_record, refused
from warpfront.bench.record import Row, write


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


def ours(A, x, sets):
    """Calls and results of each storage that takes the matrix."""
    import cupy

    from warpfront.sparse._product_cuda import _OnDevice
    from warpfront.sparse.products import SparseOperator

    calls, results = {}, {}
    for storage in ("csr", "ell"):
        try:
            held = [_OnDevice(SparseOperator(A, storage, "cuda"), np.dtype("float64")) for _ in range(sets)]
        except ValueError as error:
            print(f"{storage}: {error}", flush=True)
            continue
        xs, ys = [cupy.asarray(x) for _ in range(sets)], [cupy.empty(len(x)) for _ in range(sets)]
        calls[f"warpfront {storage}"] = [
            lambda stream, m=m, x=x, y=y: m.times_vector(x, y) for m, x, y in zip(held, xs, ys, strict=True)
        ]
        results[f"warpfront {storage}"] = ys[0]
    return calls, results


def peers(A, x, sets, moved):
    """CuSPARSE, and the copy of as many bytes."""
    import cupy
    import cupyx.scipy.sparse as csp
    from cupyx import cusparse

    parts = [(cupy.asarray(A.data), cupy.asarray(A.indices), cupy.asarray(A.indptr)) for _ in range(sets)]
    held = [csp.csr_matrix(part, shape=A.shape) for part in parts]
    xs, ys = [cupy.asarray(x) for _ in range(sets)], [cupy.empty(len(x)) for _ in range(sets)]
    pairs = [(cupy.empty(moved // 16), cupy.empty(moved // 16)) for _ in range(sets)]
    return {
        "copy": [lambda stream, a=a, b=b: cupy.copyto(a, b) for a, b in pairs],
        "cusparse": [
            lambda stream, m=m, x=x, y=y: cusparse.spmv(m, x, y) for m, x, y in zip(held, xs, ys, strict=True)
        ],
    }


def figures(out):
    """Time matvec by device events, graph replay, cold L2; a ceiling is the copy of as many bytes."""
    import cupy

    from warpfront.bench.gpu import buffer_sets, time_interleaved

    rows = []
    for name, A in matrices().items():
        n = A.shape[0]
        x = np.random.default_rng(1).standard_normal(n)
        moved = A.nnz * 12 + 8 * (n + 1) + 16 * n
        sets = min(4, buffer_sets(moved))
        calls, results = ours(A, x, sets)
        others, found = peers(A, x, sets, moved), {}
        try:
            times = time_interleaved({**calls, **others}, samples=9)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}"[:200], flush=True)
            others.pop("cusparse")
            times = time_interleaved({**calls, **others}, samples=9)
            found["cusparse"] = refused("failed", "its launches could not be captured into a graph")
        wanted, bound = A @ x, 1e-12 * (abs(A) @ np.abs(x)) + 1e-300
        for key, one in times.items():
            right = key not in results or bool((np.abs(cupy.asnumpy(results[key]) - wanted) <= bound).all())
            detail = "" if right else "wrong"
            found[key] = collected(one.seconds, bytes=moved, flops=2 * A.nnz, right=right, detail=detail)
        shapes, what = {"n": n, "nnz": A.nnz}, "see tools/device/products.py"
        rows.append(Row(name, "spmv", shapes, "float64", what, 0, list(calls), found, reference="copy"))
        table = "  ".join(f"{key} {1e6 * v.median:.1f} us" for key, v in found.items() if v.median)
        print(f"spmv {name}: {table}", flush=True)
        write(gpu_record("products_gpu", rows, {"samples": 9}), out / "products_gpu.json")
