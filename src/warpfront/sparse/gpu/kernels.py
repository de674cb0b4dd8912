"""The kernels by name: file, instantiation, arguments. What the launcher, the SIMT tests and the build tests share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["KERNELS", "KernelSpec", "column_tiles", "instantiations", "of_type", "subset", "team_columns"]

FOLDER = Path(__file__).parent
STAGES = 2
# right-hand sides of a small front's team; eights of them in a wide front's tile
MOST_TOGETHER, MOST_TILES = 4, 2
TREE_PRODUCTS = True  # sweeps through forests of small fronts as products of tiles
C_TYPES = {"float64": "double", "float32": "float"}


@dataclass(frozen=True)
class KernelSpec:
    """One kernel of the pipeline.

    Attributes
    ----------
    file : str
    template : str
        Name expression with ``{T}``, ``{threads}``, ``{pivoting}``, ``{definite}`` and ``{rhs}`` to fill in.
    arguments : tuple of str
        Buffers, by name; numbers follow them.
    signature : str
        Argument letters of `warpfront.backend.cuda`.
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
            T=C_TYPES[dtype], threads=threads, pivoting="true" if pivoting else "false",
            definite="false" if pivoting else "true", rhs=min(rhs, MOST_TOGETHER),
            team=team_columns(rhs), products="true" if TREE_PRODUCTS else "false",
            tiles=column_tiles(rhs),
        )  # fmt: skip


def team_columns(rhs: int) -> int:
    """Right-hand sides that an item of a tree's sweep takes at once."""
    return min(rhs, 8 if TREE_PRODUCTS else MOST_TOGETHER)


def column_tiles(rhs: int) -> int:
    """Eights of right-hand sides that a block of a wide front's sweep takes."""
    return min(max(1, rhs // 8), MOST_TILES)


def _spec(file: str, template: str, arguments: str, numbers: str = "") -> KernelSpec:
    names = tuple(arguments.split())
    return KernelSpec(file, template, names, "p" * len(names) + numbers)


KERNELS = {
    "fronts": _spec(
        "fronts.cu", "eliminate_fronts<{T}, {threads}, {pivoting}>",
        "items fronts gathers sources places values rule panels blocks diagonal pivots stats",
    ),
    "assemble": _spec(
        "assemble.cu", "assemble_panels<{T}>", "items fronts children entries maps values panels blocks"
    ),
    "strips": _spec(
        "strips.cu", "eliminate_strips<{T}, {pivoting}, {definite}>",
        "items fronts children entries maps values blocks rule panels diagonal pivots block_flags flags stats",
    ),
    "order": _spec("order.cu", "order_rows<{T}>", "items fronts panels pivots"),
    "update": _spec(
        "tiles.cu", f"update_tiles<{{T}}, false, {STAGES}, {{pivoting}}>",
        "items fronts children maps panels blocks diagonal pivots",
    ),
    "update_rest": _spec(
        "tiles.cu", f"update_tiles<{{T}}, false, {STAGES}, {{pivoting}}>",
        "items fronts children maps panels blocks diagonal pivots",
    ),
    "contribution": _spec(
        "tiles.cu", f"update_tiles<{{T}}, true, {STAGES}, {{pivoting}}>",
        "items fronts children maps panels blocks diagonal pivots",
    ),
    "forward": _spec(
        "solve.cu", "forward_fronts<{T}, {threads}, {rhs}>",
        "items fronts children maps panels pivots x z upd active sizes",
    ),
    "backward": _spec(
        "solve.cu", "backward_fronts<{T}, {threads}, {rhs}>",
        "items fronts below_ind panels diagonal pivots x z active sizes",
    ),
    "forward_strips": _spec(
        "wide_sweeps.cu", "forward_strips<{T}, {tiles}>",
        "items fronts children maps row_lists row_list_sources panels pivots x z upd solve_flags active sizes", "iii",
    ),
    "backward_strips": _spec(
        "wide_sweeps.cu", "backward_strips<{T}, {tiles}>",
        "items fronts below_ind panels diagonal pivots x z solve_flags active sizes", "iii",
    ),
    "invert": _spec("invert.cu", "invert_corner<{T}>", "items fronts panels"),
    "factor_tree": _spec(
        "factor_tree.cu", "factor_tree<{T}, {pivoting}>",
        "forest_tickets forest_items fronts gathers sources places values rule panels blocks diagonal pivots stats cells",
        "i",
    ),
    "sweep_forest": _spec(
        "tree_forest.cu", "sweep_forest<{T}, {team}, {products}>",
        "forest_tickets forest_items fronts row_lists row_list_sources below_ind panels diagonal pivots x z upd active "
        "cells sizes",
        "iiiiii",
    ),
    "start_tree": _spec("tree_solve.cu", "start_tree", "cells state", "qq"),
    "solve_tree": _spec(
        "tree_solve.cu", "solve_tree<{T}, {rhs}, false>",
        "tickets tree_items fronts row_lists row_list_sources below_ind panels diagonal pivots perm exponents summary "
        "row_ptr row_col row_slot original sums scalars b best candidate residual x z upd state cells sizes",
        "iiiiiidd",
    ),
    "start_factor": _spec("vectors.cu", "start_factor", "flags summary scalars"),
    "gather_values": _spec("vectors.cu", "gather_values<{T}>", "gather_ptr gather_ind source original", "q"),
    "sweep_exponents": _spec(
        "vectors.cu", "sweep_exponents<{T}>", "row_ptr row_col row_slot original exponents_a exponents_b", "q"
    ),
    "scale_values": _spec(
        "vectors.cu", "scale_values<{T}>", "slot_row slot_col exponents original values scalars", "q"
    ),
    "set_rule": _spec("vectors.cu", "set_rule<{T}>", "scalars rule", "dddd"),
    "row_sums": _spec("vectors.cu", "row_sums<{T}>", "row_ptr row_slot original sums scalars", "q"),
    "collect": _spec("vectors.cu", "collect", "stats summary", "q"),
    "permute_in": _spec("vectors.cu", "permute_in<{T}, {rhs}>", "perm exponents b x solve_flags active", "qqq"),
    "permute_out": _spec("vectors.cu", "permute_out<{T}, {rhs}>", "perm exponents x base out state active summary", "q"),
    "measure": _spec(
        "vectors.cu", "measure<{T}, {rhs}>",
        "row_ptr row_col row_slot original sums b out residual state active shape",
    ),
    "judge": _spec("vectors.cu", "judge", "scalars state active", "iid"),
    "keep_better": _spec("vectors.cu", "keep_better<{T}, {rhs}>", "state candidate best", "q"),
    "start_solve": _spec("vectors.cu", "start_solve", "state active", "i"),
    "lu_fronts": _spec(
        "lu_fronts.cu", "lu_eliminate_fronts<{T}, {threads}>",
        "items fronts gathers sources places values rule panels blocks diagonal pivots stats",
    ),
    "lu_fronts_pull": _spec(
        "lu_pull_fronts.cu", "lu_pull_fronts<{T}, {threads}>",
        "items fronts children entries maps values rule panels blocks diagonal pivots stats",
    ),
    "lu_tree": _spec(
        "lu_tree.cu", "lu_factor_tree<{T}>",
        "forest_tickets forest_items fronts gathers sources places values rule panels blocks diagonal pivots stats cells",
        "i",
    ),
    "lu_assemble": _spec(
        "lu_assemble.cu", "lu_assemble_panels<{T}>", "items fronts children entries maps values panels blocks"
    ),
    "lu_strips": _spec(
        "lu_strips.cu", "lu_eliminate_strips<{T}>",
        "items fronts children entries maps values blocks rule panels diagonal pivots work flags stats",
    ),
    "lu_update": _spec(
        "lu_tiles.cu", f"lu_update_tiles<{{T}}, false, {STAGES}>", "items fronts children maps panels blocks diagonal"
    ),
    "lu_contribution": _spec(
        "lu_tiles.cu", f"lu_update_tiles<{{T}}, true, {STAGES}>", "items fronts children maps panels blocks diagonal"
    ),
    "lu_start": _spec("lu_values.cu", "lu_start", "flags summary scalars scalars_t quality", "i"),
    "lu_judge": _spec(
        "lu_values.cu", "lu_judge_matching<{T}>",
        "col_ptr slot_row matched original row_exponents col_exponents quality", "qidd",
    ),
    "lu_sweep": _spec(
        "lu_values.cu", "lu_sweep<{T}>", "ptr ind slot original mine theirs to matched_exponents quality", "qi"
    ),
    "lu_scale": _spec(
        "lu_values.cu", "lu_scale<{T}>", "slot_row slot_col row_exponents col_exponents original values scalars", "q"
    ),
    "lu_rule": _spec("lu_values.cu", "lu_set_rule<{T}>", "scalars rule summary", "ddddd"),
}  # fmt: skip
LU_THREADS = (32, 128, 256)  # of a front held by one warp or block


def of_type(dtype: str) -> list[tuple[Path, tuple[str, ...]]]:
    """Return what a solver of this type can ask for: (file, expressions)."""
    from warpfront.sparse.gpu.schedule import CLASSES

    found: dict[Path, list[str]] = {}
    for name, spec in KERNELS.items():
        names = [spec.expression(dtype, rhs=1), spec.expression(dtype, rhs=4)]
        if name == "fronts":
            names = [spec.expression(dtype, plain, False) for _, plain, _ in CLASSES]
            names += [spec.expression(dtype, pivoted, True) for _, _, pivoted in CLASSES]
        if name in ("lu_fronts", "lu_fronts_pull"):
            names = [spec.expression(dtype, threads) for threads in LU_THREADS]
        if name in ("forward", "backward"):
            names = [spec.expression(dtype, threads, rhs=r) for threads in (32, 128) for r in (1, 4)]
        if name in ("forward_strips", "backward_strips"):
            names = [spec.expression(dtype, rhs=r) for r in (1, 16)]
        if name in ("sweep_forest", "solve_tree"):
            names = [spec.expression(dtype, rhs=r) for r in ((1, 4) if name == "solve_tree" else (1, 4, 8))]
        if name in ("strips", "factor_tree", "update", "update_rest", "contribution"):
            names = [spec.expression(dtype, pivoting=flag) for flag in (False, True)]
        for expression in dict.fromkeys(names):
            found.setdefault(spec.source, []).append(expression)
    return [(file, tuple(dict.fromkeys(names))) for file, names in found.items()]


def instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return all kernels: (file, expressions, least architecture)."""
    found: dict[Path, list[str]] = {}
    for dtype in C_TYPES:
        for file, names in of_type(dtype):
            found.setdefault(file, []).extend(names)
    return [(file, tuple(dict.fromkeys(names)), 80) for file, names in found.items()]


def subset() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return a covering part of `instantiations`: every kernel, threads and types in turn."""
    result = []
    for file, names, least in instantiations():
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(name.partition("<")[0], []).append(name)
        result.append((file, tuple(group[k % len(group)] for k, group in enumerate(groups.values())), least))
    return result
