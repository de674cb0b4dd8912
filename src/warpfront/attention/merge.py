"""`merge_states`: attention over parts of the keys, put together."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from warpfront.attention import _host
from warpfront.attention._arrays import BITS, Given, c_ordered, empty, host_view, read
from warpfront.errors import InvalidValueError

__all__ = ["merge_states"]


def merge_states(outputs: Any, lses: Any) -> tuple[Any, Any]:
    """Merge attention over disjoint parts of the keys into attention over all of them.

    Parameters
    ----------
    outputs : array (parts, ..., head_dim), C-ordered
        Output over each part; float16, bfloat16 or float32.
    lses : float32 (parts, ...), C-ordered
        Natural logarithm of each part's sum of exponentials; -inf for a part that sees nothing, whose output is
        then not looked at.

    Returns
    -------
    out : array (..., head_dim), of the type of ``outputs``
        0 where all parts are empty.
    lse : float32 (...)
        -inf where all parts are empty.

    Raises
    ------
    InvalidValueError
        Shapes that do not go together, another type, no parts.

    Notes
    -----
    ``lse = log sum_p e^lse_p`` and ``out = sum_p e^(lse_p - lse) out_p``, in the order of the parts, always; on the CPU the
    sums are in float64. ``prefill`` returns its LSE as (batch, heads, q_len): turn it to the output's order first.
    """
    given = read("outputs", outputs)
    weights = read("lses", lses)
    _check(given, weights)
    out, lse = empty(given, given.shape[1:]), empty(weights, given.shape[1:-1])
    rows, head_dim = prod(given.shape[1:-1]), given.shape[-1]
    if given.on_device:
        from warpfront.attention._triton_decode import run_merge

        parts = given.shape[0]
        states = outputs.view(parts, rows, head_dim), lses.view(parts, rows)
        run_merge(*states, out.view(rows, head_dim), lse.view(rows))
        return out, lse
    if rows and head_dim:
        kind = _host.KIND[given.dtype]
        counts = np.full(rows, given.shape[0], np.int64)
        rows_in, logs = (host_view(x).flat for x in (given, weights))
        into = tuple(host_view(read("out", x), written=True).flat for x in (out, lse))
        _host.merge(rows_in, logs, counts, into, head_dim, (kind, kind))  # type: ignore[arg-type]
    return out, lse


def _check(outputs: Given, lses: Given) -> None:
    if outputs.dtype not in BITS:
        raise InvalidValueError(f"outputs must be {', '.join(BITS)}, got {outputs.dtype}")
    if lses.dtype != "float32":
        raise InvalidValueError(f"lses must be float32, got {lses.dtype}")
    if outputs.library != lses.library or outputs.on_device != lses.on_device:
        raise InvalidValueError("outputs and lses must be of one library and on one device")
    if len(outputs.shape) < 2 or outputs.shape[:-1] != lses.shape:
        raise InvalidValueError(
            f"outputs must be (parts, ..., head_dim) and lses (parts, ...), got {outputs.shape} and {lses.shape}"
        )
    if outputs.shape[0] == 0:
        raise InvalidValueError("there must be at least one part")
    for x in (outputs, lses):
        if not c_ordered(x):
            raise InvalidValueError(f"{x.name} must be C-ordered; make a contiguous copy")
