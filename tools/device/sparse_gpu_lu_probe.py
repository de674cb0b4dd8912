"""Where an LU's launches spend their time: kernels with time stamps, beside times of the refactorisation.

    PYTHONPATH=src python3 tools/device/sparse_gpu_lu_probe.py --out out

Without a GPU, ``--build`` proves that the stamps still find their places in the text and that it compiles.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402

WORDS, LINES = 64, 1 << 14
STAMP = """
WF_DEVICE unsigned long long*& probed() {
  __shared__ unsigned long long* at;
  return at;
}
WF_DEVICE void stamp(int at, int k) {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  if (at < (1 << 14)) probed()[at * 64 + k] = t;
}
"""
BEGIN = ("  WF_DYNAMIC_SHARED(memory);\n", "  if (threadIdx.x == 0) probed() = probe;\n", True)
PROBE = ", unsigned long long* probe"
TEAM = "if (team_rank<Threads>() == 0) "
FIRST = "if (threadIdx.x == 0) "
PLACES = {  # file: (text, stamp, whether the stamp stands behind the text)
    "front.cuh": (("enum : int { kThreshold,", STAMP, False),),
    "lu_fronts.cu": (("i32* pivots, i32* stats", PROBE, True), BEGIN),
    "lu_tree.cu": (
        ("i32* stats, u32* cells, i32 count", PROBE, True),
        BEGIN,
        ("          else team_sync<Threads>();\n", f"          {TEAM}stamp(s, 5);\n", True),
    ),
    "lu_small.cuh": (
        ("  const Front f = all.fronts[s];\n", f"  {TEAM}stamp(s, 0);\n", True),
        ("all.lists, ready);\n  team_sync<Threads>();\n", f"  {TEAM}stamp(s, 1);\n", True),
        ("s.direct, taken)) return false;\n", f"  {TEAM}stamp(f.stat, 8 + 3 * (k0 / kPanel));\n", True),
        (
            "  if (rank < size) s.kind[k0 + rank] = 1,",
            f"  {TEAM}stamp(f.stat, 9 + 3 * (k0 / kPanel));\n",
            False,
        ),
        (
            "  else team_sync<Threads>();\n  return true;\n",
            f"  {TEAM}stamp(f.stat, 10 + 3 * (k0 / kPanel));\n",
            False,
        ),
        ("  write_lu_block<Threads>(a, ld, f, to);\n  written();\n", f"  {TEAM}stamp(s, 2);\n", False),
        ("  written();\n", f"  {TEAM}stamp(s, 3);\n", True),
        ("all.stats + kStats * f.stat);\n", f"  {TEAM}stamp(s, 4);\n", True),
    ),
    "lu_strips.cu": (
        ("T* published, u32* flags, i32* stats", PROBE, True),
        BEGIN,
        (
            "signal_wait(x.block_done + p, x.base + 1);\n    __syncthreads();\n",
            f"    {FIRST}stamp(blockIdx.x, 8 + 4 * p);\n",
            True,
        ),
        ("    form_rows(x, p, reciprocals, both);\n", f"    {FIRST}stamp(blockIdx.x, 9 + 4 * p);\n", False),
        ("reciprocals, both);\n    __syncthreads();\n", f"    {FIRST}stamp(blockIdx.x, 10 + 4 * p);\n", True),
        (
            "x.owned - q + 1));\n",
            f"    {FIRST}stamp(blockIdx.x, 11 + 4 * p);\n",
            True,
        ),
        ("  x.written = ", f"  {FIRST}stamp(blockIdx.x, 0);\n", False),
        ("  else load_strip(x);\n", f"  __syncthreads();\n  {FIRST}stamp(blockIdx.x, 3);\n", True),
        ("  const LuRule<T> tolerances", f"  {FIRST}stamp(blockIdx.x, 1);\n", False),
        ("s, taken)) return false;\n", f"  {FIRST}stamp(blockIdx.x, 2);\n", True),
    ),
}
KERNELS_PROBED = {
    "lu_fronts": ("lu_fronts.cu", "lu_eliminate_fronts<double, 256>"),
    "lu_tree": ("lu_tree.cu", "lu_factor_tree<double>"),
    "lu_strips": ("lu_strips.cu", "lu_eliminate_strips<double>"),
}
CASES = (  # name, ordering, launches looked at: kernel and how it is picked
    ("lap3d_40", "auto", (("lu_fronts", "most"), ("lu_strips", "first"), ("lu_strips", "chain"))),
    ("case1354_pegase_K2_it10", "multilevel", (("lu_tree", "first"), ("lu_fronts", "last"))),
    ("case118_ieee_K2_it10", "amd", (("lu_tree", "first"),)),
    ("lap2d_300", "auto", (("lu_tree", "first"), ("lu_fronts", "most"), ("lu_strips", "last"))),
    ("circuit_200", "multilevel", (("lu_fronts", "most"), ("lu_strips", "last"))),
)


def stamped_folder(where):
    """Copy the room's device files to a folder, with stamps."""
    source = ROOT / "src/warpfront/sparse/gpu"
    where.mkdir(parents=True)
    for file in [*source.glob("*.cu"), *source.glob("*.cuh")]:
        text = file.read_text()
        for place, call, behind in PLACES.get(file.name, ()):
            if text.count(place) != 1:
                raise AssertionError(f"{file.name} has changed: {place!r}, {text.count(place)} times")
            text = text.replace(place, place + call if behind else call + place)
        (where / file.name).write_text(text)
    return where


def build_all(folder):
    """Prove without a GPU that all compiles."""
    from warpfront.backend import compile as compiling

    for name, (file, expression) in KERNELS_PROBED.items():
        print(name, compiling.build(folder / file, (expression,), "sm_90").resources[expression], flush=True)


def load(folder, kernel):
    """The stamped kernel; its last argument is where the stamps go."""
    import cupy

    from warpfront.backend import compile as compiling

    file, expression = KERNELS_PROBED[kernel]
    include = Path(compiling.__file__).parent / "device"
    module = cupy.RawModule(
        code=(folder / file).read_text(), options=("-std=c++17", f"-I{include}", f"-I{folder}", "-arch=sm_90"),
        name_expressions=(expression,), backend="nvrtc",
    )  # fmt: skip
    return module.get_function(expression)


def picked(steps, kernel, how):
    """Number of the launch in the sequence, or None."""
    found = [
        k for k, s in enumerate(steps) if s.kernel == kernel and (kernel != "lu_fronts" or s.threads == 256)
    ]
    if not found:
        return None
    if how == "most":
        return max(found, key=lambda k: steps[k].blocks)
    if how == "chain":  # the longest chain that a probe's words hold
        found = [k for k in found if steps[k].blocks <= 40] or found
        return found[max(0, len(found) - 3)]
    return found[0 if how == "first" else -1]


def stamps(solver, at, kernel):
    """Run the sequence up to launch ``at``, that one with stamps; microseconds since its first one."""
    import cupy

    runner = solver._factor.runner
    key = next(k for k in runner._prepared if k.startswith("factor"))
    steps = runner.sequence(key)
    kernel.max_dynamic_shared_size_bytes = steps[at].shared_bytes
    words = cupy.zeros((1 << 20,), cupy.uint64)
    stream = cupy.cuda.get_current_stream()
    for _ in range(2):  # the second with its code in the caches, as far as it stays there
        words.fill(0)
        for k, (compiled, grid, threads, arguments, shared) in enumerate(runner._prepared[key][: at + 1]):
            if k < at:
                compiled.launch(stream.ptr, grid, threads, arguments, shared)
                continue
            letters = len(arguments) - len(steps[at].numbers)
            given = [np.uint64(p) if j < letters else np.int32(p) for j, p in enumerate(arguments)]
            kernel((grid,), (threads,), (*given, words), shared_mem=shared)
        cupy.cuda.runtime.deviceSynchronize()
    t = words.get().reshape(LINES, WORDS).astype(np.int64)
    return np.where(t > 0, (t - t[t > 0].min()) / 1e3, np.nan)


def front_lines(t, solver, kernel):
    """Phases of the fronts of a launch: medians by rows and, in a tree, the path that ends last."""
    plan, fronts = solver._factor.plan, solver._factor.plan.fronts
    stat = fronts["stat"].astype(int)
    mine = np.flatnonzero(np.isfinite(t[: fronts.size, 4]))

    def legs(s):
        start = t[s, 5] if kernel == "lu_tree" else t[s, 0]
        panels = t[min(stat[s], LINES - 1), 8 : 8 + 3 * 5] - t[s, 1]
        shown = " ".join(f"{v:.1f}" for v in panels if np.isfinite(v))
        return (
            f"rows {fronts['rows'][s]:4d} width {fronts['width'][s]:4d}: begun {t[s, 0]:7.1f} seen {start:7.1f} "
            f"assembled +{t[s, 1] - start:5.1f} eliminated +{t[s, 2] - t[s, 1]:5.1f} told +{t[s, 3] - t[s, 2]:4.1f} "
            f"panel +{t[s, 4] - t[s, 3]:5.1f} | {shown}"
        )

    lines = [legs(s) for s in mine[np.argsort(-fronts["rows"][mine], kind="stable")][:6]]
    if kernel == "lu_tree":
        s, path = int(mine[np.argmax(t[mine, 3])]), []
        while s >= 0:
            path.append(s)
            children = [c for c in np.flatnonzero(plan.parent == s) if np.isfinite(t[c, 3])]
            s = int(max(children, key=lambda c: t[c, 3])) if children else -1
        lines += ["path, from its end:", *(legs(s) for s in path)]
    return lines


def strip_lines(t, blocks):
    """For each strip: begun, loaded, at its own block, eliminated | each panel before it: seen, loaded, formed, updated."""
    lines = []
    for b in range(min(blocks, 34)):
        before = t[b, 8:64]
        shown = " ".join(f"{v:.1f}" for v in before if np.isfinite(v))
        lines.append(f"strip {b:3d}: {t[b, 0]:.1f} {t[b, 3]:.1f} {t[b, 1]:.1f} {t[b, 2]:.1f} | {shown}")
    return lines


def system(name):
    from sparse_gpu_cases import carried, laplacian
    from sparse_gpu_lu import circuit

    made = {"lap3d_40": (40, 40, 40), "lap2d_300": (300, 300)}
    if name in made:
        return laplacian(*made[name])
    return circuit(200) if name == "circuit_200" else carried(name)


def one_case(name, ordering, launches, modules):
    """Lines of a system, one by one."""
    import cupy
    from sparse_gpu_cases import errors
    from sparse_gpu_lu import solver
    from sparse_gpu_time import device_times, profile

    a = system(name)
    s = solver(a, check="status", ir_n_steps=0, reordering_alg=ordering).analyze()
    values, b = cupy.asarray(a.data), cupy.asarray(a @ np.ones(a.shape[0]))
    for _ in range(3):
        s.refactorize(values)
    ms = min(device_times(lambda: s.refactorize(values), 10))
    error = errors(a, s.solve(b).get(), b.get())
    yield f"{name} {ordering}: refactor {ms:.3f} ms, errors {error[0]:.1e} {error[1]:.1e}"
    runner = s._factor.runner
    steps = runner.sequence(next(k for k in runner._prepared if k.startswith("factor")))
    for kernel, how in launches:
        at = picked(steps, kernel, how)
        if at is None:
            continue
        t = stamps(s, at, modules[kernel])
        yield f" launch {at}, {kernel}, {steps[at].blocks} blocks, {how}"
        found = strip_lines(t, steps[at].blocks) if kernel == "lu_strips" else front_lines(t, s, kernel)
        yield from ("   " + line for line in found)
    total = {}
    for kernel, threads, _, us in profile(s, "factor from entries"):
        total[f"{kernel}/{threads}"] = total.get(f"{kernel}/{threads}", 0.0) + us
    yield "   " + " ".join(f"{k}:{v:.0f}" for k, v in total.items() if v > 5)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=Path("out"))
    arguments.add_argument("--limit", type=float, default=25.0, help="seconds after which no system is begun")
    arguments.add_argument("--build", action="store_true")
    given = arguments.parse_args()
    begun = perf_counter()
    with tempfile.TemporaryDirectory() as root:
        folder = stamped_folder(Path(root) / "stamped")
        if given.build:
            build_all(folder)
            return
        given.out.mkdir(parents=True, exist_ok=True)
        with (given.out / "lu_probe.txt").open("w") as file:

            def say(line):
                print(line, flush=True)
                print(line, file=file, flush=True)

            modules = {kernel: load(folder, kernel) for kernel in KERNELS_PROBED}
            say(f"compiled after {perf_counter() - begun:.1f} s")
            for name, ordering, launches in CASES:
                if perf_counter() - begun > given.limit:
                    say(f"out of time before {name}")
                    break
                try:
                    for line in one_case(name, ordering, launches, modules):
                        say(line)
                except Exception:
                    say(traceback.format_exc())
            say(f"took {perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
