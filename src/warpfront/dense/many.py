"""`many`: one dense operation on a list of unequal matrices, over several streams or threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from warpfront.backend import arrays, dispatch, settings
from warpfront.dense import _lu_blocked as cpu
from warpfront.dense import linalg
from warpfront.dense._checks import check_choice
from warpfront.errors import InvalidValueError

__all__ = ["many"]

OPERATIONS = ("inv", "slogdet", "det", "rcond", "solve")


def many(
    operation: str,
    matrices: Sequence[Any],
    right_hand_sides: Sequence[Any] | None = None,
    *,
    streams: int = 4,
    device: dispatch.Device = "auto",
) -> list[Any]:
    """Apply an operation to matrices of different orders, several at a time.

    Parameters
    ----------
    operation : {"inv", "slogdet", "det", "rcond", "solve"}
    matrices : sequence of array [n, n]
        All on one side: host or device.
    right_hand_sides : sequence of array [n] or [n, k]
        For ``"solve"``, one for each matrix.
    streams : int
        On a GPU: streams, each with a workspace of its own from CuPy's pool. On the CPU: threads at most, one matrix
        to a thread.
    device : {"auto", "cpu", "cuda"}

    Returns
    -------
    list
        What ``warpfront.dense.<operation>`` returns with ``check="status"`` where it takes that, in order. Bits do not
        depend on ``streams``.

    Raises
    ------
    InvalidValueError, NotSupportedError
        Arguments that do not fit.
    """
    check_choice("operation", operation, OPERATIONS)
    if isinstance(streams, bool) or not isinstance(streams, int) or streams < 1:
        raise InvalidValueError(f"streams is {streams!r}; it must be a positive integer")
    if (operation == "solve") != (right_hand_sides is not None):
        raise InvalidValueError("right_hand_sides belong to operation='solve', and only to it")
    others: Sequence[Any] = [] if right_hand_sides is None else right_hand_sides
    if right_hand_sides is not None and len(others) != len(matrices):
        raise InvalidValueError(f"{len(matrices)} matrices and {len(others)} right-hand sides")
    options: dict[str, Any] = {"device": device}
    if operation in ("inv", "solve", "det"):
        options["check"] = "status"
    results: list[Any] = [None] * len(matrices)

    def run(k: int) -> None:
        arguments = (matrices[k],) if not others else (matrices[k], others[k])
        results[k] = getattr(linalg, operation)(*arguments, **options)

    if device == "cuda" or any(arrays.is_device_array(a) for a in matrices):
        from warpfront.dense._lu_cuda import many_on_device

        return many_on_device(operation, matrices, others, streams)
    threads = min(streams, settings.threads())
    cpu.share_jobs(threads, (partial(run, k) for k in range(len(matrices))))
    return results
