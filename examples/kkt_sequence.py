"""The linear systems of a real interior-point run: one analysis, three factorisations on the same pattern.

Run: python examples/kkt_sequence.py
"""

from pathlib import Path

from scipy.io import mmread

from warpfront import DirectSolver

DATA = Path(__file__).parent / "data"
ITERATES = ("case118_kkt_it01", "case118_kkt", "case118_kkt_it20")


def main():
    """Return inertia and backward error of every system."""
    results = []
    solver = None
    for name in ITERATES:
        K = mmread(DATA / f"{name}.mtx.gz")
        rhs = mmread(DATA / f"{name}_rhs.mtx.gz")[:, 0]
        if solver is None:
            solver = DirectSolver(K, structure="S").analyze()
        solver.refactorize(K)
        x = solver.solve(rhs)
        record = solver.report
        print(
            f"{name}: {record.factor.inertia}, {record.factor.pivots.delayed} pivots delayed, "
            f"backward error {record.solve.backward_error:.1e}, {1e3 * record.factor.seconds:.1f} ms"
        )
        results.append((K, x, rhs, solver.inertia))
    return results


if __name__ == "__main__":
    main()
