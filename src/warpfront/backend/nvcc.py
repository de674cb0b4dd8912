"""``nvcc``, where a toolkit is installed: the same interface as `warpfront.backend.nvrtc`."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from shutil import which
from time import perf_counter

from warpfront.backend import elf
from warpfront.backend.compiled import (
    Compiled,
    CompileOptions,
    device_folder,
    kernel_resources,
    refuse_warnings,
)
from warpfront.errors import CompileError, InvalidValueError, NotSupportedError

__all__ = ["compile", "missing", "version"]

_TYPES = {"float": "f", "double": "d", "int": "i", "unsigned": "j", "long long": "x", "unsigned char": "h"}
_EXPRESSION = re.compile(r"^([A-Za-z_][\w:]*)\s*(?:<(.*)>)?$")


@cache
def _tool() -> str | None:
    standard = Path("/usr/local/cuda/bin/nvcc")
    return which("nvcc") or (str(standard) if standard.is_file() else None)


def missing() -> str | None:
    """Return why ``nvcc`` cannot be used, or ``None`` when it can."""
    return (
        None
        if _tool()
        else "nvcc is not on PATH nor in /usr/local/cuda/bin: install the CUDA toolkit, or use NVRTC"
    )


@cache
def version() -> str:
    """Return the compiler's version, for example ``"13.0.88"``."""
    tool = _tool()
    if tool is None:
        raise NotSupportedError(str(missing()))
    text = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"V(\d+\.\d+\.\d+)", text)
    if match is None:
        raise NotSupportedError(f"nvcc at {tool} printed no version")
    return match[1]


def compile(source: Path, expressions: tuple[str, ...], arch: str, options: CompileOptions) -> Compiled:
    """Compile some instantiations of one kernel file.

    Parameters and errors as `warpfront.backend.compile.build`; nothing is cached here.
    """
    tool = _tool()
    if tool is None:
        raise NotSupportedError(str(missing()))
    started = perf_counter()
    with tempfile.TemporaryDirectory(prefix="warpfront-nvcc-") as folder:
        unit, cubin = Path(folder) / "unit.cu", Path(folder) / "unit.cubin"
        # A kernel template is instantiated by taking its address; -cubin then never compiles the host half.
        uses = ", ".join(f"(const void*)({text})" for text in expressions)
        unit.write_text(
            f'#include "{source.resolve()}"\n'
            f"extern const void* wf_instances[];\nconst void* wf_instances[] = {{{uses}}};\n"
        )
        command = [tool, "-cubin", f"-arch={arch}", "-std=c++17", "-Werror", "all-warnings", "-Xptxas", "-v"]
        command += ["-I", str(source.parent), "-I", str(device_folder())]
        command += [f"-D{name}={value}" for name, value in options.defines]
        command += [f"-maxrregcount={options.max_registers}"] if options.max_registers else []
        command += ["-use_fast_math"] if options.fast_math else []
        command += ["-lineinfo"] if options.line_info else []
        command += [f"-fmad={'true' if options.fma else 'false'}", "-o", str(cubin), str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode != 0 or not cubin.is_file():
            raise CompileError(f"{source.name} did not compile for {arch} with nvcc", log)
        code = cubin.read_bytes()
    refuse_warnings(log, source)
    symbols = tuple(elf.kernels(code))
    names = {text: _symbol(text, symbols) for text in expressions}
    return Compiled(
        cubin=code,
        arch=arch,
        compiler=f"nvcc {version()}",
        names=names,
        resources=kernel_resources(names, code, log, source),
        seconds=perf_counter() - started,
    )


def _symbol(expression: str, symbols: tuple[str, ...]) -> str:
    """Find the symbol of a name expression: it begins with the Itanium mangling of name and arguments."""
    match = _EXPRESSION.match(expression.strip())
    if match is None:
        raise InvalidValueError(f"not a kernel name expression: {expression!r}")
    if match[1] in symbols:
        return match[1]
    parts = match[1].split("::")
    name = "".join(f"{len(part)}{part}" for part in parts)
    arguments = "".join(_mangle(text.strip()) for text in match[2].split(",")) if match[2] is not None else ""
    body = name + (f"I{arguments}E" if match[2] is not None else "")
    prefix = f"_ZN{body}E" if len(parts) > 1 else f"_Z{body}"
    found = [symbol for symbol in symbols if symbol.startswith(prefix)]
    if len(found) != 1:
        raise CompileError(f"nvcc: {len(found)} symbols match {expression!r} among {', '.join(symbols)}")
    return found[0]


def _mangle(argument: str) -> str:
    if argument in _TYPES:
        return _TYPES[argument]
    if argument in {"true", "false"}:
        return f"Lb{int(argument == 'true')}E"
    try:
        value = int(argument, 0)
    except ValueError:
        raise InvalidValueError(
            f"nvcc: template argument {argument!r} is neither an integer, a bool nor a basic type"
        ) from None
    return f"Li{value}E" if value >= 0 else f"Lin{-value}E"
