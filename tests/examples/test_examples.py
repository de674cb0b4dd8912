"""Every example runs, and what it computes is checked against SciPy or the conditions it must satisfy."""

import gzip
import re
import runpy
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from scipy.io import mmread
from scipy.sparse import csc_array
from scipy.sparse.linalg import norm, spsolve

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
DATA = sorted((EXAMPLES / "data").glob("*.gz"))


def load(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")


def test_drop_in_agrees_with_scipy(capsys):
    difference, column = load("drop_in_for_scipy")["main"]()
    # the worst condition number is 5e10: about eps times that is what both libraries can promise
    assert difference < 1e-5
    assert column in (0, 1)
    assert "refused: the matrix is singular" in capsys.readouterr().out


def test_newton_converges_quadratically_on_one_analysis(capsys):
    example = load("newton_refactorize")
    u, norms = example["solve"](m=20, load=0.4)
    D = example["differences"](20)
    assert np.linalg.norm(example["residual"](D, u, np.full(400, 0.4))) <= 1e-10 * norms[0]
    assert norms[-1] < 10.0 * norms[-2] ** 1.5
    assert np.allclose(u.reshape(20, 20), u.reshape(20, 20).T, atol=1e-9)  # the load is symmetric, so is u
    step = spsolve(csc_array(example["jacobian"](D, 0 * u)), np.full(400, 0.4))
    assert np.max(u) < np.max(step)  # a flux that grows faster than the difference flattens u
    assert "one analysis" in capsys.readouterr().out


def test_interior_point_ends_at_a_second_order_point(capsys):
    example = load("interior_point")
    P, A, b, _ = example["problem"]()
    x, y, z, shifted = example["solve"]()
    assert shifted > 0  # the problem is not convex: without the shift this example shows nothing
    assert np.linalg.eigvalsh(P.toarray())[0] < -1.0
    assert np.abs(A @ x - b).max() < 1e-9
    assert x.min() > 0
    assert np.abs(P @ x - A.T @ y - z).max() < 1e-6
    assert x @ z < 1e-5
    free = x > 1e-3
    basis = np.linalg.svd(A.toarray()[:, free])[2][np.linalg.matrix_rank(A.toarray()[:, free]) :]
    reduced = basis @ P.toarray()[np.ix_(free, free)] @ basis.T
    assert np.linalg.eigvalsh(reduced).min(initial=0.0) > -1e-6
    assert "objective" in capsys.readouterr().out


def test_the_sequence_of_a_real_interior_point_run(capsys):
    results = load("kkt_sequence")["main"]()
    assert len(results) == 3
    for K, x, rhs, inertia in results:
        assert inertia == (1611, 1539, 0)  # eigenvalue count of the manifest
        size = norm(K.tocsr(), np.inf) * np.abs(x).max() + np.abs(rhs).max()
        assert np.abs(rhs - K @ x).max() <= 1e-14 * size
    assert capsys.readouterr().out.count("backward error") == 3


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_short(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) < 80


def test_a_script_runs_from_anywhere(tmp_path):
    command = [sys.executable, "-W", "error", EXAMPLES / "kkt_sequence.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 3


def test_data_is_attributed_and_unchanged():
    text = (EXAMPLES / "data" / "README.md").read_text(encoding="utf-8")
    hashes = {name: digest for digest, name in re.findall(r"^([0-9a-f]{64})  (\S+)$", text, re.MULTILINE)}
    assert hashes == {path.name: sha256(path.read_bytes()).hexdigest() for path in DATA}
    table = text.split("CC BY 4.0: ")[0]
    assert [path.name for path in DATA if f"`{path.name}`" not in table] == []
    assert sum(path.stat().st_size for path in DATA) < 2_000_000


@pytest.mark.parametrize(
    "path", [path for path in DATA if "_rhs" not in path.name], ids=lambda path: path.name
)
def test_bundled_matrices_are_real_symmetric(path):
    with gzip.open(path) as stream:
        assert stream.readline().split() == b"%%MatrixMarket matrix coordinate real symmetric".split()
        A = mmread(stream.__class__(path)).tocsr()
    assert abs(A - A.T).max() == 0
