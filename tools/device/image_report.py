"""The short table of image.py beside it."""

from __future__ import annotations

import json


def median(values):
    return sorted(values)[len(values) // 2]


def summary(out):
    """The short table."""
    lines = []

    def load(name):
        path = out / f"{name}.json"
        return json.loads(path.read_text()) if path.is_file() else None

    if found := load("kernels"):
        lines.append(f"wrong: {found['wrong'] or 'none'}")
        lines.append(
            "sweep us: " + ", ".join(f"{n} {t:.1f}" for n, t in list(found["sweep_us"].items())[:14])
        )
        lines += [f"  {n}: {median(v):.1f} us" for n, v in found["final"].items()]
        if isinstance(found.get("torch_us"), list):
            lines.append(f"  torch: {median(found['torch_us']):.0f} us")
        else:
            lines.append(f"  torch: {found.get('torch_us')}")
    for layout, rows in (load("stages") or {}).items():
        lines.append(
            f"{layout}: "
            + "; ".join(
                f"{n} {r['us']:.1f} us {100 * r['of_copy']:.0f}% {r['wrong']}" for n, r in rows.items()
            )
        )
    for r in (load("pipeline") or {}).get("runs", ()):
        head = (
            f"{'x'.join(map(str, r['shape']))} slots {r['slots']} streams {r['streams']} graphs {r['graphs']}"
        )
        if "error" in r:
            lines.append(f"{head}: {r['error']}")
            continue
        late = "/".join(f"{v:.2f}" for v in r["latency_ms"])
        lines.append(
            f"{head}: {100 * r['of_h2d']:.0f}% of H2D, D2H inside {100 * r['d2h_inside_h2d']:.0f}%, "
            f"busy {100 * r['h2d_busy']:.0f}%, "
            f"{r['images_per_second']:.0f} img/s, latency {late} ms"
        )
    for r in (load("crossover") or {}).get("rows_ms", ()):
        lines.append(f"{r['side']}^2: CPU {median(r['cpu']):.3f} ms, GPU {median(r['cuda']):.3f} ms")
    return "\n".join(lines)
