"""An interior-point method for a nonconvex quadratic program: the inertia says whether a step goes downhill.

Minimise 1/2 x^T P x subject to A x = b, x >= 0. P is indefinite; A adds up groups of variables. The KKT
matrix must have n positive and m negative eigenvalues; where it has not, its diagonal is shifted until it has
(Waechter and Biegler 2006, algorithm IC). With that inertia the barrier function falls along the step.

Run: python examples/interior_point.py
"""

import numpy as np
from scipy import sparse

from warpfront import DirectSolver, Status


def problem(groups=40, size=8, seed=7):
    n, rng = groups * size, np.random.default_rng(seed)
    P = sparse.random_array((n, n), density=0.02, rng=rng, data_sampler=rng.standard_normal)
    P = (P + P.T).tolil()
    P.setdiag(0.5)
    A = sparse.kron(sparse.eye_array(groups), np.ones((1, size)))
    return P.tocsc(), A.tocsc(), np.ones(groups), np.full(n, 1.0 / size)


def kkt(P, A, barrier):
    """[P + diag(barrier), A^T; A, -1e-10 I], indices sorted; the last block tells the shift the rows of A."""
    K = sparse.block_array(
        [[P + sparse.diags_array(barrier), A.T], [A, -1e-10 * sparse.eye_array(A.shape[0])]]
    ).tocsc()
    K.sort_indices()
    return K


def factor_with_right_inertia(solver, K, n, m):
    """Refactorize K, shifted as little as it takes; return the shift."""
    shift = 0.0
    while True:
        solver.refactorize(K, diagonal_shift=(shift, 0.0))
        if solver.status == Status.OK and solver.inertia == (n, m, 0):
            return shift
        shift = max(1e-4, 4.0 * shift)


def solve():
    """Return x, the multipliers y and z, and the number of factorisations that needed a shift."""
    P, A, b, x = problem()
    n, m = A.shape[1], A.shape[0]
    mu, shifted, y = 1.0, 0, np.zeros(m)
    solver = DirectSolver(kkt(P, A, mu / x**2), structure="S", check="status").analyze()

    def barrier(x):
        return 0.5 * x @ (P @ x) - mu * np.log(x).sum()

    for _ in range(400):
        gradient = P @ x - mu / x
        if (
            np.abs(gradient - A.T @ y).max() < 10.0 * mu
        ):  # the barrier problem is solved well enough for its mu
            print(f"mu {mu:.1e}: objective {0.5 * x @ (P @ x):+.8f}, shifted so far {shifted}")
            if mu < 1e-8:
                return x, y, mu / x, shifted
            mu *= 0.2
            gradient = P @ x - mu / x
        shift = factor_with_right_inertia(solver, kkt(P, A, mu / x**2), n, m)
        shifted += shift > 0.0
        step = solver.solve(np.concatenate([-gradient, b - A @ x]))
        dx, y = step[:n], -step[n:]
        shrinking = dx < 0
        length = min(1.0, 0.995 * np.min(-x[shrinking] / dx[shrinking], initial=np.inf))
        here = barrier(x)
        noise = 1e-13 * (1.0 + abs(here))
        while barrier(x + length * dx) > here + 1e-4 * length * min(0.0, gradient @ dx) + noise:
            length *= 0.5
        x = x + length * dx
    raise RuntimeError("the interior-point method did not converge")


if __name__ == "__main__":
    solve()
