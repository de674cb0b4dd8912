"""The process that ``warpfront profile`` starts: one operation, alone, under a profiler or watched by Python's own.

``python -m warpfront.bench.profile_child REQUEST``, REQUEST in JSON: operation, sizes, dtype, device, and mode: ``bare``
runs it once between the marks that ncu looks for, ``python`` under cProfile and prints its table as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["main", "watched"]


def watched(call: Any, calls: int) -> list[dict[str, Any]]:
    """Return what cProfile saw of a call, without what was called from it: name, calls and seconds of one call each."""
    import cProfile
    import pstats

    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(calls):
        call()
    profiler.disable()
    table: Any = pstats.Stats(profiler)
    found = []
    for (path, _, name), (_, count, own, _, _) in table.stats.items():
        module = path.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
        label = name.strip("<>") if path == "~" else f"{module}.{name}"
        found.append({"name": label, "calls": count / calls, "seconds": own / calls})
    return sorted(found, key=lambda row: -row["seconds"])


def main(request: dict[str, Any]) -> None:
    """Run a request."""
    from warpfront.bench.profile_work import make_work

    work = make_work(request["operation"], tuple(request["sizes"]), request["dtype"], request["device"])
    for _ in range(3):  # compiles, loads, and captures what is captured from the second call on
        work.call()
    if request["mode"] == "python":
        print(json.dumps(watched(work.call, request["calls"])))
        return
    import cupy

    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStart()
    work.call()
    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
