"""Gradients through sparse solves: PyTorch's finite differences, and JAX's dense solve, which share no code with ours."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from warpfront import DifferentiableSolver, spsolve
from warpfront.errors import InvalidValueError, SingularMatrixError

N = 6


def matrix(structure, dtype=np.float64, seed=3):
    """A matrix with the structure; most of its entries stored."""
    random = np.random.default_rng(seed)
    dense = random.standard_normal((N, N))
    if np.dtype(dtype).kind == "c":
        dense = dense + 1j * random.standard_normal((N, N))
    dense[random.random((N, N)) < 0.4] = 0
    if structure in ("S", "SPD"):
        dense = dense + dense.T
    if structure in ("H", "HPD"):
        dense = dense + dense.conj().T
    shift = 8.0 if structure in ("SPD", "HPD", "G") else np.where(np.arange(N) % 2, 6.0, -6.0)
    return (dense + np.diag(np.ones(N) * shift)).astype(dtype)


def side(A, shape, seed=4):
    random = np.random.default_rng(seed)
    b = random.standard_normal(shape)
    return b + 1j * random.standard_normal(shape) if A.dtype.kind == "c" else b


class TestTorch:
    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip(
            "torch", reason="PyTorch is not installed: pip install 'warpfront[torch]'"
        )

    @pytest.mark.parametrize("trans", ["N", "T", "H"])
    @pytest.mark.parametrize("shape", [(N,), (N, 3)], ids=str)
    @pytest.mark.parametrize("dtype", [np.float64, np.complex128])
    def test_gradients_of_both_orders(self, dtype, shape, trans):
        torch, A = self.torch, matrix("G", dtype)
        stored = sparse.csr_array(A)
        solve = DifferentiableSolver(stored, structure="G")
        values = torch.tensor(stored.data, requires_grad=True)
        b = torch.tensor(side(A, shape), requires_grad=True)
        wanted = {"N": A, "T": A.T, "H": A.conj().T}[trans]
        found = solve(values, b, trans)
        np.testing.assert_allclose(
            found.detach().numpy(), np.linalg.solve(wanted, b.detach().numpy()), rtol=1e-12
        )
        assert torch.autograd.gradcheck(lambda v, c: solve(v, c, trans), (values, b))
        assert torch.autograd.gradgradcheck(lambda v, c: solve(v, c, trans), (values, b))

    @pytest.mark.parametrize("view", ["lower", "upper"])
    @pytest.mark.parametrize(
        ("structure", "dtype"),
        [("SPD", np.float64), ("S", np.float64), ("auto", np.float64)]
        + [(name, np.complex128) for name in ("S", "H", "HPD")],
    )
    def test_an_entry_of_a_triangle_stands_for_two(self, structure, dtype, view):
        torch = self.torch
        A = matrix("SPD" if structure == "auto" else structure, dtype)
        stored = sparse.coo_array((sparse.tril if view == "lower" else sparse.triu)(A))
        solve = DifferentiableSolver(stored, structure=structure, view=view)
        b = torch.tensor(side(A, (N,)))
        off = torch.tensor(stored.coords[0] != stored.coords[1])
        values = torch.tensor(stored.data)

        def of_triangle(off_diagonal, diagonal):  # the diagonal of a Hermitian matrix is real
            return solve(
                torch.zeros_like(values)
                .masked_scatter(off, off_diagonal)
                .masked_scatter(~off, diagonal.to(values.dtype)),
                b,
            )

        diagonal = values[~off].real if structure in ("H", "HPD") else values[~off]
        given = (values[off].clone().requires_grad_(), diagonal.clone().requires_grad_())
        np.testing.assert_allclose(
            of_triangle(*given).detach().numpy(), np.linalg.solve(A, b.numpy()), rtol=1e-11
        )
        assert torch.autograd.gradcheck(of_triangle, given)

    @pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
    @pytest.mark.filterwarnings("ignore:Sparse")
    def test_sparse_tensors_in_tensors_out(self, layout):
        torch, A = self.torch, matrix("G")
        row, col = np.nonzero(A)
        if layout == "coo":  # in any order, with a duplicate
            row, col = np.append(row[::-1], row[0]), np.append(col[::-1], col[0])
        elif layout == "csc":
            order = np.lexsort((row, col))
            row, col = row[order], col[order]
        entries = A[row, col]
        if layout == "coo":
            entries[-1] /= 2
            entries[-2] = entries[-1]
        values = torch.tensor(entries, requires_grad=True)
        pointers = np.searchsorted(col if layout == "csc" else row, np.arange(N + 1))
        tensor = {
            "coo": lambda: torch.sparse_coo_tensor(np.stack([row, col]), values, A.shape),
            "csr": lambda: torch.sparse_csr_tensor(pointers, col, values, A.shape),
            "csc": lambda: torch.sparse_csc_tensor(pointers, row, values, A.shape),
        }[layout]()
        b = torch.tensor(side(A, (N,)))
        x = spsolve(tensor, b)
        (x**2).sum().backward()
        full = torch.tensor(A, requires_grad=True)
        wanted = torch.linalg.solve(full, b)
        (wanted**2).sum().backward()
        np.testing.assert_allclose(x.detach(), wanted.detach(), rtol=1e-11)
        np.testing.assert_allclose(values.grad, full.grad[row, col], rtol=1e-10)

    def test_a_backward_pass_neither_refactors_nor_uses_a_later_factor(self, monkeypatch):
        torch, A = self.torch, matrix("G")
        stored = sparse.csr_array(A)
        solve = DifferentiableSolver(stored, structure="G")
        first = torch.tensor(stored.data, requires_grad=True)
        second = torch.tensor(stored.data * 2.0, requires_grad=True)
        b = torch.tensor(side(A, (N,)))
        x = solve(first, b)
        counted = []
        real = type(solve.solver).refactorize
        monkeypatch.setattr(
            type(solve.solver), "refactorize", lambda self, values: counted.append(1) or real(self, values)
        )
        x.sum().backward()
        assert not counted
        kept, first.grad = first.grad.clone(), None
        again = solve(first, b)
        solve(second, b)
        again.sum().backward()  # the factor of the second values is in the way
        assert len(counted) == 2
        np.testing.assert_array_equal(first.grad, kept)

    def test_single_precision_stays_single(self):
        torch, A = self.torch, matrix("SPD", np.float32)
        stored = sparse.csr_array(A)
        solve = DifferentiableSolver(stored)
        x = solve(torch.tensor(stored.data), torch.ones(N, dtype=torch.float64))
        assert x.dtype == torch.float32
        np.testing.assert_allclose(x.numpy(), np.linalg.solve(A.astype(float), np.ones(N)), rtol=1e-5)
        with pytest.raises(InvalidValueError, match="the first ones were float32"):
            solve(torch.tensor(stored.data, dtype=torch.float64), torch.ones(N))

    def test_what_it_cannot_take_is_refused(self):
        torch, stored = self.torch, sparse.csr_array(matrix("G"))
        solve = DifferentiableSolver(stored)
        values, b = torch.tensor(stored.data), torch.ones(N, dtype=torch.float64)
        for bad, text in (
            ((values[1:], b), "the pattern has"),
            ((values, b[1:]), "rows"),
            ((values, b.numpy()), "dense tensor"),
            ((values.numpy(), b), "dense tensor"),
            ((values.numpy(), b.numpy()), "DirectSolver"),
            ((values, b.to(torch.complex128)), "complex"),
            ((values.long(), b), "allowed are float32"),
            ((values, torch.ones(2, N, N)), "dimension"),
            ((values, b, "C"), "trans"),
        ):
            with pytest.raises(InvalidValueError, match=text):
                solve(*bad)
        with pytest.raises(InvalidValueError, match="square"):
            DifferentiableSolver(sparse.csr_array(np.ones((2, 3))))
        with pytest.raises(InvalidValueError, match="layout"):
            DifferentiableSolver(torch.eye(4).to_sparse_bsr((2, 2)))

    def test_the_example_of_the_page_prints_what_it_shows(self, capsys):
        page = (Path(__file__).resolve().parents[2] / "docs" / "differentiable.md").read_text(
            encoding="utf-8"
        )
        (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        exec(compile(code, "docs/differentiable.md", "exec"), {})
        assert capsys.readouterr().out == re.findall(r"```text\n(.*?)```", page, re.DOTALL)[0]

    def test_a_singular_matrix_is_an_error_and_the_solver_stays_usable(self):
        torch, stored = self.torch, sparse.csr_array(matrix("G"))
        solve = DifferentiableSolver(stored)
        values, b = torch.tensor(stored.data), torch.ones(N, dtype=torch.float64)
        right = solve(values, b)
        with pytest.raises(SingularMatrixError):
            solve(values * 0, b)
        np.testing.assert_array_equal(solve(values, b), right)


@pytest.mark.cuda
@pytest.mark.parametrize("structure", ["SPD", "S", "G"])
@pytest.mark.parametrize("shape", [(N,), (N, 3)], ids=str)
def test_tensors_on_the_device_stay_there(structure, shape):
    import torch

    A = matrix(structure)
    stored = sparse.coo_array(A)
    solve = DifferentiableSolver(stored, structure=structure)
    values = torch.tensor(stored.data, device="cuda", requires_grad=True)
    b = torch.tensor(side(A, shape), device="cuda", requires_grad=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        x = solve(values, b)
        (x**3).sum().backward()
        torch.cuda.synchronize()
    full, c = torch.tensor(A, requires_grad=True), b.detach().cpu().requires_grad_()
    wanted = torch.linalg.solve(full, c)
    (wanted**3).sum().backward()
    assert x.is_cuda
    np.testing.assert_allclose(x.detach().cpu(), wanted.detach(), rtol=1e-10)
    np.testing.assert_allclose(values.grad.cpu(), full.grad[stored.coords], rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(b.grad.cpu(), c.grad, rtol=1e-9, atol=1e-13)


class TestJax:
    @pytest.fixture(autouse=True)
    def _jax(self):
        jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'warpfront[jax]'")
        with jax.enable_x64(True):
            self.jax, self.jnp = jax, jax.numpy
            yield

    def dense_solve(self, stored, values, b, trans="N"):
        row, col = stored.tocoo().coords
        A = self.jnp.zeros(stored.shape, values.dtype).at[row, col].set(values)
        return self.jnp.linalg.solve({"N": A, "T": A.T, "H": A.conj().T}[trans], b)

    @pytest.mark.parametrize("trans", ["N", "T", "H"])
    @pytest.mark.parametrize("dtype", [np.float64, np.complex128])
    def test_values_gradients_and_directions_equal_the_dense_ones(self, dtype, trans):
        jax, jnp, A = self.jax, self.jnp, matrix("G", dtype)
        stored = sparse.csr_array(A)
        solve = DifferentiableSolver(stored, structure="G")
        values, b = jnp.asarray(stored.data), jnp.asarray(side(A, (N, 2)))

        def ours(v, c):
            return (jnp.abs(solve(v, c, trans)) ** 3).sum()

        def theirs(v, c):
            return (jnp.abs(self.dense_solve(stored, v, c, trans)) ** 3).sum()

        for got, wanted in zip(
            jax.jit(jax.grad(ours, (0, 1)))(values, b), jax.grad(theirs, (0, 1))(values, b), strict=True
        ):
            np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)
        tangents = (jnp.cos(values), jnp.sin(b))
        got = jax.jvp(lambda v, c: solve(v, c, trans), (values, b), tangents)
        wanted = jax.jvp(lambda v, c: self.dense_solve(stored, v, c, trans), (values, b), tangents)
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)

    def test_second_derivatives(self):
        jax, jnp, A = self.jax, self.jnp, matrix("G")
        stored = sparse.csr_array(A)
        solve = DifferentiableSolver(stored, structure="G")
        values, b = jnp.asarray(stored.data), jnp.asarray(side(A, (N,)))
        got = jax.hessian(lambda v: (solve(v, b) ** 2).sum())(values)
        wanted = jax.hessian(lambda v: (self.dense_solve(stored, v, b) ** 2).sum())(values)
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)

    def test_vmap_solves_each_system(self):
        jax, jnp, A = self.jax, self.jnp, matrix("SPD")
        stored = sparse.csr_array(A)
        solve = DifferentiableSolver(stored)
        many = jnp.stack([jnp.asarray(stored.data) * k for k in (1.0, 2.0, 5.0)])
        b = jnp.asarray(side(A, (3, N)))
        got = jax.vmap(solve)(many, b)
        wanted = [np.linalg.solve(A * k, c) for k, c in zip((1, 2, 5), b, strict=True)]
        np.testing.assert_allclose(got, wanted, rtol=1e-11)

    @pytest.mark.parametrize("view", ["lower", "upper"])
    @pytest.mark.parametrize(("structure", "dtype"), [("SPD", np.float64), ("H", np.complex128)])
    def test_an_entry_of_a_triangle_stands_for_two(self, structure, dtype, view):
        jax, jnp, A = self.jax, self.jnp, matrix(structure, dtype)
        stored = sparse.coo_array((sparse.tril if view == "lower" else sparse.triu)(A))
        row, col = stored.coords
        solve = DifferentiableSolver(stored, structure=structure, view=view)
        values, b = jnp.asarray(stored.data), jnp.asarray(side(A, (N,)))

        def theirs(v):
            full = jnp.zeros((N, N), v.dtype).at[row, col].set(v)
            mirror = full.conj().T if structure == "H" else full.T
            return jnp.linalg.solve(full + mirror - jnp.diag(jnp.diag(mirror)), b)

        direction = jnp.where(row == col, 1.0, jnp.cos(values))
        got = jax.jvp(lambda v: solve(v, b), (values,), (direction,))
        np.testing.assert_allclose(got, jax.jvp(theirs, (values,), (direction,)), rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("layout", ["BCOO", "BCSR"])
    def test_sparse_matrices_in_arrays_out(self, layout):
        from jax.experimental import sparse as jsparse

        jax, jnp, A = self.jax, self.jnp, matrix("G")
        given = getattr(jsparse, layout).fromdense(jnp.asarray(A))
        b = jnp.asarray(side(A, (N,)))
        np.testing.assert_allclose(spsolve(given, b), np.linalg.solve(A, b), rtol=1e-12)
        with pytest.raises(InvalidValueError, match="outside jit"):
            jax.jit(spsolve)(given, b)
        with pytest.raises(InvalidValueError, match="complex"):
            spsolve(given, b + 1j)
        with pytest.raises(Exception, match=r"no pivot|singular"):
            jax.block_until_ready(spsolve(type(given).fromdense(jnp.zeros((N, N)).at[0, 1].set(1.0)), b))
