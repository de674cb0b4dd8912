"""Arguments and options that several commands share, as types for their signatures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Matrix", "Ordering", "Plot", "Rhs", "Solution", "Structure", "View"]

PLOT_SUFFIXES = (".png", ".svg", ".pdf")

Matrix = Annotated[
    Path, typer.Argument(metavar="A", help="Matrix: .mtx, .rb, .hb, .rsa (all also .gz) or .npz.")
]
Rhs = Annotated[
    Path | None,
    typer.Argument(
        metavar="B",
        help="Right-hand sides. Without it b = A x is made from x = ones.",
        show_default=False,
    ),
]
Solution = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write x: .mtx, .mtx.gz or .npz.", show_default=False),
]
Structure = Annotated[str, typer.Option(help="auto, SPD (Cholesky), S (LDL^T) or G.")]
Ordering = Annotated[str, typer.Option(help="auto, amd, multilevel, metis, level_set or natural.")]
View = Annotated[str, typer.Option(help="full, or the triangle that holds the entries: lower, upper.")]
Plot = Annotated[
    Path | None,
    typer.Option(help="Write a figure of A, L and the fronts: .png, .svg or .pdf.", show_default=False),
]
