"""Write the measured part of ``docs/image.md`` from the records under ``benchmarks/records``.

Run ``python tools/build_image_page.py``; with ``--check`` nothing is written and the exit code is 1 when the page is
not what the records give.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from warpfront.bench.record import Record, Row, read

ROOT = Path(__file__).resolve().parents[1]
RECORDS, PAGE = Path("benchmarks/records"), Path("docs/image.md")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
STEPS = {
    "torch": "a library: PyTorch, each stage a convolution over float32 images",
    "npp": "a library: NPP, four calls an image",
    "1 stages": "1 own kernels for gray, blur, Sobel: 8-bit images in between",
    "2 fused, a launch an image": "2 one fused kernel, launched for each image, 4-byte loads",
    "3 one launch": "3 one launch for the batch",
    "4 16-byte loads": "4 16-byte loads",
    "5 tile": "5 tile and rows a thread by measurement",
    "copy": "a device copy of as many bytes",
}


def _row(record: Record, case: str) -> Row:
    return next(row for row in record.rows if row.case == case)


def _median(row: Row, name: str) -> float | None:
    found = row.contenders.get(name)
    return found.median if found and found.status == "ok" else None


def steps(record: Record) -> list[str]:
    """The order of optimisation: one line a step."""
    row = record.rows[0]
    lines = [f"Batch of {row.case}, times of the whole batch on the device, cold L2:", ""]
    lines += ["| step | µs | Gpixel/s |", "|---|---|---|"]
    pixels = row.shapes["images"] * row.shapes["height"] * row.shapes["width"]
    for name, text in STEPS.items():
        if (median := _median(row, name)) is not None:
            lines.append(f"| {text} | {1e6 * median:.1f} | {1e-9 * pixels / median:.0f} |")
    return lines


def stages(record: Record) -> list[str]:
    """Stages and layouts, beside copies of as many bytes."""
    lines = ["Stages and layouts, each beside a device copy that moves as many bytes:", ""]
    lines += ["| images | stage | µs | of copy |", "|---|---|---|---|"]
    for row in record.rows:
        ours, copy = _median(row, "warpfront"), _median(row, "copy")
        if ours and copy:
            lines.append(f"| {row.case} | {row.operation} | {1e6 * ours:.1f} | {100 * copy / ours:.0f}% |")
    return lines


def pipeline(record: Record) -> list[str]:
    """Step 6: slots, streams and graphs, from pinned memory to pinned memory."""
    lines = [
        "Step 6, the pipeline, from pinned memory to pinned memory; a share of what a pinned copy to the device",
        "",
    ]
    lines[0] += (
        " alone reaches, and the part of the copies back that lies inside other slots' copies to the device:"
    )
    lines += [
        "| item | pipeline | images/s | of H2D | D2H inside H2D | P50 / P95 / P99 of an item, ms |",
        "|---|---|---|---|---|---|",
    ]
    for row in record.rows:
        for name in row.ours:
            found = row.contenders[name].values
            late = " / ".join(f"{v:.2f}" for v in found["latency_ms"])
            lines.append(
                f"| {row.case} | {name} | {found['images_per_second']:.0f} | {100 * found['of_h2d']:.0f}% "
                f"| {100 * found['d2h_inside_h2d']:.0f}% | {late} |"
            )
    return lines


def crossover(record: Record) -> list[str]:
    """NumPy in, NumPy out, by size."""
    names = list(dict.fromkeys(name for row in record.rows for name in row.ours))
    lines = [
        "NumPy in and NumPy out, both copies counted, milliseconds; `auto` goes through the GPU from 65,536 pixels:",
        "",
    ]
    lines += [f"| pixels | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for row in record.rows:
        cells = [f"{1e3 * (_median(row, name) or 0):.2f}" for name in names]
        lines.append(f"| {row.case} | {' | '.join(cells)} |")
    return lines


def measured(root: Path) -> str:
    """Return the text between the marks: every device's records, ``edges``, ``edges_stages``, ``edges_pipeline``."""
    parts: list[str] = []
    for folder in sorted(p for p in (root / RECORDS).iterdir() if p.is_dir()):
        found = [(name, make) for name, make in MAKERS.items() if (folder / f"{name}.json").is_file()]
        if not found:
            continue
        parts += [f"On `{folder.name}` (records `edges*.json`):", ""]
        for name, make in found:
            parts += [*make(read(folder / f"{name}.json")), ""]
    return "\n".join(parts or ["GPU figures are not measured yet.", ""])


MAKERS = {"edges": steps, "edges_stages": stages, "edges_pipeline": pipeline, "edges_crossover": crossover}


def page(root: Path) -> str:
    """Return the whole page with its measured part renewed."""
    text = (root / PAGE).read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{measured(root)}\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    text = page(options.root)
    if options.check:
        return int((options.root / PAGE).read_text(encoding="utf-8") != text)
    (options.root / PAGE).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
