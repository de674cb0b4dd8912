"""Functions called by a compiled entry stay parts of it: not optimised, not cached and no machine code of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from warpfront.backend import _parts

SOURCE = Path(_parts.__file__).parents[2]
KERNELS = """
import numpy as np
from warpfront.backend.jit import njit

@njit(cache=True)
def low(x):
    if x < 0:
        raise ValueError("below zero", 7)
    return np.sqrt(x) + 1

@njit(cache=True)
def middle(x):
    return low(x) * low(x + 1.0)

@njit(cache=True)
def high(values):
    total = 0.0
    for i in range(values.size):
        total += middle(values[i])
    return total
"""
CALL = """
import sys
import numpy as np
from warpfront.backend import _parts
if sys.argv[1] == "plain":
    _parts.supported = lambda: False
from kernels import high, low, middle
from numba.core.registry import cpu_target
print(f"{high(np.arange(5.0)):.12f}", sum(high.stats.cache_hits.values()), len(low.signatures), len(middle.signatures))
try:
    high(np.array([-1.0]))
except ValueError as error:
    print(error.args)
print(low(4.0), len(low.signatures), cpu_target.target_context.codegen()._library_class.__name__)
"""


@pytest.fixture
def call(tmp_path):
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").write_text(KERNELS, encoding="utf-8")

    def run(kind):
        path = os.pathsep.join([str(tmp_path), str(SOURCE)])
        done = subprocess.run(
            [sys.executable, "-c", CALL, kind],
            env={**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / kind)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_this_numba_can_do_it():
    assert _parts.supported()


def test_an_entry_of_parts_computes_the_same_and_is_cached(call, tmp_path):
    first, error, last = call("parts")
    value, hits, lows, middles = first.split()
    assert (hits, lows, middles) == ("0", "0", "0")  # parts are no entries
    assert error == "('below zero', 7)"
    assert last == "3.0 1 JITCodeLibrary"  # an entry when Python calls it; Numba's own class is back in place
    again = call("parts")
    assert again[0].split()[:2] == [value, "1"]
    assert again[1:] == [error, last]
    files = sorted(file.name.split("-")[0] for file in (tmp_path / "parts").rglob("*.nbi"))
    assert files == ["__init__.high", "__init__.low"]
    plain = call("plain")
    assert plain[0].split()[0] == value
    assert plain[1] == error
