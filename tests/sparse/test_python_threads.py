"""Several Python threads: on one solver, and on solvers of their own, with the bits that one thread gets."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import scipy.sparse as sp

from warpfront import DirectSolver
from warpfront.backend import cpu
from warpfront.errors import NotSupportedError

THREADS, ROUNDS, COLUMNS = 4, 40, 16


def matrix(structure, n=60, seed=1):
    a = (sp.random_array((n, n), density=0.1, rng=seed, format="csc") + 2 * sp.eye_array(n)).tocsc()
    return {"G": a, "SPD": (a @ a.T).tocsc(), "S": (a + a.T).tocsc()}[structure]


def at_once(work):
    """Call ``work(k)`` from threads that begin together; their results."""
    begin = Barrier(THREADS)

    def one(k):
        begin.wait()
        return work(k)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


@pytest.mark.parametrize("steps", [0, None])
@pytest.mark.parametrize("structure", ["G", "SPD", "S"])
def test_threads_that_share_a_solver_get_their_own_solutions(structure, steps):
    options = {} if steps is None else {"ir_n_steps": steps}
    solver = DirectSolver(matrix(structure), structure=structure, **options).factorize()
    b = np.random.default_rng(0).standard_normal((60, COLUMNS))
    expected = [solver.solve(b[:, i].copy()) for i in range(COLUMNS)]

    def work(k):
        wrong = 0
        for r in range(ROUNDS):
            i = (5 * k + r) % COLUMNS
            wrong += not np.array_equal(solver.solve(b[:, i].copy()), expected[i])
        return wrong

    assert at_once(work) == [0] * THREADS


def test_solvers_side_by_side_have_the_bits_of_one_alone():
    a = matrix("SPD", 400, 3)
    b = a @ np.ones(400)
    expected = DirectSolver(a, structure="SPD").solve(b)
    solvers = [DirectSolver(a, structure="SPD").factorize() for _ in range(THREADS)]

    def work(k):
        for _ in range(5):
            x = solvers[k].refactorize(a.data).solve(b)
        return np.array_equal(x, expected)

    assert at_once(work) == [True] * THREADS


def test_blas_is_given_back_when_the_last_one_leaves():
    def threads():
        return [ask() for ask, _ in cpu._blas_threads()]

    before = threads()
    first, second = cpu.single_threaded_blas(), cpu.single_threaded_blas()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == [1] * len(before)
    second.__exit__(None, None, None)
    assert threads() == before


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_copy_shares_the_buffers_of_a_solver(way):
    solver = DirectSolver(matrix("S")).factorize()
    with pytest.raises(NotSupportedError, match="symbolic"):
        way(solver)


@pytest.mark.parametrize("structure", ["G", "SPD", "S"])
def test_conditions_and_single_phases_beside_solves(structure):
    solver = DirectSolver(matrix(structure), structure=structure, ir_n_steps=0).factorize()
    b = np.ones(60)
    expected, condition = solver.solve(b), solver.rcond()

    def work(k):
        for _ in range(4 * ROUNDS):
            if k == 0:
                assert solver.rcond() == condition
            elif k == 1:
                x = np.empty(60)
                solver.execute("solve", x, b)
                assert x.tobytes() == expected.tobytes()
            elif k == 2:
                solver.set("ir_tol", 1e-8)
            else:
                assert solver.solve(b).tobytes() == expected.tobytes()

    at_once(work)
