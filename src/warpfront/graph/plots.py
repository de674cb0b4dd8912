"""`plot_levels`: what each level of a search did, as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpfront.errors import InvalidValueError
from warpfront.graph.result import BfsRecord, BfsResult

__all__ = ["plot_levels"]

PUSH, PULL = "#1f4e8c", "#c4572b"


def plot_levels(result: BfsResult | BfsRecord, path: Any = None) -> Any:
    """Draw frontier, examined arcs and time of each level; pushed and pulled levels in different colours.

    Parameters
    ----------
    result : BfsResult or BfsRecord
        Of a search that kept its levels.
    path : path, optional
        Where to write the figure (``.png``, ``.svg`` or ``.pdf``).

    Returns
    -------
    matplotlib.figure.Figure
    """
    record = result.record if isinstance(result, BfsResult) else result
    if not record.levels:
        raise InvalidValueError("the record holds no levels: the search began and ended at its sources")
    from matplotlib.figure import Figure

    levels = np.array([level.level for level in record.levels])
    pulled = np.array([level.direction == "pull" for level in record.levels])
    rows = [
        ("vertices in frontier", np.array([level.frontier for level in record.levels], float), "log"),
        ("arcs examined", np.array([level.examined for level in record.levels], float), "log"),
        ("time, µs", np.array([level.seconds for level in record.levels]) * 1e6, "linear"),
    ]
    rows = [(name, values, scale) for name, values, scale in rows if np.any(np.nan_to_num(values) > 0)]
    figure = Figure(figsize=(7.0, 1.0 + 1.8 * len(rows)), layout="constrained")
    for k, (name, values, scale) in enumerate(rows):
        axes = figure.add_subplot(len(rows), 1, k + 1)
        for mask, colour, label in ((~pulled, PUSH, "push"), (pulled, PULL, "pull")):
            if mask.any():
                axes.bar(levels[mask], values[mask], width=0.9, color=colour, label=label)
        axes.set_yscale(scale)
        axes.set_ylabel(name)
        if k == 0:
            axes.legend(frameon=False)
            axes.set_title(
                f"{record.reached} of {record.n} vertices, {record.edges} edges, {record.path}", fontsize=9
            )
    figure.axes[-1].set_xlabel("level")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
