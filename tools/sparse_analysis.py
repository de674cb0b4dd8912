"""Time of the sparse solver's analysis, from one source tree to another and by ordering; a table of docs/sparse_cpu.md.

    python tools/sparse_analysis.py BASE NEW --data FOLDER -o benchmarks/records/DEVICE/sparse_analysis.json.gz
    python tools/sparse_analysis.py --page benchmarks/records/DEVICE/sparse_analysis.json.gz

BASE and NEW are checkouts, each run in processes of its own, one after the other, round by round. Every operation has run
once before it is timed, and the least of its times in all rounds stands in the table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROWS = ("case118_K2_it10", "case1354_K1_it10", "case1354_K2_it10", "kkt_3000_1000", "lap2d_300", "lap3d_40")
REPEATS, STARTS = 3, 5
PAGE = Path(__file__).resolve().parents[1] / "docs" / "sparse_cpu.md"
BEGIN, END = "<!-- analysis: written by tools/sparse_analysis.py -->", "<!-- end of analysis -->"


def child(data: str, rows: list[str], known: list[str]) -> None:
    """Milliseconds of analysis and GPU plan for every row and ordering, as JSON on standard output."""
    from warpfront import DirectSolver
    from warpfront.bench.suites import choose, read_cases
    from warpfront.bench.suites.sparse_inputs import build
    from warpfront.sparse.gpu import memory, schedule, steps
    from warpfront.sparse.gpu.regroup import DEFINITE, INDEFINITE, WARP_ROWS, regroup

    def least(call: Any) -> tuple[float, Any]:
        best, made = float("inf"), call()
        for _ in range(REPEATS):
            start = time.perf_counter()
            made = call()
            best = min(best, time.perf_counter() - start)
        return 1e3 * best, made

    def plan(symbolic: Any, structure: str) -> None:
        width, rules = (WARP_ROWS, INDEFINITE) if structure == "S" else (0, DEFINITE)
        grouped = regroup(symbolic, most_width=width, rules=rules)
        made = schedule.make_plan(grouped, pivoting=structure == "S")
        items, _ = steps.solve_items(made)
        memory.uploads(made, steps.make_tables(grouped.pattern, grouped.perm), items)

    found: dict[str, Any] = {}
    for entry in choose(rows, read_cases("sparse")):
        problem = build(entry, Path(data))
        found[entry["name"]] = row = {}
        for ordering in known:
            options = {"structure": problem.structure, "reordering_alg": ordering}
            milliseconds, solver = least(lambda: DirectSolver(problem.matrix, **options).analyze())  # noqa: B023
            record = solver.report.analysis
            planned, _ = least(lambda: plan(solver._symbolic, problem.structure))  # noqa: B023
            solver.factorize()
            refactor, _ = least(lambda: solver.refactorize(problem.matrix.data))  # noqa: B023
            chosen = next(c for c in record.candidates if c.method == record.ordering)
            row[ordering] = {
                "analysis": milliseconds, "plan": planned, "refactor": refactor, "ordering": record.ordering,
                "fill": chosen.nnz_factor, "flops": chosen.flops, "depth": chosen.depth,
            }  # fmt: skip
    sys.stdout.write(json.dumps(found))


def starts(roots: dict[str, str]) -> dict[str, list[float]]:
    """Wall seconds of README's first command with everything compiled, both trees in turn; the first of each is not kept."""
    kept: dict[str, list[float]] = {side: [] for side in roots}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(STARTS + 1):
            for side, root in roots.items():
                matrix = Path(root) / "examples" / "data" / "case118_kkt.mtx.gz"
                source = str(Path(root).resolve() / "src")
                environment = {**os.environ, "PYTHONPATH": source, "PYTHONPYCACHEPREFIX": folder}
                environment.pop("PYTHONDONTWRITEBYTECODE", None)
                start = time.perf_counter()
                subprocess.run(
                    [sys.executable, "-m", "warpfront", "solve", str(matrix)], env=environment, check=True,
                    capture_output=True,
                )  # fmt: skip
                kept[side] += [time.perf_counter() - start] if turn else []
    return kept


def measure(base: str, new: str, data: str, rounds: int, rows: list[str]) -> dict[str, Any]:
    """Both trees in turn; every round is kept."""
    roots = {"before": base, "after": new}
    kept: dict[str, Any] = {side: [] for side in roots}
    revision = {}
    for side, root in roots.items():
        command = ["git", "-C", root, "rev-parse", "HEAD"]
        revision[side] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    for _ in range(rounds):
        for side, root in roots.items():
            known = ["auto", "amd", "level_set", "metis", *(["multilevel"] if side == "after" else [])]
            command = [sys.executable, __file__, "--child", *rows, "--known", *known, "--data", data]
            environment = {**os.environ, "PYTHONPATH": str(Path(root).resolve() / "src")}
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            kept[side].append(json.loads(done.stdout))
    return {
        "schema": "warpfront.analysis/1",
        "revision": revision,
        "rounds": kept,
        "start": starts(roots),
        "processors": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
    }


def page(record: dict[str, Any], name: str) -> str:
    """The tables between the two marks."""
    rounds = record["rounds"]
    before, after = record["revision"]["before"][:12], record["revision"]["after"][:12]

    def least(side: str, row: str, ordering: str, what: str) -> float:
        return min(float(one[row][ordering][what]) for one in rounds[side])

    lines = [
        BEGIN,
        f"From `{name}`: milliseconds, the least of {len(rounds['after'])} rounds of {REPEATS}, source {before} and source",
        f"{after} in turn, {record['processors']} processors; load of the machine at the end {record['load'][0]:.1f}.",
        "",
        "| system | analysis, `auto`: before | after | ratio | by METIS | multilevel | GPU plan: before | after | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rounds["after"][0]:
        cells = [row]
        for what in ("analysis", "plan"):
            old, new = least("before", row, "auto", what), least("after", row, "auto", what)
            cells += [f"{old:.3g}", f"{new:.3g}", f"{new / old:.2f}"]
            if what == "analysis":
                cells += [f"{least('after', row, o, what):.3g}" for o in ("metis", "multilevel")]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "| system | ordering | analysis | entries of L | operations | levels | refactorisation |",
        "|---|---|---|---|---|---|---|",
    ]
    for row, entries in rounds["after"][0].items():
        for ordering, entry in entries.items():
            if ordering == "auto":
                continue
            cells = [row, ordering + (", taken by `auto`" if entries["auto"]["ordering"] == ordering else "")]
            cells += [f"{least('after', row, ordering, 'analysis'):.3g}", f"{entry['fill']:,}"]
            cells += [f"{entry['flops']:.3g}", str(entry["depth"])]
            lines.append(f"| {' | '.join(cells)} | {least('after', row, ordering, 'refactor'):.3g} |")
    old, new = (median(record["start"][side]) for side in ("before", "after"))
    lines += [
        "",
        f"README's first command, kernels in the cache, median of {len(record['start']['after'])}: ",
    ]
    lines[-1] += f"{old:.2f} s before, {new:.2f} s after."
    return "\n".join([*lines, END])


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*")
    parser.add_argument("--data", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--known", nargs="*", default=[])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--child", nargs="*")
    given = parser.parse_args()
    if given.child is not None:
        child(given.data, given.child, given.known)
    elif given.page is not None:
        record = json.loads(gzip.decompress(given.page.read_bytes()))
        head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        name = f"{given.page.parent.name}/{given.page.name}"
        PAGE.write_text(head + page(record, name) + rest.split(END)[1], encoding="utf-8")
    else:
        record = measure(*given.trees, given.data, given.rounds, given.rows)
        given.output.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))


if __name__ == "__main__":
    main()
