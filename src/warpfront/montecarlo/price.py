"""Monte Carlo prices of options: `price`, and its two halves `simulate` and `merge` for work on many machines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from time import perf_counter
from types import ModuleType
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import capability, cpu, dispatch
from warpfront.errors import InvalidValueError
from warpfront.montecarlo import _cuda, _host
from warpfront.montecarlo._estimate import MIN_PAYERS, estimate_all
from warpfront.montecarlo._run import Run, SamplingOptions, Settings, chunk_count
from warpfront.montecarlo._search import Search
from warpfront.montecarlo._tree import SumTree
from warpfront.montecarlo.options import as_options, integer, number
from warpfront.montecarlo.results import (
    Estimate,
    FewPayersWarning,
    Pricing,
    Progress,
    ToleranceNotReachedWarning,
)

__all__ = ["PATHS", "PartialSums", "explain_price", "merge", "price", "simulate"]

# Where a tolerance alone stops the search.
_LIMIT_PATHS = 1 << 34


@dataclass(frozen=True)
class _Problem:
    """What dispatch reads."""

    dtype: str
    on_device: bool


@dispatch.requires(cc_min=(7, 5), dtypes=("float64", "float32"))
def _gpu_engine() -> ModuleType:
    return _cuda


@dispatch.requires(device="cpu", dtypes=("float64",))
def _cpu_engine() -> ModuleType:
    return _host


# In order of preference.
PATHS = (
    dispatch.Path("portable", _gpu_engine, "CUDA: words, path, payoff and sums in one kernel"),
    dispatch.Path("cpu", _cpu_engine, "Numba vector code, threads over chunks; the same bits in float64"),
)


def price(
    options: Any,
    n_paths: float | None = None,
    *,
    tolerance: float | None = None,
    level: float = 0.95,
    device: dispatch.Device = "auto",
    path: str = "auto",
    progress: Callable[[Progress], Any] | None = None,
    **sampling: Unpack[SamplingOptions],
) -> Pricing:
    """Price options by simulation, and say how well each price is known.

    Sample ``i`` uses random words that are a function of seed, ``i`` and time step alone, and sums are added in a
    fixed tree: in float64 the result has the same bits for any number of threads, any GPU or CPU, any grid, and
    any split of the work (see `simulate`).

    Parameters
    ----------
    options : Option or sequence of Option
        `European`, `AsianArithmetic`, `Barrier`; payoffs may be mixed.
    n_paths : int, optional
        Paths of each option, at most 1e11. With antithetic paths an even number; with Sobol points ``replicates``
        times a power of two. With a tolerance it is the most that may be spent (default 2^34; with Sobol points
        ``replicates`` times 2^24).
    tolerance : float, optional
        Stop when half of every confidence interval is at most this (in units of the price).
    level : float
        Of the confidence intervals, between 0 and 1.
    device : {"auto", "cpu", "cuda"}
        ``"auto"``: a GPU if there is one.
    path : str
        ``"auto"``, ``"portable"`` or ``"cpu"``; see `explain_price`.
    progress : callable, optional
        Called with a `Progress` every few per cent of the work. It changes no bit.
    **sampling
        ``seed``, ``antithetic``, ``control_variate``, ``greeks``, ``sobol``, ``replicates``, ``streams``, ``precision``: see
        `Settings`.

    Returns
    -------
    Pricing
        One `Estimate` for each option, in their order.

    Warns
    -----
    FewPayersWarning
        Fewer than 30 paths of an option pay.
    ToleranceNotReachedWarning
        ``n_paths`` came before the tolerance.

    Raises
    ------
    InvalidValueError
        A wrong number, type or combination; the message says what is allowed.
    NotSupportedError
        A device that is not there, or a method that has no kernel.

    Notes
    -----
    Glasserman, *Monte Carlo Methods in Financial Engineering* (2003), for the estimators. A tolerance stops on the data,
    which makes the interval slightly too short; the first look is at 262,144 samples.
    """
    chosen, single = as_options(options)
    run = Run.of(chosen, Settings.of(sampling))
    level = _level(level)
    if n_paths is None and tolerance is None:
        raise InvalidValueError("give n_paths, or a tolerance, or both")
    wanted = None if tolerance is None else number("tolerance", tolerance, above=0.0)
    limit = run.samples(_default_limit(run) if n_paths is None else n_paths)
    choice = _choose(run, device, path)
    engine = choice.path.run()
    began = perf_counter()
    engine.prepare(run)
    ready = perf_counter()
    with cpu.Clock() as clock:
        search = Search(run, engine, limit, wanted, level, progress)
        search.go()
    _warn(run, search.estimates, wanted, search.converged)
    return Pricing(
        estimates=search.estimates,
        single=single,
        n_paths=search.estimates[0].n_paths,
        converged=search.converged,
        tolerance=wanted,
        device="cpu" if engine is _host else "cuda",
        path=choice.path.name,
        precision=run.settings.precision,
        decisions=choice.decisions,
        settings=asdict(run.settings),
        seconds=clock.seconds,
        jit_seconds=clock.jit_seconds + ready - began,
    )


@dataclass(frozen=True, eq=False)
class PartialSums:
    """What one part of a run adds to the sums; a few numbers, which may be pickled and sent.

    Attributes
    ----------
    run : Run
    n_samples : int
        Samples of each series in the whole run.
    nodes : tuple of (level, index, array (n_series, 10))
        Nodes of the sums' tree.
    device, path : str
        Where it was computed.
    seconds : float
    """

    run: Run
    n_samples: int
    nodes: tuple[tuple[int, int, NDArray[np.float64]], ...]
    device: str
    path: str
    seconds: float


def simulate(
    options: Any,
    n_paths: float,
    part: int = 0,
    parts: int = 1,
    *,
    device: dispatch.Device = "auto",
    path: str = "auto",
    **sampling: Unpack[SamplingOptions],
) -> PartialSums:
    """Simulate one part of a run: `merge` of all parts gives `price`'s bits, whoever computed which.

    Parameters
    ----------
    options, n_paths, device, path, **sampling
        Of the whole run, as `price`; equal for all parts (device and path may differ).
    part, parts : int
        Which part, of how many. Parts are runs of whole chunks of 16,384 samples; with more parts than chunks some
        are empty.

    Returns
    -------
    PartialSums
    """
    chosen, _ = as_options(options)
    run = Run.of(chosen, Settings.of(sampling))
    n_samples = run.samples(n_paths)
    parts = integer("parts", parts, 1)
    part = integer("part", part, 0, parts - 1)
    choice = _choose(run, device, path)
    engine, tree, chunks = choice.path.run(), SumTree(), chunk_count(n_samples)
    engine.prepare(run)
    first, end = chunks * part // parts, chunks * (part + 1) // parts
    with cpu.Clock() as clock:
        while first < end:
            last = min(end, first + engine.slab_chunks(run))
            engine.add_chunks(run, n_samples, first, last, tree)
            first = last
    nodes = tuple((level, index, tree.nodes[level, index]) for _, _, (level, index) in tree.spans())
    where = "cpu" if engine is _host else "cuda"
    return PartialSums(run, n_samples, nodes, where, choice.path.name, clock.seconds)


def merge(parts: Iterable[PartialSums], *, level: float = 0.95) -> Pricing:
    """Add the parts of a run, in any order.

    Parameters
    ----------
    parts : iterable of PartialSums
        All parts of one run, each once.
    level : float
        Of the confidence intervals.

    Returns
    -------
    Pricing
        Its ``seconds`` are the sum over the parts.

    Raises
    ------
    InvalidValueError
        Parts of different runs, a part that is missing, or one that was given twice.
    """
    given = list(parts)
    level = _level(level)
    if not given or not all(isinstance(part, PartialSums) for part in given):
        raise InvalidValueError(
            "merge needs the PartialSums of all parts of a run, got none or something else"
        )
    run, n_samples = given[0].run, given[0].n_samples
    if len({part.run.fingerprint(part.n_samples) for part in given}) > 1:
        raise InvalidValueError("the parts are of different runs: options, n_paths or settings differ")
    tree, at = SumTree(), 0
    for first, end, (depth, index, block) in _in_order(given):
        if first != at:
            what = "were given twice" if first < at else "are missing"
            raise InvalidValueError(f"chunks {min(first, at)} to {max(first, at) - 1} of the run {what}")
        tree.add(depth, index, block[None])
        at = end
    if at != chunk_count(n_samples):
        raise InvalidValueError(f"chunks {at} to {chunk_count(n_samples) - 1} of the run are missing")
    estimates = estimate_all(run, n_samples, tree.total(at), level)
    _warn(run, estimates, None, None)
    return Pricing(
        estimates=estimates,
        single=len(estimates) == 1,
        n_paths=estimates[0].n_paths,
        converged=None,
        tolerance=None,
        device=" + ".join(sorted({part.device for part in given})),
        path=" + ".join(sorted({part.path for part in given})),
        precision=run.settings.precision,
        decisions=(),
        settings=asdict(run.settings),
        seconds=sum(part.seconds for part in given),
        jit_seconds=0.0,
    )


def explain_price(
    *,
    device: dispatch.Device = "auto",
    path: str = "auto",
    precision: str = "float64",
    capability_: capability.Capability | None = None,
) -> tuple[dispatch.Decision, ...]:
    """Return which path `price` takes, and why not the others.

    Parameters
    ----------
    device, path, precision : str
        As `price`.
    capability_ : Capability, optional
        Ask for another device than the one here.
    """
    if precision not in ("float64", "float32"):
        raise InvalidValueError(f'precision must be "float64" or "float32", got {precision!r}')
    have = capability_ or (capability.probe(0) if capability.missing() is None else None)
    problem = _Problem(precision, device != "cpu" and have is not None)
    policy = dispatch.Policy(device=device, path=path)
    return dispatch.explain(PATHS, problem, policy, have, capability.missing() if have is None else None)


def _choose(run: Run, device: dispatch.Device, path: str) -> dispatch.Choice:
    absent = capability.missing()
    have = capability.probe(0) if absent is None and device != "cpu" and path != "cpu" else None
    # There is no input to speak of: with a GPU the work is there.
    problem = _Problem(run.settings.precision, have is not None)
    return dispatch.choose(PATHS, problem, dispatch.Policy(device=device, path=path), have, absent)


def _default_limit(run: Run) -> int:
    return run.replicates << 24 if run.settings.sobol else _LIMIT_PATHS


def _level(level: Any) -> float:
    value = number("level", level, above=0.0)
    if value >= 1.0:
        raise InvalidValueError(f"level must be below 1, got {value:g} (95% is 0.95)")
    return value


def _in_order(parts: list[PartialSums]) -> list[tuple[int, int, tuple[int, int, NDArray[np.float64]]]]:
    found = [
        (index << depth, (index + 1) << depth, (depth, index, block))
        for part in parts
        for depth, index, block in part.nodes
    ]
    return sorted(found, key=lambda node: node[:2])


def _warn(run: Run, estimates: tuple[Estimate, ...], tolerance: float | None, converged: bool | None) -> None:
    few = [k for k, estimate in enumerate(estimates) if estimate.few_payers]
    if few:
        first = estimates[few[0]]
        more = f" (and {len(few) - 1} more)" if len(few) > 1 else ""
        warnings.warn(
            f"options[{few[0]}]{more}: only {first.paying_paths} of {first.n_paths} paths pay, fewer than {MIN_PAYERS}; "
            "its confidence interval means little. Use more paths",
            FewPayersWarning,
            stacklevel=3,
        )
    if converged is False:
        worst = max(estimate.half_width for estimate in estimates)
        warnings.warn(
            f"{estimates[0].n_paths} paths did not reach the tolerance {tolerance:g}: the widest interval is +-{worst:.3g}",
            ToleranceNotReachedWarning,
            stacklevel=3,
        )
