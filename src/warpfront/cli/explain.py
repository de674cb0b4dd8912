"""``warpfront explain``: which path an operation takes, why, and why the others were passed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

__all__ = ["OPERATIONS", "explain"]

# Operation -> function that takes (sizes, options) and returns the decisions, and what its sizes are.
OPERATIONS: dict[str, tuple[str, str]] = {
    "batched": ("_batched", "[N [NRHS [BATCH]]]"),
    "batched-lu": ("_batched_lu", "[N [NRHS [BATCH]]]"),
    "bfs": ("_bfs", "VERTICES ARCS"),
    "transpose": ("_transpose", "M N [BATCH]"),
    "edges": ("_edges", "HEIGHT WIDTH [BATCH]"),
    "prefill": ("_prefill", "BATCH LENGTH HEADS [KV_HEADS [HEAD_DIM]]"),
    "price": ("_price", "none (the precision of paths is --dtype)"),
}


def explain(
    operation: Annotated[str, typer.Argument(help=f"Operation: {', '.join(OPERATIONS)}.")],
    sizes: Annotated[list[int] | None, typer.Argument(help="Its sizes; for transpose M N [BATCH].")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Element type. Default: float32; price: float64.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    path: Annotated[str, typer.Option(help="Ask for one path by name.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show every path of an operation: the one that runs, and the reason against each of the others."""
    from dataclasses import asdict

    from warpfront.errors import InvalidValueError

    if operation not in OPERATIONS:
        raise InvalidValueError(f"no such operation: {operation!r}; there are {', '.join(OPERATIONS)}")
    handler: Callable[..., Any] = globals()[OPERATIONS[operation][0]]
    default = "float64" if operation == "price" else "float32"
    decisions = handler(tuple(sizes or ()), {"dtype": dtype or default, "device": device, "path": path})
    if path != "auto" and operation != "bfs" and not any(decision.taken for decision in decisions):
        names = [decision.path for decision in decisions]
        if path not in names:
            raise InvalidValueError(f"{operation} has no path {path!r}; there are {', '.join(names)}")
    if as_json:
        import json

        typer.echo(json.dumps([asdict(decision) for decision in decisions], indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "path", "why", "what it does", box=None)
    for decision in decisions:
        mark = "[bold]runs[/bold]" if decision.taken else ""
        table.add_row(mark, decision.path, escape(decision.reason), escape(decision.summary))
    Console().print(table)


def _bfs(sizes: tuple[int, ...], options: dict[str, Any]) -> Any:
    from warpfront.errors import InvalidValueError
    from warpfront.graph import explain_bfs

    if len(sizes) != 2:
        raise InvalidValueError(f"bfs takes VERTICES ARCS, got {len(sizes)} sizes")
    variant = {"levels": "direction", "cpu": "auto"}.get(options["path"], options["path"])
    device: Any = "cpu" if options["path"] == "cpu" else options["device"]
    return explain_bfs(*sizes, device=device, variant=variant)


def _transpose(sizes: tuple[int, ...], options: dict[str, Any]) -> Any:
    import numpy as np

    from warpfront.dense import explain_transpose
    from warpfront.errors import InvalidValueError

    if len(sizes) not in (2, 3):
        raise InvalidValueError(
            f"transpose takes its sizes as {OPERATIONS['transpose'][1]}, got {len(sizes)}"
        )
    try:
        kind = np.dtype(options["dtype"])
    except TypeError as error:
        raise InvalidValueError(f"no such element type: {options['dtype']!r}") from error
    batch = sizes[2] if len(sizes) == 3 else 1
    return explain_transpose(
        sizes[0], sizes[1], batch=batch, dtype=kind, device=options["device"], path=options["path"]
    )


def _edges(sizes: tuple[int, ...], options: dict[str, Any]) -> Any:
    from warpfront.errors import InvalidValueError
    from warpfront.image import explain_edges

    if len(sizes) not in (2, 3):
        raise InvalidValueError(f"edges takes its sizes as {OPERATIONS['edges'][1]}, got {len(sizes)}")
    batch = sizes[2] if len(sizes) == 3 else 1
    return explain_edges(sizes[0], sizes[1], batch=batch, device=options["device"], path=options["path"])


def _batched(sizes: tuple[int, ...], options: dict[str, Any], method: str = "cholesky") -> Any:
    import numpy as np

    from warpfront.batched.explain import explain_batched, shared_memory_table
    from warpfront.errors import InvalidValueError

    try:
        kind = np.dtype(options["dtype"])
    except TypeError as error:
        raise InvalidValueError(f"no such element type: {options['dtype']!r}") from error
    if not sizes:
        return shared_memory_table(method, kind)
    if len(sizes) > 3:
        raise InvalidValueError(f"batched takes its sizes as N [NRHS [BATCH]], got {len(sizes)}")
    n, nrhs, batch = (*sizes, *(1, 1)[len(sizes) - 1 :])
    return explain_batched(
        n, nrhs, batch=batch, dtype=kind, method=method, device=options["device"], path=options["path"]
    )


def _batched_lu(sizes: tuple[int, ...], options: dict[str, Any]) -> Any:
    return _batched(sizes, options, "lu")


def _price(sizes: tuple[int, ...], options: dict[str, Any]) -> Any:
    from warpfront.errors import InvalidValueError
    from warpfront.montecarlo import explain_price

    if sizes:
        raise InvalidValueError(f"price takes no sizes, got {len(sizes)}")
    return explain_price(device=options["device"], path=options["path"], precision=options["dtype"])


def _prefill(sizes: tuple[int, ...], options: dict[str, Any]) -> Any:
    from warpfront.attention import explain_prefill
    from warpfront.errors import InvalidValueError

    if not 3 <= len(sizes) <= 5:
        raise InvalidValueError(f"prefill takes its sizes as {OPERATIONS['prefill'][1]}, got {len(sizes)}")
    return explain_prefill(
        *sizes, dtype=options["dtype"], device=options["device"], algorithm=options["path"]
    )
