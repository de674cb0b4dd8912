"""The picture of a pricing: how the estimates and their errors settle as paths are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warpfront.errors import InvalidValueError
from warpfront.montecarlo.results import Progress

__all__ = ["convergence_data", "plot_convergence"]

INK, SOFT, MARK = "#1f4e8c", "#9db8d9", "#b3541e"


def convergence_data(history: Sequence[Progress], k: int = 0) -> dict[str, Any]:
    """Return arrays over the history of one option: ``paths``, ``price``, ``low``, ``high``, ``standard_error``.

    Parameters
    ----------
    history : sequence of Progress
        What the ``progress`` callback of `price` was given, in order.
    k : int
        Which option.
    """
    if not history:
        raise InvalidValueError("the history is empty: pass the Progress records of price(..., progress=...)")
    estimates = [step.estimates[k] for step in history]
    return {
        "paths": np.array([step.paths_done for step in history], np.float64),
        "price": np.array([e.price for e in estimates]),
        "low": np.array([e.confidence[0] for e in estimates]),
        "high": np.array([e.confidence[1] for e in estimates]),
        "standard_error": np.array([e.standard_error for e in estimates]),
    }


def plot_convergence(history: Sequence[Progress], k: int = 0, title: str = "") -> Any:
    """Draw price with its confidence interval, and standard error, against the number of paths.

    Parameters
    ----------
    history, k
        As `convergence_data`.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        Not attached to any window; save it with ``savefig``.
    """
    from matplotlib.figure import Figure

    data, last = convergence_data(history, k), history[-1].estimates[k]
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.fill_between(
        data["paths"], data["low"], data["high"], color=SOFT, label=f"{last.level:.0%} interval"
    )
    left.plot(data["paths"], data["price"], color=INK, marker=".", label="estimate")
    if last.exact is not None:
        left.axhline(last.exact, color=MARK, linestyle="--", label="closed form")
    left.set(xscale="log", xlabel="paths", ylabel="price")
    left.legend()
    known = data["standard_error"] > 0
    if known.any():
        paths, error = data["paths"][known], data["standard_error"][known]
        right.plot(paths, error, color=INK, marker=".", label="standard error")
        right.plot(
            paths, error[-1] * np.sqrt(paths[-1] / paths), color=MARK, linestyle="--", label="slope $-1/2$"
        )
        right.set(xscale="log", yscale="log")
        right.legend()
    right.set(xlabel="paths", ylabel="standard error")
    figure.suptitle(title)
    return figure
