"""Record and summary of the Monte Carlo measurements, for montecarlo.py beside it."""

from __future__ import annotations

from montecarlo_measure import PRECISIONS


def record_of(data):
    """The record of the benchmark schema: one row for each precision, ours beside the peers."""
    from warpfront.bench.collect import collected, gpu_record, refused
    from warpfront.bench.record import Row

    rows = []
    for precision in PRECISIONS:
        found = data.get(f"peers {precision}", {})
        contenders = {}
        for name, seconds in found.get("samples", {}).items():
            off = abs(found["means"][name] - 10.450583572185565) / (14.7 / found["n"] ** 0.5)
            right = off < 5
            contenders[name] = collected(
                seconds,
                right=right,
                detail="" if right else f"z is {off:.1f}",
                values={"paths": found["n"], "z": off},
            )
        for name, note in found.get("notes", {}).items():
            if isinstance(note, str):
                contenders[name] = refused("failed", note)
        if contenders:
            shape = {"paths": found["n"], "options": 1, "steps": 1}
            rows.append(
                Row(
                    "one-step European call",
                    "price",
                    shape,
                    precision,
                    "Philox4x32-10",
                    1,
                    ["warpfront"],
                    contenders,
                )
            )
    return gpu_record("montecarlo", rows, {"rounds": 7}, packages=("torch", "cupy-cuda13x", "triton"))


def summary(data):
    lines = []
    for precision in PRECISIONS:
        found = data.get(f"peers {precision}", {})
        for name, samples in found.get("samples", {}).items():
            middle = sorted(samples)[len(samples) // 2]
            lines.append(
                f"{precision} {found['n']:.3g} paths {name:14s} {found['n'] / middle / 1e9:8.1f} Gpaths/s"
            )
        lines += [f"  note {name}: {str(note)[:110]}" for name, note in found.get("notes", {}).items()]
        rows = data.get(f"sweep {precision}", [])
        for row in sorted(rows, key=lambda row: -row["gpaths_per_s"])[:4] if isinstance(rows, list) else ():
            lines.append(
                f"{precision} K {row['K']:4d} lanes {row['lanes']:4d}: {row['gpaths_per_s']:7.1f} Gpaths/s, "
                f"{row['registers']} registers, occupancy {row['occupancy']:.2f}, z {row['z']:.1f}"
            )
        for name in ("sizes", "waves"):
            found = data.get(f"{name} {precision}", {})
            if "error" not in found:
                lines.append(f"{precision} {name}: " + ", ".join(f"{k}: {v:.0f}" for k, v in found.items()))
        if isinstance(data.get(f"profile {precision}"), list):
            lines += [f"  {line}" for line in data[f"profile {precision}"]]
    for row in data.get("counters", []) if isinstance(data.get("counters"), list) else ():
        lines.append(f"{row['kernel'][:90]}: {row['warp_instructions']} warp instructions, ipc {row['ipc']}")
    for row in data.get("methods", []) if isinstance(data.get("methods"), list) else ():
        lines.append(f"{row['case']:24s} {row['precision']} {row['gsteps_per_s']:8.1f} Gsteps/s")
    for row in data.get("float32 error", []) if isinstance(data.get("float32 error"), list) else ():
        lines.append(
            f"strike {row['strike']:g}: float32 - float64 {row['difference']:.2e}, error {row['standard_error']:.1e}"
        )
    return "\n".join(lines)
