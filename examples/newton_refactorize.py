"""Newton's method for nonlinear diffusion on a grid: one analysis, a refactorisation every iteration.

On the edges of a 2-D grid with fixed boundary, the flux of a difference d is q(d) = d + d^3. Find u with
D^T q(D u) = f. The Jacobian D^T diag(q'(D u)) D is positive definite; values change, the pattern does not.

Run: python examples/newton_refactorize.py
"""

import numpy as np
from scipy import sparse

from warpfront import DirectSolver


def differences(m):
    """Incidence matrix D of an m x m grid of unknowns, edges to the fixed boundary included."""
    one = sparse.diags_array([np.ones(m), -np.ones(m)], offsets=[0, -1], shape=(m + 1, m))
    eye = sparse.eye_array(m)
    return sparse.vstack([sparse.kron(eye, one), sparse.kron(one, eye)]).tocsr()


def jacobian(D, u):
    """D^T diag(1 + 3 d^2) D in CSC form with sorted indices, so that its entries keep their order."""
    J = (D.T @ sparse.diags_array(1.0 + 3.0 * (D @ u) ** 2) @ D).tocsc()
    J.sort_indices()
    return J


def residual(D, u, f):
    d = D @ u
    return f - D.T @ (d + d**3)


def solve(m=60, load=0.05):
    """Return u and the norm of the residual after each iteration."""
    D = differences(m)
    f = np.full(m * m, load)
    u = np.zeros(m * m)
    solver = DirectSolver(jacobian(D, u), structure="SPD").analyze()
    r = residual(D, u, f)
    norms = [float(np.linalg.norm(r))]
    while norms[-1] > 1e-10 * norms[0]:
        if len(norms) > 40:
            raise RuntimeError("Newton's method did not converge")
        solver.refactorize(jacobian(D, u))  # new values, same pattern: no new analysis
        step = solver.solve(r)
        length = 1.0
        while np.linalg.norm(residual(D, u + length * step, f)) > (1.0 - 0.1 * length) * norms[-1]:
            length /= 2.0
        u += length * step
        r = residual(D, u, f)
        norms.append(float(np.linalg.norm(r)))
        print(f"iteration {len(norms) - 1}: step {length:<6g} residual {norms[-1]:.2e}")
    print(f"{solver.report.analysis.n} unknowns, one analysis, {len(norms) - 1} factorisations")
    return u, norms


if __name__ == "__main__":
    solve()
