"""What the user sees while a phase runs: its name, its time, and that kernels are being compiled."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["COMPILING", "Phases"]

COMPILING = "compiling kernels for this machine (once, cached)"


class Phases:
    """Show phases as they run, and time them.

    On a terminal the running phase is a live line on standard error that leaves nothing behind. Anywhere else
    each phase is a line on standard output when it begins, so that standard error holds an error and nothing
    else. Until `announce` is called there are no lines: a file that is no system should give its own line and
    no other.

    Attributes
    ----------
    seconds : dict of str to float
        Wall time of each phase.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._live: Any = None
        self._listener: Any = None
        self._said = False
        self._announced = False

    def announce(self) -> None:
        """Write a line for each phase from now on, where there is no live display."""
        self._announced = True

    def __enter__(self) -> Phases:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._live = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()
        if self._listener is not None:
            from numba.core import event

            event.unregister("numba:compile", self._listener)

    @contextmanager
    def phase(self, name: str, detail: str = "") -> Iterator[None]:
        """Run one phase: its time is added to ``seconds[name]``."""
        text = f"{name} {detail}".rstrip()
        task = None
        if self._live is not None:
            task = self._live.add_task(text, total=None)
        elif self._announced:
            self._say(f"{text} ...")
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
            if task is not None:
                self._live.remove_task(task)

    def watch_compiler(self) -> None:
        """Say so when the first kernel is compiled; loading one from the cache is not compiling."""
        from numba.core import event

        phases = self

        class Notice(event.Listener):  # type: ignore[misc]
            """Speaks once."""

            def on_start(self, event: Any) -> None:
                phases._announce_compiler()

            def on_end(self, event: Any) -> None:
                """Nothing to say."""

        self._listener = Notice()
        event.register("numba:compile", self._listener)

    def _announce_compiler(self) -> None:
        if not self._said:
            self._said = True
            self._say(COMPILING)

    def _say(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False)
        else:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
