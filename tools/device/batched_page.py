"""Write the measured part of docs/batched.md from the record.

    python tools/device/batched_page.py [--check]
    python tools/device/batched_page.py --take OUT

``--take`` first makes records of what the two phases of `batched.py` left in a folder.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from batched_variants import source_digest  # noqa: E402

from warpfront.batched._batched_cuda import VARIANTS  # noqa: E402

RECORD = ROOT / "benchmarks" / "records" / "nvidia-h200" / "batched_raw.json.gz"
PROFILE = RECORD.parent / "batched_profile.json.gz"
PAGE = ROOT / "docs" / "batched.md"
BEGIN, END = "<!-- records: written by tools/device/batched_page.py -->", "<!-- end of records -->"


def read():
    return json.loads(gzip.decompress(RECORD.read_bytes()))


def kernel_table(record):
    lines = [
        "| method, type | n, nrhs | byte floor | warp | packed (lanes) | serial | torch | CuPy | fastest peer / packed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, section in record["sections"].items():
        if name in ("copy", "calls") or "samples_us" not in section:
            continue
        method, dtype, sizes = name.split(" ")
        n, nrhs = (int(v) for v in sizes.split(","))
        medians = {k: median(v) for k, v in section["samples_us"].items()}
        warp, packed = (section["planned"][v] for v in ("warp", "packed"))
        if warp not in medians or packed not in medians:
            continue
        torch = [v for k, v in medians.items() if k.startswith("torch")]
        peers = torch + [v for k, v in medians.items() if k.startswith("cupy")]
        ratio = f"{min(peers) / medians[packed]:.1f}" if peers else ""
        cells = [
            f"{method}, {dtype}",
            f"{n}, {nrhs}",
            f"{section['floor_us']:.0f}",
            f"{medians[warp]:.0f}",
            f"{medians[packed]:.0f} ({packed.split(' ')[0]})",
            f"{medians['serial']:.0f}" if "serial" in medians else "",
            f"{min(torch):.0f}" if torch else "",
            f"{medians['cupy solve']:.0f}" if "cupy solve" in medians else "",
            ratio,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def packing_table(record):
    """Kernel time by lanes to a system, best of what was tried with as many."""
    found = {}
    for name, section in record["sections"].items():
        if "planned" not in section or int(name.split(" ")[-1].split(",")[0]) > 16:
            continue
        row = found.setdefault(name, {})
        for variant, samples in section["samples_us"].items():
            if " lanes" in variant:
                lanes = int(variant.split(" ")[0])
                row[lanes] = min(row.get(lanes, 1e9), median(samples))
    columns = sorted({lanes for row in found.values() for lanes in row})
    lines = [
        "| method, type, n, nrhs | " + " | ".join(map(str, columns)) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for name, row in found.items():
        cells = [f"{row[lanes]:.0f}" if lanes in row else "" for lanes in columns]
        lines.append(f"| {name.replace(',', ', ')} | " + " | ".join(cells) + " |")
    return lines


def profile_table():
    """The profiler's counters, if there are any."""
    if not PROFILE.is_file():
        return []
    record = json.loads(gzip.decompress(PROFILE.read_bytes()))
    lines = [
        f"The profiler on the kernels of source `{record['source']}` (one launch each, 65,536 systems; stalls in warps for",
        "each issued instruction, those above a fifth):",
        "",
        "| kernel | microseconds | instructions a system | issue slots used, percent | DRAM, percent | stalls |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["kernels"]:
        c = {name: float(value.replace(",", "")) for name, value in row["counters"].items()}
        stalls = ", ".join(
            f"{name.replace('_', ' ')} {float(value):.1f}"
            for name, value in sorted(row["stalls"].items(), key=lambda kv: -float(kv[1]))
            if name not in ("selected", "not_selected")
        )
        cells = [
            row["kernel"], f"{c['ns'] / 1e3:.0f}", f"{c['instructions'] / 65536:.0f}", f"{c['issue %']:.0f}",
            f"{c['dram %']:.0f}", stalls,
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def call_table(record):
    lines = [
        "| method | n, nrhs | batch | serial | warp | packed | packed, torch tensors | torch | CuPy | peer / ours |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in record["sections"]["calls"]["rows"]:
        if row["nrhs"] == 4:
            continue
        m = {k: median(v) for k, v in row["samples_us"].items()}
        torch = min(v for k, v in m.items() if k.startswith("torch"))
        ours = min(v for k, v in m.items() if k in ("warp", "packed"))
        peer = min(torch, m.get("cupy solve", torch))
        cells = [row["method"], f"{row['n']}, {row['nrhs']}", str(row["batch"])]
        cells += [
            f"{m[k]:.0f}" if k in m else "" for k in ("serial", "warp", "packed", "packed, torch tensors")
        ]
        cells += [f"{torch:.0f}", f"{m['cupy solve']:.0f}" if "cupy solve" in m else "", f"{peer / ours:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def outcome(checks):
    passed = ", ".join(name for name, result in checks.items() if result["exit"] == 0)
    failed = ", ".join(name for name, result in checks.items() if result["exit"] != 0)
    return f"passed {passed or 'none'}; failed {failed or 'none'}"


def check_lines(record):
    """What the device suite and the sanitizers said; of all kernels, or of those that have changed since."""
    now, before = outcome(record.get("checks", {})), record.get("before")
    if not before:
        return [f"Device suite and sanitizers: {now}."]
    return [
        f"Device suite and sanitizers of the {' and '.join(record['variants'])} kernels: {now}.",
        f"Of all kernels, on source `{before['source']}`, since when no other has changed: {outcome(before['checks'])}.",
    ]


def section():
    if not RECORD.is_file():
        return ["No GPU record yet."]
    record = read()
    device = record["device"]
    gpu = device.get("gpu", device) if isinstance(device, dict) else {}
    rate = record["sections"]["copy"]["tb_per_s"]
    changed = []
    if record["source"] != source_digest():
        changed = [
            "",
            f"The kernels have changed since (`{source_digest()}`): their times are not measured yet.",
        ]
    return [
        f"On one {gpu.get('model', 'NVIDIA H200')}; source `{record['source']}`; record",
        f"`{RECORD.relative_to(ROOT)}`, every sample in it. A device copy moved {rate:.2f} TB/s in the same run.",
        *check_lines(record),
        *changed,
        "",
        "Kernel time at 65,536 systems, microseconds, medians; every output of ours was verified in FP64 (residual,",
        "factors), and all variants of a row gave the same bits:",
        "",
        *kernel_table(record),
        "",
        "Packing: kernel time at 65,536 systems, microseconds, by lanes to a system; 32 is one system to a warp:",
        "",
        *packing_table(record),
        "",
        *profile_table(),
        "Whole calls with a synchronisation, float32, microseconds, medians: outputs allocated, work queued and waited",
        "for. Below 1 in the last column the fastest peer was ahead of the better of warp and packed:",
        "",
        *call_table(record),
    ]


def take(out):
    """Raw record with the checks of the same sources, the profile, and the records of the house."""
    record, old = json.loads((out / "batched_time.json").read_text()), read()
    found = out / "batched_check.json"
    check = json.loads(found.read_text()) if found.is_file() else {}
    if check.get("source") == record["source"]:
        record["checks"] = {k: v for k, v in check["checks"].items() if k != "profile"}
        if len(check["variants"]) < len(VARIANTS):
            record["variants"] = check["variants"]
            record["before"] = old.get("before") or {key: old[key] for key in ("source", "checks")}
        if check.get("profile"):
            profile = {"source": check["source"], "kernels": check["profile"]}
            PROFILE.write_bytes(gzip.compress(json.dumps(profile).encode(), 9, mtime=0))
    RECORD.write_bytes(gzip.compress(json.dumps(record).encode(), 9, mtime=0))
    for file in [*out.glob("batched_gpu.json"), *out.glob("batched_calls_*.json")]:
        shutil.copy(file, RECORD.parent)


def page():
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + "\n" + "\n".join(section()) + "\n" + END + tail


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0 if PAGE.read_text(encoding="utf-8") == page() else "docs/batched.md is not what the record says"
        )
    if "--take" in sys.argv:
        take(Path(sys.argv[sys.argv.index("--take") + 1]))
    PAGE.write_text(page(), encoding="utf-8")
