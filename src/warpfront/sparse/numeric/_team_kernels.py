"""How threads share work without a lock: tickets for subtrees, a job word for the tiles of one front.

``sync`` is an int64 array whose used words lie one cache line (8 words) apart. A job's parameters are plain words
written before the job word is released; a tile is taken by compare-and-swap on the job word, which holds ``epoch``,
number of tiles and next tile, so nothing but this word decides whether there is a tile to take. Parameters are read
after a tile is taken and not before: from then until the tile is counted as done nobody writes them. Nothing waits for
a thread that has not started: whoever is there takes the remaining tiles.
"""

from __future__ import annotations

from typing import NamedTuple

from warpfront.backend._intrinsics import atomic_add, atomic_cas, load_acquire, relax, store_release
from warpfront.backend.jit import njit

__all__ = [
    "CLOSED",
    "IND_OVER",
    "JOB",
    "PANEL_OVER",
    "PIVOT_OVER",
    "ROOT_OVER",
    "STATUS",
    "TASKS_DONE",
    "TASK_TICKET",
    "Job",
    "open_job",
    "read_job",
    "take_tile",
    "tile_done",
    "wait_job",
]

TASK_TICKET = 0
TASKS_DONE = 8
JOB = 16
TILES_DONE = 24
STATUS = 32  # first failed pivot + 1 with its reason, see _walk_kernels
PANEL_OVER = 40
IND_OVER = 48
PIVOT_OVER = 56
PARAMETERS = 64  # kind, node, k0, k1, tiles, owner, child, span
ROOT_OVER = 80
WORDS = 96
CLOSED = -1
TILE_BITS = 21
TILE_MASK = (1 << TILE_BITS) - 1
EPOCH_MASK = (1 << 20) - 1


class Job(NamedTuple):
    """One step of one front, cut into tiles.

    Attributes
    ----------
    kind : int
        See ``_tile_kernels``.
    node, k0, k1 : int
        Front and range of columns (of the front, or of the child's block).
    tiles : int
        Number of tiles.
    owner : int
        Thread whose scratch holds L D of the panel or the child's map; -1: none.
    child, span : int
        Child whose block is added; columns a tile.
    """

    kind: int
    node: int
    k0: int
    k1: int
    tiles: int
    owner: int
    child: int
    span: int


@njit(cache=True, nogil=True)
def read_job(sync):
    """Return the parameters of the open job; only for a thread that holds one of its tiles."""
    p = PARAMETERS
    return Job(
        sync[p], sync[p + 1], sync[p + 2], sync[p + 3], sync[p + 4], sync[p + 5], sync[p + 6], sync[p + 7]
    )


@njit(cache=True, nogil=True)
def open_job(sync, job):
    """Publish a job; the caller then works on it itself."""
    p = PARAMETERS
    sync[p], sync[p + 1], sync[p + 2], sync[p + 3] = job.kind, job.node, job.k0, job.k1
    sync[p + 4], sync[p + 5], sync[p + 6], sync[p + 7] = job.tiles, job.owner, job.child, job.span
    sync[TILES_DONE] = 0
    epoch = ((load_acquire(sync, JOB) >> (2 * TILE_BITS)) + 1) & EPOCH_MASK
    store_release(sync, JOB, (epoch << (2 * TILE_BITS)) | (job.tiles << TILE_BITS))


@njit(cache=True, nogil=True)
def take_tile(sync):
    """Return the next tile of the open job, -1 when none is left, -2 when the team is closed."""
    while True:
        word = load_acquire(sync, JOB)
        if word == CLOSED:
            return -2
        tile = word & TILE_MASK
        if tile >= (word >> TILE_BITS) & TILE_MASK:
            return -1
        if atomic_cas(sync, JOB, word, word + 1):
            return tile


@njit(cache=True, nogil=True)
def tile_done(sync):
    """Count a finished tile."""
    atomic_add(sync, TILES_DONE, 1)


@njit(cache=True, nogil=True)
def wait_job(sync, tiles):
    """Wait until every tile of the open job is finished."""
    while load_acquire(sync, TILES_DONE) < tiles:
        relax()
