"""Commands run side by side on a device, each with a log of its own; together they have until a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]


def environment(**more):
    """Environment of a command: the package's sources, kernels of CuPy compiled anew."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUPY_CACHE_IN_MEMORY": "1", **more}


def start(commands, out, prefix="", **more):
    """Start commands by name; ``more`` goes into their environment. Returns name -> (process, log)."""
    running = {}
    for name, command in commands.items():
        log = out / f"{prefix}{name}.log"
        with log.open("w") as sink:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment(**more),
                start_new_session=True,
            )
        running[name] = (process, log)
    return running


def leave_on_term():
    """A terminated script leaves by an exception, so that `finish` ends what it started: a hung kernel would go on."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def wait(process, seconds):
    """Exit status of one process; past its time it is ended, with what it started, and this is "timeout"."""
    try:
        return process.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
        return "timeout"


def finish(running, seconds, shown=14):
    """Wait for what `start` returned, and print how each ended: its last line, ``shown`` lines where it failed."""
    try:
        return _results(running, perf_counter() + seconds, shown)
    finally:
        for process, _ in running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _results(running, deadline, shown):
    results = {}
    for name, (process, log) in running.items():
        code = wait(process, deadline - perf_counter())
        lines = log.read_text(errors="replace").strip().splitlines() or [""]
        results[name] = {"exit": code, "last": lines[-1][:200]}
        print(f"{name:10s} exit {code}: {lines[-1][:150]}", flush=True)
        if code != 0:
            print("\n".join("    " + line[:200] for line in lines[-shown:]), flush=True)
    return results
