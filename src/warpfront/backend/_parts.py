"""While Numba compiles an entry, the functions it is made of stay parts: linked in, and optimised there only.

By default Numba optimises every function with copies of all it calls, makes machine code of that, and then copies the
result into each caller, where it is optimised again: eight times over for a kernel eight calls deep. Here a part's
module is left as it was lowered until the entry has linked all of them.

Numba has no option for this; `entry` exchanges the class of its code libraries while one entry is compiled, which
the global compiler lock keeps to one thread. Where a version of Numba is built otherwise everything is compiled its
own way: slower to compile, the same in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["entry", "supported"]


@cache
def supported() -> bool:
    """Whether this Numba's code libraries have the steps that are left out for a part."""
    try:
        codegen = _codegen()
        library = codegen._library_class
        steps = (
            "_optimize_final_module",
            "_finalize_dynamic_globals",
            "_finalize_final_module",
            "_unserialize",
        )
        return isinstance(library, type) and all(callable(getattr(library, step, None)) for step in steps)
    except (AttributeError, ImportError):
        return False


def _codegen() -> Any:
    from numba.core.registry import cpu_target

    return cpu_target.target_context.codegen()


@cache
def _part_library(library: Any) -> Any:
    class Part(library):  # type: ignore[misc]
        """The library of a part: never run by itself."""

        def _optimize_final_module(self) -> None:
            """Leave the module to the entry."""

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

    return Part


class _Choice:
    """Stands for Numba's library class: the entry's library is Numba's own, every other one a `Part`."""

    def __init__(self, library: Any, name: str) -> None:
        self._library, self._name = library, name
        self.compiled: list[Any] = []
        self.loaded = False

    def __call__(self, codegen: Any, name: str) -> Any:
        if name != self._name:
            return _part_library(self._library)(codegen, name)
        self.compiled.append(self._library(codegen, name))
        return self.compiled[-1]

    def _unserialize(self, codegen: Any, state: Any) -> Any:
        """Load from a cache, where there is nothing but entries."""
        self.loaded = True
        return self._library._unserialize(codegen, state)


@contextmanager
def entry(name: str) -> Iterator[None]:
    """Compile the function of this qualified name as an entry; what else is compiled meanwhile is a part of it."""
    from numba.core.compiler_lock import global_compiler_lock

    if not supported():
        yield
        return
    with global_compiler_lock:
        codegen = _codegen()
        library, set_env = codegen._library_class, codegen.set_env
        choice = codegen._library_class = _Choice(library, name)

        def set_if_loaded(name: str, environment: Any) -> None:
            if choice.loaded:  # what is being compiled is not in the engine yet
                set_env(name, environment)

        codegen.set_env = set_if_loaded
        try:
            yield
        finally:
            codegen._library_class = library
            del codegen.set_env
        for one in () if choice.loaded else choice.compiled:
            _set_environments(one, set_env)


def _set_environments(library: Any, set_env: Any) -> None:
    """Give an entry's machine code the environments of the functions in it, as Numba does on loading from a cache."""
    from numba.core.environment import lookup_environment

    for variable in library._final_module.global_variables:
        environment = lookup_environment(variable.name)
        if environment is not None:
            set_env(variable.name, environment)
