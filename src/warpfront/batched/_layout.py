"""Shared memory of the batched kernels: how a block lays out its systems, and how many bytes that declares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

__all__ = ["WARP", "Layout", "packed_layout", "warp_layout"]

WARP = 32


@dataclass(frozen=True)
class Layout:
    """Shared memory of a packed kernel: elements from row to row and from system to system, bytes of a block."""

    pitch: int
    stride: int
    shared_bytes: int


@lru_cache(maxsize=4096)
def packed_layout(method: str, n: int, nrhs: int, itemsize: int, lanes: int) -> Layout:
    """Return how a packed kernel lays out its shared memory.

    Rows are whole 16-byte chunks at a pitch of an odd number of chunks, or (Cholesky, where shared memory bounds
    the blocks) of a multiple of eight whose chunks the kernel permutes: chunks of eight neighbouring rows meet no
    bank twice. The stride between systems is the least for which lanes that read neighbouring elements of a row, all
    systems of the block together, meet in the fewest banks. Systems' lines lie as many 4-byte banks apart as a system
    has lanes (four at least).
    """
    systems, chunk, banks = WARP // lanes, 16 // itemsize, 128 // itemsize
    chunks = -(-n // chunk)
    swizzled = method == "cholesky" and chunks % 8 == 0
    pitch = (chunks if swizzled else chunks | 1) * chunk
    readers = [(k // lanes, k % lanes) for k in range(banks) if k // lanes < systems]

    def crowd(stride: int) -> int:
        used = [(system * stride + g) % banks for system, g in readers]
        return max(used.count(bank) for bank in set(used))

    stride = min(range(n * pitch, n * pitch + banks, chunk), key=crowd)
    long = max(chunks * chunk, -(-(-(-n // lanes) * lanes) // chunk) * chunk)
    apart = n * nrhs + (lanes if nrhs > 1 and n * nrhs % 32 == 0 else 0)
    line = long + (chunk if nrhs == 1 else 0)
    words = (2 if method == "cholesky" else 4) * line * itemsize // 4
    while systems > 1 and words % 32 not in (max(lanes, 4), 32 - max(lanes, 4)):
        words += 4
    inverses = 1 if method == "cholesky" and nrhs == 1 else systems * (n | 1)
    parts = [
        (systems - 1) * stride + n * pitch,
        systems * words * 4 // itemsize,
        (systems - 1) * apart + n * nrhs if nrhs else 1,
        inverses,
    ]
    sizes = [part * itemsize for part in parts]
    if method == "lu":
        sizes += [systems * itemsize, systems * n * 4, systems * (n | 1) * 4 if nrhs > 1 else 4]
    total = 0
    for k, size in enumerate(sizes):
        alignment = 16 if k < 3 else itemsize if k < 5 else 4
        total = -(-total // alignment) * alignment + size
    return Layout(pitch, stride, total)


def warp_layout(method: str, n: int, nrhs: int, itemsize: int) -> Layout:
    """Return how ``cholesky_warp`` and ``lu_warp`` lay out their shared memory: one system, rows at odd pitch."""
    chunk, pitch = 16 // itemsize, n | 1
    line = 2 * (-(-n // chunk) * chunk) + chunk
    parts = [
        (n * pitch * itemsize, itemsize),
        ((n * nrhs or 1) * itemsize, itemsize),
        (2 * line * itemsize, 16),
        (4, 4),
    ]
    if method == "lu":
        parts += [(itemsize, itemsize), (n * 4, 4), (n * 4 if nrhs != 1 else 4, 4)]
    total = 0
    for size, alignment in sorted(parts, key=lambda part: -part[1]):
        total = -(-total // alignment) * alignment + size
    return Layout(pitch, n * pitch, total)
