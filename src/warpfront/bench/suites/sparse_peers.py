"""Sparse solvers side by side: the same three steps of ours and of each peer, by their own documented calls.

Each function of `OURS` and `PEERS` takes a problem, converts it to the form its solver wants (not timed, like
starting a library), and returns the steps that are timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from warpfront.bench.case import NotOffered
from warpfront.bench.suites.sparse_inputs import Problem

Step = Callable[[], Any]


@dataclass
class Contender:
    """One solver on one problem.

    Attributes
    ----------
    algorithm : str
        What is run, for the record.
    first : callable
        Analysis and first factorisation.
    refactor : callable
        Numeric factorisation on the kept analysis; raises `NotOffered` where a solver has none.
    solve : callable
        One right-hand side; returns x.
    forget : callable
        Drops the factor before the next ``first``.
    inertia : callable
        Positive, negative and zero count, or None where the solver does not tell.
    workspace_bytes : callable
        Bytes of the factorisation, or None where the solver does not tell.
    componentwise : bool
        Whether the solution is also held to a componentwise backward error.
    factored : bool
        Whether ``first`` has run.
    """

    problem: Problem
    algorithm: str
    first: Step
    solve: Step
    forget: Step
    refactor: Step | None = None
    inertia: Callable[[], tuple[int, int, int] | None] = lambda: None
    workspace_bytes: Callable[[], int | None] = lambda: None
    componentwise: bool = False
    factored: bool = False

    def factor_anew(self) -> None:
        """Run ``first`` and note it."""
        self.first()
        self.factored = True

    def factor_again(self) -> None:
        """Run ``refactor``, or say that there is none."""
        if self.refactor is None:
            raise NotOffered("no refactorisation on a kept analysis")
        self.refactor()


def warpfront(problem: Problem, **options: Any) -> Contender:
    """Ours, with the parameters given."""
    from warpfront.sparse.solver import DirectSolver

    held = SimpleNamespace(solver=None)

    def first() -> None:
        held.solver = DirectSolver(problem.matrix, **options).analyze().factorize()

    def forget() -> None:
        held.solver = None

    def inertia() -> tuple[int, int, int] | None:
        if problem.structure == "G":
            return None
        positive, negative, zero = held.solver.inertia
        return int(positive), int(negative), int(zero)

    return Contender(
        problem,
        f"DirectSolver, {options or 'default parameters'}",
        first,
        solve=lambda: held.solver.solve(problem.b),
        forget=forget,
        refactor=lambda: held.solver.refactorize(problem.matrix.data),
        inertia=inertia,
        workspace_bytes=lambda: held.solver and int(held.solver.report.factor.peak_bytes),
        componentwise=not options,
    )


def warpfront_unrefined(problem: Problem) -> Contender:
    """Ours without refinement: the solve alone differs."""
    return warpfront(problem, ir_n_steps=0)


def superlu(problem: Problem) -> Contender:
    """SciPy's SuperLU: no refactorisation on a kept analysis; for G, where new values come, ``splu`` anew."""
    from scipy.sparse.linalg import splu

    held = SimpleNamespace(factor=None)
    # Symmetric mode halves the work where pivots may stay on the diagonal; not so on K2 systems.
    general = problem.structure == "G"
    symmetric = not general and not problem.distribution.startswith("kkt/")
    options = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}, "diag_pivot_thresh": 0.01}

    def first() -> None:
        held.factor = splu(problem.matrix, **(options if symmetric else {}))

    def forget() -> None:
        held.factor = None

    algorithm = "splu, symmetric mode, MMD" if symmetric else "splu, default (COLAMD)"
    again = first if general else None  # there is nothing else to call when values change
    return Contender(problem, algorithm, first, lambda: held.factor.solve(problem.b), forget, again)


def pardiso(problem: Problem) -> Contender:
    """MKL PARDISO through pypardiso, told the structure."""
    import pypardiso

    kind = {"SPD": 2, "S": -2, "G": 11}[problem.structure]
    solver = pypardiso.PyPardisoSolver(mtype=kind)
    whole = sparse.csr_matrix(problem.matrix)
    upper, b = whole if kind == 11 else sparse.triu(whole).tocsr(), problem.b.reshape(-1, 1)
    nothing = np.zeros_like(b)

    def phase(number: int, rhs: Any) -> Any:
        solver.set_phase(number)
        return solver._call_pardiso(upper, rhs)

    def inertia() -> tuple[int, int, int] | None:
        if kind != -2:
            return None
        positive, negative = int(solver.get_iparm(22)), int(solver.get_iparm(23))
        return positive, negative, len(b) - positive - negative

    return Contender(
        problem,
        f"MKL PARDISO, mtype {kind}, default iparm",
        first=lambda: phase(12, nothing),
        solve=lambda: phase(33, b).ravel(),
        forget=lambda: solver.free_memory(everything=True),
        refactor=lambda: phase(22, nothing),
        inertia=inertia,
    )


def feral(problem: Problem) -> Contender:
    """feral, a Rust LDL^T."""
    import feral as library

    held = SimpleNamespace(solver=None, inertia=None)
    matrix = library.from_scipy(sparse.tril(problem.matrix).tocsc())

    def refactor() -> None:
        status, held.inertia = held.solver.factor(matrix)
        if int(status) != 0:
            raise ArithmeticError(f"factor returned {status!r}")

    def first() -> None:
        held.solver = library.Solver()
        refactor()

    def forget() -> None:
        held.solver = None

    return Contender(
        problem,
        "Solver, default",
        first,
        solve=lambda: np.asarray(held.solver.solve(problem.b)),
        forget=forget,
        refactor=refactor,
        inertia=lambda: (held.inertia.n_pos, held.inertia.n_neg, held.inertia.n_zero),
    )


def rslab(problem: Problem) -> Contender:
    """rslab, a Rust LDL^T."""
    import rslab as library

    from warpfront.backend import settings

    held, threads = SimpleNamespace(symbolic=None, factor=None), settings.threads()

    def refactor() -> None:
        held.factor = held.symbolic.factor(problem.matrix)

    def first() -> None:
        held.symbolic = library.analyze(problem.matrix, path="ldlt", threads=threads)
        refactor()

    def forget() -> None:
        held.symbolic = held.factor = None

    return Contender(
        problem,
        f"analyze(path='ldlt', threads={threads}), factor",
        first,
        solve=lambda: np.asarray(held.factor.solve(problem.b)),
        forget=forget,
        refactor=refactor,
        inertia=lambda: held.factor.inertia and tuple(int(count) for count in held.factor.inertia),
    )


def qdldl(problem: Problem) -> Contender:
    """QDLDL: signs of D fixed, no pivoting."""
    import qdldl as library

    held = SimpleNamespace(solver=None)

    def first() -> None:
        held.solver = library.Solver(problem.matrix)

    def forget() -> None:
        held.solver = None

    return Contender(
        problem,
        "Solver, AMD",
        first,
        solve=lambda: held.solver.solve(problem.b),
        forget=forget,
        refactor=lambda: held.solver.update(problem.matrix),
    )


Make = Callable[[Problem], Contender]
# Name -> distribution, how to make it. Ours come first; the second of ours differs in the solve alone.
OURS: dict[str, tuple[str, Make]] = {
    "warpfront": ("warpfront", warpfront),
    "warpfront unrefined": ("warpfront", warpfront_unrefined),
}
PEERS: dict[str, tuple[str, Make]] = {
    "superlu": ("scipy", superlu),
    "pardiso": ("pypardiso", pardiso),
    "feral": ("feral-solver", feral),
    "rslab": ("rslab", rslab),
    "qdldl": ("qdldl", qdldl),
}
LU_PEERS = {name: PEERS[name] for name in ("superlu", "pardiso")}


def installed(package: str) -> str | None:
    """Return the version of a distribution, or None."""
    if package == "warpfront":
        import warpfront as ours

        return str(ours.__version__)
    try:
        return version(package)
    except PackageNotFoundError:
        return None
