"""Arrays of every library the room takes, and the judgement of a result by the float64 reference."""

import importlib.util

import numpy as np
import pytest

from warpfront.attention import _reference

NO_TORCH = importlib.util.find_spec("torch") is None
CUDA = pytest.mark.cuda(by="torch")
TORCH = pytest.mark.skipif(NO_TORCH, reason="needs PyTorch (extra torch)")
BACKENDS = (
    "numpy",
    pytest.param("torch", marks=TORCH),
    pytest.param("cuda", marks=(TORCH, CUDA)),
)
# (backend, type): NumPy has no bfloat16 of its own.
KINDS = (
    ("numpy", "float32"),
    ("numpy", "float16"),
    pytest.param("torch", "bfloat16", marks=TORCH),
    *(pytest.param("cuda", kind, marks=(TORCH, CUDA)) for kind in ("float32", "float16", "bfloat16")),
)


def give(backend, array, kind=None):
    """Return an array of NumPy as one of the backend, rounded to ``kind``."""
    if backend == "numpy":
        return np.asarray(array) if kind is None else np.asarray(array).astype(kind)
    import torch

    tensor = torch.from_numpy(np.array(array))
    if kind is not None:
        tensor = tensor.to(getattr(torch, kind))
    return tensor.cuda() if backend == "cuda" else tensor


def take(array):
    """Return any array as float64 of NumPy."""
    return _reference.widen(array.cpu() if hasattr(array, "cpu") else array)


def bits(array):
    """Return an array's bytes."""
    if hasattr(array, "cpu"):
        import torch

        return array.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return np.ascontiguousarray(array).tobytes()


def heads_of(d, backend):
    """Return a head dim that the backend has."""
    return d if backend != "cuda" or d in (64, 80, 96, 128, 256) else 64


def errors(out, lse, sequence, kind, **options):
    """Check zeros and LSE of one sequence; return error, error of plain code, rounding of the exact result.

    ``out`` (q_len, heads, d), ``lse`` (heads, q_len), ``sequence`` q, k, v, all float64; ``options`` are causal, window,
    soft_cap, bias, scale.
    """
    q, k, v = sequence
    seen = _reference.visible(
        q.shape[0], k.shape[0], causal=options.pop("causal", False), window=options.pop("window", None)
    )
    exact, exact_lse = _reference.attention(q, k, v, seen, **options)
    plain = _reference.same_precision(q, k, v, seen, kind, **options)
    nothing = np.isneginf(exact_lse)
    assert np.array_equal(np.isneginf(lse), nothing)
    assert (out.transpose(1, 0, 2)[nothing] == 0.0).all()
    limit = 1e-5 + 1e-6 * np.abs(exact_lse[~nothing]).max(initial=0.0)
    assert np.abs(lse[~nothing] - exact_lse[~nothing]).max(initial=0.0) <= limit
    differences = (out - exact, plain - exact, _reference.round_to(exact, kind) - exact)
    return [np.abs(difference).max(initial=0.0) for difference in differences]


def settle(found):
    """Apply the rule of the room to the sequences of a call: twice the error of plain code, plus twice the rounding."""
    error, plain, rounding = np.max(np.reshape(found, (-1, 3)), axis=0, initial=0.0)
    assert error <= 2 * plain + 2 * rounding + 1e-30, (
        f"error {error:.3g}, plain code {plain:.3g}, rounding {rounding:.3g}"
    )


def judge(out, lse, sequence, kind, **options):
    """Both of one sequence."""
    settle([errors(out, lse, sequence, kind, **options)])
