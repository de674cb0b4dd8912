"""Entry point of ``warpfront``: the table of commands, and the one place where an error becomes an exit code.

A command module defines one function whose signature is the command's (annotated with ``typer.Option`` and
``typer.Argument``), or a ``typer.Typer`` group. It imports typer and rich at its top and everything else
inside the function: ``warpfront --help`` imports every command module and must stay below one second.

Exit codes: 0 done; 2 the input, a file or an option is wrong; 3 the numbers refused (singular, not positive
definite, not finite, refinement failed); 4 a known request that this build or machine cannot carry out (an ordering
library or a compiler that fails among them); 1 a defect of ours. ``gate``, ``bench --against`` and ``verify``
have codes of their own, which their help gives.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from warpfront.errors import (
    CompileError,
    InvalidValueError,
    NotSupportedError,
    NumericalError,
    OrderingFailedError,
    OutOfPagesError,
    PatternChangedError,
)

__all__ = ["COMMANDS", "EXIT_CODES", "main"]

# Command -> module:attribute. Adding a command is one line here; help lists them in this order.
COMMANDS: dict[str, str] = {
    "solve": "warpfront.cli.solve:solve",
    "analyze": "warpfront.cli.analyze:analyze",
    "price": "warpfront.cli.price:price",
    "edges": "warpfront.cli.edges:edges",
    "bfs": "warpfront.cli.bfs:bfs",
    "attention": "warpfront.cli.attention:app",
    "batched": "warpfront.cli.batched:app",
    "det": "warpfront.cli.dense:det",
    "inv": "warpfront.cli.dense:inv",
    "transpose": "warpfront.cli.dense:transpose",
    "info": "warpfront.cli.info:info",
    "bench": "warpfront.cli.bench:bench",
    "gate": "warpfront.cli.gate:gate",
    "report": "warpfront.cli.report:report",
    "doctor": "warpfront.cli.doctor:doctor",
    "verify": "warpfront.cli.verify:verify",
    "explain": "warpfront.cli.explain:explain",
    "profile": "warpfront.cli.profile:profile",
    "cache": "warpfront.cli.cache:app",
    "warmup": "warpfront.cli.warmup:warmup",
}

# First match wins.
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (NumericalError, 3),
    (NotSupportedError, 4),
    (CompileError, 4),
    (OrderingFailedError, 4),
    (OutOfPagesError, 4),
    (MemoryError, 4),
    (InvalidValueError, 2),
    (PatternChangedError, 2),
    (OSError, 2),
)


class _LazyCommands(Mapping[str, Any]):
    """The table as the mapping of commands that a group expects; looking one up imports it."""

    def __getitem__(self, name: str) -> Any:
        module, attribute = COMMANDS[name].split(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False)
            single.command(name)(found)
            found = single
        command = typer.main.get_command(found)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _LazyCommands()  # type: ignore[assignment]


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from warpfront import __version__

        typer.echo(f"warpfront {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. Accepted anywhere on the line.")
    ] = False,
) -> None:
    """Solve real numerical problems, and be told what was done and how well."""


def _message(error: BaseException) -> str:
    """Return what to tell the user, on one line."""
    if type(error).__name__ == "NoArgsIsHelpError":  # its help has been printed
        text = "name one of these commands"
    elif hasattr(error, "format_message"):  # a usage error of typer
        text = str(error.format_message())
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = f"not enough memory on this machine: {error}"
    else:
        text = str(error)
    return " ".join(text.split()) or type(error).__name__


def _exit_code(error: BaseException) -> int | None:
    """Return the exit code of an error we know, ``None`` for a defect of ours."""
    if hasattr(error, "format_message"):
        return int(getattr(error, "exit_code", 2))
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), None)


def _keep_for_good() -> None:
    """Spare a short process searches for garbage in what it imports: seldom while it runs, and none when it ends."""
    gc.set_threshold(10_000, 10, 10)
    atexit.register(gc.freeze)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    args : sequence of str, optional
        Arguments after the program's name. Default: those of this process.

    Returns
    -------
    int
        Exit code (see the module's docstring). With ``--debug`` an error propagates instead.
    """
    line = list(sys.argv[1:] if args is None else args)
    if args is None:
        _keep_for_good()
    end = line.index("--") if "--" in line else len(line)
    debug = "--debug" in line[:end]
    line = [word for word in line[:end] if word != "--debug"] + line[end:]
    try:
        command = typer.main.get_command(app)
        result = command.main(line or ["--help"], prog_name="warpfront", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output went away (a pager, `head`): not an error, but nothing more may be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            raise
        code = _exit_code(error)
        if code is None:
            kind = type(error).__name__
            typer.echo(f"error: internal error, {kind}: {_message(error)} (--debug shows where)", err=True)
            return 1
        typer.echo(f"error: {_message(error)}", err=True)
        return code
    return result if isinstance(result, int) else 0
