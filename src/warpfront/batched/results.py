"""What a batched solve returns: arrays of the caller's library, and a status for every system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import BatchFailedError

__all__ = ["STATUS_TEXT", "CholeskyBatch", "LUBatch", "describe_status"]

# Status below 0; k > 0 is the first pivot that failed, counted from 1.
STATUS_TEXT = {
    -1: "NaN or infinity in the input",
    -2: "not symmetric within the tolerances",
    -3: "a value on the way overflowed or became NaN",
}
# Systems named in a message; the exception carries all of them.
_NAMED = 5


def describe_status(code: int, method: str) -> str:
    """Return one status in words; ``method`` is ``"cholesky"`` or ``"lu"``."""
    if code == 0:
        return "ok"
    if code > 0:
        fault = "is not positive" if method == "cholesky" else "is zero: the matrix is singular"
        return f"pivot {code} {fault}"
    return STATUS_TEXT[code]


def _check(status: Any, method: str) -> None:
    codes = _to_host(status)
    failed = np.flatnonzero(codes)
    if not failed.size:
        return
    named = "; ".join(f"system {k}: {describe_status(int(codes[k]), method)}" for k in failed[:_NAMED])
    more = f"; and {failed.size - _NAMED} more" if failed.size > _NAMED else ""
    raise BatchFailedError(
        f"{failed.size} of {codes.size} systems failed: {named}{more}",
        failed.tolist(),
        codes[failed].tolist(),
    )


def _to_host(status: Any) -> NDArray[np.int32]:
    """Copy the status to the host, and nothing else; waits for it."""
    if isinstance(status, np.ndarray):
        return status
    if hasattr(status, "get"):
        return np.asarray(status.get())
    return np.asarray(status.cpu().numpy())


@dataclass(frozen=True, eq=False)
class CholeskyBatch:
    """Solutions by Cholesky, ``A = L L^T``. On a GPU the arrays may still be in work: nothing has waited for them.

    Attributes
    ----------
    solution : array [batch, n, nrhs]
        Zeros where the system failed.
    factor : array [batch, n, n]
        L with zeros above the diagonal; zeros where the system failed.
    status : int32 array [batch]
        0 ok; k > 0 pivot k (from 1) is not positive; -1 NaN or infinity in the input; -2 not symmetric;
        -3 a value on the way is not finite.
    """

    solution: Any
    factor: Any
    status: Any

    def check_status(self) -> CholeskyBatch:
        """Wait for the status, read it back (nothing else), and return this record if every system is ok.

        Raises
        ------
        BatchFailedError
            Some are not; its ``indices`` and ``statuses`` say which and why.
        """
        _check(self.status, "cholesky")
        return self


@dataclass(frozen=True, eq=False)
class LUBatch:
    """Solutions by LU with partial pivoting, ``P A = L U``. On a GPU the arrays may still be in work.

    Attributes
    ----------
    solution : array [batch, n, nrhs]
        Zeros where the system failed.
    lu : array [batch, n, n]
        L below the diagonal (its own diagonal is 1), U on and above; zeros where the system failed.
    pivots : int32 array [batch, n]
        In step k, row k was exchanged with row ``pivots[k]``, counted from 0 as in `scipy.linalg.lu_factor`;
        -1 throughout where the system failed.
    status : int32 array [batch]
        0 ok; k > 0 column k (from 1) has no pivot: singular; -1 NaN or infinity in the input; -3 a value on the
        way is not finite.
    """

    solution: Any
    lu: Any
    pivots: Any
    status: Any

    def check_status(self) -> LUBatch:
        """As `CholeskyBatch.check_status`."""
        _check(self.status, "lu")
        return self
