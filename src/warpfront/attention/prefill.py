"""`prefill`: attention of whole sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.attention import _host, _options
from warpfront.attention._arrays import (
    Given,
    HostView,
    contiguous_rows,
    empty,
    host_view,
    integers,
    read,
    read_only,
    same_place,
    writable,
)
from warpfront.attention._problem import PrefillProblem
from warpfront.errors import InvalidValueError

__all__ = ["prefill"]

Lengths = tuple[NDArray[np.int64], NDArray[np.int64]]


def prefill(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    soft_cap: float | None = None,
    bias: Any = None,
    scale: float | None = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    return_lse: bool = False,
    out: Any = None,
    algorithm: str = "auto",
) -> Any:
    """Attention of whole sequences: ``softmax(cap(scale q k^T) + bias, hidden keys left out) v``.

    Arrays are all NumPy's, or all PyTorch's tensors on one device, and are read where they lie. In host memory
    the work is done by the CPU and no PyTorch is needed; tensors on a GPU stay there.

    Parameters
    ----------
    q : array (batch, q_len, heads, head_dim), or (total_q, heads, head_dim) with ``cu_seqlens_q``
        float16, bfloat16 or float32, any strides whose last is one element. Head dims 1 to 256 on the CPU; 64, 80, 96,
        128, 256 on a GPU.
    k, v : array (batch, k_len, kv_heads, head_dim), or (total_k, kv_heads, head_dim)
        As ``q``. ``heads`` is a multiple of ``kv_heads``, and query head ``h`` reads key head ``h // (heads // kv_heads)``.
    causal : bool
        Key ``j`` is visible to query ``i`` only where ``j <= i + k_len - q_len``: the diagonal ends in the bottom right
        corner, so a single query sees all keys.
    window : (left, right), optional
        Only keys at most ``left`` before and at most ``right`` after ``i + k_len - q_len`` are visible; ``None`` for a side
        is no limit. With ``causal`` nothing on the right is visible.
    soft_cap : float, optional
        Scores ``s`` become ``soft_cap tanh(s / soft_cap)``, before bias and hiding.
    bias : array (batch or 1, heads or 1, q_len, k_len), optional
        Added to the scores; -inf hides a key. float32 or the type of ``q``, any strides. For a varlen batch its last two
        axes are as long as the longest sequence, and each sequence uses the first entries.
    scale : float, optional
        Default ``1 / sqrt(head_dim)``.
    cu_seqlens_q, cu_seqlens_k : int32 (batch + 1,), optional
        Where each sequence of a varlen batch begins, and the total: 0, n_0, n_0 + n_1, ... Give both or none. In host
        memory they are checked and tell the longest sequence, also beside tensors on a GPU; in device memory they are
        believed.
    return_lse : bool
        Return the logarithm of the sum of exponentials too.
    out : array, optional
        Where the output is written: shape and type of ``q``, sharing no memory with the inputs.
    algorithm : str
        ``"auto"``, or a path's name (see `explain_prefill`). One that cannot run is an error.

    Returns
    -------
    out : array like ``q``
        A query that sees no key gives 0.
    lse : float32 (batch, heads, q_len), or (heads, total_q)
        Only with ``return_lse``. Natural logarithm; -inf for a query that sees no key.

    Raises
    ------
    InvalidValueError
        Wrong shapes, types or options; the message says what is allowed.
    NotSupportedError
        A path that cannot run here, or a head dim, type or device that has no kernel.

    Notes
    -----
    The matrix of scores is never held: online softmax (Milakov and Gimelshein 2018) over tiles of keys (Dao et al.,
    FlashAttention, 2022). Hidden keys and their values reach no result, NaN included; a score of -inf counts as hidden.
    The same input gives the same bits, for any number of threads and whatever else is in the batch. On a GPU ``"auto"`` may
    take cuDNN, which does not promise the first of these: ask for ``"triton"`` where values may be NaN.
    """
    given = (read("q", q), read("k", k), read("v", v))
    same_place(*given)
    extra = None if bias is None else read("bias", bias)
    on_device = given[0].on_device
    lengths = _lengths(given, cu_seqlens_q, cu_seqlens_k)
    left, right = _options.sides(window, causal=_options.flag("causal", causal))
    problem = PrefillProblem(
        **_sizes(given, lengths, cu_seqlens_q),
        dtype=given[0].dtype,
        on_device=on_device,
        varlen=cu_seqlens_q is not None,
        left=left,
        right=right,
        soft_cap=_options.soft_cap_of(soft_cap),
        scale=_options.scale_of(scale, given[0].shape[-1]),
        bias_shape=None if extra is None else extra.shape,  # type: ignore[arg-type]
        bias_dtype=None if extra is None else extra.dtype,
        return_lse=_options.flag("return_lse", return_lse),
    )
    target = _target(given if extra is None else (*given, extra), out)
    lse_shape = (
        (problem.heads, problem.total_q) if problem.varlen else (problem.batch, problem.heads, problem.q_len)
    )
    marks = (lengths, cu_seqlens_q, cu_seqlens_k)
    if on_device:
        lse = _run_on_device(problem, given, extra, marks, target, lse_shape, algorithm, fresh=out is None)
    else:
        lse = _run_on_host(problem, given, extra, marks, target, lse_shape, algorithm)
    return (target.owner, lse) if return_lse else target.owner


def _sizes(given: tuple[Given, Given, Given], lengths: Lengths | None, cu_seqlens_q: Any) -> dict[str, int]:
    """Return the sizes of a problem, after checking that the shapes of q, k, v go together."""
    q, k, v = given
    axes = 4 if cu_seqlens_q is None else 3
    layout = "(batch, length, heads, head_dim)" if axes == 4 else "(total, heads, head_dim)"
    for x in given:
        if len(x.shape) != axes:
            raise InvalidValueError(f"{x.name} must have {axes} axes, {layout}, got shape {x.shape}")
        contiguous_rows(x)
    if k.shape != v.shape:
        raise InvalidValueError(f"k and v must have the same shape, got {k.shape} and {v.shape}")
    if q.shape[-1] != k.shape[-1]:
        raise InvalidValueError(f"q and k must have the same head_dim, got {q.shape[-1]} and {k.shape[-1]}")
    heads = {"heads": q.shape[-2], "kv_heads": k.shape[-2], "head_dim": q.shape[-1]}
    if axes == 4:
        batch, q_len, k_len = q.shape[0], q.shape[1], k.shape[1]
        if k.shape[0] != batch:
            raise InvalidValueError(f"q and k must have the same batch, got {batch} and {k.shape[0]}")
        total = {"total_q": batch * q_len, "total_k": batch * k_len}
        return {"batch": batch, "q_len": q_len, "k_len": k_len, **total, **heads}
    longest = [q.shape[0], k.shape[0]]
    if lengths is not None:
        longest = [int(np.diff(cu).max(initial=0)) for cu in lengths]
    batch = int(cu_seqlens_q.shape[0]) - 1 if lengths is None else lengths[0].shape[0] - 1
    total = {"total_q": q.shape[0], "total_k": k.shape[0]}
    return {"batch": batch, "q_len": longest[0], "k_len": longest[1], **total, **heads}


def _lengths(given: tuple[Given, Given, Given], cu_q: Any, cu_k: Any) -> Lengths | None:
    """Return checked cumulated lengths, ``None`` where there are none or both are in device memory."""
    if (cu_q is None) != (cu_k is None):
        raise InvalidValueError("give both cu_seqlens_q and cu_seqlens_k, or none of them")
    if cu_q is None:
        return None
    on_device = [getattr(cu, "is_cuda", False) for cu in (cu_q, cu_k)]
    if any(on_device):
        _check_device_lengths(given[0], (cu_q, cu_k), all(on_device))
        return None
    found = []
    for name, cu, x in (("cu_seqlens_q", cu_q, given[0]), ("cu_seqlens_k", cu_k, given[1])):
        array = integers(name, cu, "integers (batch + 1,), as int32")
        if array.size == 0 or array[0] != 0 or array[-1] != x.shape[0] or (np.diff(array) < 0).any():
            raise InvalidValueError(
                f"{name} must begin with 0, never decrease and end with {x.shape[0]}, the rows of {x.name}; got {array}"
            )
        found.append(array)
    if found[0].shape != found[1].shape:
        batches = [array.shape[0] - 1 for array in found]
        raise InvalidValueError(
            f"cu_seqlens_q is of {batches[0]} sequences and cu_seqlens_k of {batches[1]}; they must be of the same"
        )
    return found[0], found[1]


def _check_device_lengths(q: Given, cu: tuple[Any, Any], both: bool) -> None:
    if not (both and q.on_device):
        raise InvalidValueError(
            "cu_seqlens_q and cu_seqlens_k must both be in host memory, or both beside q on its GPU"
        )
    if any(x.ndim != 1 or str(x.dtype) != "torch.int32" for x in cu) or cu[0].shape != cu[1].shape:
        raise InvalidValueError(
            "cu_seqlens_q and cu_seqlens_k in device memory must be int32 (batch + 1,), equally long"
        )


def _target(inputs: tuple[Given, ...], out: Any) -> Given:
    """Return where the output goes; ``inputs`` begin with q."""
    q = inputs[0]
    if out is None:
        return read("out", empty(q, q.shape))
    target = read("out", out)
    same_place(q, target)
    contiguous_rows(target)
    if target.shape != q.shape:
        raise InvalidValueError(f"out must have the shape of q, {q.shape}, got {target.shape}")
    writable(target, inputs)
    return target


def _run_on_host(
    problem: PrefillProblem,
    given: tuple[Given, Given, Given],
    bias: Given | None,
    cu: tuple[Lengths | None, Any, Any],
    target: Given,
    lse_shape: tuple[int, ...],
    algorithm: str,
) -> Any:
    from warpfront.attention.explain import need_cpu

    need_cpu(algorithm)
    lse = empty(given[0], lse_shape, "float32")
    into = lse if given[0].library == "numpy" else lse.numpy()
    if 0 not in target.shape:
        views = [*(host_view(x) for x in given), host_view(target, written=True)]
        table = None if bias is None else _bias_view(bias)
        _host.run_prefill(problem, views[0], views[1], views[2], table, cu[0], views[3], into)
    return lse


def _bias_view(bias: Given) -> HostView:
    """Return the bias as float32; of a 16-bit type it is converted as a whole."""
    if bias.on_device:
        raise InvalidValueError("bias is in device memory and q is not; they must be on one device")
    x = bias.owner
    if bias.library == "torch":
        x = x.float().numpy()
    x = np.asarray(x).astype(np.float32, copy=False)
    if x.size and min(x.strides) < 0:
        x = np.ascontiguousarray(x)
    strides = tuple(step // 4 for step in x.strides)
    span = 1 + sum((n - 1) * step for n, step in zip(x.shape, strides, strict=True)) if x.size else 1
    flat = np.lib.stride_tricks.as_strided(x, (span,), (4,)) if x.size else np.zeros(1, np.float32)
    return HostView(read_only(flat), x.shape, strides)


def _run_on_device(
    problem: PrefillProblem,
    given: tuple[Given, Given, Given],
    bias: Given | None,
    cu: tuple[Lengths | None, Any, Any],
    target: Given,
    lse_shape: tuple[int, ...],
    algorithm: str,
    *,
    fresh: bool,
) -> Any:
    import torch

    from warpfront.attention import _dispatch
    from warpfront.attention.explain import need_gpu

    if bias is not None and bias.owner.device != given[0].owner.device:
        raise InvalidValueError("bias must be on the same device as q")
    need_gpu(algorithm)
    path = _dispatch.prefill_path(problem, algorithm)
    marks = cu[1:]
    if cu[0] is not None:
        marks = tuple(torch.from_numpy(x.astype(np.int32)).to(given[0].owner.device) for x in cu[0])
    lse = empty(given[0], lse_shape, "float32") if problem.return_lse else None
    if 0 in target.shape:
        return lse
    if problem.total_k == 0:
        target.owner.zero_()
        return lse if lse is None else lse.fill_(-torch.inf)
    q, k, v = (x.owner for x in given)
    path.run(problem, q, k, v, None if bias is None else bias.owner, *marks, target.owner, lse, fresh=fresh)
    return lse
