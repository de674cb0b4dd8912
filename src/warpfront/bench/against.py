"""Measure this source against another revision of it: a worktree, processes of both in turn, two records.

Each side runs in processes of its own, A B B A A B …, so that a slow minute of the machine falls on both, and what
changes from process to process (where memory lies, which cores) is seen as the spread it is.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from warpfront.backend import settings
from warpfront.bench.record import Measurement, Record, read
from warpfront.bench.timing import OK, percentile
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["against", "merge", "order", "worktree"]

PACKAGE = Path(__file__).resolve().parents[1]


def against(
    name: str,
    revision: str,
    options: Sequence[str],
    *,
    processes: int = 3,
    report: Callable[[str], None] = lambda text: None,
) -> tuple[Record, Record]:
    """Run a benchmark on ``revision`` and on this source in turn.

    Parameters
    ----------
    name, options : str, sequence of str
        Benchmark and further options of ``warpfront bench``.
    revision : str
        What git understands.
    processes : int
        Processes of each side.
    report : callable
        Told what begins.

    Returns
    -------
    base, new : Record
        Samples of all processes together; ``values["processes"]`` has each one's median.

    Raises
    ------
    NotSupportedError
        This package is not run from a clone, or a side cannot run the benchmark.
    InvalidValueError
        git does not know the revision.
    """
    if processes < 1:
        raise InvalidValueError(f"processes is {processes}; allowed is >= 1")
    with worktree(revision) as folder, tempfile.TemporaryDirectory() as scratch:
        sides = {"base": folder / "src", "new": PACKAGE.parent}
        found: dict[str, list[Record]] = {side: [] for side in sides}
        for k, side in enumerate(order(processes)):
            report(f"{side}, process {len(found[side]) + 1} of {processes}")
            output = Path(scratch) / f"{k}.json"
            _run(name, options, sides[side], folder if side == "base" else PACKAGE.parents[1], output)
            found[side].append(read(output))
    return merge(found["base"]), merge(found["new"])


def order(processes: int) -> list[str]:
    """Return the turns of both sides: base new, new base, base new, and so on."""
    turns: list[str] = []
    for k in range(processes):
        turns += ["base", "new"] if k % 2 == 0 else ["new", "base"]
    return turns


@contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """Check a revision out into a folder that is removed afterwards."""
    root = PACKAGE.parents[1]
    if _git(root, "ls-files", "--error-unmatch", "src/warpfront/__init__.py").returncode != 0:
        raise NotSupportedError(
            "--against needs a clone of the repository, and this package is installed without its history"
        )
    known = _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if known.returncode != 0:
        raise InvalidValueError(f"git knows no revision {revision!r}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "base"
        made = _git(root, "worktree", "add", "--detach", "--quiet", str(folder), known.stdout.strip())
        if made.returncode != 0:
            raise NotSupportedError(f"git could not make a worktree: {made.stderr.strip()}")
        try:
            yield folder
        finally:
            _git(root, "worktree", "remove", "--force", str(folder))


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotSupportedError("--against needs git, which is not installed here") from None


def _run(name: str, options: Sequence[str], source: Path, folder: Path, output: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "warpfront",
        "bench",
        name.replace("_", "-"),
        *options,
        "-o",
        str(output),
    ]
    # The source folder goes before whatever is installed.
    environment = {**settings.child_environment(), "PYTHONPATH": str(source)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not output.is_file():
        text = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotSupportedError(f"{source.parent.name}: bench {name} ended with {done.returncode}: {text}")


def merge(records: Sequence[Record]) -> Record:
    """Return one record with the samples of several runs of the same benchmark."""
    first = records[0]
    _same_rows(records)
    rows = []
    for k, row in enumerate(first.rows):
        runs = [record.rows[k].contenders for record in records]
        rows.append(
            replace(row, contenders={name: _together([run[name] for run in runs]) for name in runs[0]})
        )
    return replace(first, rows=rows, options={**first.options, "processes": len(records)})


def _same_rows(records: Sequence[Record]) -> None:
    found = {tuple((row.case, row.operation, *row.contenders) for row in record.rows) for record in records}
    if len(found) > 1:
        raise InvalidValueError("runs of one benchmark have different rows")


def _together(found: list[Measurement]) -> Measurement:
    bad = next((one for one in found if one.status != OK), None)
    if bad is not None:
        return bad
    samples = [value for one in found for value in one.seconds]
    return replace(
        found[0],
        seconds=samples,
        cpu_seconds=[value for one in found for value in one.cpu_seconds],
        median=median(samples),
        p95=percentile(tuple(samples), 95),
        minimum=min(samples),
        repeats=len(samples),
        values={**found[0].values, "processes": [median(one.seconds) for one in found]},
    )
