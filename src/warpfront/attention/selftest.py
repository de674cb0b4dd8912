"""Try attention on this machine: prefill and decode, checked on some rows and timed beside NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.attention import _reference
from warpfront.attention.cache import PagedKVCache
from warpfront.attention.decode import decode
from warpfront.attention.prefill import prefill
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["Shape", "Timed", "bench"]

# Rows of a result that are checked by the room's rule: of the last sequence in prefill, of the last sequences in decode.
_CHECKED = 64
_PAGE = 16
# Scores that NumPy would have to hold beyond this are not asked of it.
_NUMPY_LIMIT = 1 << 28


@dataclass(frozen=True)
class Shape:
    """Sizes of a benchmark."""

    batch: int
    length: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    causal: bool

    @property
    def flops(self) -> float:
        """Operations of a prefill."""
        full = 4.0 * self.batch * self.heads * self.length**2 * self.head_dim
        return full * (0.5 + 0.5 / self.length) if self.causal else full

    @property
    def bytes(self) -> float:
        """Bytes of keys and values, which a decode reads once."""
        itemsize = 4 if self.dtype == "float32" else 2
        return 2.0 * self.batch * self.length * self.kv_heads * self.head_dim * itemsize


@dataclass(frozen=True)
class Timed:
    """One contender of one operation.

    Attributes
    ----------
    operation : {"prefill", "decode"}
    contender : str
    seconds : tuple of float
        Empty where it could not run.
    rate : float
        Operations (prefill) or bytes (decode) per second, of the median.
    error, allowed : float
        Largest error of some rows against float64, and what the room's rule allows for them.
    reason : str
        Why it could not run.
    """

    operation: str
    contender: str
    seconds: tuple[float, ...] = ()
    rate: float = 0.0
    error: float = 0.0
    allowed: float = 0.0
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether it did not run, or is right."""
        return not self.seconds or self.error <= self.allowed


def bench(
    shape: Shape, device: str, samples: int, started: Callable[[str], None] = lambda text: None
) -> Iterator[Timed]:
    """Yield every contender of prefill, then of decode.

    Parameters
    ----------
    shape : Shape
    device : {"cpu", "cuda"}
        The second needs PyTorch and a GPU.
    samples : int
        Timed calls of each, after one that is not.
    started : callable
        Told what begins.
    """
    random = np.random.default_rng(0)
    lines = (shape.heads, shape.kv_heads, shape.kv_heads)
    arrays = [
        random.standard_normal((shape.batch, shape.length, n, shape.head_dim), np.float32) for n in lines
    ]
    given = [_as(x, shape.dtype, device) for x in arrays]
    wait = _waiter(device)
    for operation, contenders in (
        ("prefill", _prefills(shape, given, device)),
        ("decode", _decodes(shape, given, device)),
    ):
        for name, call in contenders:
            started(f"{operation}: {name}")
            yield _time(operation, name, call, shape, given, samples, wait)


def _as(x: NDArray[np.float32], dtype: str, device: str) -> Any:
    if device == "cpu" and dtype != "bfloat16":
        return x.astype(dtype)
    torch = _torch()
    tensor = torch.from_numpy(x).to(getattr(torch, dtype))
    return tensor.cuda() if device == "cuda" else tensor


def _torch() -> Any:
    if find_spec("torch") is None:
        raise NotSupportedError('this needs PyTorch: pip install "warpfront[torch]"')
    import torch

    return torch


def _waiter(device: str) -> Callable[[], None]:
    if device == "cpu":
        return lambda: None
    torch = _torch()
    if not torch.cuda.is_available():
        raise NotSupportedError('device "cuda" was asked for, and PyTorch finds no GPU')
    wait: Callable[[], None] = torch.cuda.synchronize
    return wait


def _prefills(shape: Shape, given: list[Any], device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    q, k, v = given
    for algorithm in ("auto", "triton", "cudnn") if device == "cuda" else ("auto",):
        name = "warpfront" if algorithm == "auto" else f"warpfront {algorithm}"
        yield name, lambda algorithm=algorithm: prefill(q, k, v, causal=shape.causal, algorithm=algorithm)  # type: ignore[misc]
    if device == "cpu" and shape.batch * shape.heads * shape.length**2 <= _NUMPY_LIMIT and _is_numpy(q):
        yield "numpy", lambda: _plain(q, k, v, causal=shape.causal)
    yield from _sdpa(given, device, causal=shape.causal)


def _decodes(shape: Shape, given: list[Any], device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    q, k, v = given
    pages = shape.batch * -(-shape.length // _PAGE)
    cache = PagedKVCache(pages, _PAGE, shape.kv_heads, shape.head_dim, shape.dtype, device=device)
    ids = cache.allocate(shape.batch)
    cache.append(ids, k, v)
    last = q[:, -1]
    yield "warpfront", lambda: decode(last, cache, ids)
    if device == "cpu" and _is_numpy(q):
        yield "numpy", lambda: _plain(q[:, -1:], k, v, causal=False)[:, 0]
    for name, call in _sdpa([q[:, -1:], k, v], device, causal=False):
        yield name, lambda call=call: call()[:, 0]  # type: ignore[misc]


def _is_numpy(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def _plain(q: Any, k: Any, v: Any, *, causal: bool) -> NDArray[np.float32]:
    """Attention with the scores written down, head by head in float32, as one would write it."""
    out = np.empty(q.shape, np.float32)
    group = q.shape[2] // k.shape[2]
    hidden = ~_reference.visible(q.shape[1], k.shape[1], causal=True) if causal else None
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            keys, values = (x[b, :, h // group].astype(np.float32) for x in (k, v))
            s = q[b, :, h].astype(np.float32) @ keys.T
            s *= np.float32(q.shape[3] ** -0.5)
            if hidden is not None:
                s[hidden] = -np.inf
            s -= s.max(axis=1, keepdims=True)
            np.exp(s, out=s)
            s /= s.sum(axis=1, keepdims=True)
            out[b, :, h] = s @ values
    return out


def _sdpa(given: list[Any], device: str, *, causal: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """PyTorch's backends; on a GPU each by its name."""
    if find_spec("torch") is None:
        return
    torch = _torch()
    q, k, v = (torch.from_numpy(x) if _is_numpy(x) else x for x in given)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    groups = q.shape[1] != k.shape[1]

    def call() -> Any:
        function = torch.nn.functional.scaled_dot_product_attention
        return function(q, k, v, is_causal=causal, enable_gqa=groups).transpose(1, 2)

    if device == "cpu":
        yield "torch", call
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def by_name(backend: Any) -> Any:
        with sdpa_kernel(backend):
            return call()

    for name, backend in (
        ("cuDNN", SDPBackend.CUDNN_ATTENTION),
        ("FlashAttention", SDPBackend.FLASH_ATTENTION),
    ):
        yield f"torch {name}", lambda backend=backend: by_name(backend)  # type: ignore[misc]


def _time(
    operation: str,
    name: str,
    call: Callable[[], Any],
    shape: Shape,
    given: list[Any],
    samples: int,
    wait: Callable[[], None],
) -> Timed:
    try:
        out = call()
        wait()
    except InvalidValueError:
        raise
    except (RuntimeError, NotSupportedError) as refusal:
        return Timed(operation, name, reason=str(refusal).splitlines()[0])
    seconds = []
    for _ in range(samples):
        begin = perf_counter()
        call()
        wait()
        seconds.append(perf_counter() - begin)
    work = shape.flops if operation == "prefill" else shape.bytes
    error, allowed = _check(operation, out, shape, given)
    return Timed(operation, name, tuple(seconds), work / median(seconds), error, allowed)


def _check(operation: str, out: Any, shape: Shape, given: list[Any]) -> tuple[float, float]:
    """Return error and what is allowed, of some rows of the last sequence, or of the newest tokens of some sequences."""
    if operation == "decode":
        everything = np.ones((1, shape.length), bool)
        batch = range(max(0, shape.batch - _CHECKED), shape.batch)
        parts = [
            _parts(out, given, b, [shape.length - 1], everything, shape.dtype, newest=True) for b in batch
        ]
    else:
        rows = np.linspace(0, shape.length - 1, min(_CHECKED, shape.length)).astype(int)
        at = rows[:, None] + (0 if shape.causal else shape.length)
        seen = np.arange(shape.length)[None, :] <= at
        parts = [_parts(out, given, shape.batch - 1, rows, seen, shape.dtype, newest=False)]
    found, exact, same = (np.concatenate(x) for x in zip(*parts, strict=True))
    return float(np.abs(found - exact).max()), _reference.tolerance(exact, same, shape.dtype)


def _parts(
    out: Any, given: list[Any], b: int, rows: Any, seen: NDArray[np.bool_], dtype: str, *, newest: bool
) -> tuple[Any, Any, Any]:
    """Return rows of a result, what is exact and what plain code gives, of one sequence."""
    q, k, v, found = (_reference.widen(x[b].cpu() if hasattr(x, "cpu") else x[b]) for x in (*given, out))
    found = found[None] if newest else found[rows]
    exact, _ = _reference.attention(q[rows], k, v, seen)
    return found, exact, _reference.same_precision(q[rows], k, v, seen, dtype)
