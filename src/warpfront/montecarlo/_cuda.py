"""Chunks on the GPU: what the host decides, and the launches.

`plan` is a pure function of a group of options with one payoff and of the settings, testable without a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import cuda
from warpfront.backend.compile import CompileOptions
from warpfront.montecarlo._run import CHANNELS, Run, Settings
from warpfront.montecarlo._tree import SumTree

__all__ = ["OPTIONS", "Plan", "add_chunks", "instantiations", "plan", "prepare", "slab_chunks", "subset"]

SOURCE = Path(__file__).with_name("price_paths.cu")
# Products and sums are contracted where the source says so and nowhere else: float64 then has the CPU's bits.
OPTIONS = CompileOptions(fma=False)
LANES, SWEEPS = 128, 32
SIGNATURE, TREE_SIGNATURE = "ppppp" + "q" * 7, "ppqqqq"
LEVELS = 6
TREE = f"add_chunks<{LEVELS}>"
MAX_GRID = 2**31 - 1
# Sums kept on the device between two looks at the result, in chunks of one series.
_SLAB_ITEMS = 1 << 18


@dataclass(frozen=True)
class Plan:
    """One launch of ``price_paths``.

    Attributes
    ----------
    expression : str
    items : int
        (Series, chunk) pairs; the grid is persistent over them.
    threads : int
    """

    expression: str
    items: int
    threads: int


def expression(
    payoff: int, one_step: bool, settings: Settings, lanes: int = LANES, sweeps: int = SWEEPS
) -> str:
    """Return the instantiation for a payoff and settings."""
    kind = "float" if settings.precision == "float32" else "double"
    flags = (settings.antithetic, settings.control_variate, settings.greeks, settings.sobol)
    words = ", ".join(str(bool(flag)).lower() for flag in flags)
    return f"price_paths<{kind}, {payoff}, {int(one_step)}, {words}, {lanes}, {sweeps}>"


def plan(payoff: int, steps: tuple[int, ...], settings: Settings, series: int, chunks: int) -> Plan:
    """Return the launch for a group of options.

    Parameters
    ----------
    payoff : int
        Payoff code of the group.
    steps : tuple of int
        Time steps of each option.
    settings : Settings
    series, chunks : int
        Series of the group, and chunks of each.
    """
    one_step = payoff == 0 and max(steps) == 1
    return Plan(expression(payoff, one_step, settings), series * chunks, LANES)


def instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return all that `plan` can ask for: (file, expressions, least architecture)."""
    names = [TREE, "philox_words<10>"]
    for precision in ("float64", "float32"):
        for payoff, one_step in ((0, True), (0, False), (1, False), (2, False), (3, False)):
            for code in range(16):
                antithetic, control, greeks, sobol = (bool(code >> k & 1) for k in range(4))
                if (sobol and (antithetic or control)) or (greeks and payoff > 1):
                    continue
                settings = Settings(
                    antithetic=antithetic,
                    control_variate=control,
                    greeks=greeks,
                    sobol=sobol,
                    precision=precision,
                )
                names.append(expression(payoff, one_step, settings))
    return [(SOURCE, tuple(names), 75)]


def subset() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return a covering part of `instantiations`: for each type and payoff the plain kernel and the fullest ones."""
    (file, names, least), *_ = instantiations()
    chosen = [name for name in names if not name.startswith("price_paths")]
    groups: dict[str, list[str]] = {}
    for name in names:
        if name.startswith("price_paths"):
            groups.setdefault(",".join(name.split(",")[:3]), []).append(name)
    for group in groups.values():
        chosen += [group[0], max(group, key=lambda name: name.count("true")), group[-1]]
    return [(file, tuple(dict.fromkeys(chosen)), least)]


def prepare(run: Run) -> None:
    """Load the kernels, or compile them, so that no launch waits for it."""
    import cupy

    device = cupy.cuda.runtime.getDevice()
    for payoff, positions in run.groups().items():
        steps = tuple(run.options[k].n_steps for k in positions)
        _kernel(plan(payoff, steps, run.settings, run.n_series, 1).expression, SIGNATURE, device)
    _kernel(TREE, TREE_SIGNATURE, device)


def slab_chunks(run: Run) -> int:
    """Return how many chunks of every series are simulated between two looks at the result."""
    return max(1 << LEVELS, _SLAB_ITEMS // run.n_series >> LEVELS << LEVELS)


def add_chunks(run: Run, n_samples: int, first: int, last: int, tree: SumTree) -> None:
    """Simulate chunks ``first`` to ``last - 1`` of every series and add their sums to the tree."""
    pieces = [
        (positions, _launch_group(run, positions, payoff, n_samples, first, last))
        for payoff, positions in run.groups().items()
    ]
    gathered: dict[tuple[int, int], NDArray[np.float64]] = {}
    for positions, found in pieces:
        series = (np.array(positions)[:, None] * run.replicates + np.arange(run.replicates)).reshape(-1)
        for (level, index), block in found.items():
            whole = gathered.setdefault((level, index), np.zeros((block.shape[1], run.n_series, CHANNELS)))
            whole[:, series] = block.transpose(1, 0, 2)
    for (level, index), block in sorted(gathered.items()):
        tree.add(level, index, block)


@lru_cache(maxsize=256)
def _kernel(name: str, signature: str, device: int) -> tuple[cuda.Kernel, int]:
    """Return a kernel and the blocks the device holds of it at once."""
    from warpfront.backend import capability

    kernel = cuda.load(SOURCE, name, signature, device, OPTIONS)
    held = kernel.blocks_per_sm(LANES) * capability.probe(device).sm_count
    return kernel, max(held, 1)


def split(first: int, last: int) -> tuple[int, int]:
    """Return the part of chunks ``first`` to ``last`` that consists of whole groups of 2^LEVELS."""
    size = 1 << LEVELS
    low, high = -(-first // size) * size, last // size * size
    return (low, high) if low < high else (last, last)


def _launch_group(
    run: Run, positions: list[int], payoff: int, n_samples: int, first: int, last: int
) -> dict[tuple[int, int], NDArray[np.float64]]:
    """Return (level, index of the first node) -> sums (series, nodes, channels) of the options of one payoff."""
    import cupy

    chunks, series = last - first, len(positions) * run.replicates
    made = plan(payoff, tuple(run.options[k].n_steps for k in positions), run.settings, series, chunks)
    device = cupy.cuda.runtime.getDevice()
    stream = int(cupy.cuda.get_current_stream().ptr)
    kernel, held = _kernel(made.expression, SIGNATURE, device)
    coefficients = cupy.asarray(run.coefficients[positions])
    whole = cupy.asarray(np.array([[run.options[k].n_steps, run.stream(k)] for k in positions], np.int32))
    directions, shifts = _points(run)
    out = cupy.empty((series, chunks, CHANNELS))
    pointers = [array.data.ptr for array in (out, coefficients, whole, directions, shifts)]
    numbers = (run.settings.seed, n_samples, first, chunks, series, run.replicates, run.dims)
    kernel.launch(stream, min(made.items, 8 * held), made.threads, [*pointers, *map(_signed, numbers)])
    low, high = split(first, last)
    found: dict[tuple[int, int], Any] = {}
    if low < high:
        groups = (high - low) >> LEVELS
        added = cupy.empty((series, groups, CHANNELS))
        adder, _ = _kernel(TREE, TREE_SIGNATURE, device)
        blocks = -(-series * groups * CHANNELS // 128)
        adder.launch(stream, blocks, 128, [added.data.ptr, out.data.ptr, series, groups, chunks, low - first])
        found[LEVELS, low >> LEVELS] = added
    for begin, end in ((first, min(low, last)), (max(high, first), last)):
        if begin < end and (0, begin) not in found:
            found[0, begin] = out[:, begin - first : end - first]
    return {key: cupy.asnumpy(value) for key, value in found.items()}


def _signed(value: int) -> int:
    """Return the 64-bit integer with the bits of an unsigned one."""
    return value - (1 << 64) if value >= 1 << 63 else value


@lru_cache(maxsize=4)
def _points_on(device: int, dims: int, replicates: int, seed: int) -> tuple[Any, Any]:
    import cupy

    from warpfront.montecarlo._sobol import scrambles

    directions, shifts = scrambles(dims, replicates, seed)
    return cupy.asarray(directions.astype(np.uint32)), cupy.asarray(shifts.astype(np.uint32))


def _points(run: Run) -> tuple[Any, Any]:
    import cupy

    if run.settings.sobol:
        return _points_on(cupy.cuda.runtime.getDevice(), run.dims, run.replicates, run.settings.seed)
    empty = cupy.zeros(1, cupy.uint32)
    return empty, empty
