"""Which path a call takes, and why not the others."""

from __future__ import annotations

from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["need_cpu"]

# Paths on a GPU, by name.
GPU_ALGORITHMS = ("triton", "cudnn")


def need_cpu(algorithm: str) -> None:
    """Raise unless work on arrays in host memory may be done by ``algorithm``."""
    if algorithm in ("auto", "cpu"):
        return
    if algorithm in GPU_ALGORITHMS:
        raise NotSupportedError(
            f"algorithm {algorithm!r} runs on a GPU, and q is in host memory; q.cuda() moves a tensor"
        )
    names = ", ".join(("auto", "cpu", *GPU_ALGORITHMS))
    raise InvalidValueError(f"algorithm must be one of {names}, got {algorithm!r}")
