"""`DifferentiableSolver` for PyTorch: one `torch.autograd.Function`, whose backward pass is itself differentiable."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from warpfront.errors import InvalidValueError

__all__ = ["pattern", "solve", "with_values"]


def pattern(A: Any) -> Any:
    """Return a SciPy matrix of ones with the pattern of a sparse tensor."""
    from scipy import sparse

    if A.dim() != 2:
        raise InvalidValueError(f"A is a sparse tensor of {A.dim()} dimensions; a matrix has 2")
    if A.dense_dim() != 0:
        raise InvalidValueError("A has dense dimensions; its values must be numbers")
    shape, layout = tuple(A.shape), A.layout
    if layout == torch.sparse_coo:
        row, col = A.detach()._indices().cpu().numpy()
        return sparse.coo_array((np.ones(row.shape[0]), (row, col)), shape=shape)
    if layout in (torch.sparse_csr, torch.sparse_csc):
        csr = layout == torch.sparse_csr
        ptr = (A.crow_indices() if csr else A.ccol_indices()).cpu().numpy()
        ind = (A.col_indices() if csr else A.row_indices()).cpu().numpy()
        return (sparse.csr_array if csr else sparse.csc_array)((np.ones(ind.shape[0]), ind, ptr), shape=shape)
    raise InvalidValueError(
        f"A has layout {layout}; allowed are torch.sparse_coo, torch.sparse_csr, torch.sparse_csc"
    )


def with_values(A: Any) -> tuple[Any, Any]:
    """Return a sparse tensor and its stored values, with their gradient; duplicates of a COO tensor are summed first."""
    A = A.coalesce() if A.layout == torch.sparse_coo else A
    return A, A.values()


def solve(held: Any, values: Any, b: Any, trans: str) -> Any:
    """Solve with gradients; see `DifferentiableSolver.__call__`."""
    for name, given in (("values", values), ("b", b)):
        if not isinstance(given, torch.Tensor) or given.layout != torch.strided:
            raise InvalidValueError(f"{name} must be a dense tensor where the other one is a tensor")
        if not (given.dtype.is_floating_point or given.dtype.is_complex):
            raise InvalidValueError(
                f"{name} is {given.dtype}; allowed are float32, float64, complex64, complex128"
            )
    if values.device != b.device:
        raise InvalidValueError(f"values are on {values.device}, b on {b.device}")
    if b.dtype.is_complex and not values.dtype.is_complex:
        raise InvalidValueError(f"b is {b.dtype} and values are {values.dtype}; make the values complex, too")
    b = b.to(values.dtype)
    if trans == "T":  # A^T x = b is A^H conj(x) = conj(b)
        return _Solve.apply(held, values, b.conj(), "H").conj().resolve_conj()
    return _Solve.apply(held, values, b, trans)


class _Solve(torch.autograd.Function):  # type: ignore[misc]
    """``A x = b`` or ``A^H x = b``."""

    @staticmethod
    def forward(ctx: Any, held: Any, values: Any, b: Any, trans: str) -> Any:
        x = _solve_now(held, values, b, trans)
        ctx.held, ctx.trans = held, trans
        ctx.save_for_backward(values, x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        values, x = ctx.saved_tensors
        forward = ctx.trans == "N"
        w = _Solve.apply(ctx.held, values, gradient, "H" if forward else "N")
        slopes = None
        if ctx.needs_input_grad[1]:
            slopes = _slopes(ctx.held.entries, values, w if forward else x, x if forward else w)
        return None, slopes, (w if ctx.needs_input_grad[2] else None), None


def _slopes(entries: Any, values: Any, left: Any, right: Any) -> Any:
    """Gradient for the stored values: ``-left_i conj(right_j)``, summed over right-hand sides and mirrored entries."""
    row = torch.as_tensor(entries.row, device=values.device)
    col = torch.as_tensor(entries.col, device=values.device)
    each = -left[row] * right[col].conj()
    if each.dim() == 2:
        each = each.sum(1)
    if entries.slot is None:
        return each
    if entries.hermitian:
        each = torch.cat([each[: entries.mirrored], each[entries.mirrored :].conj()])
    slot = torch.as_tensor(entries.slot, device=values.device)
    return torch.zeros_like(values).index_add(0, slot, each)


def _solve_now(held: Any, values: Any, b: Any, trans: str) -> Any:
    values, b = (t.detach().resolve_conj().resolve_neg().contiguous() for t in (values, b))
    if not values.is_cuda:
        return torch.from_numpy(np.ascontiguousarray(held.solve_now(values.numpy(), b.numpy(), trans)))
    import cupy

    with _stream(values.device):
        x = held.solve_now(cupy.from_dlpack(values), cupy.from_dlpack(b), trans, cuda=True)
        return torch.from_dlpack(x)


def _stream(device: Any) -> AbstractContextManager[Any]:
    """CuPy's work goes to PyTorch's current stream, so neither waits for the other."""
    import cupy

    handle = torch.cuda.current_stream(device).cuda_stream
    return cupy.cuda.ExternalStream(handle, device.index) if handle else nullcontext()
