"""What `batched.py` builds, measures and profiles: sizes, the variants of each, their names."""

from __future__ import annotations

from hashlib import sha256

from warpfront.batched import _batched_cuda as plans
from warpfront.errors import NotSupportedError

BATCH = 65536
SWEEP = [(8, 1), (8, 8), (16, 1), (16, 8), (32, 1), (32, 8)]
MORE = [(4, 1), (8, 4), (16, 4), (24, 1), (32, 4)]
GRID = [(n, nrhs, batch) for n in (8, 16, 32) for nrhs in (1, 4, 8) for batch in (1, 32, 256, 4096, BATCH)]
# Microseconds: shared/anchors goal column for Cholesky, FP32.
GOALS = {(8, 1): 18, (8, 8): 32, (16, 1): 60, (16, 8): 95, (32, 1): 240, (32, 8): 320}


# Kernels that the profiler looks at: (method, n, nrhs, dtype, variant).
PROFILED = [
    (method, n, nrhs, dtype, variant)
    for method in plans.METHODS
    for n, nrhs, dtype in ((32, 1, "float32"), (32, 8, "float32"), (16, 1, "float32"), (32, 1, "float64"))
    for variant in ("packed", "warp")[: 2 if dtype == "float32" and n == 32 else 1]
]
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = [
    "barrier", "branch_resolving", "dispatch_stall", "drain", "lg_throttle", "long_scoreboard", "math_pipe_throttle",
    "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected", "short_scoreboard", "wait",
]  # fmt: skip
COUNTERS = {
    "gpu__time_duration.sum": "ns",
    "smsp__inst_executed.sum": "instructions",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue %",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": "alu %",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "fma %",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active": "lsu %",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active": "shared %",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "bank conflicts",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy %",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "dram %",
    "launch__registers_per_thread": "registers",
}


# Lanes to a system, columns in a loop and blocks to fit a multiprocessor that are tried, by method, element bytes and n;
# the planned one and the warp kernel come besides. Decided ones are left out.
TRIED = {
    ("cholesky", 4, 8): [(4, 4, 1), (8, 8, 1), (16, 8, 1)],
    ("cholesky", 4, 16): [(4, 4, 1), (16, 8, 1)],
    ("lu", 4, 8): [(8, 8, 1), (16, 8, 1)],
    ("lu", 4, 16): [(4, 4, 1), (8, 8, 1), (16, 8, 1)],
    ("lu", 8, 16): [(4, 4, 1)],
}


def variants(method, n, nrhs, dtype):
    """Yield (name, plan) of everything that is timed for one problem."""
    problem = plans.BatchedProblem(method, n, nrhs, BATCH, dtype)
    made = [plans.plan(problem, "warp"), plans.plan(problem, "packed")]
    for lanes, stage, resident in TRIED.get((method, plans.DTYPES[dtype][1], n), ()):
        try:
            made.append(plans.plan(problem, "packed", lanes=lanes, resident=resident, stage=stage))
        except NotSupportedError:  # more shared memory than a block has
            continue
    yield from {name_of(plan): plan for plan in made}.items()


def name_of(made):
    """Name of a plan among a problem's variants."""
    kernel, _, arguments = made.expression.rstrip(">").partition("<")
    words = arguments.split(", ")
    name = f"{made.lanes} lanes" + (f" x{words[7]}" if words[7] != "1" else "")
    return name + (f" by {words[8]}" if kernel.endswith("packed") else "")


def planned(method, n, nrhs, dtype):
    """Which of the variants a user gets, by the name of the entry."""
    problem = plans.BatchedProblem(method, n, nrhs, BATCH, dtype)
    return {variant: name_of(plans.plan(problem, variant)) for variant in ("warp", "packed")}


def builds():
    jobs = []
    for method in plans.METHODS:
        for dtype, sizes in (("float32", SWEEP + MORE), ("float64", SWEEP)):
            for n, nrhs in sizes:
                for _, made in variants(method, n, nrhs, dtype):
                    jobs.append((made.source, made.expression, None, "nvrtc"))
    for n, nrhs, _ in GRID:
        for method in plans.METHODS:
            for variant in plans.VARIANTS:
                made = plans.plan(plans.BatchedProblem(method, n, nrhs, BATCH, "float32"), variant)
                jobs.append((made.source, made.expression, None, "nvrtc"))
    return jobs


def floor_bytes(method, n, nrhs, itemsize):
    """Each input read once, each output written once, status and pivots."""
    return itemsize * (2 * n * n + 2 * n * nrhs) + 4 + (4 * n if method == "lu" else 0)


def source_digest():
    """Digest of the kernel files: what was measured."""
    digest = sha256()
    for file in sorted(plans.FOLDER.glob("*.cu*")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
