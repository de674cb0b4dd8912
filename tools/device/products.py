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


def figures(out):
    """Time matvec by device events, graph replay, cold L2; a ceiling is the copy of as many bytes."""
    import cupy
    import cupyx.scipy.sparse as csp
    from cupyx import cusparse

    from warpfront.bench.gpu import buffer_sets, time_interleaved
    from warpfront.sparse._product_cuda import _OnDevice
    from warpfront.sparse.products import SparseOperator

    rows = []
    for name, A in matrices().items():
        n = A.shape[0]
        x_host = np.random.default_rng(1).standard_normal(n)
        moved = A.nnz * 12 + 8 * (n + 1) + 16 * n
        sets = min(4, buffer_sets(moved))
        contenders, checks = {}, {}
        for storage in ("csr", "ell"):
            try:
                operators = [
                    _OnDevice(SparseOperator(A, storage, "cuda"), np.dtype("float64")) for _ in range(sets)
                ]
            except ValueError as error:
                print(f"{name} {storage}: {error}", flush=True)
                continue
            xs = [cupy.asarray(x_host) for _ in range(sets)]
            ys = [cupy.empty(n) for _ in range(sets)]

            def call(k, operators=operators, xs=xs, ys=ys):
                return lambda stream: operators[k].times_vector(xs[k], ys[k])

            contenders[f"warpfront {storage}"] = [call(k) for k in range(sets)]
            checks[f"warpfront {storage}"] = ys
        peers = [
            csp.csr_matrix(
                (cupy.asarray(A.data), cupy.asarray(A.indices), cupy.asarray(A.indptr)), shape=A.shape
            )
            for _ in range(sets)
        ]
        px, py = [cupy.asarray(x_host) for _ in range(sets)], [cupy.empty(n) for _ in range(sets)]

        def peer(k, peers=peers, px=px, py=py):
            return lambda stream: cusparse.spmv(peers[k], px[k], py[k])

        sources = [cupy.empty(moved // 16) for _ in range(sets)]
        targets = [cupy.empty(moved // 16) for _ in range(sets)]

        def copy(k, sources=sources, targets=targets):
            return lambda stream: cupy.copyto(targets[k], sources[k])

        contenders["copy"] = [copy(k) for k in range(sets)]
        found = {}
        try:
            times = time_interleaved({**contenders, "cusparse": [peer(k) for k in range(sets)]}, samples=9)
        except Exception as error:
            print(f"{name}: cuSPARSE not captured: {type(error).__name__}: {error}"[:200], flush=True)
            times = time_interleaved(contenders, samples=9)
            found["cusparse"] = refused("failed", "its launches could not be captured into a graph")
        wanted = A @ x_host
        bound = 1e-12 * (abs(A) @ np.abs(x_host)) + 1e-300
        for key, one in times.items():
            right = key not in checks or bool((np.abs(cupy.asnumpy(checks[key][0]) - wanted) <= bound).all())
            found[key] = collected(
                one.seconds, bytes=moved, flops=2 * A.nnz, right=right, detail="" if right else "wrong"
            )
        ours = [key for key in found if key.startswith("warpfront")]
        rows.append(
            Row(
                name,
                "spmv",
                {"n": n, "nnz": A.nnz},
                "float64",
                "see tools/device/products.py",
                0,
                ours,
                found,
                reference="copy",
            )
        )
        print(
            f"spmv {name}: "
            + "  ".join(f"{k} {1e6 * v.median:.1f} us" for k, v in found.items() if v.median),
            flush=True,
        )
        write(gpu_record("products_gpu", rows, {"samples": 9}), out / "products_gpu.json")
