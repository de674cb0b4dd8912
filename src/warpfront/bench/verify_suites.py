"""How each suite of `warpfront.bench.verify` runs: tests in child processes, compilers in this one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any
from xml.etree import ElementTree

from warpfront.bench.verify import FAILED, NOT_RUN, PASSED, Check, NotRun, Options, Room

__all__ = ["RUNNERS", "SANITIZER_TOOLS", "build_checks", "pytest_checks", "source_tree"]

# memcheck first: the other three assume its faults away.
SANITIZER_TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_NO_TESTS = 5  # pytest's exit code when nothing was selected


def source_tree() -> Path:
    """Return the checkout whose tests are run: this package's own, else the working folder.

    Raises
    ------
    NotRun
        Neither is a checkout.
    """
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (root / "tests").is_dir() and (root / "src" / "warpfront").is_dir():
            return root
    raise NotRun("needs the source tree (its tests are not installed); run from a checkout")


def _named(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


def _need_gpu() -> None:
    from warpfront.backend import capability

    reason = capability.missing()
    if reason is None and not capability.device_count():
        reason = "this machine has no CUDA device"
    if reason is not None:
        raise NotRun(f"no GPU: {reason}")


def pytest_checks(
    arguments: Sequence[str], options: Options, *, prefix: Sequence[str] = (), root: Path | None = None
) -> list[Check]:
    """Run pytest in a child process and return one check per test.

    Parameters
    ----------
    arguments : sequence of str
        Paths relative to the source tree, and pytest options.
    options : Options
    prefix : sequence of str
        Command that runs the command (compute-sanitizer and its options).
    root : pathlib.Path, optional
        Default: `source_tree`.

    Returns
    -------
    list of Check
        A skipped test is ``not run`` with its reason. A child that ends badly without a failed test is itself
        a failed check, and so is one that selects no test.
    """
    tree = root if root is not None else source_tree()
    with tempfile.TemporaryDirectory(prefix="warpfront-verify-") as folder:
        report = Path(folder, "report.xml")
        command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        words = [*arguments] if options.everything else _without_slow(arguments)
        words += [f"--junitxml={report}", "-o", f"pythonpath={tree / 'src'}"]
        begin = perf_counter()
        done = subprocess.run(
            [*command, *words],
            cwd=tree,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        checks = _junit(report) if report.is_file() else []
    if done.returncode == _NO_TESTS and not checks:
        return [Check(" ".join(arguments), FAILED, "no test is selected", perf_counter() - begin)]
    if done.returncode and not any(check.status == FAILED for check in checks):
        said = "\n".join(done.stdout.splitlines()[-40:])
        checks.append(
            Check(
                " ".join(command[:2]), FAILED, f"exit code {done.returncode}\n{said}", perf_counter() - begin
            )
        )
    return checks


def _without_slow(arguments: Sequence[str]) -> list[str]:
    words = list(arguments)
    if "-m" in words:
        at = words.index("-m") + 1
        words[at] = f"({words[at]}) and not slow"
        return words
    return [*words, "-m", "not slow"]


def _junit(report: Path) -> list[Check]:
    checks = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        seconds = float(case.get("time", "0"))
        bad = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
        skipped = case.find("skipped")
        if bad is not None:
            detail = bad.get("message", "") or (bad.text or "")
            checks.append(Check(name, FAILED, detail, seconds))
        elif skipped is not None:
            checks.append(Check(name, NOT_RUN, skipped.get("message", ""), seconds))
        else:
            checks.append(Check(name, PASSED, "", seconds))
    return checks


def _pytest_suite(suite: str) -> Callable[[Room, Options], list[Check]]:
    def run(room: Room, options: Options) -> list[Check]:
        return pytest_checks(room.tests[suite], options)

    return run


def _simt(room: Room, options: Options) -> list[Check]:
    from warpfront.backend import simt

    if simt.available():
        raise NotRun(simt.available())
    return pytest_checks(room.tests["simt"], options)


def _cuda(room: Room, options: Options) -> list[Check]:
    _need_gpu()
    return pytest_checks(room.tests["cuda"], options)


def _sanitizer(room: Room, options: Options) -> list[Check]:
    _need_gpu()
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        raise NotRun("compute-sanitizer is not on PATH (it comes with the CUDA toolkit)")
    arguments = room.tests.get("sanitizer") or room.tests["cuda"]
    checks = []
    for kind in SANITIZER_TOOLS:
        # libraries probe for driver entry points; a probe that fails is no finding about a kernel
        quiet = ("--report-api-errors", "no") if kind == "memcheck" else ()
        prefix = (tool, "--tool", kind, "--error-exitcode", "1", "--target-processes", "all", *quiet)
        begin = perf_counter()
        tests = pytest_checks(arguments, options, prefix=prefix)
        failed = [test for test in tests if test.status == FAILED]
        left = [test for test in tests if test.status == NOT_RUN]
        status = FAILED if failed or not tests else NOT_RUN if left else PASSED
        detail = failed[0].detail if failed else left[0].detail if left else ""
        checks.append(Check(kind, status, detail, perf_counter() - begin, {"tests": len(tests)}))
    return checks


def build_checks(
    kernels: Iterable[tuple[Path, tuple[str, ...], int]], options: Options, compiler: str
) -> list[Check]:
    """Compile for every architecture that can run the kernels: one check per file and architecture.

    As many at a time as there are threads. ``data`` of a check holds registers and spilled bytes per
    instantiation. A compiler that is missing, or does not know a target, makes the check ``not run``. What is
    built is kept in the disk cache: a run that was interrupted goes on where it stopped.
    """
    from warpfront.backend import settings

    jobs = [
        (source, names, arch, compiler)
        for source, names, least in kernels
        for arch in options.architectures
        if _number(arch) >= least
    ]
    with ThreadPoolExecutor(settings.threads()) as pool:
        return list(pool.map(lambda job: _build_check(*job), jobs))


def _build_check(source: Path, names: tuple[str, ...], arch: str, compiler: str) -> Check:
    from warpfront.backend import compile as compilers
    from warpfront.errors import NotSupportedError

    title = f"{source.name} {arch} {compiler}"
    begin = perf_counter()
    try:
        built = compilers.build(source, names, arch, compiler=compiler)
    except NotSupportedError as reason:
        return Check(title, NOT_RUN, str(reason), perf_counter() - begin)
    except compilers.CompileError as error:
        return Check(title, FAILED, str(error), perf_counter() - begin)
    data = {
        name: {"registers": r.registers, "spill_bytes": r.spill_store_bytes + r.spill_load_bytes}
        for name, r in built.resources.items()
    }
    missing = [name for name in names if name not in built.names]
    status = FAILED if missing else PASSED
    detail = f"not in the cubin: {', '.join(missing)}" if missing else ""
    return Check(title, status, detail, perf_counter() - begin, data)


def _number(arch: str) -> int:
    match = re.search(r"\d+", arch)
    return int(match[0]) if match else 0


def _build(room: Room, options: Options) -> list[Check]:
    reference = room.kernels if options.everything or not room.subset else room.subset
    kernels = list(_named(reference)())
    return [check for compiler in options.compilers for check in build_checks(kernels, options, compiler)]


def _bench(room: Room, options: Options) -> list[Check]:
    _need_gpu()
    checks: list[Check] = _named(room.bench)(options)
    return checks


RUNNERS: dict[str, Callable[[Room, Options], list[Check]]] = {
    "plan": _pytest_suite("plan"),
    "oracle": _pytest_suite("oracle"),
    "build": _build,
    "simt": _simt,
    "cuda": _cuda,
    "sanitizer": _sanitizer,
    "bench": _bench,
}
