"""Correct kernels have no finding under any schedule, and give the values NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

from warpfront.backend.simt import Out, Struct

pytestmark = pytest.mark.simt
SCHEDULES = 12


def run(patterns, name, grid, block, args, **options):
    return patterns.launch(name, grid, block, args, schedules=SCHEDULES, **options).check()


def test_neighbouring_bytes_of_different_threads_are_no_race(patterns):
    a = np.arange(100, dtype=np.uint8)
    b = np.empty_like(a)
    run(patterns, "bytes", 1, 100, [a, Out(b)])
    np.testing.assert_array_equal(b, a + 1)


def test_atomics_count_right_in_shared_and_global_memory(patterns):
    a = np.random.default_rng(1).integers(0, 16, 500, dtype=np.int32)
    bins = np.zeros(16, np.int32)
    run(patterns, "histogram", 3, 64, [a, bins, 500])
    np.testing.assert_array_equal(bins, np.bincount(a, minlength=16))


def test_grid_barrier_orders_blocks(patterns):
    n = 4 * 32
    a, b, count = np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(1, np.uint32)
    run(patterns, "neighbours", 4, 32, [a, b, count])
    i = np.arange(n, dtype=np.float32)
    np.testing.assert_array_equal(b, np.roll(i, -32))
    np.testing.assert_array_equal(a, i + 1)


def test_spin_lock_protects_a_plain_update(patterns):
    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int64)
    run(patterns, "locked", 4, 64, [lock, total])
    assert total[0] == 2 * (1 + 2 + 3 + 4)


def test_named_barriers_order_a_two_stage_pipeline(patterns):
    a = np.arange(32 * 5, dtype=np.float32)
    b = np.empty_like(a)
    run(patterns, "pipeline", 1, 64, [a, Out(b), 5])
    np.testing.assert_array_equal(b.reshape(5, 32), a.reshape(5, 32)[:, ::-1])


def test_bulk_copies_complete_on_their_barrier(patterns):
    a = np.arange(128, dtype=np.float32)
    b = np.empty_like(a)
    run(patterns, "bulk", 1, 64, [a, Out(b)])
    np.testing.assert_array_equal(b.reshape(2, 64), a.reshape(2, 64)[:, ::-1])


def test_warp_collectives_follow_their_definition(patterns):
    v = np.random.default_rng(2).integers(0, 100, 32, dtype=np.int32)
    out = np.empty(288, np.int32)
    run(patterns, "collectives", 1, 32, [v, Out(out)])
    t = np.arange(32)
    got = out.reshape(9, 32)
    np.testing.assert_array_equal(got[0], np.where(t >= 3, v[t - 3], v))
    np.testing.assert_array_equal(got[1], np.where(t % 16 + 5 < 16, v[np.minimum(t + 5, 31)], v))
    ballot = int(sum(int(x & 1) << k for k, x in enumerate(v)))
    np.testing.assert_array_equal(got[2].view(np.uint32), np.full(32, ballot, np.uint32))
    np.testing.assert_array_equal(got[3], np.full(32, v.sum()))
    np.testing.assert_array_equal(got[4], np.full(32, v.min()))
    match = [sum(1 << k for k in range(32) if v[k] % 4 == v[j] % 4) for j in range(32)]
    np.testing.assert_array_equal(got[5].view(np.uint32), np.array(match, np.uint32))
    np.testing.assert_array_equal(got[6], np.where(t < 16, v[t ^ 8], v[t ^ 4]))
    np.testing.assert_array_equal(got[7], np.ones(32))
    np.testing.assert_array_equal(got[8], np.full(32, (v & 1).sum()))


def test_structures_constants_and_three_dimensional_indices(patterns):
    a = np.arange(7 * 10, dtype=np.float64).reshape(7, 10)
    out = np.empty((10, 7))
    view = Struct(a, np.int32(7), np.int32(10), Out(out))
    run(patterns, "by_value", (2, 2), (8, 4), [view, 0.5])
    i, j = np.indices(a.shape)
    np.testing.assert_array_equal(out, (a * np.array([2.0, 3.0])[(i + j) % 2] * 0.5).T)


def test_blocks_beyond_the_resident_ones_run_too(patterns):
    a = np.zeros(4096, np.int32)
    bins = np.zeros(16, np.int32)
    run(patterns, "histogram", 40, 32, [a, bins, 4096], resident=3)
    assert bins[0] == 4096
