"""Where a program calls scipy.sparse.linalg, call warpfront: same arguments, same answers, and a verdict.

Run: python examples/drop_in_for_scipy.py
"""

from pathlib import Path

import numpy as np
import scipy.sparse.linalg as scipy_linalg
from scipy.io import mmread

import warpfront

DATA = Path(__file__).parent / "data"


def compare(name, rhs=None):
    """Solve one bundled system with both libraries; return the larger of the two differences."""
    A = mmread(DATA / name).tocsc()
    b = A @ np.ones(A.shape[0]) if rhs is None else mmread(DATA / rhs)[:, 0]

    x_scipy = scipy_linalg.spsolve(A, b)
    x = warpfront.spsolve(A, b)  # symmetric: Cholesky or LDL^T is chosen

    solve_scipy = scipy_linalg.factorized(A)
    solve = warpfront.factorized(A)  # one factorisation, any number of right-hand sides
    c = A @ np.linspace(0.0, 1.0, A.shape[0])

    scale = np.abs(x_scipy).max()
    first = np.abs(x - x_scipy).max() / scale
    second = np.abs(solve(c) - solve_scipy(c)).max()
    print(f"{name}: n = {A.shape[0]}, difference {first:.1e} (spsolve), {second:.1e} (factorized)")
    return max(first, second)


def refusal():
    """A singular matrix is an error that names the column, where SciPy warns and returns NaN."""
    A = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    try:
        warpfront.spsolve(A, np.ones(3))
    except warpfront.errors.SingularMatrixError as error:
        print(f"refused: {error}")
        return error.column
    raise AssertionError("a singular matrix was solved")


def main():
    worst = compare("case118_kkt.mtx.gz", "case118_kkt_rhs.mtx.gz")
    return max(worst, compare("bcsstk13.mtx.gz"), compare("cont050_kkt.mtx.gz")), refusal()


if __name__ == "__main__":
    main()
