"""Where a tree of small fronts spends its time: `factor_tree` with time stamps, along the path of fronts that ends last.

    PYTHONPATH=src python3 tools/device/sparse_gpu_tree_probe.py --out out

Without a GPU, ``--build`` proves that the stamps still find their places in the text and that it compiles.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

NAME = "factor_tree<double, true>"
WORDS = 64  # a front: 16 stamps, then a word a step of a warp's search
STAMP = """
WF_DEVICE unsigned long long*& probed() {
  __shared__ unsigned long long* at;
  return at;
}
WF_DEVICE int& stamped_front() {
  __shared__ int at[4];
  return at[threadIdx.x / 32];
}
template <int Threads>
WF_DEVICE void stamp(int k, int front = -1) {
  if (team_rank<Threads>() != 0) return;
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  if (front >= 0) stamped_front() = front;
  probed()[stamped_front() * 64 + k] = t;
}
WF_DEVICE void stamp_step(int step, int kind) {
  const unsigned long long t = static_cast<unsigned long long>(clock64()) << 4 | kind;
  if (lane_id() == 0 && step < 48) probed()[stamped_front() * 64 + 16 + step] = t;
}
"""
# begun, lists fetched and zeroed, children seen, assembled, tried in place, searched, eliminated, told, finished; (10) whole
# search begun
PLACES = {  # file: (text, stamp, whether the stamp stands behind the text)
    "gather.cuh": (("constexpr int kSlots = 8;\n", STAMP, True),),
    "factor_tree.cu": (
        ("i32* stats, u32* cells, i32 count", ", unsigned long long* probe", True),
        ("  T* a = reinterpret_cast<T*>(memory);\n", "  if (thread == 0) probed() = probe;\n", True),
        ("    const Front f = forest.fronts[s];\n", "    stamp<Threads>(0, s);\n", False),
        ("    const auto ready = [&] {\n", "      stamp<Threads>(1);\n", True),
        ("      else team_sync<Threads>();\n", "      stamp<Threads>(2);\n", True),
        ("    u32* cell = s == item.last", "    stamp<Threads>(3);\n", False),
        ("scratch, to, cell);\n    team_sync<Threads>();\n", "    stamp<Threads>(8);\n", True),
    ),
    "small_fronts.cuh": (
        ("  if (Indefinite && bad >= 0) return false;\n", "  stamp<kWarp>(4);\n", False),
        ("  tell<kWarp>(cell);\n", "  stamp<kWarp>(7);\n", True),
        ("rule, s, at, put);\n", "  stamp<kWarp>(5);\n", True),
        ("  i32* order = scratch->order;\n", "  stamp<Threads>(10);\n", True),
        ("  for (int q = warp; q < below;", "  stamp<Threads>(6);\n", False),
        ("  tell<Threads>(cell);\n", "  stamp<Threads>(7);\n", True),
    ),
    "pivoted_warp.cuh": (
        ("      __syncwarp();\n      next_pass", "      stamp_step(steps_done++, 1);\n", False),
        ("  int lane_k = 0;", "  int steps_done = 0;\n  stamp_step(steps_done++, 0);\n", False),
        (
            "    __syncwarp();\n    next_pass",
            "    stamp_step(steps_done++, choice.kind + (some ? 4 : 0));\n",
            False,
        ),
    ),
    "pivoted_block.cuh": (
        ("    if (warp == 0) write_direct(", "    stamp<Threads>(4);\n", False),
        ("  if (warp == 0) {\n    const bool found", "  stamp<Threads>(4);\n", False),
        ("  if (s.found == 0) return false;\n", "  stamp<Threads>(5);\n", False),
    ),
}
COUNTS = {"  tell<kWarp>(cell);\n": 2}
PHASES = ("late", "lists", "seen", "assembled", "in place", "searched", "rest", "told")


def folder_of(where, stamped, changes=()):
    """Copy the room's device files to a folder, with stamps or changes (file, text, other text)."""
    from warpfront.sparse.gpu.kernels import KERNELS

    source = KERNELS["factor_tree"].source.parent
    where.mkdir(parents=True)
    for file in [*source.glob("*.cu"), *source.glob("*.cuh")]:
        shutil.copy(file, where / file.name)
    for name, text, other in changes:
        replace(where / name, text, other)
    for name, places in (PLACES if stamped else {}).items():
        for text, call, behind in places:
            replace(where / name, text, text + call if behind else call + text, COUNTS.get(text, 1))
    return where / "factor_tree.cu"


def replace(file, text, other, count=1):
    old = file.read_text()
    if old.count(text) != count:
        raise AssertionError(f"{file.name} has changed: {text!r} stands there {old.count(text)} times")
    file.write_text(old.replace(text, other))


VARIANTS = {
    "as it is": (False, ()),
    "stamped": (True, ()),
}


def build_all(root):
    """Cubins of all variants: name -> (file, symbol)."""
    from cuda.core import Program  # noqa: F401  # before threads import it

    from warpfront.backend import compile as compiling

    def one(item):
        name, (stamped, changes) = item
        file = folder_of(root / name.replace(" ", "_").replace(",", ""), stamped, changes)
        made = compiling.build(file, (NAME,), "sm_90")
        cubin = file.with_suffix(".cubin")
        cubin.write_bytes(made.cubin)
        return name, (cubin, made.names[NAME], made.resources[NAME])

    with ThreadPoolExecutor(len(VARIANTS)) as pool:
        return dict(pool.map(one, VARIANTS.items()))


class Launch:
    """The cells cleared and `factor_tree` run as a refactorisation of this solver does it, by one variant."""

    def __init__(self, solver, cubin, symbol):
        import cupy

        runner = solver._factor.runner
        self.runner = runner
        key = next(k for k in runner._prepared if k.startswith("factor"))
        steps = [s.kernel for s in runner.sequence(key)]
        at = steps.index("factor_tree")
        self.clear, self.step = runner._prepared[key][steps.index("start_tree")], runner._prepared[key][at]
        self.module = cupy.RawModule(path=str(cubin))
        self.kernel = self.module.get_function(symbol)
        self.kernel.max_dynamic_shared_size_bytes = self.step[4]

    def run(self, blocks=0, *probe):
        import cupy

        stream = cupy.cuda.get_current_stream()
        compiled, grid, threads, arguments, shared = self.clear
        compiled.launch(stream.ptr, grid, threads, arguments, shared)
        _, grid, threads, arguments, shared = self.step
        given = (*(np.uint64(p) for p in arguments[:-1]), np.int32(arguments[-1]), *probe)
        self.kernel((min(grid, blocks) if blocks else grid,), (threads,), given, shared_mem=shared)

    def microseconds(self, blocks=0, repeats=15):
        """Median over repeats, of both launches."""
        import cupy

        times = []
        for _ in range(repeats):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            self.run(blocks)
            end.record()
            end.synchronize()
            times.append(1e3 * cupy.cuda.get_elapsed_time(start, end))
        return float(np.median(times))

    def state(self):
        names = ("panels", "diagonal", "pivots", "stats")
        return {k: self.runner.buffers[k].view("u1").get() for k in names}

    def stamps(self, fronts):
        """Microseconds since the first stamp, NaN where there is none in the last pass over a front."""
        import cupy

        all_words = cupy.zeros(fronts * WORDS, cupy.uint64)
        self.run(0, np.uint64(all_words.data.ptr))
        cupy.cuda.runtime.deviceSynchronize()
        words = all_words.get().reshape(-1, WORDS).astype(np.int64)
        self.steps, words = words[:, 16:], words[:, :16]
        t = np.where(words > 0, (words - words[words > 0].min()) / 1e3, np.nan)
        with np.errstate(invalid="ignore"):
            stale = t < t[:, :1]
        return np.where(stale, np.nan, t)


def path_of(t, plan, symbolic):
    """Fronts from the first to the one that told last, each with the child that told last."""
    front = symbolic.plan
    s, path = int(np.nanargmax(t[:, 7])), []
    while True:
        path.append(s)
        children = front.child_ind[front.child_ptr[s] : front.child_ptr[s + 1]]
        if not len(children):
            return path[::-1]
        s = int(children[np.argmax(t[children, 7])])


def legs_of(t, s, before):
    """Microseconds of each phase of front s, from when its last child told."""
    begun, lists, seen, assembled, tried, searched, eliminated, told = t[s, :8]
    searched = tried if np.isnan(searched) else searched
    eliminated = searched if np.isnan(eliminated) else eliminated
    marks = [before, begun, lists, seen, assembled, tried, searched, eliminated, told]
    marks = np.fmax.accumulate(np.array(marks))
    return np.diff(marks)


def kind_of(t, rows):
    how = (
        "whole"
        if np.isfinite(t[10])
        else "searched"
        if np.isfinite(t[5]) and not t[5] <= t[4]
        else "in place"
    )
    return ("warp " if rows <= 32 else "block ") + how


def table(t, plan, symbolic):
    """Lines: the path's fronts with their phases, and totals."""
    lines = ["   rows width children chunks  " + " ".join(f"{p:>9s}" for p in PHASES) + "     panel"]
    total, before = np.zeros(len(PHASES)), 0.0
    for s in path_of(t, plan, symbolic):
        f, g = plan.fronts[s], plan.gathers[s]
        legs = legs_of(t, s, before)
        total += legs
        before = t[s, 7]
        children = int(f["child1"] - f["child0"])
        lines.append(
            f"  {int(f['rows']):5d} {int(f['width']):5d} {children:8d} {int(g['last'] - g['first']):6d} "
            + " ".join(f"{v:9.2f}" for v in legs)
            + f" {t[s, 8] - t[s, 7]:9.2f}  "
            f"{kind_of(t[s], int(f['rows']))}, told at {before:.1f}"
        )
    lines.append("  total" + 25 * " " + " ".join(f"{v:9.2f}" for v in total) + f"  = {total.sum():.1f}")
    return lines, dict(zip(PHASES, total.round(2).tolist(), strict=True))


KINDS = {1: "1x1 at once", 5: "1x1", 6: "2x2", 4: "rejected", 3: "zero"}


def steps_of(words, path):
    """Medians and counts of the steps of a warp's search by what they did; words of the last run."""
    found = {}
    for s in path:
        w = words[s][words[s] > 0]
        for cycles, kind in zip(np.diff(w >> 4), w[1:] & 15, strict=True):
            if 0 < cycles < 100000:
                found.setdefault(KINDS.get(int(kind), str(kind)), []).append(int(cycles))
    return ", ".join(f"{k}: {len(v)} of {int(np.median(v))} (least {min(v)})" for k, v in found.items())


def one_case(name, ordering, cubins):
    """Print and return what one system shows."""
    import cupy
    import sparse_gpu_cases as cases

    from warpfront import DirectSolver

    a = cases.carried(name)
    solver = DirectSolver(a, structure="S", device="cuda", check="status", reordering_alg=ordering)
    solver.factorize()
    solver.refactorize(cupy.asarray(a.data))
    cupy.cuda.runtime.deviceSynchronize()
    plan, symbolic = solver._factor.plan, solver._symbolic
    facts = {"case": name, "ordering": ordering, "fronts": len(plan.fronts), "tickets": plan.forest.up}
    launches = {k: Launch(solver, *v[:2]) for k, v in cubins.items()}
    reference = launches["as it is"].state()
    for k, launch in launches.items():
        launch.stamps(len(plan.fronts)) if k.startswith("stamped") else launch.run()
        found = launch.state()
        facts[f"{k}: bits"] = all(np.array_equal(found[b], reference[b]) for b in reference)
        if not k.startswith("stamped"):
            facts[k] = {b: round(launch.microseconds(b), 1) for b in (0, 132, 66, 33)}
    print(json.dumps(facts), flush=True)
    for k, launch in launches.items():
        if k.startswith("stamped"):
            runs = [launch.stamps(len(plan.fronts)) for _ in range(5)]
            ends = [float(np.nanmax(t[:, 7])) for t in runs]
            t = runs[int(np.argsort(ends)[len(ends) // 2])]
            lines, facts[k] = table(t, plan, symbolic)
            lines.append(
                "  steps of searches on the path, cycles: "
                + steps_of(launch.steps, path_of(t, plan, symbolic))
            )
            print(f"{name} {ordering}, {k}: last told after {sorted(ends)}", *lines, sep="\n", flush=True)
    return facts


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=Path, default=Path("out"))
    arguments.add_argument("--build", action="store_true")
    arguments.add_argument(
        "--cases",
        nargs="*",
        default=["case14_ieee_K2_it10", "case118_ieee_K2_it10", "case1354_pegase_K2_it10"],
    )
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as root:
        cubins = build_all(Path(root))
        for name, (_, _, resources) in cubins.items():
            print(name, resources, flush=True)
        if given.build:
            return
        given.out.mkdir(parents=True, exist_ok=True)
        facts = []
        for name in given.cases:
            for ordering in ("amd", "multilevel"):
                facts.append(one_case(name, ordering, cubins))
                (given.out / "tree_probe.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
