"""What a pipeline run did: rates, time by stage, latency of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Interval", "PipelineRecord", "StageTime", "quantile"]


@dataclass(frozen=True)
class Interval:
    """One stage of one image on the device's clock, in seconds from the first of them."""

    image: int
    slot: int
    stage: str
    begin_seconds: float
    end_seconds: float


@dataclass(frozen=True)
class StageTime:
    """Time of one stage over all images.

    Attributes
    ----------
    stage : {"decode", "stage", "h2d", "kernel", "d2h", "encode"}
        ``"stage"``: copy into pinned memory, for a decoder that does not write there itself.
    total_seconds, median_seconds, p95_seconds : float
        Stages of different images run at the same time, so totals add up to more than the run.
    """

    stage: str
    total_seconds: float
    median_seconds: float
    p95_seconds: float


@dataclass(frozen=True)
class PipelineRecord:
    """One run of `warpfront.image.EdgePipeline`.

    Attributes
    ----------
    device : {"cpu", "cuda"}
    device_reason : str
        Why it ran there.
    images, pixels : int
        Images counts arrays handed in; a batch counts as its images.
    seconds : float
        From the first image taken to the last result.
    prepare_seconds : float
        Compiling or loading kernels, once before the pipeline's first run; in no other time here.
    images_per_second, pixels_per_second : float
    stages : tuple of StageTime
    latency_p50_seconds, latency_p95_seconds, latency_p99_seconds : float
        From the begin of decoding to the end of encoding.
    slots, streams : int
    peak_bytes, cap_bytes, allocations : int
        Buffers: most bytes held at once in each memory, the cap, and how often a buffer was made.
    graphs_built, graphs_replayed, launches : int
        Launches are images that went eagerly (the first of a shape on a slot).
    timeline : tuple of Interval
        Empty unless asked for.
    """

    device: str
    device_reason: str
    images: int
    pixels: int
    seconds: float
    prepare_seconds: float
    images_per_second: float
    pixels_per_second: float
    stages: tuple[StageTime, ...]
    latency_p50_seconds: float
    latency_p95_seconds: float
    latency_p99_seconds: float
    slots: int
    streams: int
    peak_bytes: int
    cap_bytes: int
    allocations: int
    graphs_built: int
    graphs_replayed: int
    launches: int
    timeline: tuple[Interval, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, ready for JSON."""
        return asdict(self)


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation between the two nearest ranks; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
