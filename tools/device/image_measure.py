"""Timings of the image room on a GPU, one section a process: kernels, stages, pipeline, crossover."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
from image_bench import EDGES, SHAPES, Bench, copy_calls, described, events, torch_calls, variants  # noqa: E402

from warpfront.image import _edges_cuda as plans  # noqa: E402
from warpfront.image.operation import operation  # noqa: E402


def kernels(out, dry):
    """Fused kernel, packed: every tile; then 4-byte loads, and what torch takes."""
    if dry:
        for v in variants():
            plans.shared_bytes(EDGES, described("packed", SHAPES["packed"]), v.tile)
        return
    from warpfront.bench import gpu

    bench, begin = Bench("packed"), perf_counter()
    calls, wrong = {}, {}
    for v in variants():
        try:
            made = bench.calls(EDGES, v.tile, v.defines)
            bad = bench.wrong(EDGES, made)
        except Exception as error:  # a variant that cannot run is a finding, not the end of the run
            bad, made = f"{type(error).__name__}: {error}"[:200], None
        if bad:
            wrong[v.name] = bad
        if made:
            calls[v.name] = made
    calls["4-byte loads"] = bench.calls(EDGES, aligned=False)
    if bad := bench.wrong(EDGES, calls["4-byte loads"]):
        wrong["4-byte loads"] = bad
    calls["copy"] = copy_calls(4 * bench.pixels.size)
    print(f"kernels: {len(calls)} contenders ready at {perf_counter() - begin:.1f} s", flush=True)
    first = gpu.time_interleaved(calls, samples=5, target_seconds=1e-3)
    ranked = sorted((n for n in first if n not in ("copy", "4-byte loads")), key=lambda n: first[n].median)
    last_names = dict.fromkeys([*ranked[:4], variants()[0].name, "4-byte loads", "copy"])
    last = gpu.time_interleaved({n: calls[n] for n in last_names}, samples=25)
    record = {"wrong": wrong, "pixels": bench.pixels.size}
    record["sweep_us"] = {n: 1e6 * first[n].median for n in sorted(first, key=lambda n: first[n].median)}
    record["final"] = {n: [1e6 * s for s in v.seconds] for n, v in last.items()}
    save(out, "kernels", record)
    try:
        record["torch_us"] = [1e6 * s for s in events(torch_calls(bench), 5)]
    except Exception as error:
        record["torch_us"] = f"{type(error).__name__}: {error}"[:300]
    save(out, "kernels", record)


def profile(out, dry):
    """One launch each of the fused kernel and the single stages, for the profiler."""
    import cupy

    stream = cupy.cuda.get_current_stream().ptr
    packed, gray = Bench("packed", images=1), Bench("gray", images=1)
    for bench, what in (
        (packed, EDGES),
        (packed, operation("gray")),
        (gray, operation("blur", sigma=1.1, taps=5)),
        (gray, operation("edges", threshold=100)),
        (packed, operation("edges", sigma=5, threshold=100)),
    ):
        bench.calls(what)[0](stream)
    cupy.cuda.get_current_stream().synchronize()


def stages(out, dry):
    """Single stages and the chain in every layout, beside copies of as many bytes."""
    if dry:
        return
    from warpfront.bench import gpu

    record = {}
    gray, wide = operation("gray"), operation("edges", sigma=5, threshold=100)
    blur, wide_blur = operation("blur", sigma=1.1, taps=5), operation("blur", sigma=5)
    jobs = {
        "packed": [("gray", gray, 4), ("edges", EDGES, 4), ("edges 31 taps", wide, 4)],
        "planar": [("gray", gray, 4), ("edges", EDGES, 4)],
        "rgba": [("gray", gray, 5), ("edges", EDGES, 5)],
        "gray": [
            ("blur", blur, 2),
            ("sobel+threshold", operation("edges", threshold=100), 2),
            ("sobel", operation("sobel"), 5),
            ("edges", EDGES, 2),
            ("blur 31 taps", wide_blur, 2),
        ],
    }
    for layout, todo in jobs.items():
        bench = Bench(layout)
        calls, wrong = {}, {}
        for name, what, _ in todo:
            calls[name] = bench.calls(what)
            wrong[name] = bench.wrong(what, calls[name])
        for nbytes in sorted({n for _, _, n in todo}):
            calls[f"copy {nbytes}"] = copy_calls(nbytes * bench.pixels.size)
        found = gpu.time_interleaved(calls, samples=11, target_seconds=1e-3)
        record[layout] = {
            name: {
                "us": 1e6 * found[name].median,
                "of_copy": found[f"copy {nbytes}"].median / found[name].median,
                "wrong": wrong[name],
                "samples_us": [1e6 * s for s in found[name].seconds],
            }
            for name, _, nbytes in todo
        }
        save(out, "stages", record)
        del bench


def covered(inner, outer):
    """Length of the union of ``inner`` intervals that lies inside the union of ``outer``."""
    merged = []
    for a, b in sorted(outer):
        if merged and a <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], b)
        else:
            merged.append([a, b])
    return sum(max(0.0, min(b, d) - max(a, c)) for a, b in inner for c, d in merged)


def link_rates():
    """Pinned copies alone, in each direction: bytes per second."""
    import cupy

    nbytes = 256 << 20
    pinned, device = cupy.cuda.PinnedMemory(nbytes), cupy.cuda.Memory(nbytes)
    copy = cupy.cuda.runtime.memcpyAsync
    up = min(events(lambda s: copy(device.ptr, pinned.ptr, nbytes, 1, s), 5))
    down = min(events(lambda s: copy(pinned.ptr, device.ptr, nbytes, 2, s), 5))
    return {"h2d": nbytes / up, "d2h": nbytes / down}


def stream_once(shape, count, slots, streams, graphs, engine="cuda"):
    """One run from memory that is pinned already; the second of two, so that buffers and graphs are there."""
    from warpfront.image import EdgePipeline

    pipeline = EdgePipeline(
        device=engine, sigma=1.1, taps=5, threshold=100, slots=slots, streams=streams, graphs=graphs,
        byte_cap=8 << 30, timeline=True,
    )  # fmt: skip
    for items in (range(3 * slots), range(count)):
        for _ in pipeline.run(items, decode=lambda _, place: place(shape), encode=lambda _, edges: None):
            pass
    record = pipeline.record
    spans = {name: [i for i in record.timeline if i.stage == name] for name in ("h2d", "kernel", "d2h")}
    # Of each D2H, what lies inside the H2D of other slots.
    inside = sum(
        covered(
            [(d.begin_seconds, d.end_seconds)],
            [(h.begin_seconds, h.end_seconds) for h in spans["h2d"] if h.slot != d.slot],
        )
        for d in spans["d2h"]
    )
    total = sum(d.end_seconds - d.begin_seconds for d in spans["d2h"])
    busy = covered([(0.0, 1e9)], [(h.begin_seconds, h.end_seconds) for h in spans["h2d"]])
    nbytes = count * int(np.prod(shape))
    latency = (record.latency_p50_seconds, record.latency_p95_seconds, record.latency_p99_seconds)
    return {
        "shape": list(shape), "slots": slots, "streams": streams, "graphs": graphs, "seconds": record.seconds,
        "h2d_bytes_per_second": nbytes / record.seconds, "images_per_second": record.images_per_second,
        "d2h_inside_h2d": inside / total if total else 0.0, "h2d_busy": busy / record.seconds,
        "latency_ms": [1e3 * v for v in latency],
        "stages_ms": {s.stage: 1e3 * s.median_seconds for s in record.stages},
        "graphs_built": record.graphs_built, "graphs_replayed": record.graphs_replayed,
    }  # fmt: skip


def pipeline(out, dry):
    """Slots, streams and graphs, for three sizes of image."""
    if dry:
        print(stream_once((4, 6, 3), 20, 3, 2, True, "cpu"))
        return
    record = {"link": link_rates(), "runs": []}
    print(
        f"link: H2D {record['link']['h2d'] / 1e9:.1f}, D2H {record['link']['d2h'] / 1e9:.1f} GB/s", flush=True
    )
    for shape, count in (((8, 1080, 1920, 3), 60), ((2160, 3840, 3), 120), ((1080, 1920, 3), 300)):
        for slots, streams, graphs in (
            (1, 1, False),
            (1, 1, True),
            (3, 2, True),
            (4, 2, False),
            (4, 2, True),
            (4, 4, True),
            (6, 3, True),
        ):
            try:
                found = stream_once(shape, count, slots, streams, graphs)
                found["of_h2d"] = found["h2d_bytes_per_second"] / record["link"]["h2d"]
            except Exception as error:
                found = {"shape": list(shape), "slots": slots, "streams": streams, "graphs": graphs}
                found["error"] = f"{type(error).__name__}: {error}"[:300]
            record["runs"].append(found)
            save(out, "pipeline", record)


def crossover(out, dry):
    """NumPy in, NumPy out: the CPU against the GPU with both copies, by size."""
    if dry:
        return
    from warpfront.image import edges

    rows = []
    for side in (64, 128, 256, 512, 1024, 2048, 4096):
        image = np.random.default_rng(side).integers(0, 256, (side, side, 3), np.uint8)
        target = np.empty((side, side), np.uint8)
        times = {}
        for device in ("cpu", "cuda"):
            for _ in range(2):
                edges(image, sigma=1.1, taps=5, out=target, device=device)
            times[device] = []
        for _ in range(9):
            for device in ("cpu", "cuda"):
                begin = perf_counter()
                edges(image, sigma=1.1, taps=5, out=target, device=device)
                times[device].append(perf_counter() - begin)
        rows.append({"side": side, **{d: [1e3 * s for s in t] for d, t in times.items()}})
        save(out, "crossover", {"threads": threads(), "rows_ms": rows})


def threads():
    from warpfront.backend import settings

    return settings.threads()


def save(out, name, record):
    (out / f"{name}.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    SECTIONS = {
        "kernels": kernels,
        "stages": stages,
        "pipeline": pipeline,
        "crossover": crossover,
        "profile": profile,
    }
    SECTIONS[sys.argv[1]](folder, "--dry" in sys.argv)
