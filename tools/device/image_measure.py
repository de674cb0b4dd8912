"""Timings of the image room on a GPU, one section a process: kernels, stages, pipeline, crossover."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
from image_bench import EDGES, GRAY, SHAPES, Bench, copy_calls, described, events, torch_calls, variants  # noqa: E402
from image_npp import npp_calls  # noqa: E402

from warpfront.image import _edges_cuda as plans  # noqa: E402
from warpfront.image.operation import operation  # noqa: E402


def kernels(out, dry):
    """Every tile for the fused kernel, and for its relatives without a blur, with a long one, and blur alone."""
    if dry:
        for v in variants():
            plans.shared_bytes(EDGES, described("packed", SHAPES["packed"]), v.tile)
        return
    from warpfront.bench import gpu

    record = {"wrong": {}}
    for layout in ("packed", "gray"):
        bench = Bench(layout)
        for key in (k for k, (where, _) in GRAY.items() if where == layout):
            what, calls = GRAY[key][1], {}
            for v in (v for v in variants() if v.what == key):
                try:
                    made = bench.calls(what, v.tile, v.defines)
                    bad = bench.wrong(what, made)
                    calls[v.name] = made
                except Exception as error:  # a variant that cannot run is a finding, not the end of the run
                    bad = f"{type(error).__name__}: {error}"[:200]
                if bad:
                    record["wrong"][f"{key} {v.name}"] = bad
            calls["copy"] = copy_calls((4 if layout == "packed" else 2) * bench.pixels.size)
            found = gpu.time_interleaved(calls, samples=5, target_seconds=5e-4)
            ranked = sorted(found, key=lambda name: found[name].median)
            record[key] = {name: 1e6 * found[name].median for name in ranked}
            save(out, "kernels", record)
        del bench


def steps(out, dry):
    """The order of optimisation on 32 frames, each step beside the others, as a record."""
    if dry:
        return
    from warpfront.bench import gpu
    from warpfront.bench.collect import collected, gpu_record, refused
    from warpfront.bench.record import Row, write

    bench = Bench("packed")
    first = {"tile": (128, 64, 128, 8)}
    calls = {
        "1 stages": bench.staged(),
        "2 fused, a launch an image": bench.one_by_one(**first, aligned=False),
        "3 one launch": bench.calls(EDGES, **first, aligned=False),
        "4 16-byte loads": bench.calls(EDGES, **first),
        "5 tile": bench.calls(EDGES),
    }
    wrong = {name: bench.wrong(EDGES, made) for name, made in calls.items()}
    nbytes = 4 * bench.pixels.size
    calls["copy"] = copy_calls(nbytes)
    found = gpu.time_interleaved(calls, samples=25)
    contenders = {
        name: collected(
            found[name].seconds,
            right=not wrong.get(name),
            detail=wrong.get(name, ""),
            bytes=nbytes,
            calls_per_sample=found[name].calls_per_sample,
        )
        for name in calls
    }
    for name, make in (("torch", torch_calls), ("npp", npp_calls)):
        try:
            call = make(bench)
            seconds = events(call, 9)
            note = bench.wrong(EDGES, [call]) or "bits equal"
            contenders[name] = collected(seconds, algorithm=note, bytes=nbytes)
        except Exception as error:
            contenders[name] = refused("failed", f"{type(error).__name__}: {error}")
    ours = [name for name in calls if name != "copy"]
    shapes = {"images": 32, "height": 1080, "width": 1920, "taps": 5}
    row = Row(
        "32 x 1920 x 1080, packed", "edges", shapes, "uint8", "random bits", 7, ours, contenders, "copy"
    )
    write(gpu_record("edges", [row], {"samples": 25, "l2": "cold"}), out / "edges.json")
    save(out, "steps", {n: c.median and 1e6 * c.median for n, c in contenders.items()} | {"wrong": wrong})


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
    from warpfront.bench.collect import collected, gpu_record
    from warpfront.bench.record import Row, write

    record, rows = {}, []
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
        for name, _, nbytes in todo:
            copy, one, moved = f"copy {nbytes}", found[name], float(nbytes * bench.pixels.size)
            contenders = {
                "warpfront": collected(
                    one.seconds, right=not wrong[name], detail=wrong[name], bytes=moved,
                    calls_per_sample=one.calls_per_sample,
                ),
                "copy": collected(found[copy].seconds, bytes=moved, algorithm="cudaMemcpyAsync of as many bytes"),
            }  # fmt: skip
            shapes = {"images": 32, "height": 1080, "width": 1920}
            rows.append(
                Row(f"32 x 1920 x 1080, {layout}", name, shapes, "uint8", "random bits", 7, ["warpfront"],
                    contenders, "copy")
            )  # fmt: skip
        save(out, "stages", record)
        write(gpu_record("edges_stages", rows, {"samples": 11, "l2": "cold"}), out / "edges_stages.json")
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


CONFIGURATIONS = (
    (1, 1, False), (1, 1, True), (2, 2, True), (3, 2, True), (4, 2, False), (4, 2, True), (4, 4, True), (6, 3, True),
)  # fmt: skip


class Stream:
    """A pipeline on images whose pixels are in pinned memory already."""

    def __init__(self, shape, count, slots, streams, graphs, device="cuda"):
        from warpfront.image import EdgePipeline

        self.shape, self.count, self.slots = shape, count, slots
        self.name = f"{slots} slots, {streams} streams, {'graphs' if graphs else 'eager'}"
        self.pipeline = EdgePipeline(
            device=device, sigma=1.1, taps=5, threshold=100, slots=slots, streams=streams, graphs=graphs,
            byte_cap=8 << 30, timeline=True,
        )  # fmt: skip
        self.run(3 * slots)  # buffers and graphs are made

    def run(self, count):
        stream = self.pipeline.run(
            range(count), decode=lambda _, place: place(self.shape), encode=lambda _, edges: None
        )
        for _ in stream:
            pass

    def measure(self):
        self.run(self.count)
        record = self.pipeline.record
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
        latency = (record.latency_p50_seconds, record.latency_p95_seconds, record.latency_p99_seconds)
        return {
            "seconds": record.seconds / self.count,
            "images_per_second": record.images_per_second,
            "d2h_inside_h2d": inside / total if total else 0.0,
            "h2d_busy": busy / record.seconds,
            "latency_ms": [1e3 * v for v in latency],
            "stages_ms": {s.stage: 1e3 * s.median_seconds for s in record.stages},
            "graphs_replayed": record.graphs_replayed,
        }


def pipeline(out, dry):
    """Slots, streams and graphs, for three sizes of image, beside the copy to the device alone."""
    if dry:
        print(Stream((4, 6, 3), 20, 3, 2, True, "cpu").measure())
        return
    from warpfront.bench.collect import collected, gpu_record
    from warpfront.bench.record import Row, write

    link, rows = link_rates(), []
    found = {"link": link, "runs": []}
    print(f"link: H2D {link['h2d'] / 1e9:.1f}, D2H {link['d2h'] / 1e9:.1f} GB/s", flush=True)
    for shape, count in (((8, 1080, 1920, 3), 50), ((2160, 3840, 3), 100), ((1080, 1920, 3), 300)):
        nbytes = int(np.prod(shape))
        contestants = [Stream(shape, count, *c) for c in CONFIGURATIONS]
        runs = {c.name: [] for c in contestants}
        for _ in range(3):
            for c in contestants:
                runs[c.name].append(c.measure())
        contenders = {
            "H2D copy": collected([nbytes / link["h2d"]], bytes=nbytes, algorithm="pinned copy of 256 MiB")
        }
        for name, several in runs.items():
            best = sorted(several, key=lambda r: r["seconds"])[len(several) // 2]
            best["of_h2d"] = nbytes / best["seconds"] / link["h2d"]
            found["runs"].append({"shape": list(shape), "name": name, **best})
            contenders[name] = collected(
                [r["seconds"] for r in several], clock="wall", bytes=nbytes, values=best
            )
        shapes = {"images": 8 if len(shape) == 4 else 1, "height": shape[-3], "width": shape[-2]}
        case = f"{' x '.join(map(str, shape))}"
        rows.append(
            Row(case, "stream from pinned memory", shapes, "uint8", "whatever was there", None, list(runs),
                contenders, "H2D copy")
        )  # fmt: skip
        save(out, "pipeline", found)
        write(gpu_record("edges_pipeline", rows, {"rounds": 3}), out / "edges_pipeline.json")
        for c in contestants:
            c.pipeline.close()


def memory(out, dry):
    """Free device memory while a thousand images of random sizes go through a capped pipeline."""
    if dry:
        return
    import cupy

    from warpfront.image import EdgePipeline

    rng = np.random.default_rng(5)
    blank = rng.integers(0, 256, (1500, 1500, 3), np.uint8)
    images = [blank[: int(h), : int(w)] for h, w in rng.integers(1, 1500, (1000, 2))]
    pipeline, free = EdgePipeline(device="cuda", slots=4, byte_cap=64 << 20), []
    for k, _ in enumerate(pipeline.run(images)):
        if k % 50 == 0:
            free.append(cupy.cuda.runtime.memGetInfo()[0] >> 20)
    record = pipeline.record
    save(out, "memory", {"free_mib": free, "peak": record.peak_bytes, "allocations": record.allocations})
    print(
        f"free MiB over 1000 sizes: {free}, peak {record.peak_bytes}, made {record.allocations}", flush=True
    )


def crossover(out, dry):
    """NumPy in, NumPy out: the CPU against the GPU with both copies, by size, with all threads and with two."""
    if dry:
        return
    from warpfront.bench.collect import collected, gpu_record
    from warpfront.bench.record import Row, write
    from warpfront.image import edges

    everyone, found, rows = str(threads()), [], []
    for side in (64, 128, 256, 512, 1024, 2048, 4096, 8192):
        image = np.random.default_rng(side).integers(0, 256, (side, side, 3), np.uint8)
        target = np.empty((side, side), np.uint8)
        ways = [(device, count) for count in (everyone, "2") for device in ("cpu", "cuda")]
        times = {f"{device}, {count} threads": [] for device, count in ways}
        for k in range(11):
            for device, count in ways:
                os.environ["WARPFRONT_THREADS"] = count
                begin = perf_counter()
                edges(image, sigma=1.1, taps=5, out=target, device=device)
                if k >= 2:
                    times[f"{device}, {count} threads"].append(perf_counter() - begin)
        found.append({"side": side, **{name: [1e3 * s for s in t] for name, t in times.items()}})
        contenders = {name: collected(t, clock="wall", bytes=4.0 * side * side) for name, t in times.items()}
        shapes = {"height": side, "width": side, "taps": 5}
        rows.append(
            Row(
                f"{side} x {side}",
                "edges, NumPy to NumPy",
                shapes,
                "uint8",
                "random bits",
                side,
                list(times),
                contenders,
            )
        )
        save(out, "crossover", {"rows_ms": found})
    write(gpu_record("edges_crossover", rows, {"rounds": 9}), out / "edges_crossover.json")


def threads():
    from warpfront.backend import settings

    return settings.threads()


def save(out, name, record):
    (out / f"{name}.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    SECTIONS = {
        "kernels": kernels,
        "steps": steps,
        "stages": stages,
        "pipeline": pipeline,
        "crossover": crossover,
        "memory": memory,
        "profile": profile,
    }
    SECTIONS[sys.argv[1]](folder, "--dry" in sys.argv)
