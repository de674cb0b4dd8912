"""Steps of the sparse CPU solver from one source tree to another, measured in turn; the table of docs/sparse_cpu.md.

    python tools/sparse_steps.py BASE NEW --data FOLDER -o benchmarks/records/DEVICE/sparse_cpu_steps.json.gz
    python tools/sparse_steps.py --page benchmarks/records/DEVICE/sparse_cpu_steps.json.gz

BASE and NEW are checkouts. Each runs in processes of its own, one after the other, round by round.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROWS = (
    "case118_K2_it10",
    "case1354_K1_it10",
    "case1354_C2_it10",
    "case1354_K2_it10",
    "kkt_3000_1000",
    "lap2d_300",
)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "sparse_cpu.md"
BEGIN, END = "<!-- records: written by tools/sparse_steps.py -->", "<!-- end of records -->"
OPERATIONS = {
    "first": "analysis and first factorisation",
    "refactor": "refactorisation",
    "solve": "refined solve",
    "many": "64 refined solves at once",
}


def child(data: str, rows: list[str]) -> None:
    """Median milliseconds of every operation on every row, as JSON on standard output."""
    import numpy as np

    from warpfront import DirectSolver
    from warpfront.bench.suites import choose, read_cases
    from warpfront.bench.suites.sparse_inputs import build

    def measured(call: Any, seconds: float) -> float:
        call()
        samples, end = [], time.perf_counter() + seconds
        while len(samples) < 3 or (time.perf_counter() < end and len(samples) < 200):
            start = time.perf_counter()
            call()
            samples.append(time.perf_counter() - start)
        return 1e3 * median(samples)

    found = {}
    for entry in choose(rows, read_cases("sparse")):
        problem = build(entry, Path(data))
        many = np.random.default_rng(0).standard_normal((problem.matrix.shape[0], 64))
        solver = DirectSolver(problem.matrix).analyze().factorize()
        solver.solve(problem.b)
        found[entry["name"]] = {
            "first": measured(lambda: DirectSolver(problem.matrix).analyze().factorize(), 0.4),  # noqa: B023
            "refactor": measured(lambda: solver.refactorize(problem.matrix.data), 0.3),  # noqa: B023
            "solve": measured(lambda: solver.solve(problem.b), 0.2),  # noqa: B023
            "many": measured(lambda: solver.solve(many), 0.3),  # noqa: B023
        }
    sys.stdout.write(json.dumps(found))


def _environment(root: str, cache: str | None = None) -> dict[str, str]:
    extra = {} if cache is None else {"NUMBA_CACHE_DIR": cache}
    return {**os.environ, "PYTHONPATH": str(Path(root).resolve() / "src"), **extra}


def compiled(root: str) -> dict[str, float]:
    """Wall and processor seconds of README's first command with nothing compiled, and wall seconds of a second run."""
    matrix = Path(root) / "examples" / "data" / "case118_kkt.mtx.gz"
    command = [sys.executable, "-m", "warpfront", "solve", str(matrix)]
    with tempfile.TemporaryDirectory() as cache:
        seconds = []
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(2):
            start = time.perf_counter()
            subprocess.run(command, env=_environment(root, cache), check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cold": seconds[0], "warm": seconds[1], "processor": processor}


def measure(base: str, new: str, data: str, rounds: int, rows: list[str]) -> dict[str, Any]:
    """Both trees in turn; every round's medians are kept."""
    roots = {"before": base, "after": new}
    revision = {
        side: subprocess.run(
            ["git", "-C", root, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for side, root in roots.items()
    }
    start: dict[str, Any] = {side: compiled(root) for side, root in roots.items()}
    kept: dict[str, Any] = {side: [] for side in roots}
    for _ in range(rounds):
        for side, root in roots.items():
            done = subprocess.run(
                [sys.executable, __file__, "--child", *rows, "--data", data],
                env=_environment(root), check=True, capture_output=True, text=True,
            )  # fmt: skip
            kept[side].append(json.loads(done.stdout))
    return {
        "schema": "warpfront.steps/1",
        "revision": revision,
        "start": start,
        "rounds": kept,
        "load": os.getloadavg(),
    }


def page(record: dict[str, Any], name: str) -> str:
    """The table between the two marks."""
    rounds = record["rounds"]
    before, after = record["revision"]["before"][:12], record["revision"]["after"][:12]
    lines = [
        BEGIN,
        f"From `{name}`: milliseconds, the least of {len(rounds['after'])} medians, source {before} and source",
        f"{after} in turn;",
        f"load of the machine at the end {record['load'][0]:.1f}.",
        "",
        "| system | " + " | ".join(f"{text}: before | after | ratio" for text in OPERATIONS.values()) + " |",
        "|---|" + "---|" * (3 * len(OPERATIONS)),
    ]
    for row in rounds["after"][0]:
        cells = [row]
        for operation in OPERATIONS:
            old, new = (min(one[row][operation] for one in rounds[side]) for side in ("before", "after"))
            cells += [f"{old:.3g}", f"{new:.3g}", f"{new / old:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    start = record["start"]
    lines += ["", "| README's first command | before | after |", "|---|---|---|"]
    for key, text in (
        ("cold", "nothing compiled, seconds"),
        ("processor", "processor seconds, that and the next"),
        ("warm", "the next run, seconds"),
    ):
        lines.append(f"| {text} | {start['before'][key]:.1f} | {start['after'][key]:.1f} |")
    return "\n".join([*lines, END])


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*")
    parser.add_argument("--data", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--child", nargs="*")
    given = parser.parse_args()
    if given.child is not None:
        child(given.data, given.child)
    elif given.page is not None:
        record = json.loads(gzip.decompress(given.page.read_bytes()))
        text = PAGE.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        name = f"{given.page.parent.name}/{given.page.name}"
        PAGE.write_text(head + page(record, name) + rest.split(END)[1], encoding="utf-8")
    else:
        record = measure(*given.trees, given.data, given.rounds, given.rows)
        given.output.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))


if __name__ == "__main__":
    main()
