"""The size budgets hold, and their checker finds what it is there to find."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMITS = "[limits]\nfile_lines = 40\nfunction_lines = 6\nkernel_lines = 12\nparameters = 3\n"


@pytest.fixture(scope="module")
def budgets():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import check_budgets
    finally:
        sys.path.pop(0)
    return check_budgets


@pytest.fixture
def tree(tmp_path):
    def write(name, text, exceptions=""):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        (tmp_path / "budgets.toml").write_text(LIMITS + exceptions, encoding="utf-8")
        return tmp_path

    return write


def python_function(lines, head="def f(a):", decorator=""):
    return decorator + head + "\n" + "    a = 1\n" * (lines - 1)


def cuda_function(lines, head="__global__ void k(int a)"):
    return head + " {\n" + "    a = 1;\n" * (lines - 2) + "}\n"


def exception(path, symbol, budget, limit, reason="measured"):
    entry = {"path": path, "symbol": symbol, "budget": budget, "limit": limit, "reason": reason}
    return "[[exception]]\n" + "".join(f"{key} = {value!r}\n" for key, value in entry.items())


def test_the_tree_keeps_its_budgets(budgets):
    assert budgets.check(ROOT) == []


def test_the_limits_are_the_agreed_ones(budgets):
    limits = budgets.tomllib.loads((ROOT / "budgets.toml").read_text(encoding="utf-8"))["limits"]
    assert limits == {"file_lines": 400, "function_lines": 60, "kernel_lines": 120, "parameters": 12}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("src/long.py", "a = 1\n" * 41, "src/long.py:1: file: file_lines is 41, limit 40"),
        ("src/f.py", python_function(7), "src/f.py:1: f: function_lines is 7, limit 6"),
        (
            "src/k.py",
            python_function(13, decorator="@numba.njit(cache=True)\n"),
            "src/k.py:2: f: kernel_lines is 13, limit 12",
        ),
        (
            "src/p.py",
            python_function(2, "def f(a, b, *c, d=0, **e):"),
            "src/p.py:1: f: parameters is 5, limit 3",
        ),
        (
            "src/m.py",
            "class C:\n    def m(self, a, b, c, d):\n        pass\n",
            "src/m.py:2: C.m: parameters is 4, limit 3",
        ),
        (
            "src/nested.py",
            "def outer():\n    if True:\n        def inner(a, b, c, d):\n            pass\n",
            "src/nested.py:3: outer.inner: parameters is 4, limit 3",
        ),
        ("src/k.cu", "\n" + cuda_function(13), "src/k.cu:2: k: kernel_lines is 13, limit 12"),
        (
            "src/d.cuh",
            cuda_function(
                3,
                "template <int N>\n__device__ int d(A<1, 2> a, int (*b)(int, int), c c, int d)",
            ),
            "src/d.cuh:2: d: parameters is 4, limit 3",
        ),
        (
            "src/b.cu",
            cuda_function(13, 'extern "C" __global__ void __launch_bounds__(128, 2) b(int a)'),
            "src/b.cu:1: b: kernel_lines is 13, limit 12",
        ),
        (
            "src/w.cuh",
            "#pragma once\n" + cuda_function(13, "template <typename T>\nWF_DEVICE T w(T v)"),
            "src/w.cuh:3: w: kernel_lines is 13, limit 12",
        ),
        ("tests/simt/s.hpp", "int a;\n" * 41, "tests/simt/s.hpp:1: file: file_lines is 41, limit 40"),
    ],
)
def test_a_violation_is_found_where_it_is(budgets, tree, name, text, expected):
    assert budgets.check(tree(name, text)) == [expected]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/long.py", "a = 1\n" * 40),
        ("src/f.py", python_function(6)),
        ("src/doc.py", 'def f(a):\n    """Contract.\n' + "\n" * 9 + '    """\n    return a\n'),
        ("src/k.py", python_function(12, decorator="@njit\n")),
        ("src/m.py", "class C:\n    def m(self, a, b, c):\n        pass\n"),
        ("src/k.cu", cuda_function(12)),
        (
            "src/v.cu",
            "__device__ int v;\n__device__ int t[] = {\n"
            + "1,\n" * 20
            + "};\nint f(int a, int b, int c, int d);\n",
        ),
        ("src/h.cuh", "#define WF_DEVICE __device__ \\\n  inline\nstruct s {\n" + "int a;\n" * 20 + "};\n"),
        ("src/c.cu", "// __global__ void k(int a, int b, int c, int d) {\nint a; /* } { */\n"),
        ("src/s.cu", cuda_function(12, '__global__ void k(char a = "{"[0])')),
    ],
)
def test_what_is_within_the_budgets_passes(budgets, tree, name, text):
    assert budgets.check(tree(name, text)) == []


def test_an_exception_raises_one_limit_of_one_symbol(budgets, tree):
    text = python_function(8) + python_function(8, "def g(a):")
    root = tree("src/f.py", text, exception("src/f.py", "f", "function_lines", 8))
    assert budgets.check(root) == ["src/f.py:9: g: function_lines is 8, limit 6"]
    root = tree("src/f.py", python_function(9), exception("src/f.py", "f", "function_lines", 8))
    assert budgets.check(root) == ["src/f.py:1: f: function_lines is 9, limit 8"]


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        (exception("src/f.py", "f", "function_lines", 8), "stale"),
        (exception("src/gone.py", "f", "function_lines", 8), "stale"),
        (exception("src/f.py", "f", "function_lines", 8, reason=" "), "reason"),
        (exception("src/f.py", "f", "no_such_budget", 8), "budget"),
    ],
)
def test_an_exception_that_is_stale_or_malformed_is_an_error(budgets, tree, entry, word):
    problems = budgets.check(tree("src/f.py", python_function(3), entry))
    assert len(problems) == 1
    assert word in problems[0]
