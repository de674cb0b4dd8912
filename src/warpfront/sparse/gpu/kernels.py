"""The kernels by name: file, instantiation, arguments. What the launcher, the SIMT tests and the build tests share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["KERNELS", "KernelSpec", "instantiations"]

FOLDER = Path(__file__).parent
STAGES = 2
C_TYPES = {"float64": "double", "float32": "float"}


@dataclass(frozen=True)
class KernelSpec:
    """One kernel of the pipeline.

    Attributes
    ----------
    file : str
    template : str
        Name expression with ``{T}``, ``{threads}``, ``{pivoting}`` and ``{rhs}`` to fill in.
    arguments : tuple of str
        Buffers (by name) and, behind them, numbers.
    signature : str
        Argument letters of `warpfront.backend.cuda`; ``T`` stands for a number of the value type.
    """

    file: str
    template: str
    arguments: tuple[str, ...]
    signature: str

    @property
    def source(self) -> Path:
        """The kernel file."""
        return FOLDER / self.file

    def expression(self, dtype: str, threads: int = 0, pivoting: bool = False, rhs: int = 1) -> str:
        """Return the C++ name of an instantiation."""
        return self.template.format(
            T=C_TYPES[dtype], threads=threads, pivoting="true" if pivoting else "false", rhs=rhs
        )


def _spec(file: str, template: str, arguments: str, numbers: str = "") -> KernelSpec:
    names = tuple(arguments.split())
    return KernelSpec(file, template, names, "p" * (len(names) - len(numbers)) + numbers)


KERNELS = {
    "fronts": _spec(
        "fronts.cu", "eliminate_fronts<{T}, {threads}, {pivoting}>",
        "items fronts children entries maps values rule panels blocks diagonal pivots stats",
    ),
    "assemble": _spec(
        "assemble.cu", "assemble_panels<{T}>", "items fronts children entries maps values panels blocks"
    ),
    "strips": _spec(
        "strips.cu", "eliminate_strips<{T}, {pivoting}>",
        "items fronts rule panels diagonal pivots work flags stats",
    ),
    "order": _spec("order.cu", "order_rows<{T}>", "items fronts panels pivots"),
    "epoch": _spec("order.cu", "next_epoch", "flags"),
    "update": _spec(
        "tiles.cu", f"update_tiles<{{T}}, false, {STAGES}>",
        "items fronts children maps panels blocks diagonal pivots",
    ),
    "contribution": _spec(
        "tiles.cu", f"update_tiles<{{T}}, true, {STAGES}>",
        "items fronts children maps panels blocks diagonal pivots",
    ),
}  # fmt: skip


def instantiations(dtype: str) -> list[tuple[Path, tuple[str, ...]]]:
    """Return what a solver of this type can ask for: (file, expressions)."""
    from warpfront.sparse.gpu.schedule import CLASSES

    found: dict[Path, list[str]] = {}
    for name, spec in KERNELS.items():
        names = [spec.expression(dtype, rhs=1), spec.expression(dtype, rhs=4)]
        if name == "fronts":
            names = [spec.expression(dtype, plain, False) for _, plain, _ in CLASSES]
            names += [spec.expression(dtype, pivoted, True) for _, _, pivoted in CLASSES]
        if name == "strips":
            names = [spec.expression(dtype, pivoting=flag) for flag in (False, True)]
        for expression in dict.fromkeys(names):
            found.setdefault(spec.source, []).append(expression)
    return [(file, tuple(dict.fromkeys(names))) for file, names in found.items()]
