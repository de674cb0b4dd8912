"""Which path a prefill takes, and why not the others."""

from __future__ import annotations

from typing import Any

from warpfront.attention import _options
from warpfront.attention._problem import PrefillProblem
from warpfront.backend import capability
from warpfront.backend.dispatch import Decision
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["explain_prefill", "need_cpu", "need_gpu"]

# Paths on a GPU, by name.
GPU_ALGORITHMS = ("triton", "cudnn")


def need_cpu(algorithm: str) -> None:
    """Raise unless work on arrays in host memory may be done by ``algorithm``."""
    _check_name(algorithm)
    if algorithm in GPU_ALGORITHMS:
        raise NotSupportedError(
            f"algorithm {algorithm!r} runs on a GPU, and q is in host memory; q.cuda() moves a tensor"
        )


def need_gpu(algorithm: str) -> None:
    """Raise unless work on tensors in device memory may be done by ``algorithm``."""
    _check_name(algorithm)
    if algorithm == "cpu":
        raise NotSupportedError(
            'algorithm "cpu" works in host memory, and q is on a GPU; q.cpu() moves a tensor'
        )


def _check_name(algorithm: str) -> None:
    if algorithm not in ("auto", "cpu", *GPU_ALGORITHMS):
        names = ", ".join(("auto", "cpu", *GPU_ALGORITHMS))
        raise InvalidValueError(f"algorithm must be one of {names}, got {algorithm!r}")


def explain_prefill(
    batch: int,
    length: int,
    heads: int,
    kv_heads: int | None = None,
    head_dim: int = 128,
    *,
    dtype: str = "bfloat16",
    device: str = "auto",
    algorithm: str = "auto",
    capability_: capability.Capability | None = None,
    **options: Any,
) -> tuple[Decision, ...]:
    """Return which path `prefill` takes for ``length`` queries and as many keys, and why not the others.

    Parameters
    ----------
    batch, length, heads, kv_heads, head_dim : int
        ``kv_heads`` defaults to ``heads``.
    dtype : str
        float16, bfloat16 or float32.
    device : {"auto", "cpu", "cuda"}
        Where the arrays are; ``"auto"``: on a GPU if there is one.
    algorithm : str
        As `prefill`.
    capability_ : Capability, optional
        Ask for another device than the one here.
    **options
        ``causal``, ``window``, ``soft_cap``, ``scale``, ``return_lse`` of `prefill`.

    Returns
    -------
    tuple of Decision
        Every path: its name, whether it is taken, and the reason. The reason of a path on a GPU that is taken ends with
        the measurement nearest to the problem, or says that nothing like it was measured on such a device.
    """
    unknown = set(options) - {"causal", "window", "soft_cap", "scale", "return_lse"}
    if unknown:
        raise InvalidValueError(f"no option {sorted(unknown)[0]!r} of prefill can be explained")
    if device not in ("auto", "cpu", "cuda"):
        raise InvalidValueError(f'device must be "auto", "cpu" or "cuda", got {device!r}')
    _check_name(algorithm)
    have, absent = _capability(device, capability_)
    on_device = device == "cuda" or (device == "auto" and have is not None)
    left, right = _options.sides(
        options.get("window"), causal=_options.flag("causal", options.get("causal", False))
    )
    problem = PrefillProblem(
        batch,
        length,
        length,
        batch * length,
        batch * length,
        heads,
        heads if kv_heads is None else kv_heads,
        head_dim,
        dtype,
        on_device=on_device,
        left=left,
        right=right,
        soft_cap=_options.soft_cap_of(options.get("soft_cap")),
        scale=_options.scale_of(options.get("scale"), head_dim),
        return_lse=_options.flag("return_lse", options.get("return_lse", False)),
    )
    return (*_gpu_decisions(problem, algorithm, have, absent), _cpu_decision(problem, algorithm))


def _capability(
    device: str, given: capability.Capability | None
) -> tuple[capability.Capability | None, str | None]:
    """Return the device in question, or why there is none."""
    if given is not None:
        return given, None
    if device == "cpu":
        return None, "the arrays are in host memory"
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return None, 'needs PyTorch: pip install "warpfront[torch]"'
    import torch

    if not torch.cuda.is_available():
        return None, "needs a GPU, and PyTorch sees none"
    from warpfront.attention import _dispatch

    return _dispatch.device_capability(), None


def _gpu_decisions(
    problem: PrefillProblem, algorithm: str, have: capability.Capability | None, absent: str | None
) -> tuple[Decision, ...]:
    from warpfront.attention import _dispatch

    decisions, measured = _dispatch.explain_prefill(
        problem, "auto" if algorithm == "cpu" else algorithm, have
    )
    found = []
    for decision in decisions:
        taken, reason = decision.taken, decision.reason
        if have is None:
            taken, reason = False, absent or reason
        elif algorithm == "cpu":
            taken, reason = False, 'could run, and algorithm="cpu" was asked for'
        elif taken:
            reason = f"{reason}; {measured}"
        found.append(Decision(decision.path, taken, reason, decision.summary))
    return tuple(found)


def _cpu_decision(problem: PrefillProblem, algorithm: str) -> Decision:
    summary = "Numba and BLAS: online softmax, threads over tiles of rows; every option"
    if problem.on_device:
        return Decision("cpu", False, "the arrays are in device memory; tensor.cpu() moves them", summary)
    if algorithm in GPU_ALGORITHMS:
        return Decision("cpu", False, f"could run, and algorithm={algorithm!r} was asked for", summary)
    reason = "asked for by name" if algorithm == "cpu" else "the arrays are in host memory"
    return Decision("cpu", True, reason, summary)
