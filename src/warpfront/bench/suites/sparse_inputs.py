"""Inputs of the sparse benchmarks: generated systems, and matrix files under a data folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from warpfront.errors import InvalidValueError


@dataclass(frozen=True)
class Problem:
    """One system.

    Attributes
    ----------
    matrix : scipy.sparse.csc_matrix
        float64, both triangles.
    b : float64[n]
        Right-hand side.
    structure : str
        ``SPD``, ``S`` or ``G``.
    inertia : (int, int, int) or None
        Where it is known for certain.
    distribution : str
        Where matrix and right-hand side come from.
    seed : int or None
        Of the generators that draw.
    """

    name: str
    matrix: Any
    b: Any
    structure: str
    inertia: tuple[int, int, int] | None
    distribution: str
    seed: int | None


def build(entry: dict[str, Any], data: Path | None) -> Problem:
    """Return the problem of one entry of the list.

    Raises
    ------
    InvalidValueError
        An unknown kind, or a file and no folder to find it in.
    """
    kind, name, structure = entry["kind"], entry["name"], entry["structure"]
    if kind == "file":
        return _from_file(entry, data)
    if kind == "laplacian":
        matrix, inertia = laplacian(entry["dims"]), None
        text = f"{len(entry['dims'])}-D {2 * len(entry['dims']) + 1}-point Laplacian"
    elif kind == "kkt":
        matrix = quasidefinite(entry["n"], entry["m"], entry["seed"])
        inertia = (entry["n"], entry["m"], 0)
        text = "random quasi-definite KKT"
    elif kind == "convection":
        matrix, inertia = convection(entry["dims"]), None
        text = f"{len(entry['dims'])}-D convection and diffusion, upwind"
    else:
        raise InvalidValueError(
            f"row {name!r}: kind is {kind!r}; allowed are file, laplacian, convection, kkt"
        )
    b = np.random.default_rng(0).standard_normal(matrix.shape[0])
    if structure != "G":
        inertia = inertia or (matrix.shape[0], 0, 0)
    return Problem(name, matrix, b, structure, inertia, f"{text}, b normal", entry.get("seed", 0))


def laplacian(dims: list[int]) -> Any:
    """Return the Dirichlet Laplacian of a d-dimensional grid: 2 d on the diagonal, -1 to each neighbour."""
    total = sparse.csc_matrix((int(np.prod(dims)),) * 2)
    for axis, size in enumerate(dims):
        line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(size, size))
        before, after = int(np.prod(dims[:axis])), int(np.prod(dims[axis + 1 :]))
        total = total + sparse.kron(sparse.kron(sparse.identity(before), line), sparse.identity(after))
    return total.tocsc()


def convection(dims: list[int], wind: float = 5.0) -> Any:
    """Return upwind convection and diffusion on a d-dimensional grid: -1 - wind, 2 + wind, -1 along each axis."""
    total = sparse.csc_matrix((int(np.prod(dims)),) * 2)
    for axis, size in enumerate(dims):
        line = sparse.diags([-1.0 - wind, 2.0 + wind, -1.0], [-1, 0, 1], shape=(size, size))
        before, after = int(np.prod(dims[:axis])), int(np.prod(dims[axis + 1 :]))
        total = total + sparse.kron(sparse.kron(sparse.identity(before), line), sparse.identity(after))
    return total.tocsc()


def quasidefinite(n: int, m: int, seed: int) -> Any:
    """Return ``[[H, J'], [J, -1e-8 I]]``: H diagonal in [1, 10], J four random entries a row and a unit one.

    H positive definite and the other block negative definite, so the inertia is (n, m, 0) whatever is drawn.
    """
    draw = np.random.default_rng(seed)
    hessian = sparse.diags(draw.uniform(1, 10, n))
    jacobian = sparse.random(m, n, density=4 / n, random_state=draw, format="csr") + sparse.eye(m, n)
    return sparse.bmat([[hessian, jacobian.T], [jacobian, -1e-8 * sparse.identity(m)]]).tocsc()


def _from_file(entry: dict[str, Any], data: Path | None) -> Problem:
    from warpfront.formats.files import read_matrix

    if data is None:
        raise InvalidValueError(
            f"row {entry['name']!r} is the file {entry['file']}: say with --data where it is"
        )
    path = data / entry["file"]
    matrix = sparse.csc_matrix(read_matrix(path)).astype(np.float64)
    sidecar = path.with_name(path.name.split(".")[0] + ".json")
    facts = json.loads(sidecar.read_text(encoding="utf-8")) if sidecar.exists() else {}
    known = facts.get("inertia") if facts.get("inertia_firm") else None
    inertia = None if known is None else (int(known[0]), int(known[1]), int(known[2]))
    b = matrix @ np.ones(matrix.shape[0])
    return Problem(
        entry["name"], matrix, b, entry["structure"], inertia, f"{entry['file']}, b = A times ones", None
    )
