"""Measure this source against another revision of it: a worktree, samples of both in turn, two records.

Each side runs in processes of its own, so that what changes from process to process (where memory lies, which cores) is
seen as the spread it is. A process of the base and one of the new source are alive together and sample in turn
(`warpfront.bench.turns`): what the machine does meanwhile falls on both samples of a pair. A base too old to take turns
runs before or after the new one, A B B A A B …, and its samples are no pairs. A verdict that is ambiguous is
measured again, and all samples count.
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
from warpfront.bench.record import Measurement, Record, Row, read, stamp
from warpfront.bench.timing import OK, percentile
from warpfront.bench.turns import Pair
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["AGAIN", "against", "merge", "order", "paired", "worktree"]

# How often an ambiguous verdict is measured again.
AGAIN = 2
PACKAGE = Path(__file__).resolve().parents[1]


def against(
    name: str,
    revision: str,
    options: Sequence[str],
    *,
    processes: int = 3,
    report: Callable[[str], None] = lambda text: None,
    enough: Callable[[Record, Record], bool] = lambda base, new: True,
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
    enough : callable
        Given both records: whether they tell. If not, as many processes again are measured, at most `AGAIN` times.

    Returns
    -------
    base, new : Record
        Samples of all processes together; ``values["processes"]`` has each one's median, and ``values["pairing"]``,
        the same on both sides, says that the k-th samples of both were taken one after the other.

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
        sides = {"base": folder, "new": PACKAGE.parents[1]}
        found: dict[str, list[Record]] = {side: [] for side in sides}
        for attempt in range(1 + AGAIN):
            if attempt:
                report("the verdict is ambiguous: measuring again")
            for k in range(processes):
                report(f"base and new, process {k + 1} of {processes}")
                outputs = {side: Path(scratch) / f"{attempt}_{k}_{side}.json" for side in order(k)}
                _run(name, options, sides, outputs)
                for side, output in outputs.items():
                    found[side].append(read(output))
            base, new = paired(found["base"], found["new"])
            if enough(base, new):
                break
    return base, new


def order(k: int) -> list[str]:
    """Return who begins in the k-th pair of processes, and who follows."""
    return ["base", "new"] if k % 2 == 0 else ["new", "base"]


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


def _run(name: str, options: Sequence[str], sides: dict[str, Path], outputs: dict[str, Path]) -> None:
    """Run one process of each side, in turn; ``outputs`` is in the order in which they begin."""
    program = [sys.executable, "-m", "warpfront", "bench", name.replace("_", "-"), *options]
    pair, started = Pair(list(outputs)), {}
    for side, output in outputs.items():
        # The source folder goes before whatever is installed. The variable's name is not one that a fingerprint
        # keeps: both sides would differ in it.
        environment = settings.child_environment(
            PYTHONPATH=str(sides[side] / "src"), _WARPFRONT_BENCH_TURNS=pair.environment(side)
        )
        with output.with_suffix(".txt").open("w", encoding="utf-8") as told:
            started[side] = subprocess.Popen(
                [*program, "-o", str(output)], cwd=sides[side], env=environment,
                stdout=subprocess.DEVNULL, stderr=told, pass_fds=pair.descriptors(side),
            )  # fmt: skip
        pair.close(side)
    codes = {side: process.wait() for side, process in started.items()}
    for side, output in outputs.items():
        if codes[side] != 0 or not output.is_file():
            told_lines = output.with_suffix(".txt").read_text(encoding="utf-8").strip().splitlines()
            text = (told_lines or ["no message"])[-1]
            raise NotSupportedError(f"{side}: bench {name} ended with {codes[side]}: {text}")


def paired(base: Sequence[Record], new: Sequence[Record]) -> tuple[Record, Record]:
    """Return each side's records as one, and say in both which rows' samples are pairs.

    They are where every process took turns and the k-th processes of both sides took equally many samples.
    """
    first, second = merge(base), merge(new)
    if not all(record.options.get("turns") for record in (*base, *new)):
        return first, second
    token = f"{stamp()} {len(base)}"
    places = {(row.case, row.operation, row.dtype): k for k, row in enumerate(second.rows)}
    left, right = list(first.rows), list(second.rows)
    for k, row in enumerate(first.rows):
        place = places.get((row.case, row.operation, row.dtype))
        if place is None:
            continue
        for name in row.contenders.keys() & right[place].contenders.keys():
            if _counts(base, k, name) == _counts(new, place, name):
                left[k], right[place] = (_mark(side, name, token) for side in (left[k], right[place]))
    return replace(first, rows=left), replace(second, rows=right)


def _counts(records: Sequence[Record], row: int, name: str) -> list[int]:
    return [record.rows[row].contenders[name].repeats for record in records]


def _mark(row: Row, name: str, token: str) -> Row:
    found = row.contenders[name]
    marked = replace(found, values={**found.values, "pairing": token})
    return replace(row, contenders={**row.contenders, name: marked})


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
