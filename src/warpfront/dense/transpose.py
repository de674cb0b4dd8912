"""Transpose of dense matrices of any element size, on the CPU and on the GPU: `transpose`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import arrays, capability, dispatch
from warpfront.dense import _transpose_cuda as plans
from warpfront.dense import _transpose_host as host_side
from warpfront.dense._transpose_cuda import ELEMENT_BYTES, TransposeProblem
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["PATHS", "explain_transpose", "transpose"]


@dispatch.requires(
    cc_min=(9, 0),
    shared_bytes=lambda p: plans.shared_bytes("sm_90", p.itemsize),
    when=lambda p: plans.why_not_streamed(p, whole_chunks=True),
)
def _bulk(problem: TransposeProblem, dst: Any, src: Any) -> None:
    _launch("sm_90", problem, dst, src)


@dispatch.requires(
    cc_min=(8, 0),
    shared_bytes=lambda p: plans.shared_bytes("sm_80", p.itemsize),
    when=lambda p: plans.why_not_streamed(p, whole_chunks=False),
)
def _async(problem: TransposeProblem, dst: Any, src: Any) -> None:
    _launch("sm_80", problem, dst, src)


@dispatch.requires(cc_min=(7, 5), shared_bytes=38 * 1024)
def _portable(problem: TransposeProblem, dst: Any, src: Any) -> None:
    _launch("portable", problem, dst, src)


def _launch(path: str, problem: TransposeProblem, dst: arrays.DeviceView, src: arrays.DeviceView) -> None:
    plans.launch(problem, path, dst.pointer, src.pointer, src.device, src.stream)


@dispatch.requires(device="cpu")
def _cpu(problem: TransposeProblem, dst: NDArray[Any], src: NDArray[Any]) -> None:
    host_side.run(problem, dst, src)


# In order of preference, which is that of the measured times: where memory is the bound, blocks that the device
# schedules one by one do no worse than persistent ones that copy ahead.
PATHS = (
    dispatch.Path(
        "portable", _portable, "padded shared-memory tile, 16-byte accesses, shifted where unaligned"
    ),
    dispatch.Path("sm_80", _async, "16-byte asynchronous copies, one tile ahead"),
    dispatch.Path("sm_90", _bulk, "rows by bulk copies on an mbarrier, several tiles ahead"),
    dispatch.Path(
        "cpu", _cpu, "copies of cached blocks, or a cache-blocked Numba kernel; threads over strips"
    ),
)


def transpose(a: Any, *, out: Any = None, device: dispatch.Device = "auto", path: str = "auto") -> Any:
    """Transpose a matrix, or each matrix of a batch, into memory.

    ``result[..., c, r] = a[..., r, c]``; bits are moved, never converted, so every NaN keeps its payload.

    Parameters
    ----------
    a : array, shape (m, n) or (batch, m, n)
        NumPy, CuPy, PyTorch or JAX array (or any object with ``__cuda_array_interface__``) of a type of 1, 2,
        4, 8 or 16 bytes. Read only, unless ``out`` is the same memory. Rows may have any pitch; an array
        whose last axis is not contiguous is first copied by its own library.
    out : array, shape (n, m) or (batch, n, m), optional
        Written. Same library and type as ``a``, last axis contiguous, rows of any pitch. For square matrices
        it may be ``a`` itself: then the transpose is in place. Memory that overlaps ``a`` in any other way is
        refused. Not for JAX, whose arrays are immutable.
    device : {"auto", "cpu", "cuda"}
        ``"auto"``: where the data is. ``"cuda"`` with a NumPy array copies it to the GPU and the result back.
    path : str
        ``"auto"``, or a path's name (``"sm_90"``, ``"sm_80"``, ``"portable"``, ``"cpu"``); see
        `explain_transpose`.

    Returns
    -------
    array
        ``out``, or a new C-ordered array of ``a``'s library on ``a``'s device. GPU work is queued on the
        library's current stream and not waited for (JAX excepted).

    Raises
    ------
    InvalidValueError
        Wrong number of axes, element type or size; ``out`` does not fit or overlaps.
    NotSupportedError
        The device or the path asked for cannot run; the message names the requirement.
    """
    policy = dispatch.Policy(device=device, path=path)
    if arrays.is_device_array(a):
        return _on_device(a, out, policy)
    if out is not None and arrays.is_device_array(out):
        raise InvalidValueError("a is in host memory and out in device memory: they must be of one library")
    host = np.asarray(a)
    _check_type(host.dtype)
    _check_shape(host.shape, _name(host.dtype), host.itemsize)
    if policy.device == "cuda" or path in ("portable", "sm_80", "sm_90"):
        return _through_device(host, out, policy)
    same = out is a
    host = host if _rows_contiguous(host) else np.ascontiguousarray(host)
    result = np.empty(_turned(host.shape), host.dtype) if out is None else out
    _check_out(result, host.shape, _name(host.dtype), _name(getattr(result, "dtype", None)))
    if not isinstance(result, np.ndarray) or not _rows_contiguous(result) or not result.flags.writeable:
        raise InvalidValueError(
            "out must be a writable NumPy array whose last axis is contiguous and aligned"
        )
    in_place = out is not None and (same or _same_memory(host, result))
    if out is not None and not in_place and np.may_share_memory(host, result):
        raise InvalidValueError("out overlaps a without being the same array")
    problem = _problem(host, result, _address(host), _address(result), on_device=False, in_place=in_place)
    choice = _choice(problem, policy, None)
    if host.size:
        choice.path.run(problem, result, host)
    return result


def explain_transpose(
    m: int,
    n: int,
    *,
    dtype: Any = "float32",
    batch: int = 1,
    device: dispatch.Device = "auto",
    path: str = "auto",
    on_device: bool | None = None,
    capability_: capability.Capability | None = None,
) -> tuple[dispatch.Decision, ...]:
    """Return which path `transpose` takes for contiguous arrays of a size, and why not the others.

    Parameters
    ----------
    m, n, batch : int
        Size of the input.
    dtype : dtype
        Element type.
    device, path : str
        As `transpose`.
    on_device : bool, optional
        Where the data is. Default: in device memory if there is a GPU and ``device`` is not ``"cpu"``.
    capability_ : Capability, optional
        Ask for another device than the one here.
    """
    if min(m, n, batch) < 0:
        raise InvalidValueError(f"sizes must not be negative, got {batch} x {m} x {n}")
    kind = np.dtype(dtype)
    _check_type(kind)
    have = capability_ or (capability.probe(0) if capability.missing() is None else None)
    if on_device is None:
        on_device = device != "cpu" and have is not None
    size = kind.itemsize
    problem = TransposeProblem(
        m=m,
        n=n,
        batch=batch,
        itemsize=size,
        dtype=kind.name,
        on_device=on_device,
        src_pitch=n * size,
        dst_pitch=m * size,
        src_batch=m * n * size,
        dst_batch=m * n * size,
        src_align=_alignment(n * size, m * n * size),
        dst_align=_alignment(m * size, m * n * size),
    )
    policy = dispatch.Policy(device=device, path=path)
    return dispatch.explain(PATHS, problem, policy, have, capability.missing() if have is None else None)


def _on_device(a: Any, out: Any, policy: dispatch.Policy) -> Any:
    library = arrays.library_of(a)
    if out is not None and (library == "jax" or arrays.library_of(out) != library):
        raise InvalidValueError(
            "out must be an array of a's library (and not of JAX, whose arrays are immutable)"
        )
    src = arrays.view(a)
    _check_shape(src.shape, src.dtype, src.itemsize)
    if not _view_rows_contiguous(src):
        src = arrays.view(src.owner.contiguous() if src.library == "torch" else src.owner.copy(order="C"))
    result = arrays.empty_like(src, _turned(src.shape)) if out is None else out
    dst = arrays.view(result)
    _check_out(result, src.shape, src.dtype, dst.dtype)
    if dst.device != src.device or not _view_rows_contiguous(dst):
        raise InvalidValueError("out must be on a's device, its last axis contiguous")
    low, high = _extent(src)
    out_low, out_high = _extent(dst)
    overlap = low < out_high and out_low < high
    in_place = (
        overlap and dst.pointer == src.pointer and dst.shape == src.shape and dst.strides == src.strides
    )
    if overlap and not in_place:
        raise InvalidValueError("out overlaps a without being the same array")
    problem = _problem(src, dst, src.pointer, dst.pointer, on_device=True, in_place=in_place)
    choice = _choice(problem, policy, src.device)
    if problem.m * problem.n * problem.batch:
        choice.path.run(problem, dst, src)
    return arrays.to_library(result, src.library) if out is None else out


def _through_device(host: NDArray[Any], out: Any, policy: dispatch.Policy) -> Any:
    """NumPy in and out, the work on the GPU."""
    reason = capability.missing()
    if reason is not None:
        raise NotSupportedError(reason)
    import cupy

    # CuPy knows numbers only; the bits of any other type travel as integers of the same size.
    carrier = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[host.dtype.itemsize]
    moved = np.ascontiguousarray(host).view(carrier)
    result = cupy.asnumpy(_on_device(cupy.asarray(moved), None, policy)).view(host.dtype)
    if out is None:
        return result
    _check_out(out, host.shape, _name(host.dtype), _name(getattr(out, "dtype", None)))
    np.copyto(out, result)
    return out


@lru_cache(maxsize=4096)
def _choice(problem: TransposeProblem, policy: dispatch.Policy, device: int | None) -> dispatch.Choice:
    have = capability.probe(device) if device is not None else None
    return dispatch.choose(PATHS, problem, policy, have, None if have else capability.missing())


def _problem(
    src: Any, dst: Any, src_at: int, dst_at: int, *, on_device: bool, in_place: bool
) -> TransposeProblem:
    batched = len(src.shape) == 3
    src_batch, dst_batch = (src.strides[0], dst.strides[0]) if batched else (0, 0)
    m, n = src.shape[-2:]
    # A single row has no pitch to speak of; libraries put anything there.
    src_pitch = src.strides[-2] if m > 1 else n * src.itemsize
    dst_pitch = dst.strides[-2] if n > 1 else m * dst.itemsize
    return TransposeProblem(
        m=m,
        n=n,
        batch=src.shape[0] if batched else 1,
        itemsize=src.itemsize,
        dtype=src.dtype if isinstance(src.dtype, str) else _name(src.dtype),
        on_device=on_device,
        src_pitch=src_pitch,
        dst_pitch=dst_pitch,
        src_batch=src_batch,
        dst_batch=dst_batch,
        src_align=_alignment(src_at, src_pitch, src_batch) if on_device else 16,
        dst_align=_alignment(dst_at, dst_pitch, dst_batch) if on_device else 16,
        in_place=in_place,
    )


def _alignment(*values: int) -> int:
    """Largest power of two up to 16 that divides every value."""
    bits = 16
    for value in values:
        bits |= value
    return bits & -bits


@lru_cache(maxsize=256)
def _name(dtype: Any) -> str:
    # NumPy builds the name anew at each call, in Python: half the time of a small transpose.
    return str(dtype)


def _check_type(dtype: np.dtype[Any]) -> None:
    if dtype.hasobject or dtype.itemsize not in ELEMENT_BYTES:
        raise InvalidValueError(f"elements must be plain data of 1, 2, 4, 8 or 16 bytes, got {dtype}")


def _check_shape(shape: tuple[int, ...], dtype: str, itemsize: int) -> None:
    if itemsize not in ELEMENT_BYTES:
        raise InvalidValueError(f"elements must be of 1, 2, 4, 8 or 16 bytes, got {dtype} of {itemsize}")
    if len(shape) not in (2, 3):
        raise InvalidValueError(f"a must be a matrix or a batch of matrices (2 or 3 axes), got shape {shape}")


def _check_out(out: Any, shape: tuple[int, ...], dtype: str, out_dtype: str) -> None:
    if tuple(getattr(out, "shape", ())) != _turned(shape) or out_dtype != dtype:
        raise InvalidValueError(
            f"out must have shape {_turned(shape)} and type {dtype}, "
            f"got {tuple(getattr(out, 'shape', ()))}, {out_dtype}"
        )


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _pitched(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether rows are contiguous, lie one after another at whole elements, and matrices likewise."""
    if 0 in shape:
        return True
    m, n = shape[-2:]
    if n > 1 and strides[-1] != itemsize:
        return False
    least, matrix = n * itemsize, (m - 1) * strides[-2] + n * itemsize if m > 1 else n * itemsize
    if m > 1 and (strides[-2] < least or strides[-2] % itemsize):
        return False
    return len(shape) == 2 or shape[0] == 1 or (strides[0] >= matrix and strides[0] % itemsize == 0)


def _rows_contiguous(a: NDArray[Any]) -> bool:
    return bool(a.flags.aligned) and _pitched(a.shape, a.strides, a.itemsize)


def _view_rows_contiguous(v: arrays.DeviceView) -> bool:
    return v.pointer % min(v.itemsize, 8) == 0 and _pitched(v.shape, v.strides, v.itemsize)


def _address(a: NDArray[Any]) -> int:
    return int(a.__array_interface__["data"][0])


def _same_memory(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return _address(a) == _address(b) and a.shape == b.shape and a.strides == b.strides


def _extent(v: arrays.DeviceView) -> tuple[int, int]:
    if 0 in v.shape:
        return v.pointer, v.pointer
    last = sum((size - 1) * step for size, step in zip(v.shape, v.strides, strict=True))
    return v.pointer, v.pointer + last + v.itemsize
