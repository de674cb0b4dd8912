"""Numba's ``njit`` with a cache that notices a change in *any* source a kernel is compiled from.

Numba's own cache looks at the file of the cached function only. A kernel inlines the kernels it calls, so
after an edit or an upgrade of a called module the caller would be loaded from the cache with the old code
in it, silently. Here each module's cache is a folder named by a digest over that module and every module
of the same package it imports, directly or not; folders of other digests of the module are removed.

The folder lies under ``NUMBA_CACHE_DIR`` when the user has set that, else in ``__pycache__`` beside the
module, else (read-only installation) in `warpfront.backend.settings.cache_dir`. Kernel modules import
``njit`` from here.

What Python calls is compiled as an entry and cached; what an entry calls is a part of it (`_parts`) and is neither
cached nor optimised by itself, so a module's folder holds entries only.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from warpfront.backend import _parts, settings

__all__ = ["is_compiled", "njit"]

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<base>[\w.]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n#]+)"
    r"|import[ \t]+(?P<plain>[^\n#]+))",
    re.MULTILINE,
)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return ``numba.njit(**options)``; with ``cache=True`` the cache is the one this module describes.

    Parameters
    ----------
    **options
        Those of ``numba.njit``.

    Returns
    -------
    callable
        Decorator that turns a function of an importable module into a Numba dispatcher.
    """
    import numba

    decorate: Callable[[Callable[..., Any]], Any] = numba.njit(**options)
    if not options.get("cache"):
        return decorate

    def cached(function: Callable[..., Any]) -> Any:
        # Numba fixes the place of a function's cache while it decorates it: that is when, and only when, it
        # may see our folder. Other packages' functions keep theirs.
        config: Any = numba.config
        before = config.CACHE_DIR
        config.CACHE_DIR = _folder(function.__module__, before)
        try:
            return _as_entry(decorate(function), function, options)
        finally:
            config.CACHE_DIR = before

    return cached


def is_compiled(module: str) -> bool:
    """Tell whether the cache holds compiled code of an imported kernel module, as its sources are now."""
    import numba

    folder = _folder(module, numba.config.CACHE_DIR)  # type: ignore[attr-defined]
    return any(Path(folder).glob("**/*.nbi"))


def _as_entry(dispatcher: Any, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Make a function cheap to compile: as an entry from Python, and as a part of other compiled functions.

    Callers are given a second dispatcher of the function, a part: no wrapper for Python, no cache, and neither
    optimised nor turned into machine code by itself (`warpfront.backend._parts`), since both happen again, with all
    parts at hand, for the entry they end in. A callee is compiled once for ``f(x, 0)`` and ``f(x, n)``: by default
    Numba makes a version for each constant.
    """
    compile_entry = dispatcher.compile

    @cache
    def part() -> Any:
        import numba

        return numba.njit(
            **{**options, "cache": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        )(function)

    def get_call_template(args: Any, kws: Any) -> Any:
        from numba.core.types import unliteral

        plain = tuple(unliteral(argument) for argument in args)
        return part().get_call_template(plain, {name: unliteral(kind) for name, kind in kws.items()})

    def get_overload(signature: Any) -> Any:
        return part().get_overload(signature)  # a dispatcher's type asks for its callee here

    def compile_with_parts(signature: Any) -> Any:
        with _parts.entry(function.__qualname__):
            return compile_entry(signature)

    dispatcher.get_call_template, dispatcher.get_overload = get_call_template, get_overload
    dispatcher.compile = compile_with_parts
    return dispatcher


@cache
def _folder(module: str, chosen: str) -> str:
    """Return the cache folder of a module, after removing those of its earlier states."""
    file = Path(str(sys.modules[module].__file__))
    places = [Path(chosen)] if chosen else [file.parent / "__pycache__", settings.cache_dir() / "cpu"]
    place = next((place for place in places if _writable(place)), places[-1])
    prefix = f"numba-{module}-"
    folder = place / f"{prefix}{_digest(module)}"
    if not folder.is_dir():
        for old in place.glob(f"{prefix}*"):
            if old != folder:  # which another process may have made by now
                shutil.rmtree(old, ignore_errors=True)
    return str(folder)


def _writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def _digest(module: str) -> str:
    """Return a digest of the sources a module is compiled from."""
    digest = sha256()
    for name, file in sorted(_closure(module).items()):
        digest.update(name.encode() + b"\0" + sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _closure(module: str) -> dict[str, Path]:
    """Return name and file of a module and of all modules of its top-level package that it imports."""
    package = module.split(".", maxsplit=1)[0]
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = None if name in found else _source(name)
        if file is None:
            continue
        found[name] = file
        # The top-level package re-exports everything; no kernel is compiled from it.
        waiting += [other for other in _imports(file) if other.startswith(package + ".")]
    return found


@cache
def _imports(file: Path) -> tuple[str, ...]:
    return tuple(_imported_names(file.read_text(encoding="utf-8")))


def _imported_names(text: str) -> Iterator[str]:
    """Yield every dotted name the text imports; ``from a import b`` gives both ``a`` and ``a.b``."""
    for statement in _IMPORT.finditer(text):
        base = statement["base"] or ""
        if base:
            yield base
        for part in re.sub(r"#[^\n]*|[()]", " ", statement["names"] or statement["plain"]).split(","):
            words = part.split()
            if words:
                yield f"{base}.{words[0]}" if base else words[0]


@cache
def _source(name: str) -> Path | None:
    """Return the file of a module of an imported package, ``None`` when there is no such module."""
    package, *rest = name.split(".")
    root = sys.modules[package].__path__[0]
    stem = Path(os.path.join(root, *rest))
    return next(
        (file for file in (stem.with_name(stem.name + ".py"), stem / "__init__.py") if file.is_file()), None
    )
