"""One warp's elimination of a 32 x 32 block with its inverse: ways to do it, clock cycles each, checked against NumPy.

``python tools/device/sparse_gpu_block.py OUT.json`` on a device.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

SOURCE = Path(__file__).with_suffix(".cu")
WAYS = ("by twos", "by eights, values with tags")
PUBLISHED = 32 * 32 + 3 * 32
REPEATS = 20


def expression(way, indefinite, dtype="double"):
    """The kernel's name."""
    return f"time_block<{dtype}, {way}, {'true' if indefinite else 'false'}>"


def block(indefinite, seed=0):
    """A 32 x 32 block that is taken without interchanges."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((32, 32))
    if not indefinite:
        return a @ a.T / 32 + np.eye(32) / 2
    return 0.1 * (a + a.T) + np.diag(np.where(np.arange(32) % 3 == 0, -9.0, 8.0))


def buffers(size, repeats, dtype=np.float64):
    """What the kernel writes, by name, in its order."""
    return {
        "out": np.full(1024, np.nan, dtype),
        "diagonal": np.full(64, np.nan, dtype),
        "pivots": np.full(64, -1, np.int32),
        "stats": np.full(9, -1, np.int32),
        "published": np.full(PUBLISHED, np.nan, dtype),
        "tagged": np.zeros(4 * PUBLISHED, np.uint32),
        "flags": np.zeros(1, np.uint32),
        "times": np.full(3 * repeats + 1, -9, np.int64),  # and the verdict
    }


def published(found):
    """M, and D behind it. With tags: 0 where a definite block's values are known to be."""
    words = found["tagged"].reshape(-1, 4)
    if not words.any():
        return found["published"]
    there = (words[:, 1] == 1) & (words[:, 3] == 1)
    if found["out"].dtype == np.float32:
        return np.where(there, words[:, 0].copy().view(np.float32), 0)
    return np.where(there, words[:, [0, 2]].copy().view(np.float64)[:, 0], 0.0)


def errors(a, size, found):
    """Largest differences: L, its inverse, D, and M = inv(L)^T inv(D), relative to the largest entry of each."""
    a = a[:size, :size].astype(np.float64)
    lower, d = np.eye(size), np.zeros(size)
    for j in range(size):
        d[j] = a[j, j]
        lower[j + 1 :, j] = a[j + 1 :, j] / d[j]
        a[j + 1 :, j + 1 :] -= np.outer(lower[j + 1 :, j], a[j, j + 1 :])
    inverse = np.linalg.inv(lower)
    shown = published(found)
    m, own = shown[:1024].reshape(32, 32), shown[1024:1056]
    made = found["out"].reshape(32, 32).T[:size, :size]
    whole = np.zeros((32, 32))
    whole[:size, :size] = inverse.T / d
    pairs = (
        (np.tril(made, -1), np.tril(lower, -1)),
        (np.triu(made, 1), np.triu(inverse.T, 1)),
        (found["diagonal"][: 2 * size : 2], d),
        (own, np.concatenate([d, np.zeros(32 - size)])),
        (m, whole),
    )
    return [float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-300)) for x, y in pairs]


def measure(way, indefinite, size=32):
    """Cycles of the first and of the fastest run, to eliminated and to announced, and the errors."""
    import cupy

    from warpfront.backend import cuda

    kernel = cuda.load(SOURCE, expression(way, indefinite), "pidipppppppp", 0)
    a, made = block(indefinite), buffers(size, REPEATS)
    held = [cupy.asarray(x) for x in (a.reshape(-1), *made.values())]
    at = [int(x.data.ptr) for x in held]
    stream = cupy.cuda.get_current_stream()
    kernel.launch(stream.ptr, 1, 256, (at[0], size, 1e-10, REPEATS, *at[1:]), 0)
    cupy.cuda.runtime.deviceSynchronize()
    found = dict(zip(made, (x.get() for x in held[1:]), strict=True))
    times = found["times"][:-1].reshape(-1, 3)[:, :2]
    wrong = errors(a, size, found)
    if int(found["times"][-1]) != -1 or max(wrong) > 1e-13:
        raise AssertionError(f"{WAYS[way]}: verdict {found['times'][-1]}, errors {wrong}")
    return {
        "way": WAYS[way], "indefinite": indefinite, "size": size, "first": times[0].tolist(),
        "least": times.min(0).tolist(), "errors": wrong,
    }  # fmt: skip


SYSTEMS = {
    "lap2d_300 SPD": (lambda cases: cases.laplacian(300, 300), "SPD", 64, -1),
    "lap3d_40 SPD": (lambda cases: cases.laplacian(40, 40, 40), "SPD", 10, -2),
    "lap3d_40 S": (lambda cases: cases.laplacian(40, 40, 40), "S", None, None),
    "case118_ieee_K2_it10 S": (lambda cases: cases.carried("case118_ieee_K2_it10"), "S", None, None),
    "kkt_3000_1000 S": (lambda cases: cases.kkt(3000, 1000), "S", None, None),
    "lap3d_64 SPD": (lambda cases: cases.laplacian(64, 64, 64), "SPD", None, None),
}


def strips(key):
    """Refactorisations by each way of the strips; a residual and lines of time stamps by the last of them."""
    import cupy
    import sparse_gpu_cases
    from sparse_gpu_probe import table
    from sparse_gpu_sweeps import compare_strips

    from warpfront import DirectSolver

    make, structure, rows, pick = SYSTEMS[key]
    a = make(sparse_gpu_cases)
    s = DirectSolver(a, structure=structure, device="cuda", check="status", ir_n_steps=0).factorize()
    found = compare_strips(s._factor)
    x = s.solve(cupy.asarray(a @ np.ones(a.shape[0]))).get()
    found["normwise"] = sparse_gpu_cases.errors(a, x, a @ np.ones(a.shape[0]))[0]
    lines = [] if rows is None else table(s._factor, rows, pick)
    return found, lines


def main(out, limit=40.0):
    """Every way, rule and size of one block, then systems, to a file and beside it."""
    begun = perf_counter()
    found = {
        "blocks": [
            measure(way, indefinite, size)
            for indefinite in (False, True)
            for size in (32, 20)
            for way in range(len(WAYS))
        ]
    }
    print(*found["blocks"], sep="\n", flush=True)
    for key in SYSTEMS:
        if perf_counter() - begun > limit:
            break
        found[key], lines = strips(key)
        print(key, found[key], *lines, sep="\n", flush=True)
        Path(out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
