"""Timing on a GPU: device events, graph replay, a cold L2, contenders interleaved.

A contender is a list of calls that do the same work on different memory: each call queues its work on the
stream it is given and neither allocates nor synchronises. Going round a list whose memory is several times
the L2 makes every call start with its data outside the cache, as in a program that has done something else
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from warpfront.backend import capability
from warpfront.errors import InvalidValueError

__all__ = ["Samples", "buffer_sets", "host_overhead", "time_interleaved"]

Call = Callable[[int], Any]


@dataclass(frozen=True)
class Samples:
    """Times of one contender.

    Attributes
    ----------
    seconds : tuple of float
        Mean time of a call in each sample, in the order taken.
    calls_per_sample : int
        Calls between the two events of a sample.
    first_call_seconds : float
        Wall time of the first call with a synchronisation: compilation and loading included.
    """

    seconds: tuple[float, ...]
    calls_per_sample: int
    first_call_seconds: float

    @property
    def median(self) -> float:
        """Median of the samples."""
        return quantile(self.seconds, 0.5)

    @property
    def p95(self) -> float:
        """95th percentile of the samples."""
        return quantile(self.seconds, 0.95)

    @property
    def minimum(self) -> float:
        """Least of the samples."""
        return min(self.seconds)


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation between the two nearest ranks."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def buffer_sets(bytes_per_set: int, device: int = 0, *, most: int = 16) -> int:
    """Return how many sets of buffers a cold L2 needs: at least two, together four times the cache."""
    cache_bytes = capability.probe(device).l2_bytes
    return max(2, min(most, -(-4 * cache_bytes // max(bytes_per_set, 1))))


def time_interleaved(
    contenders: Mapping[str, Sequence[Call]],
    *,
    samples: int = 15,
    target_seconds: float = 2e-3,
    device: int = 0,
) -> dict[str, Samples]:
    """Time contenders side by side, each captured into a graph, the order reversed every round.

    Parameters
    ----------
    contenders : mapping of name to calls
        See the module's docstring. A call takes the handle of the stream to queue on.
    samples : int
        Rounds.
    target_seconds : float
        A sample repeats the list of calls within its graph until it takes about this long, so that the launch
        of the graph does not show.

    Returns
    -------
    dict
        Name -> `Samples`.
    """
    if not contenders:
        raise InvalidValueError("nothing to time")
    import cupy

    with cupy.cuda.Device(device):
        stream = cupy.cuda.Stream(non_blocking=True)
        prepared = {name: _prepare(calls, stream, target_seconds) for name, calls in contenders.items()}
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        names = list(contenders)
        for sample in range(samples):
            for name in names if sample % 2 == 0 else reversed(names):
                graph, count, _ = prepared[name]
                taken[name].append(_elapsed(partial(graph.launch, stream), stream) / count)
    return {name: Samples(tuple(taken[name]), prepared[name][1], prepared[name][2]) for name in names}


def _prepare(calls: Sequence[Call], stream: Any, target_seconds: float) -> tuple[Any, int, float]:
    """Run once (compiles and loads), time a pass, capture as many passes as fill the target, replay once."""
    started = perf_counter()
    with stream:
        calls[0](stream.ptr)
        stream.synchronize()
        first = perf_counter() - started
        for call in calls:
            call(stream.ptr)
        one_pass = _elapsed(lambda: [call(stream.ptr) for call in calls], stream)
        passes = max(1, min(200, round(target_seconds / max(one_pass, 1e-6))))
        stream.begin_capture()
        try:
            for _ in range(passes):
                for call in calls:
                    call(stream.ptr)
        finally:
            graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    return graph, passes * len(calls), first


def _elapsed(work: Callable[[], Any], stream: Any) -> float:
    """Seconds between two events around ``work`` on a stream."""
    import cupy

    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3


def host_overhead(call: Callable[[], Any], *, batch: int = 200, rounds: int = 10, device: int = 0) -> float:
    """Return the host's seconds for one call: the median over rounds of ``batch`` calls not waited for.

    The batch stays below the depth of the launch queue, so the host never waits for the device within it.
    """
    import cupy

    times: list[float] = []
    with cupy.cuda.Device(device):
        call()
        cupy.cuda.runtime.deviceSynchronize()
        for _ in range(rounds):
            started = perf_counter()
            for _ in range(batch):
                call()
            times.append((perf_counter() - started) / batch)
            cupy.cuda.runtime.deviceSynchronize()
    return quantile(times, 0.5)
