"""The batched measurements as a record of the house: kernel times and whole calls, every sample."""

from __future__ import annotations

from batched_variants import BATCH, GRID, floor_bytes

from warpfront.bench.collect import collected, gpu_record, refused
from warpfront.bench.record import Row, write

PEERS = ("torch solve_ex", "torch cholesky", "cupy solve")


def flops(method, n, nrhs, batch):
    return batch * ((2.0 if method == "lu" else 1.0) * n**3 / 3 + 2.0 * n * n * nrhs)


def kernel_row(name, section):
    """A row of kernel times: the planned variants, the serial baseline, the peers."""
    method, dtype, sizes = name.split(" ")
    n, nrhs = (int(v) for v in sizes.split(","))
    samples, wrong = section["samples_us"], section["wrong"]
    work = {"flops": flops(method, n, nrhs, BATCH), "bytes": section["bytes"]}
    verdict = section.get("verdict") or {}
    contenders = {}
    for entry, variant in [*section["planned"].items(), ("serial", "serial")]:
        if variant in samples:
            bad = wrong.get(variant)
            contenders[entry] = collected(
                [t * 1e-6 for t in samples[variant]], algorithm=variant, right=not bad, detail=str(bad or "")[:300],
                error=verdict.get("residual"), **work,
            )  # fmt: skip
    for peer in PEERS:
        if peer in samples:
            contenders[peer] = collected([t * 1e-6 for t in samples[peer]], **work)
        elif "peers" in wrong:
            contenders[peer] = refused("failed", str(wrong["peers"]))
    case = f"n = {n}, nrhs = {nrhs}"
    shapes = {"batch": BATCH, "n": n, "nrhs": nrhs}
    ours = [entry for entry in ("packed", "warp") if entry in contenders]
    return Row(case, f"{method} kernel", shapes, dtype, "standard normal", 0, ours, contenders)


def call_row(row):
    """A row of whole calls: wall time with a synchronisation."""
    method, n, nrhs, batch = (row[k] for k in ("method", "n", "nrhs", "batch"))
    work = {"flops": flops(method, n, nrhs, batch), "bytes": batch * floor_bytes(method, n, nrhs, 4)}
    contenders = {
        name: collected([t * 1e-6 for t in samples], clock="wall", **work)
        for name, samples in row["samples_us"].items()
    }
    shapes = {"batch": batch, "n": n, "nrhs": nrhs}
    case = f"n = {n}, nrhs = {nrhs}, {batch} systems"
    return Row(
        case, f"{method} call", shapes, "float32", "standard normal", 0, ["packed", "warp"], contenders
    )


def write_record(record, out):
    """Write batched_gpu.json (kernels) and batched_calls_*.json (whole calls), each small enough to be kept."""
    calls = record["sections"].get("calls", {}).get("rows", [])
    rows = {
        "gpu": [
            kernel_row(name, section)
            for name, section in record["sections"].items()
            if name not in ("copy", "calls") and section.get("samples_us")
        ],
        "calls_cholesky": [call_row(row) for row in calls if row["method"] == "cholesky"],
        "calls_lu": [call_row(row) for row in calls if row["method"] == "lu"],
    }
    for name, found in rows.items():
        if found:
            options = {"samples": 7, "grid": len(GRID)}
            made = gpu_record(f"batched_{name}", found, options, packages=("torch", "cupy-cuda13x"))
            write(made, out / f"batched_{name}.json")
