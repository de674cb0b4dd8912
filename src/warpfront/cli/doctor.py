"""``warpfront doctor``: what works on this machine, what is missing, and the one command that adds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

__all__ = ["CHECKS", "Check", "doctor", "examine"]

WORKS, MISSING, BROKEN = "works", "missing", "broken"


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes
    ----------
    what, status, detail : str
        ``works``; ``missing``: optional and not here; ``broken``: the package cannot do its work without it.
    adds : str
        The one command that adds it; empty when it works or nothing can be installed.
    """

    what: str
    status: str
    detail: str
    adds: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say what works here and what is missing; exit code 1 when the package itself is broken.

    What is optional may be missing: solving on the CPU needs only the rows of the first group.
    """
    found = examine()
    if as_json:
        import json

        typer.echo(json.dumps([asdict(check) for check in found], indent=1))
    else:
        _show(found)
    if any(check.status == BROKEN for check in found):
        raise typer.Exit(1)


def _show(found: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("", "what", "found", box=None)
    styles = {WORKS: "[green]works[/green]", MISSING: "[yellow]missing[/yellow]", BROKEN: "[red]broken[/red]"}
    for check in found:
        table.add_row(styles[check.status], check.what, check.detail)
    console.print(table)
    advice = [check for check in found if check.adds]
    if advice:
        console.print("\nTo add what is missing:")
    for check in advice:
        console.print(f"  {check.what}: {check.adds}", highlight=False, markup=False, soft_wrap=True)


def examine() -> list[Check]:
    """Run every check. One that raises is broken, and says how; nothing else stops for it."""
    found = []
    for what, look in CHECKS.items():
        try:
            found.append(look(what))
        except Exception as error:  # a check must not hide the others
            text = " ".join(str(error).split())
            found.append(Check(what, BROKEN, f"{type(error).__name__}: {text}"[:300]))
    return found


def _solver(what: str) -> Check:
    """Solve a system of three unknowns from end to end."""
    import numpy as np
    from scipy import sparse

    from warpfront import DirectSolver

    matrix = sparse.csc_matrix(np.array([[2.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 3.0]]))
    x = DirectSolver(matrix).analyze().factorize().solve(matrix @ np.ones(3))
    error = float(np.abs(x - 1).max())
    if not error < 1e-12:
        return Check(what, BROKEN, f"a system of three unknowns came out with error {error:.0e}")
    return Check(what, WORKS, "analysis, factorisation and solve of a small system")


def _threads(what: str) -> Check:
    from warpfront.backend import settings

    return Check(what, WORKS, f"{settings.threads()} used by default (WARPFRONT_THREADS changes it)")


def _cache(what: str) -> Check:
    import tempfile

    from warpfront.backend import settings

    folder = settings.cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = f"{folder}: {error.strerror}; every process compiles anew"
        return Check(what, MISSING, text, "export WARPFRONT_CACHE_DIR=a folder that can be written")
    return Check(what, WORKS, str(folder))


def _ordering(what: str) -> Check:
    return _package(what, "pymetis", "nested dissection by METIS", "pip install pymetis")


def _peers(what: str) -> Check:
    names = {"pypardiso": "pypardiso", "qdldl": "qdldl", "feral": "feral-solver", "rslab": "rslab"}
    absent = [package for module, package in names.items() if not _there(module)]
    if absent:
        text = f"not here: {', '.join(absent)}; benchmarks run without them and say so"
        return Check(what, MISSING, text, 'pip install "warpfront[bench]"')
    return Check(what, WORKS, ", ".join(names.values()))


def _compiler(what: str) -> Check:
    from shutil import which

    if which("g++") is None:
        text = "no g++: kernels are not run on the host (warpfront verify --suite simt)"
        return Check(what, MISSING, text, "sudo apt-get install g++")
    return Check(what, WORKS, "g++ is here")


def _nvrtc(what: str) -> Check:
    from warpfront.backend import nvrtc

    reason = nvrtc.missing()
    if reason is not None:
        return Check(what, MISSING, reason.partition(":")[0], 'pip install "warpfront[cuda13]"')
    return Check(what, WORKS, f"NVRTC {nvrtc.version()} builds for {', '.join(nvrtc.architectures())}")


def _gpu(what: str) -> Check:
    from warpfront.backend import capability

    reason = capability.missing()
    if reason is None:
        have = capability.probe(0)
        return Check(what, WORKS, f"compute capability {have.cc_major}.{have.cc_minor}, {have.sm_count} SMs")
    if "not installed" in reason:
        return Check(what, MISSING, reason.partition(":")[0], 'pip install "warpfront[cuda13]"')
    adds = "sudo apt-get install nvidia-driver-580" if "driver on this machine" in reason else ""
    return Check(what, MISSING, reason, adds)


def _torch(what: str) -> Check:
    return _package(
        what, "torch", "attention on a GPU, and arrays of PyTorch", 'pip install "warpfront[torch]"'
    )


def _browser(what: str) -> Check:
    from shutil import which

    if any(which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        return Check(what, WORKS, "a headless browser is here")
    return Check(what, MISSING, "no Chromium: the report page is not tested", "sudo apt-get install chromium")


def _package(what: str, module: str, use: str, adds: str) -> Check:
    if not _there(module):
        return Check(what, MISSING, f"{module} is not installed: {use}", adds)
    from warpfront.bench.suites.generic import installed

    return Check(what, WORKS, f"{module} {installed(module) or ''}: {use}")


def _there(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


CHECKS: dict[str, Callable[[str], Check]] = {
    "solver on the CPU": _solver,
    "CPU threads": _threads,
    "kernel cache": _cache,
    "orderings": _ordering,
    "GPU": _gpu,
    "CUDA compiler": _nvrtc,
    "PyTorch": _torch,
    "benchmark peers": _peers,
    "host compiler": _compiler,
    "browser": _browser,
}
