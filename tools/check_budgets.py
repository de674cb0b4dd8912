"""Check the size budgets of the source: lines of a file, lines and parameters of a function.

Limits and exceptions are in ``budgets.toml``. A function's lines run from ``def`` (or the CUDA qualifier) to
its end; a docstring is a contract and is not counted. A kernel is a Python function under a decorator whose
name ends in ``jit`` (or one of numba's other compiling decorators), or a CUDA function marked ``__global__``
or ``__device__``; kernels have a line budget of their own. Of C++ host files only the length is checked.

Run ``python tools/check_budgets.py [root]``: one line per violation, exit code 1 when there is one.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("src", "tests", "tools", "examples", "benchmarks", "docs")
CUDA_SUFFIXES = (".cu", ".cuh")
HOST_SUFFIXES = (".hpp", ".cpp")
# Besides the language's own qualifiers, the house's macros for them.
CUDA_QUALIFIER = re.compile(r"__(?:global|device)__|\bWF_[A-Z_]*(?:DEVICE|KERNEL)\b")
COMPILING_DECORATORS = {"intrinsic", "vectorize", "guvectorize", "cfunc", "overload", "stencil"}


@dataclass(frozen=True)
class Measure:
    """One measured quantity: ``budget`` is a key of ``[limits]``; ``symbol`` is empty for a whole file."""

    path: str
    line: int
    symbol: str
    budget: str
    value: int

    @property
    def key(self) -> tuple[str, str, str]:
        return self.path, self.symbol, self.budget


def measure_python(path: str, text: str) -> Iterator[Measure]:
    def visit(node: ast.AST, prefix: str) -> Iterator[Measure]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = prefix + child.name
                budget = "kernel_lines" if _is_kernel(child) else "function_lines"
                yield Measure(path, child.lineno, name, budget, _python_lines(child))
                yield Measure(path, child.lineno, name, "parameters", _python_parameters(child))
                yield from visit(child, name + ".")
            elif isinstance(child, ast.ClassDef):
                yield from visit(child, prefix + child.name + ".")
            else:
                yield from visit(child, prefix)

    yield from visit(ast.parse(text, path), "")


def _is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name.endswith("jit") or name in COMPILING_DECORATORS:
            return True
    return False


def _python_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def _python_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    count = len(named) + (arguments.vararg is not None) + (arguments.kwarg is not None)
    return count - (bool(named) and named[0].arg in ("self", "cls"))


def measure_cuda(path: str, text: str) -> Iterator[Measure]:
    code = _only_code(text)
    position = 0
    while (found := CUDA_QUALIFIER.search(code, position)) is not None:
        body = _body_start(code, found.end())
        if body is None:
            position = found.end()
            continue
        end = _matching(code, body, "{", "}")
        name, parameters = _cuda_signature(code[found.end() : body])
        if name:
            first = code.count("\n", 0, found.start()) + 1
            lines = code.count("\n", found.start(), end) + 1
            yield Measure(path, first, name, "kernel_lines", lines)
            yield Measure(path, first, name, "parameters", parameters)
        position = end


def _only_code(text: str) -> str:
    """Blank comments, strings and preprocessor lines, keeping every position and line."""
    literals = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    for pattern in (literals, r"^[ \t]*#(?:\\\n|[^\n])*"):
        found = re.compile(pattern, re.DOTALL | re.MULTILINE)
        text = found.sub(lambda part: re.sub(r"[^\n]", " ", part.group()), text)
    return text


def _body_start(code: str, position: int) -> int | None:
    """Return where the body opens, or None for a declaration or a variable."""
    depth = 0
    for index in range(position, len(code)):
        character = code[index]
        depth += (character in "([") - (character in ")]")
        if depth == 0 and character in ";=":
            return None
        if depth == 0 and character == "{":
            return index
    return None


def _matching(code: str, start: int, opening: str, closing: str) -> int:
    """Return the index just past the bracket that closes the one at ``start``."""
    depth = 0
    for index in range(start, len(code)):
        depth += (code[index] == opening) - (code[index] == closing)
        if depth == 0:
            return index + 1
    raise SystemExit(f"unbalanced {opening} in CUDA source")


def _cuda_signature(header: str) -> tuple[str, int]:
    """Return the name and the number of parameters of the function whose text before ``{`` is ``header``."""
    skipped = r"__launch_bounds__|__align__|alignas|decltype|__attribute__|noexcept|requires"
    for found in re.finditer(r"([A-Za-z_]\w*|operator\s*\S{1,3})\s*\(", header):
        if re.fullmatch(skipped, found.group(1)):
            continue
        close = _matching(header, found.end() - 1, "(", ")")
        return found.group(1), _count_parameters(header[found.end() : close - 1])
    return "", 0


def _count_parameters(text: str) -> int:
    if text.strip() in ("", "void"):
        return 0
    depth, count = 0, 1
    for character in text:
        depth += (character in "(<[{") - (character in ")>]}")
        count += character == "," and depth == 0
    return count


def measure(root: Path) -> list[Measure]:
    measures = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".py", *CUDA_SUFFIXES, *HOST_SUFFIXES) or "_build" in file.parts:
                continue
            path, text = file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
            measures.append(Measure(path, 1, "", "file_lines", len(text.splitlines())))
            if file.suffix == ".py":
                measures.extend(measure_python(path, text))
            elif file.suffix in CUDA_SUFFIXES:
                measures.extend(measure_cuda(path, text))
    return measures


def check(root: Path) -> list[str]:
    """Return one message per violation, stale exception or malformed exception."""
    config = tomllib.loads((root / "budgets.toml").read_text(encoding="utf-8"))
    limits = config["limits"]
    allowed: dict[tuple[str, str, str], int] = {}
    problems = []
    for entry in config.get("exception", []):
        key = (entry.get("path", ""), entry.get("symbol", ""), entry.get("budget", ""))
        if (
            not isinstance(entry.get("limit"), int)
            or key[2] not in limits
            or not entry.get("reason", "").strip()
        ):
            problems.append(f"budgets.toml: {key}: needs path, budget (of [limits]), limit and reason")
        elif key in allowed:
            problems.append(f"budgets.toml: {key}: listed twice")
        else:
            allowed[key] = entry["limit"]
    needed = set()
    for item in measure(root):
        if item.value <= limits[item.budget]:
            continue
        needed.add(item.key)
        limit = allowed.get(item.key, limits[item.budget])
        if item.value > limit:
            where = f"{item.path}:{item.line}: {item.symbol or 'file'}"
            problems.append(f"{where}: {item.budget} is {item.value}, limit {limit}")
    problems += [
        f"budgets.toml: {key}: stale, nothing exceeds this budget there"
        for key in allowed
        if key not in needed
    ]
    return problems


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    problems = check(root)
    for problem in problems:
        sys.stdout.write(problem + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
