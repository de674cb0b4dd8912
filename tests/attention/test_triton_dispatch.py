"""Choice of kernel and tile, memory of pages, buckets of graphs: what the GPU part decides without a GPU."""

from dataclasses import replace

import numpy as np
import pytest

from warpfront.attention import _dispatch
from warpfront.attention._device_storage import Granules
from warpfront.attention._graphs import bucket_of, padded
from warpfront.attention._problem import DecodeProblem, PrefillProblem
from warpfront.attention._triton_decode import DecodeTile, decode_spec
from warpfront.attention._triton_prefill import Tile, prefill_spec, why_no_descriptors
from warpfront.backend.capability import Capability
from warpfront.errors import InvalidValueError, NotSupportedError


def capability(major, minor):
    return Capability(
        device=0, cc_major=major, cc_minor=minor, sm_count=132, shared_bytes=48 << 10, shared_bytes_optin=227 << 10,
        shared_bytes_per_sm=228 << 10, registers_per_sm=65536, threads_per_sm=2048, l2_bytes=50 << 20,
        cooperative_launch=False, clusters=False, memory_pools=False, managed=False, concurrent_managed=False, vmm=False,
        graphs=True, mig=None, driver_version=(13, 0), runtime_version=(13, 0), nvrtc_version=(0, 0),
        total_bytes=1 << 36, free_bytes=1 << 36,
    )  # fmt: skip


HOPPER = capability(9, 0)
PLAIN = PrefillProblem(
    4, 4096, 4096, 16384, 16384, 32, 32, 128, "bfloat16", on_device=True, scale=0.1, right=0
)
FAST, SLOW = Tile(64, 64, 4, 3, True), Tile(128, 64, 8, 2)


@pytest.fixture
def table(monkeypatch):
    """A table of two sizes: cuDNN is faster at the large one, and was refused at the small one."""
    large = _dispatch.Row((9, 0), "bfloat16", 128, "causal", 4096, "b4 s4096 causal", FAST, 1200.0, 960.0)
    small = replace(large, length=512, tile=SLOW, triton_us=30.0, cudnn_us=0.0)
    monkeypatch.setattr(_dispatch, "_rows", lambda: (large, small))


def test_the_faster_one_of_the_nearest_measurement_runs(table):
    assert _dispatch.prefill_choice(PLAIN, "auto", HOPPER).path.name == "cudnn"
    short = replace(PLAIN, batch=1, q_len=500, k_len=500, total_q=500, total_k=500)
    assert _dispatch.prefill_tile(replace(short, batch=99, heads=64), (9, 0)) == SLOW
    assert _dispatch.prefill_tile(replace(short, varlen=True), (9, 0)) == FAST  # whatever their lengths
    assert _dispatch.prefill_choice(short, "auto", HOPPER).path.name == "triton"
    assert _dispatch.prefill_tile(PLAIN, (9, 0)) == FAST
    assert _dispatch.prefill_tile(short, (9, 0)) == SLOW
    # Four times the length is near enough to rely on, more is not, nor is another kind of mask.
    for length, path in ((16384, "cudnn"), (2048, "cudnn"), (16385, "triton"), (128, "triton")):
        other = replace(PLAIN, q_len=length, k_len=length, total_q=4 * length, total_k=4 * length)
        assert _dispatch.prefill_choice(other, "auto", HOPPER).path.name == path
    assert _dispatch.prefill_choice(replace(PLAIN, right=-1), "auto", HOPPER).path.name == "triton"
    # Another 16-bit type and a mask that was not measured take what is nearest; another head or device does not.
    assert _dispatch.prefill_tile(replace(PLAIN, dtype="float16", right=-1), (9, 0)) == FAST
    for other, cc in (
        (replace(PLAIN, head_dim=64), (9, 0)),
        (replace(PLAIN, dtype="float32"), (9, 0)),
        (PLAIN, (8, 0)),
    ):
        assert _dispatch.measured(other, cc) is None
        assert not _dispatch.prefill_tile(other, cc).descriptors


def test_explain_says_what_was_measured_and_why_a_path_was_passed_over(table):
    decisions, measurement = _dispatch.explain_prefill(PLAIN, "auto", HOPPER)
    assert [(d.path, d.taken) for d in decisions] == [("cudnn", True), ("triton", False)]
    assert "cuDNN 960 us" in measurement
    decisions, measurement = _dispatch.explain_prefill(replace(PLAIN, return_lse=True), "auto", HOPPER)
    assert [(d.path, d.taken) for d in decisions] == [("cudnn", False), ("triton", True)]
    assert "LSE" in decisions[0].reason
    assert "not" in _dispatch.explain_prefill(replace(PLAIN, head_dim=64), "auto", HOPPER)[1]
    assert _dispatch.explain_prefill(PLAIN, "auto", None)[1] == "no device, no table"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"return_lse": True}, "LSE"),
        ({"varlen": True}, "one length"),
        ({"soft_cap": 5.0}, "soft cap"),
        ({"bias_shape": (1, 1, 4096, 4096), "bias_dtype": "float32"}, "bias"),
        ({"left": 10}, "window"),
        ({"right": 3}, "window"),
        ({"k_len": 5000, "total_k": 20000}, "top left"),
        ({"head_dim": 100}, "multiple of 8"),
        ({"scale": 0.0}, "scale"),
        ({"dtype": "float32"}, "float16"),
    ],
)
def test_cudnn_asked_for_and_not_able_is_an_error_that_says_why(change, why):
    problem = replace(PLAIN, **change)
    with pytest.raises(NotSupportedError, match=why):
        _dispatch.prefill_choice(problem, "cudnn", HOPPER)
    assert _dispatch.prefill_choice(problem, "auto", HOPPER).path.name == "triton"


def test_what_no_device_can_do_is_an_error():
    with pytest.raises(InvalidValueError, match='"auto" or one of'):
        _dispatch.prefill_choice(PLAIN, "flash", HOPPER)
    with pytest.raises(NotSupportedError, match=r"8\.0"):
        _dispatch.prefill_choice(PLAIN, "auto", capability(7, 5))
    with pytest.raises(NotSupportedError, match=r"9\.0"):
        _dispatch.prefill_choice(PLAIN, "cudnn", capability(8, 0))


def test_the_table_that_is_shipped_reads_and_names_tiles():
    for row in _dispatch._rows():
        assert row.kind in _dispatch.KINDS
        assert row.triton_us > 0
        assert row.tile.block_m * row.tile.block_n
    for entry in _dispatch._table().get("decode", ()):
        assert DecodeTile(**entry["tile"]).block_n >= 16


def test_the_tile_of_decode_depends_on_neither_batch_nor_length():
    problem = DecodeProblem(1, 1, 32, 8, 128, "bfloat16", 16, 4, 99, 64)
    others = (replace(problem, batch=64), replace(problem, max_length=1 << 20), replace(problem, splits=7))
    tile = _dispatch.decode_tile(problem, (9, 0))
    assert all(_dispatch.decode_tile(other, (9, 0)) == tile for other in others)
    # Nor does anything that is compiled in, but for the parts there may be.
    spec = decode_spec(replace(problem, max_length=5000), tile)
    assert all(decode_spec(replace(problem, batch=b, max_length=9000), tile) == spec for b in (1, 7))


# ------------------------------------------------------------------ tiles and descriptors


class Memory:
    """What `why_no_descriptors` asks of a tensor."""

    def __init__(self, address=0):
        self.address = address

    def data_ptr(self):
        return self.address

    def element_size(self):
        return 2


ROWS = (32 * 128 * 4096, 32 * 128, 128)  # tokens of all heads
HEADS = (32 * 128 * 4096, 128, 128 * 4096)  # heads first


@pytest.mark.parametrize("steps", [ROWS, HEADS])
def test_both_usual_layouts_are_loaded_by_descriptor(steps):
    assert why_no_descriptors(PLAIN, (steps,) * 4, Memory(), Memory()) is None


def test_memory_that_no_descriptor_describes_is_said():
    for change, steps, memory, why in (
        ({"head_dim": 96}, ROWS, Memory(), "power of two"),
        ({}, ROWS, Memory(8), "16 bytes"),
        ({}, (ROWS[0], ROWS[1] + 1, 128), Memory(), "16 bytes"),
        ({}, (ROWS[0] + 8, *ROWS[1:]), Memory(), "whole number of rows"),
        ({"k_len": 0, "total_k": 0}, ROWS, Memory(), "no keys"),
    ):
        assert why in why_no_descriptors(replace(PLAIN, **change), (steps,) * 4, memory, memory)


def test_wide_strides_are_seen():
    assert not prefill_spec(PLAIN, FAST, (ROWS,) * 4).wide
    far = (0, 1 << 26, 128)
    assert prefill_spec(PLAIN, FAST, (far,) * 4).wide


# ------------------------------------------------------------------ memory of pages


class Mapper:
    def __init__(self, room):
        self.room, self.mapped = room, set()

    def map(self, index):
        if len(self.mapped) == self.room:
            raise NotSupportedError("no memory left")
        assert index not in self.mapped
        self.mapped.add(index)

    def unmap(self, index):
        self.mapped.remove(index)


def test_granules_are_mapped_with_the_first_block_in_them_and_unmapped_with_the_last():
    mapper = Mapper(10)
    granules = Granules(mapper, 100)
    granules.need(0, 150)
    granules.need(150, 300)
    assert mapper.mapped == {0, 1, 2}
    assert granules.mapped_bytes == 300
    granules.drop(0, 150)
    assert mapper.mapped == {1, 2}  # the second is shared
    granules.drop(150, 300)
    assert mapper.mapped == set()


def test_a_block_that_does_not_fit_leaves_nothing_behind():
    mapper = Mapper(3)
    granules = Granules(mapper, 100)
    granules.need(0, 110)
    with pytest.raises(NotSupportedError):
        granules.need(110, 500)
    assert mapper.mapped == {0, 1}
    granules.drop(0, 110)
    assert mapper.mapped == set()


# ------------------------------------------------------------------ graphs


def test_buckets():
    assert [bucket_of(n, (1, 4, 8)) for n in (1, 2, 4, 5, 8)] == [1, 4, 4, 8, 8]
    with pytest.raises(InvalidValueError, match="largest bucket holds 8"):
        bucket_of(9, (1, 4, 8))


def test_rows_beyond_a_batch_have_no_pages_and_no_length():
    table, lengths = padded(np.array([[3, 4], [5, -1]], np.int32), np.array([20, 7], np.int32), 4, 3)
    assert table.tolist() == [[3, 4, -1], [5, -1, -1], [-1, -1, -1], [-1, -1, -1]]
    assert lengths.tolist() == [20, 7, 0, 0]
