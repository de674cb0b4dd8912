"""The short table of graph.py beside it."""

from __future__ import annotations


def summary(found):
    lines = []
    for name in ("kron22", "kron24"):
        for run in found[name].get("runs", []):
            lines.append(line(f"{name} {run['order']} a={run['alpha']} b={run['beta']}", run))
    for run in found["uniform"].get("runs", []):
        lines.append(line(f"uniform a={run['alpha']}", run))
    for run in found["roads"].get("runs", []):
        lines.append(line(f"grid {run['side']} keep {run['keep']}", run))
    for run in found["real"].get("runs", []):
        lines.append(line(f"{run['graph']} {run['variant']}", run))
    steps = {}
    for run in found["ladder"].get("runs", []):
        steps.setdefault(run["graph"], []).append(f"{run['variant']} {run['median_us']:.0f}")
    lines += [f"ladder {graph} (us): " + ", ".join(values) for graph, values in steps.items()]
    for run in found["shapes"].get("runs", []):
        lines.append(f"{run['graph']} {run['threads']} threads a block: {run['median_us']:.0f} us")
    return "\n".join(lines)


def line(name, run):
    replay = " ".join(f"{k} {v:.3f}" for k, v in run.items() if k.startswith("replay_gteps"))
    return (
        f"{name:32s} {run['harmonic_mean_gteps']:8.3f} GTEPS ({run['wall_harmonic_mean_gteps']:.3f} with the call) "
        f"median {run['median_us']:.1f} us, depth {run['depth']} {replay}"
    )
