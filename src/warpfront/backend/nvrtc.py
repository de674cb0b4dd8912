"""NVRTC through `cuda.core`: a kernel file to a cubin inside this process, with or without a GPU."""

from __future__ import annotations

from functools import cache
from io import StringIO
from pathlib import Path
from time import perf_counter

from warpfront.backend.compiled import (
    Compiled,
    CompileOptions,
    device_folder,
    kernel_resources,
    refuse_warnings,
)
from warpfront.errors import CompileError, NotSupportedError

__all__ = ["architectures", "compile", "missing", "version"]


@cache
def missing() -> str | None:
    """Return why NVRTC cannot be used and what to install, or ``None`` when it can."""
    from warpfront.backend import capability

    hint = (
        'pip install "warpfront[cuda13]", or cuda-core, cuda-bindings and nvidia-cuda-nvrtc alone '
        "to compile without a GPU"
    )
    if not capability._importable("cuda.core"):
        return f"NVRTC needs cuda.core, not installed here: {hint}"
    if capability.nvrtc_version() == (0, 0):
        return f"the NVRTC library did not load: {hint}"
    return None


@cache
def version() -> str:
    """Return NVRTC's version and that of ``cuda.core``, as they enter the cache key."""
    from warpfront.backend import capability

    major, minor = capability.nvrtc_version()
    return f"{major}.{minor} (cuda.core {capability.package_versions()['cuda.core']})"


@cache
def architectures() -> tuple[str, ...]:
    """Return the targets this NVRTC knows, ascending (``"sm_75"``, …); empty when NVRTC is absent."""
    if missing() is not None:
        return ()
    from cuda.bindings import nvrtc

    _, count = nvrtc.nvrtcGetNumSupportedArchs()
    _, numbers = nvrtc.nvrtcGetSupportedArchs()
    return tuple(f"sm_{number}" for number in sorted(numbers[:count]))


def compile(source: Path, expressions: tuple[str, ...], arch: str, options: CompileOptions) -> Compiled:
    """Compile some instantiations of one kernel file.

    Parameters and errors as `warpfront.backend.compile.build`; nothing is cached here.
    """
    reason = missing()
    if reason is not None:
        raise NotSupportedError(reason)
    base = arch.rstrip("af")  # sm_90a and sm_100f are variants of a listed target
    if base not in architectures():
        raise NotSupportedError(
            f"target {arch} is not one that NVRTC {version()} compiles for ({', '.join(architectures())})"
        )
    from cuda.core import Program, ProgramOptions

    started = perf_counter()
    log = StringIO()
    try:
        program = Program(
            source.read_text(encoding="utf-8"),
            "c++",
            ProgramOptions(
                name=source.name,
                arch=arch,
                std="c++17",
                include_path=[str(source.parent), str(device_folder())],
                define_macro=[(name, value) for name, value in options.defines] or None,
                max_register_count=options.max_registers,
                use_fast_math=options.fast_math,
                fma=options.fma,
                lineinfo=options.line_info,
                ptxas_options=["-v"],
            ),
        )
        code = program.compile("cubin", name_expressions=expressions, logs=log)
    except Exception as error:  # cuda.core raises its own error types; each carries the compiler's log
        raise CompileError(
            f"{source.name} did not compile for {arch}", f"{error}\n{log.getvalue()}"
        ) from error
    report = log.getvalue()
    refuse_warnings(report, source)
    names = {text: _decode(code.symbol_mapping[text]) for text in expressions}
    cubin = bytes(code.code)
    return Compiled(
        cubin=cubin,
        arch=arch,
        compiler=f"nvrtc {version()}",
        names=names,
        resources=kernel_resources(names, cubin, report, source),
        seconds=perf_counter() - started,
    )


def _decode(symbol: str | bytes) -> str:
    return symbol.decode() if isinstance(symbol, bytes) else symbol
