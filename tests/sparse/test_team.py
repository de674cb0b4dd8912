"""Tiles shared among threads: no tile is taken twice, whatever one thread does between two steps of another."""

import threading

import numpy as np

from warpfront.sparse.numeric import _team_kernels as team


def job(tiles):
    return team.Job(1, 0, 0, 0, tiles, 0, 0, 0)


def test_a_job_half_written_offers_no_tile():
    """Between a job's parameters and its word: a thread that looks then must find nothing to take."""
    sync = np.zeros(team.WORDS, np.int64)
    team.open_job(sync, job(2))
    assert [team.take_tile(sync) for _ in range(3)] == [0, 1, -1]
    sync[team.PARAMETERS + 4] = 10  # what the next `open_job` writes first
    assert team.take_tile(sync) == -1
    team.open_job(sync, job(10))
    assert [team.take_tile(sync) for _ in range(11)] == [*range(10), -1]


def test_nothing_to_take_before_the_first_job_and_after_the_last():
    sync = np.zeros(team.WORDS, np.int64)
    assert team.take_tile(sync) == -1
    sync[team.JOB] = team.CLOSED
    assert team.take_tile(sync) == -2


def test_every_tile_is_taken_once_by_threads_that_race():
    sync = np.zeros(team.WORDS, np.int64)
    taken = [[] for _ in range(4)]
    stop = threading.Event()

    def helper(tid):
        while not stop.is_set():
            tile = team.take_tile(sync)
            if tile == -2:
                return
            if tile >= 0:
                taken[tid].append((int(team.read_job(sync).k0), tile))
                team.tile_done(sync)

    threads = [threading.Thread(target=helper, args=(tid,)) for tid in range(1, 4)]
    for thread in threads:
        thread.start()
    sizes = np.random.default_rng(0).integers(2, 9, 300).tolist()
    for k, tiles in enumerate(sizes):
        team.open_job(sync, job(tiles)._replace(k0=k))
        tile = team.take_tile(sync)
        while tile >= 0:
            taken[0].append((k, tile))
            team.tile_done(sync)
            tile = team.take_tile(sync)
        team.wait_job(sync, tiles)
    sync[team.JOB] = team.CLOSED
    stop.set()
    for thread in threads:
        thread.join()
    found = sorted(pair for mine in taken for pair in mine)
    assert found == [(k, tile) for k, tiles in enumerate(sizes) for tile in range(tiles)]
