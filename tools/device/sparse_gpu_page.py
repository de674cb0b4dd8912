"""Write the measured part of docs/sparse_gpu.md from the record: `python tools/device/sparse_gpu_page.py [--check]`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from warpfront.bench.record import read  # noqa: E402

RECORD = ROOT / "benchmarks" / "records" / "nvidia-h200" / "sparse_gpu.json"
PAGE = ROOT / "docs" / "sparse_gpu.md"
BEGIN, END = "<!-- records: written by tools/device/sparse_gpu_page.py -->", "<!-- end of records -->"
NAMES = ("warpfront", "cudss", "cudss deterministic")


def times(row, pattern="{:.3f}"):
    """Medians in milliseconds, ours and the peers'."""
    medians = [row.contenders[name].median if name in row.contenders else None for name in NAMES]
    return " / ".join("–" if m is None else pattern.format(1e3 * m) for m in medians)


def errors(row):
    found = [row.contenders[name].error if name in row.contenders else None for name in NAMES[:2]]
    return " / ".join("–" if e is None else f"{e:.0e}" for e in found)


def system_table(record):
    lines = [
        "| system | structure, refinement steps | refactor | solve | componentwise error, ours / cuDSS |",
        "|---|---|---|---|---|",
    ]
    rows = {(row.case, row.operation): row for row in record.rows}
    for (case, operation), refactor in rows.items():
        kind, _, rest = operation.partition(" ")
        if kind != "refactor":
            continue
        solve = rows[case, f"solve {rest}"]
        structure, _, steps = rest.partition(", ir")
        cells = (case, f"{structure}, {steps}", times(refactor), times(solve), errors(solve))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def many_table(record):
    """Times for several right-hand sides at once."""
    rows = [row for row in record.rows if row.operation.startswith("solve of ")]
    if not rows:
        return []
    lines = [
        "",
        "Several right-hand sides at once, each with the bits of a single solve; medians in milliseconds, ours / cuDSS:",
        "",
    ]
    counts = sorted({int(row.operation.split()[2]) for row in rows})
    lines.append("| system | structure | " + " | ".join(str(k) for k in counts) + " |")
    lines.append("|---" * (len(counts) + 2) + "|")
    cells = {}
    for row in rows:
        _, _, count, structure, _ = row.operation.split()
        cells.setdefault((row.case, structure.rstrip(",")), {})[int(count)] = times(row).rpartition(" / ")[0]
    for (case, structure), found in cells.items():
        lines.append(f"| {case} | {structure} | " + " | ".join(found.get(k, "–") for k in counts) + " |")
    return lines


def bounds_table(record):
    """What bounds each system: the chain of wide fronts, the arithmetic, reading the factor."""
    solves = {
        (row.case, row.operation.partition(" ")[2]): row
        for row in record.rows
        if row.operation.startswith("solve ")
    }
    lines = [
        "",
        "What bounds them: levels of the tree and, summed over these, the most panels of 32 columns that follow one",
        "another; the share of 66 TFLOP/s in the factorisation; the time in which a copy moves the factor twice, and its",
        "share of a solve:",
        "",
        "| system | structure | levels | panels | share of 66 TFLOP/s | factor read twice, ms | share of the solve |",
        "|---|---|---|---|---|---|---|",
    ]
    begun = len(lines)
    for row in record.rows:
        kind, _, rest = row.operation.partition(" ")
        ours = row.contenders.get("warpfront")
        if kind != "refactor" or not rest.endswith("ir0") or ours is None or "levels" not in ours.values:
            continue
        v, w = ours.values, solves[row.case, rest].contenders["warpfront"].values
        cells = [row.case, rest.partition(",")[0], str(v["levels"]), str(v["dependent_panels"])]
        cells += [
            f"{v['share_of_66_tflops']:.2f}",
            f"{w['factor_read_twice_ms']:.3f}",
            f"{w['roofline_share']:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines if len(lines) > begun else []


def behind(record):
    """Rows in which the peer's default was ahead, by operation."""
    found = []
    for row in record.rows:
        ours, peer = row.contenders.get("warpfront"), row.contenders.get("cudss")
        if ours is not None and peer is not None and ours.timed and peer.timed and ours.median > peer.median:
            found.append(f"{row.case} {row.operation} ({ours.median / peer.median:.2f})")
    return ", ".join(found) or "none"


def assembly_table(record):
    rows = [row for row in record.rows if row.operation == "assemble"]
    if not rows:
        return []
    names = list(rows[0].contenders)
    lines = [
        "",
        "Ways to add children's contribution blocks, all small fronts of a tree level by level, microseconds, medians:",
        "",
        "| system | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for row in rows:
        cells = [f"{1e6 * row.contenders[name].median:.0f}" for name in names]
        lines.append("| " + " | ".join([row.case, *cells]) + " |")
    return lines


def section():
    if not RECORD.is_file():
        return ["No GPU record of this state yet."]
    record = read(RECORD)
    return [
        f"From `{RECORD.relative_to(ROOT)}`: medians of {record.options.get('samples', 20)} in milliseconds, from the",
        "call to the end of a synchronisation; ours / cuDSS 1.0.0.35 in the same process / its deterministic mode. Ours is",
        "deterministic in every row. Orderings are those that `auto` chose, named in the record.",
        "",
        *system_table(record),
        "",
        f"Rows in which cuDSS's default was ahead (ours / cuDSS): {behind(record)}.",
        *many_table(record),
        *bounds_table(record),
        *assembly_table(record),
    ]


def page():
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + "\n" + "\n".join(section()) + "\n" + END + tail


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0
            if PAGE.read_text(encoding="utf-8") == page()
            else "docs/sparse_gpu.md is not what the record says"
        )
    PAGE.write_text(page(), encoding="utf-8")
