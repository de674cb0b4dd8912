"""Sections, driver and tables of graph.py beside it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "graph" / "data"
SECTION_SECONDS = 25.0
SOURCES = 64


def compile_one(job):
    from warpfront.backend import compile as compiling

    file, name, arch = job
    try:
        built = compiling.build(Path(file), (name,), arch)
    except compiling.CompileError as error:
        return {"expression": name, "error": str(error)[:2000]}
    used = built.resources[name]
    spills = used.spill_store_bytes + used.spill_load_bytes
    return {"expression": name, "seconds": built.seconds, "registers": used.registers, "spills": spills}


def driver():
    """Every kernel on small graphs, checked; what compute-sanitizer runs."""
    import cupy
    import numpy as np

    from warpfront.graph import VARIANTS, Graph, bfs, grid, kronecker, uniform
    from warpfront.graph import _bfs_cuda as plans

    checked = 0
    rng = np.random.default_rng(0)
    arcs = Graph.from_edges(rng.integers(0, 900, 5000), rng.integers(0, 900, 5000), 900, directed=True)
    graphs = [kronecker(10), grid(25, 31, keep=0.9), arcs.with_transpose(), uniform(700, 2000).by_degree()]
    for graph in graphs:
        for sources in ([3], [1, 5, 600]):
            expected = bfs(graph, sources)
            for variant in VARIANTS:
                for direction in (
                    ("auto", "push", "pull") if variant in ("direction", "persistent") else ("auto",)
                ):
                    if variant == "block" and plans.why_not_block(graph.n, graph.arcs, direction, False):
                        continue
                    for trace in (False, True) if variant != "block" else (False,):
                        options = {"variant": variant, "direction": direction, "trace": trace}
                        found = bfs(graph, sources, device="cuda", **options)
                        assert np.array_equal(found.distances, expected.distances), (graph, options)
                        assert np.array_equal(found.parents, expected.parents), (graph, options)
                        checked += 1
    made = kronecker(9, device="cuda")
    assert np.array_equal(cupy.asnumpy(made.ind), kronecker(9).ind)
    print(f"driver: {checked} searches, all right")


def profiled():
    """One search of each kind for the profiler: the ladder's launches, and the persistent kernel."""
    from warpfront.graph import bfs, kronecker

    graph = kronecker(18, device="cuda")
    source = int(graph.degrees().argmax())
    for variant in ("naive", "queue", "classes", "batched", "direction", "persistent"):
        bfs(graph, source, variant=variant)


def profile_table(log, names, target):
    """Reduce the profiler's CSV to one line for each kernel: the launch with the most work."""
    text = log.read_text(errors="replace")
    start = text.find('"ID"')
    if start < 0:
        print("profile: no figures,", text.strip().splitlines()[-1][:120] if text.strip() else "empty log")
        return
    rows = [row for row in csv.DictReader(io.StringIO(text[start:])) if row.get("ID", "").isdigit()]
    found = {}
    for row in rows:
        values = {label: row.get(name, "") for name, label in names.items()}
        found.setdefault(row["Kernel Name"].partition("<")[0].partition("(")[0], []).append(values)
    target.write_text(json.dumps(found, indent=1))
    for kernel, launches in found.items():
        print(f"  {kernel[:40]:40s}", len(launches), "launches;", launches[len(launches) // 2])


# ------------------------------------------------------------------ sections


def rates(graph, edges_of, sources, **options):
    """Search from each source; Graph500's figures from device times and from the caller's clock."""
    import numpy as np

    from warpfront.graph import bfs

    bfs(graph, sources[0], **options)
    seconds, wall, edges, levels = [], [], [], []
    for source in sources:
        begun = perf_counter()
        found = bfs(graph, source, **options)
        wall.append(perf_counter() - begun)
        seconds.append(found.record.seconds)
        edges.append(edges_of(found))
        levels.append(found.record.depth)
    seconds, wall, edges = np.array(seconds), np.array(wall), np.array(edges, float)
    return {
        "sources": len(sources),
        "edges": float(np.median(edges)),
        "depth": int(np.median(levels)),
        "harmonic_mean_gteps": harmonic(edges / seconds) / 1e9,
        "wall_harmonic_mean_gteps": harmonic(edges / wall) / 1e9,
        "min_gteps": float((edges / seconds).min() / 1e9),
        "median_us": float(np.median(seconds) * 1e6),
        "p95_us": float(np.quantile(seconds, 0.95) * 1e6),
        "wall_median_us": float(np.median(wall) * 1e6),
        "seconds": [round(float(s), 8) for s in seconds],
        "edges_each": edges.astype(int).tolist(),
        "options": {k: v for k, v in options.items()},
    }


def harmonic(values):
    import numpy as np

    kept = values[values > 0]
    return float(kept.size / np.sum(1 / kept)) if kept.size else 0.0


def replayed(graph, source, variant, threads=None, repeats=20):
    """Device time of one search in a captured graph, the host out of the way: seconds, of each of several batches."""
    import cupy
    import numpy as np

    from warpfront.graph import _bfs_cuda as plans
    from warpfront.graph import _bfs_device, _bfs_run
    from warpfront.graph._bfs_host import Options

    direction = "push" if graph.arcs < 6 * graph.n else "auto"
    options = Options(direction, 15.0, 18.0, None)
    base = _bfs_device.new_state(graph, options, variant)
    state = replace(base, dist=cupy.empty(graph.n, np.int32), parent=cupy.empty(graph.n, np.int32))
    machine = _bfs_device.Gpu()
    launch, _ = _bfs_run.one_launch(
        machine, state, variant, options, (None, int(source), 1), threads or plans.THREADS[variant]
    )
    launch()  # compiles and loads
    machine.stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    machine.stream.begin_capture()
    for _ in range(repeats):
        launch()
    captured = machine.stream.end_capture()
    seconds = []
    for _ in range(6):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(machine.stream)
        captured.launch(machine.stream)
        end.record(machine.stream)
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(begin, end) * 1e-3 / repeats)
    return seconds[1:]


def replay_rates(graph, sources, edges, variant, threads=None, repeats=20):
    """Harmonic mean of the rates of replayed searches."""
    import numpy as np

    medians = np.array([float(np.median(replayed(graph, s, variant, threads, repeats))) for s in sources])
    rate = np.array(edges[: len(medians)], float) / medians
    return {"replay_gteps": harmonic(rate) / 1e9, "replay_median_us": float(np.median(medians) * 1e6)}


def counter(tail):
    """Graph500 counts input edges, loops and repetitions included, with an end that was reached."""

    def edges_of(found):
        return int((found.distances[tail] >= 0).sum())

    return edges_of


def stored(found):
    return found.record.edges


def levels_of(graph, source, **options):
    from warpfront.graph import bfs

    bfs(graph, source, trace=True, **options)
    record = bfs(graph, source, trace=True, **options).record
    table = record.levels.table
    return {"seconds": record.seconds, "levels": table[:400].tolist(), "count": len(table)}


def kron(scale, dry):
    from warpfront.graph import Graph, kronecker_edges
    from warpfront.graph.teps import draw_sources

    if dry:
        scale = 10
    begun = perf_counter()
    tail, head = kronecker_edges(scale, 16, seed=1, device="cpu" if dry else "cuda")
    graph = Graph.from_edges(tail, head, 1 << scale)
    sources = draw_sources(graph, SOURCES)
    by_degree = graph.by_degree()
    result = {
        "scale": scale,
        "n": graph.n,
        "arcs": graph.arcs,
        "make_seconds": perf_counter() - begun,
        "runs": [],
    }
    where = {} if dry else {"variant": "persistent"}
    count = counter(tail)
    for name, g in (("natural", graph), ("degree", by_degree)):
        for alpha, beta in ((15, 18), (60, 18), (15, 64)) if name == "natural" else ((15, 18),):
            some = sources if (alpha, beta) == (15, 18) else sources[:16]
            run = rates(g, count, some, alpha=alpha, beta=beta, **where)
            if not dry and name == "natural" and (alpha, beta) == (15, 18):
                run |= replay_rates(g, some, run["edges_each"], "persistent", repeats=3)
            result["runs"].append({"order": name, "alpha": alpha, "beta": beta, **run})
    result["levels"] = {
        name: levels_of(g, sources[0], **where) for name, g in (("natural", graph), ("degree", by_degree))
    }
    return result


def uniform(dry):
    from warpfront.graph import Graph, uniform_edges
    from warpfront.graph.teps import draw_sources

    n = 1 << (10 if dry else 22)
    tail, head = uniform_edges(n, 16 * n, device="cpu" if dry else "cuda")
    graph = Graph.from_edges(tail, head, n)
    sources = draw_sources(graph, SOURCES)
    where = {} if dry else {"variant": "persistent"}
    runs = []
    for alpha, beta in ((15, 18), (4, 18), (60, 18)):
        some = sources if alpha == 15 else sources[:16]
        runs.append(
            {
                "alpha": alpha,
                "beta": beta,
                **rates(graph, counter(tail), some, alpha=alpha, beta=beta, **where),
            }
        )
    return {"n": n, "arcs": graph.arcs, "runs": runs, "levels": levels_of(graph, sources[0], **where)}


def roads(dry):
    from warpfront.graph import grid
    from warpfront.graph.teps import draw_sources

    sides = (20,) if dry else (2048, 4096)
    runs = []
    for side in sides:
        for keep in (1.0, 0.8):
            graph = grid(side, side, keep=keep, device="cpu" if dry else "cuda")
            sources = [0, side * side // 2 + side // 2, *draw_sources(graph, 4)]
            where = {} if dry else {"variant": "persistent"}
            run = rates(graph, stored, sources, **where)
            if not dry and side == 2048:
                run |= replay_rates(graph, sources[:2], run["edges_each"], "persistent", repeats=3)
            runs.append(
                {"side": side, "keep": keep, "n": graph.n, **run, "levels": levels_of(graph, 0, **where)}
            )
    return {"runs": runs}


def real(dry):
    import numpy as np

    from warpfront.graph import bfs, read_graph
    from warpfront.graph.teps import draw_sources

    runs = []
    names = ("USPowerGrid", "bcspwr10", "luxembourg_osm", "ca-GrQc", "facebook_ego1912", "delaunay_n15")
    for name in names[:1] if dry else names:
        graph = read_graph(DATA / f"{name}.mtx.gz")
        # Within the largest component: a search of a handful of vertices says nothing about the graph.
        main = bfs(graph, int(np.argmax(graph.degrees()))).distances >= 0
        sources = [v for v in draw_sources(graph, 4 * SOURCES) if main[v]][:SOURCES]
        there = graph if dry else graph.to_device()
        small = name in ("USPowerGrid", "bcspwr10", "ca-GrQc")
        for variant in ("auto",) if dry else ("auto", "persistent") if small else ("persistent",):
            run = rates(there, stored, sources, variant=variant)
            if not dry:
                path = bfs(there, sources[0], variant=variant).record.path
                for threads in (512, 1024) if path == "block" else (None,):
                    more = replay_rates(there, sources[:16], run["edges_each"], path, threads)
                    run |= {f"{key}{threads or ''}": value for key, value in more.items()}
            runs.append({"graph": name, "variant": variant, "n": graph.n, **run})
    return {"runs": runs}


def ladder(dry):
    """Every step on four families, three searches each."""
    from warpfront.graph import grid, kronecker, read_graph, uniform
    from warpfront.graph.teps import draw_sources

    device = "cpu" if dry else "cuda"
    power = read_graph(DATA / "USPowerGrid.mtx.gz")
    families = {
        "kron20": lambda: kronecker(10 if dry else 20, device=device),
        "uniform20": lambda: uniform(1 << (10 if dry else 20), 1 << (13 if dry else 24), device=device),
        "grid1024": lambda: grid(*((20, 20) if dry else (1024, 1024)), device=device),
        "power": lambda: power if dry else power.to_device(),
    }
    runs = []
    variants = (
        ("auto",)
        if dry
        else ("naive", "queue", "classes", "split", "batched", "direction", "persistent", "block")
    )
    for name, make in families.items():
        graph = make()
        sources = draw_sources(graph, 3 if name == "grid1024" else 8)
        for variant in variants:
            if variant == "block" and name != "power":
                continue
            run = rates(graph, stored, sources, variant=variant)
            runs.append({"graph": name, "variant": variant, **run})
        runs[-1]["levels"] = {v: levels_of(graph, sources[0], variant=v) for v in variants if v != "block"}
    return {"runs": runs}


def shapes(dry):
    """Threads of a block of the persistent kernel: as many warps either way, fewer or more blocks at the barrier."""
    if dry:
        return {"runs": []}
    import numpy as np

    from warpfront.graph import grid, kronecker, read_graph

    runs = []
    roads = read_graph(DATA / "luxembourg_osm.mtx.gz").to_device()
    graphs = {
        "kron22": kronecker(22, device="cuda"),
        "grid2048": grid(2048, 2048, device="cuda"),
        "roads": roads,
    }
    for name, graph in graphs.items():
        source = int(graph.degrees().argmax())
        for threads in (512, 1024):
            seconds = replayed(graph, source, "persistent", threads, repeats=3)
            runs.append({"graph": name, "threads": threads, "median_us": 1e6 * float(np.median(seconds))})
    return {"runs": runs}


def fingerprint(dry):
    if dry:
        return {}
    from warpfront.bench.gpu_fingerprint import gpu_fingerprint

    return json.loads(json.dumps(gpu_fingerprint(0), default=str))


SECTIONS = {
    "fingerprint": fingerprint,
    "real": real,
    "kron22": lambda dry: kron(22, dry),
    "roads": roads,
    "uniform": uniform,
    "kron24": lambda dry: kron(24, dry),
    "ladder": ladder,
    "shapes": shapes,
}
