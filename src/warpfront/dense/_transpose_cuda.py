"""Transpose on the GPU: what the host decides.

`plan` is a pure function of the problem and a path, testable without a GPU.

| path | kernel | from |
|---|---|---|
| ``portable`` | ``transpose_tile``; ``transpose_shift`` for output rows that are not aligned to 16 bytes;
``transpose_in_place``; ``transpose_flat`` for narrow and tiny matrices | any |
| ``sm_80`` | ``transpose_async``: 16-byte asynchronous copies, persistent blocks | 8.0 |
| ``sm_90`` | ``transpose_bulk``: rows by bulk copies on an mbarrier, persistent blocks | 9.0 |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from warpfront.backend import cuda
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = [
    "ELEMENT_BYTES",
    "Plan",
    "TransposeProblem",
    "instantiations",
    "launch",
    "plan",
    "subset",
    "why_not_streamed",
]

ELEMENT_BYTES = (1, 2, 4, 8, 16)
FOLDER = FilePath(__file__).parent

# (tile rows, tile columns, threads) by element size, as measured (benchmarks/records/nvidia-h200).
TILES = {1: (64, 256, 256), 2: (64, 128, 256), 4: (64, 64, 256), 8: (64, 32, 256), 16: (32, 16, 256)}
# (side, threads) of the pair of tiles in place.
SQUARE_TILES = {1: (128, 256), 2: (64, 256), 4: (64, 256), 8: (32, 256), 16: (32, 256)}
# The first with the number of stages, for the two persistent kernels.
STREAMED_TILES = {
    "sm_80": {
        1: (128, 256, 256, 2),
        2: (128, 128, 256, 2),
        4: (128, 64, 256, 2),
        8: (64, 32, 256, 2),
        16: (64, 32, 256, 2),
    },
    "sm_90": {
        1: (128, 256, 256, 2),
        2: (64, 64, 128, 3),
        4: (64, 64, 128, 3),
        8: (64, 32, 256, 3),
        16: (32, 32, 128, 3),
    },
}
# For output rows that are not aligned; tiles overlap by 16 bytes of rows. 16-byte elements need none.
SHIFT_TILES = {1: (256, 64, 256), 2: (64, 64, 256), 4: (64, 32, 128), 8: (64, 32, 256)}
# Tile rows of a panel of blocks (see tile_at in transpose.cuh): column order.
GROUP = 1 << 20
# A matrix narrower than this, or no larger than this many elements, would leave most of a tile idle.
NARROW, TINY = 16, 1024
FLAT_THREADS, FLAT_EACH = 256, 4
MAX_GRID = 2**31 - 1

_TILE_SIGNATURE = "pp" + "q" * 9
_STREAM_SIGNATURE = "pp" + "q" * 10
_SQUARE_SIGNATURE = "pqqqq"
_FLAT_SIGNATURE = "pp" + "q" * 7


@dataclass(frozen=True)
class TransposeProblem:
    """One transpose, as dispatch and the plan see it.

    Attributes
    ----------
    m, n, batch : int
        Input matrices are m x n.
    itemsize : int
        Element bytes: 1, 2, 4, 8 or 16.
    dtype : str
        Name, for messages.
    on_device : bool
        Whether the input is in device memory.
    src_pitch, dst_pitch, src_batch, dst_batch : int
        Bytes from a row to the next, and from a matrix to the next.
    src_align, dst_align : int
        Largest power of two up to 16 that divides base address, pitch and batch stride.
    in_place : bool
        Input and output are the same memory.
    """

    m: int
    n: int
    batch: int
    itemsize: int
    dtype: str
    on_device: bool
    src_pitch: int
    dst_pitch: int
    src_batch: int
    dst_batch: int
    src_align: int
    dst_align: int
    in_place: bool = False

    @property
    def flat(self) -> bool:
        """Whether a tile would be mostly idle."""
        return not self.in_place and (min(self.m, self.n) < NARROW or self.m * self.n <= TINY)


@dataclass(frozen=True)
class Plan:
    """One launch.

    Attributes
    ----------
    source : pathlib.Path
    expression, signature : str
    blocks, threads, shared_bytes : int
        ``blocks`` is the number of tiles for a persistent kernel, which is capped at what the device holds at
        once.
    persistent : bool
    tail : tuple of int
        The arguments after the pointers.
    """

    source: FilePath
    expression: str
    signature: str
    blocks: int
    threads: int
    shared_bytes: int
    persistent: bool
    tail: tuple[int, ...]


def why_not_streamed(problem: TransposeProblem, *, whole_chunks: bool) -> str | None:
    """Return why the sm_80 path (sm_90 with ``whole_chunks``) does not fit a problem, or ``None``."""
    if problem.in_place:
        return "transposes into other memory, and this call is in place"
    if problem.flat:
        return f"works in tiles, and matrices of {problem.m} x {problem.n} would leave them idle"
    if problem.src_align < 16 or problem.dst_align < 16:
        side = "input" if problem.src_align < 16 else "output"
        return f"copies 16 bytes at a time, and the {side}'s address or pitch is not a multiple of 16"
    if whole_chunks and problem.n * problem.itemsize % 16:
        return f"copies rows in units of 16 bytes, and a row has {problem.n * problem.itemsize}"
    return None


def shared_bytes(path: str, itemsize: int, tile: tuple[int, int, int, int] | None = None) -> int:
    """Return the dynamic shared memory of one block of a persistent path."""
    rows, columns, _, stages = tile or STREAMED_TILES[path][itemsize]
    if path == "sm_90":
        return stages * (rows * (columns * itemsize + 16) + 8)
    return stages * rows * columns * itemsize


def plan(
    problem: TransposeProblem, path: str, *, tile: tuple[int, ...] | None = None, group: int = GROUP
) -> Plan:
    """Return the launch that transposes a problem on a path.

    Parameters
    ----------
    problem : TransposeProblem
        Not empty.
    path : {"portable", "sm_80", "sm_90"}
    tile : tuple of int, optional
        (rows, columns, threads) or, for the persistent paths, (rows, columns, threads, stages).
        Default: the tuned ones.
    group : int
        Tile rows of a panel; 0 is the diagonal order.

    Raises
    ------
    NotSupportedError
        More blocks than a launch can have.
    """
    if path == "portable":
        result = _portable(problem, tile or TILES[problem.itemsize], group)
    elif path in ("sm_80", "sm_90"):
        result = _streamed(problem, path, tile or STREAMED_TILES[path][problem.itemsize], group)
    else:
        raise InvalidValueError(f"no such GPU path: {path!r}")
    if result.blocks > MAX_GRID and not result.persistent:
        raise NotSupportedError(f"the problem needs {result.blocks} blocks, a launch has at most {MAX_GRID}")
    return result


def _portable(p: TransposeProblem, tile: tuple[int, ...], group: int) -> Plan:
    tail: tuple[int, ...]
    rows, columns, threads = tile[:3]
    source = FOLDER / "transpose.cu"
    if p.flat:
        count = p.batch * p.m * p.n
        blocks = -(-count // (FLAT_THREADS * FLAT_EACH))
        expression = f"transpose_flat<{p.itemsize}, {FLAT_THREADS}, {FLAT_EACH}>"
        tail = (p.m, p.n, p.dst_pitch, p.src_pitch, p.dst_batch, p.src_batch, count)
        return Plan(source, expression, _FLAT_SIGNATURE, blocks, FLAT_THREADS, 0, False, tail)
    if p.in_place:
        side, threads = SQUARE_TILES[p.itemsize]
        tiles = -(-p.n // side)
        expression = f"transpose_in_place<{p.itemsize}, {side}, {threads}, {_bool(p.src_align == 16)}>"
        blocks = p.batch * (tiles * (tiles + 1) // 2)
        return Plan(
            source,
            expression,
            _SQUARE_SIGNATURE,
            blocks,
            threads,
            0,
            False,
            (p.n, p.src_pitch, p.src_batch, tiles),
        )
    vec_in, vec_out = _bool(p.src_align == 16), _bool(p.dst_align == 16)
    if p.dst_align < 16 and p.itemsize in SHIFT_TILES:
        rows, columns, threads = tile[:3] if tile is not TILES[p.itemsize] else SHIFT_TILES[p.itemsize]
        expression = f"transpose_shift<{p.itemsize}, {rows}, {columns}, {threads}, {vec_in}>"
        rows -= 16 // p.itemsize
    else:
        expression = f"transpose_tile<{p.itemsize}, {rows}, {columns}, {threads}, {vec_in}, {vec_out}>"
    tiles_m, tiles_n = -(-p.m // rows), -(-p.n // columns)
    order = min(group, tiles_m)
    tail = (p.m, p.n, p.dst_pitch, p.src_pitch, p.dst_batch, p.src_batch, tiles_m, tiles_n, order)
    return Plan(source, expression, _TILE_SIGNATURE, p.batch * tiles_m * tiles_n, threads, 0, False, tail)


def _streamed(p: TransposeProblem, path: str, tile: tuple[int, ...], group: int) -> Plan:
    rows, columns, threads, stages = tile
    kernel = "transpose_bulk" if path == "sm_90" else "transpose_async"
    tiles_m, tiles_n = -(-p.m // rows), -(-p.n // columns)
    count = p.batch * tiles_m * tiles_n
    expression = f"{kernel}<{p.itemsize}, {rows}, {columns}, {threads}, {stages}>"
    order = min(group, tiles_m)
    tail = (p.m, p.n, p.dst_pitch, p.src_pitch, p.dst_batch, p.src_batch, tiles_m, tiles_n, order, count)
    shared = shared_bytes(path, p.itemsize, (rows, columns, threads, stages))
    return Plan(FOLDER / f"{kernel}.cu", expression, _STREAM_SIGNATURE, count, threads, shared, True, tail)


def instantiations() -> list[tuple[FilePath, tuple[str, ...], int]]:
    """Return all that `plan` can ask for with the tuned tiles: (file, expressions, least architecture)."""
    portable: list[str] = []
    for size, (rows, columns, threads) in TILES.items():
        for a in (True, False):
            portable += [
                f"transpose_tile<{size}, {rows}, {columns}, {threads}, {_bool(a)}, {_bool(b)}>"
                for b in ((True, False) if size == 16 else (True,))
            ]
            if size in SHIFT_TILES:
                shape = ", ".join(map(str, SHIFT_TILES[size]))
                portable.append(f"transpose_shift<{size}, {shape}, {_bool(a)}>")
            side, count = SQUARE_TILES[size]
            portable.append(f"transpose_in_place<{size}, {side}, {count}, {_bool(a)}>")
        portable.append(f"transpose_flat<{size}, {FLAT_THREADS}, {FLAT_EACH}>")
    result = [(FOLDER / "transpose.cu", tuple(portable), 75)]
    for kernel, path, least in (("transpose_async", "sm_80", 80), ("transpose_bulk", "sm_90", 90)):
        names = tuple(
            f"{kernel}<{s}, {r}, {c}, {t}, {d}>" for s, (r, c, t, d) in STREAMED_TILES[path].items()
        )
        result.append((FOLDER / f"{kernel}.cu", names, least))
    return result


def subset() -> list[tuple[FilePath, tuple[str, ...], int]]:
    """Return a covering part of `instantiations`: every kernel for every element size, alignments in turn."""
    result = []
    for file, names, least in instantiations():
        seen: dict[str, list[str]] = {}
        for name in names:
            seen.setdefault(name.partition(",")[0], []).append(name)
        result.append((file, tuple(group[k % len(group)] for k, group in enumerate(seen.values())), least))
    return result


@lru_cache(maxsize=4096)
def _prepared(problem: TransposeProblem, path: str, device: int) -> tuple[cuda.Kernel, Plan, int]:
    """Kernel, plan and number of blocks; kept, so that a repeated call goes straight to the launch."""
    made = plan(problem, path)
    kernel = cuda.load(made.source, made.expression, made.signature, device)
    return kernel, made, resident(kernel, made, device)


def resident(kernel: cuda.Kernel, made: Plan, device: int) -> int:
    """Return the blocks to launch: all, or for a persistent kernel as many as the device holds at once."""
    if not made.persistent:
        return made.blocks
    from warpfront.backend import capability

    held = kernel.blocks_per_sm(made.threads, made.shared_bytes) * capability.probe(device).sm_count
    return min(made.blocks, max(held, 1))


def launch(problem: TransposeProblem, path: str, dst: int, src: int, device: int, stream: int) -> None:
    """Queue one transpose: ``dst`` and ``src`` are device addresses (equal in place)."""
    kernel, made, blocks = _prepared(problem, path, device)
    pointers: tuple[Any, ...] = (dst,) if problem.in_place else (dst, src)
    kernel.launch(stream, blocks, made.threads, pointers + made.tail, made.shared_bytes)


def _bool(value: bool) -> str:
    return "true" if value else "false"
