"""`DifferentiableSolver` for JAX: a `jax.lax.custom_linear_solve` around calls of the solver on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from warpfront.errors import InvalidValueError

__all__ = ["pattern", "solve", "with_values"]


def pattern(A: Any) -> Any:
    """Return a SciPy matrix of ones with the pattern of a ``BCOO`` or ``BCSR`` matrix."""
    from scipy import sparse

    if A.n_batch or A.n_dense:
        raise InvalidValueError(f"A has {A.n_batch} batch and {A.n_dense} dense dimensions; allowed are none")
    indices = _known(A.indices)
    if type(A).__name__ == "BCSR":
        return sparse.csr_array((np.ones(indices.shape[0]), indices, _known(A.indptr)), shape=A.shape)
    return sparse.coo_array((np.ones(indices.shape[0]), (indices[:, 0], indices[:, 1])), shape=A.shape)


def with_values(A: Any) -> tuple[Any, Any]:
    """Return a sparse matrix and its stored values."""
    return A, A.data


def _known(index: Any) -> np.ndarray[Any, Any]:
    if isinstance(index, jax.core.Tracer):
        raise InvalidValueError(
            "the pattern of A is traced; make a DifferentiableSolver outside jit and call it with values inside"
        )
    return np.asarray(index)


def solve(held: Any, values: Any, b: Any, trans: str) -> Any:
    """Solve with gradients; see `DifferentiableSolver.__call__`."""
    values, b = jnp.asarray(values), jnp.asarray(b)
    if not jnp.issubdtype(values.dtype, jnp.inexact):
        raise InvalidValueError(
            f"values are {values.dtype}; allowed are float32, float64, complex64, complex128"
        )
    if jnp.issubdtype(b.dtype, jnp.complexfloating) and not jnp.issubdtype(values.dtype, jnp.complexfloating):
        raise InvalidValueError(f"b is {b.dtype} and values are {values.dtype}; make the values complex, too")
    b = b.astype(values.dtype)
    if trans == "H":  # A^H x = b is A^T conj(x) = conj(b)
        return jnp.conj(solve(held, values, jnp.conj(b), "T"))
    entries = held.entries
    row, col = (entries.row, entries.col) if trans == "N" else (entries.col, entries.row)

    def product(x: Any) -> Any:
        each = values
        if entries.slot is not None:
            each = values[entries.slot]
            if entries.hermitian:
                each = jnp.concatenate([each[: entries.mirrored], jnp.conj(each[entries.mirrored :])])
        terms = (each if x.ndim == 1 else each[:, None]) * x[col]
        return jnp.zeros(x.shape, terms.dtype).at[row].add(terms)

    def inverse(side: str) -> Any:
        def call(_: Any, c: Any) -> Any:
            kind = jax.ShapeDtypeStruct(c.shape, c.dtype)
            now = jax.lax.stop_gradient(values)
            return jax.pure_callback(_on_host(held, side), kind, now, c, vmap_method="sequential")

        return call

    other = "T" if trans == "N" else "N"
    return jax.lax.custom_linear_solve(product, b, inverse(trans), inverse(other))


def _on_host(held: Any, side: str) -> Any:
    def call(values: Any, b: Any) -> Any:
        return np.asarray(held.solve_now(np.asarray(values), np.asarray(b), side), dtype=values.dtype)

    return call
