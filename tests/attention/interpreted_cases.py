"""The Triton kernels run by Triton's interpreter at small sizes, against attention stated key by key in float64.

Run by `test_triton_interpreted.py` in a process of its own, because the interpreter is chosen when Triton is imported.
bfloat16 is left to the GPU: the interpreter's products of it are wrong.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton_reference import attend, seen

from warpfront.attention import _triton_cache as caching
from warpfront.attention import _triton_decode as decoding
from warpfront.attention import _triton_prefill as prefilling
from warpfront.attention._problem import AppendProblem, DecodeProblem, PrefillProblem
from warpfront.attention._triton_number_kernels import exact_products

# Twice the rounding of results of order one, and float32's own error over a few dozen terms.
LIMIT = {"float32": 5e-6, "float16": 2e-3}


def some_now(cases, now):
    """Parameters of a test: those not named in ``now`` are slow."""
    return [pytest.param(name, marks=() if name in now else pytest.mark.slow) for name in cases]


def agrees(ours, exact, limit):
    """Equal where the exact one is not finite, close elsewhere."""
    ours = ours.double().numpy()
    finite = np.isfinite(exact)
    assert np.array_equal(ours[~finite], exact[~finite], equal_nan=True)
    assert np.array_equal(np.isfinite(ours), finite)
    assert not finite.any() or np.abs(ours - exact)[finite].max() <= limit


# ------------------------------------------------------------------ prefill

SMALL = prefilling.Tile(16, 16, 4, 1)
PREFILL = {
    "full": {},
    "causal": {"right": 0},
    "half precision": {"right": 0, "dtype": "float16"},
    "window before": {"left": 6, "right": 0},
    "window around": {"left": 3, "right": 5},
    "own key only": {"left": 0, "right": 0},
    "window before, open after": {"left": 4},
    "window after": {"right": 7},
    "cap": {"cap": 2.0},
    "more queries than keys": {"n": 40, "m": 24, "right": 0},
    "one query": {"n": 1, "m": 16, "right": 0},
    "no keys": {"n": 5, "m": 0},
    "whole tiles": {"n": 32, "m": 32},
    "bias": {"bias": (2, 1)},
    "bias, cap, causal": {"bias": (1, 4), "right": 0, "cap": 3.0},
    "bias in half precision": {"bias": (1, 1), "dtype": "float16"},
    "negative scale": {"scale": -0.3, "right": 0},
    "scale 0": {"scale": 0.0},
    "head of 80": {"d": 80, "right": 0},
    "descriptors": {"right": 0, "tile": prefilling.Tile(16, 16, 4, 1, True)},
    "descriptors, heads first": {"right": 0, "tile": prefilling.Tile(16, 16, 4, 1, True), "heads_first": True},
    "one loop": {"right": 0, "tile": prefilling.Tile(16, 16, 4, 1, False, True), "poison": True},
    "one loop, window": {"left": 20, "right": 3, "tile": prefilling.Tile(16, 16, 4, 1, True, True)},
    "unequal tiles": {"right": 0, "tile": prefilling.Tile(32, 16, 4, 1)},
    "not finite": {"right": 0, "poison": True},
    "not finite, half precision": {"right": 0, "poison": True, "dtype": "float16"},
    "not finite, window": {"left": 2, "right": 0, "poison": True},
    "not finite, bias": {"bias": (1, 1), "poison": True},
    "not finite, descriptors": {
        "right": 0, "tile": prefilling.Tile(16, 16, 4, 1, True), "poison": True, "heads_first": True
    },
}  # fmt: skip


PREFILL_NOW = ("half precision", "window around", "bias, cap, causal", "more queries than keys", "one query",
               "one loop, window", "descriptors, heads first", "not finite, window")  # fmt: skip


@pytest.mark.parametrize("name", some_now(PREFILL, PREFILL_NOW))
def test_prefill(name):
    o = SimpleNamespace(**{**dict(n=20, m=37, d=16, dtype="float32", left=-1, right=-1, cap=0.0, bias=None, scale=0.3,
                                  tile=SMALL, heads_first=False, poison=False), **PREFILL[name]})  # fmt: skip
    b, h, g = 2, 4, 2
    rng, kind = np.random.default_rng(1), getattr(torch, o.dtype)

    def make(*shape):
        return torch.from_numpy(rng.standard_normal(shape)).to(kind)

    q, k, v = make(b, o.n, h, o.d), make(b, o.m, g, o.d), make(b, o.m, g, o.d)
    if o.heads_first:
        q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
    bias = None
    if o.bias:
        bias = make(*o.bias, o.n, o.m)
        bias[..., o.m - 2], bias[0, 0, 3] = -torch.inf, -torch.inf
    if o.poison:
        k[0, o.m - 2], v[0, o.m - 2] = torch.nan, torch.nan
        v[1, o.m - 5, 0, 3], v[1, o.m - 4, 0, 2] = torch.inf, torch.nan
        v[1, o.m - 6, 1, 4], v[1, o.m - 3, 1, 4] = torch.inf, -torch.inf  # rows that see both: NaN
    problem = PrefillProblem(
        b, o.n, o.m, b * o.n, b * o.m, h, g, o.d, o.dtype, left=o.left, right=o.right, soft_cap=o.cap, scale=o.scale,
        bias_shape=None if bias is None else tuple(bias.shape), bias_dtype=o.dtype if o.bias else None,
        return_lse=True,
    )  # fmt: skip
    out, lse = torch.full((b, o.n, h, o.d), 7.0, dtype=kind), torch.full((b, h, o.n), 7.0)
    prefilling.run_prefill(problem, q, k, v, bias, None, None, out, lse, tile=o.tile)
    for i in range(b):
        added = None if bias is None else bias[min(i, bias.shape[0] - 1)].double().numpy()
        sequence = (t[i].double().numpy() for t in (q, k, v))
        exact, exact_lse = attend(
            *sequence, scale=o.scale, visible=seen(o.n, o.m, o.left, o.right), soft_cap=o.cap, bias=added
        )
        agrees(out[i], exact, LIMIT[o.dtype])
        agrees(lse[i], exact_lse, 1e-5)


@pytest.mark.parametrize("right", [pytest.param(-1, marks=pytest.mark.slow), 0])
def test_prefill_of_packed_sequences(right):
    q_lens, k_lens, h, g, d = (5, 0, 17, 1, 7), (5, 9, 30, 33, 0), 2, 1, 16
    rng = np.random.default_rng(2)
    q, k, v = (torch.from_numpy(rng.standard_normal((n, x, d)).astype(np.float32))
               for n, x in ((30, h), (77, g), (77, g)))  # fmt: skip
    marks = [torch.tensor(np.cumsum([0, *lens]), dtype=torch.int32) for lens in (q_lens, k_lens)]
    problem = PrefillProblem(
        5, max(q_lens), max(k_lens), 30, 77, h, g, d, "float32", varlen=True, right=right, scale=0.3, return_lse=True
    )  # fmt: skip
    for by_descriptor in (False, True):
        out, lse = torch.full((30, h, d), 7.0), torch.full((h, 30), 7.0)
        tile = prefilling.Tile(16, 16, 4, 1, by_descriptor)
        prefilling.run_prefill(problem, q, k, v, None, *marks, out, lse, tile=tile)
        for i, (n, m) in enumerate(zip(q_lens, k_lens, strict=True)):
            rows, keys = slice(marks[0][i], marks[0][i + 1]), slice(marks[1][i], marks[1][i + 1])
            exact, exact_lse = attend(
                q[rows].numpy(), k[keys].numpy(), v[keys].numpy(), scale=0.3, visible=seen(n, m, -1, right)
            )
            agrees(out[rows], exact, 5e-6)
            agrees(lse[:, rows], exact_lse, 1e-5)


@pytest.mark.parametrize("heads", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_only_spoilt_tiles_are_repaired(heads):
    """Another kernel's result: a tile with a NaN in a row that is looked at is computed anew, no other one is touched."""
    b, n, d = 2, 80, 16
    rng = np.random.default_rng(3)
    q, k, v = (torch.from_numpy(rng.standard_normal((b, n, h, d)).astype(np.float32)) for h in (heads, 1, 1))
    problem = PrefillProblem(b, n, n, b * n, b * n, heads, 1, d, "float32", right=0, scale=0.3)
    out = torch.full((b, n, heads, d), 7.0)
    out[1, 48:64, 0, 5] = torch.nan  # one column of 16 rows: tile 1 of two of 32 and one of 16
    prefilling.run_prefill(
        problem, q, k, v, None, None, None, out, None, tile=prefilling.Tile(32, 16, 4, 1), repair=True
    )
    exact, _ = attend(*(t[1].double().numpy() for t in (q, k, v)), scale=0.3, visible=seen(n, n, -1, 0))
    agrees(out[1, 32:64, 0], exact[32:64, 0], 5e-6)
    out[1, 32:64, 0] = 7.0
    assert (out == 7.0).all()


# ------------------------------------------------------------------ decode

DECODE = {
    "auto": {},
    "three parts": {"splits": 3},
    "one part": {"splits": 1},
    "short": {"lengths": (5, 0, 20, 1)},
    "half precision": {"dtype": "float16"},
    "window": {"left": 20},
    "own key only": {"left": 0, "splits": 4},
    "cap": {"cap": 2.0},
    "three tokens": {"t": 3},
    "three tokens, window, five parts": {"t": 3, "left": 10, "splits": 5},
    "rest of the pages not finite": {"poison": True},
    "not finite, four tokens": {"t": 4, "poison": True},
    "not finite, four tokens, window": {"t": 4, "left": 7, "poison": True, "dtype": "float16"},
    "head of 80": {"d": 80, "t": 2, "lengths": (37, 0, 70, 64)},
    "negative scale": {"scale": -1.0},
    "more rows than a tile": {"t": 17, "h": 8, "g": 2, "lengths": (37, 0, 30)},
    "pages ahead": {"tile": decoding.DecodeTile(32, 4, 1, "", False, True), "poison": True},
    "pages ahead, three tokens, window": {
        "t": 3,
        "left": 10,
        "tile": decoding.DecodeTile(16, 4, 1, "", False, True),
    },
    "large pages": {"page": 128, "tile": decoding.DecodeTile(64, 4, 1)},
}


def pages_of(rng, lengths, page, g, d, kind, poison):
    """Keys, values, block table and where each sequence's tokens lie; pages in random order, the rest NaN if wanted."""
    columns = -(-max(lengths) // page) + 1
    count = len(lengths) * columns + 3
    k, v = (torch.from_numpy(rng.standard_normal((count, page, g, d))).to(kind) for _ in range(2))
    table = np.full((len(lengths), columns), -1, np.int32)
    order, used, places = rng.permutation(count), np.zeros((count, page), bool), []
    for i, length in enumerate(lengths):
        mine = -(-length // page)
        table[i, :mine] = order[i * columns : i * columns + mine]
        at = np.arange(length)
        places.append((table[i, at // page], at % page))
        used[places[-1]] = True
    if poison:
        k[torch.from_numpy(~used)], v[torch.from_numpy(~used)] = torch.nan, torch.nan
    return k, v, table, places


DECODE_NOW = ("auto", "short", "three tokens, window, five parts", "pages ahead")


@pytest.mark.parametrize("name", some_now(DECODE, DECODE_NOW))
def test_decode(name):
    o = SimpleNamespace(**{**dict(lengths=(37, 0, 300, 64), t=1, h=4, g=2, d=16, dtype="float32", page=8, left=-1, cap=0.0,
                                  scale=0.3, splits=0, poison=False, tile=decoding.DecodeTile(32, 4, 1)),
                           **DECODE[name]})  # fmt: skip
    rng, kind, b = np.random.default_rng(1), getattr(torch, o.dtype), len(o.lengths)
    k, v, table, places = pages_of(rng, o.lengths, o.page, o.g, o.d, kind, o.poison)
    if o.poison:
        for back, value, at in ((1, torch.nan, 3), (2, torch.inf, 2))[: min(2, o.t)]:
            page, token = (axis[-back] for axis in places[2])
            v[page, token, 0, at] = value
    q = torch.from_numpy(rng.standard_normal((b, o.t, o.h, o.d))).to(kind)
    problem = DecodeProblem(
        b, o.t, o.h, o.g, o.d, o.dtype, o.page, table.shape[1], k.shape[0], max(o.lengths), splits=o.splits,
        left=o.left, soft_cap=o.cap, scale=o.scale, return_lse=True,
    )  # fmt: skip
    out, lse = torch.full((b, o.t, o.h, o.d), 7.0, dtype=kind), torch.full((b, o.t, o.h), 7.0)
    workspace = tuple(torch.full(shape, torch.nan) for shape in problem.workspace_shapes)
    lengths = torch.tensor(o.lengths, dtype=torch.int32)
    decoding.run_decode(problem, q, k, v, torch.from_numpy(table), lengths, out, lse, workspace, tile=o.tile)
    for i, length in enumerate(o.lengths):
        exact, exact_lse = attend(
            q[i].double().numpy(), k.double().numpy()[places[i]], v.double().numpy()[places[i]], scale=o.scale,
            visible=seen(o.t, length, o.left, 0), soft_cap=o.cap,
        )  # fmt: skip
        agrees(out[i], exact, LIMIT[o.dtype])
        agrees(lse[i], exact_lse.T, 1e-5)


@pytest.mark.parametrize("splits", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_decode_gives_a_sequence_the_same_bits_in_any_batch_and_capacity(splits):
    rng, lengths, d = np.random.default_rng(3), (300, 40, 700), 16
    k, v, table, _ = pages_of(rng, lengths, 16, 1, d, torch.float32, True)
    q = torch.from_numpy(rng.standard_normal((3, 1, 4, d)).astype(np.float32))

    def run(rows, capacity):
        problem = DecodeProblem(
            len(rows),
            1,
            4,
            1,
            d,
            "float32",
            16,
            table.shape[1],
            k.shape[0],
            capacity,
            splits=splits,
            scale=0.3,
        )
        out = torch.empty((len(rows), 1, 4, d))
        size = torch.tensor([lengths[i] for i in rows], dtype=torch.int32)
        tables = torch.from_numpy(table[list(rows)])
        decoding.run_decode(problem, q[list(rows)], k, v, tables, size, out, None, None)
        return out

    together = run((0, 1, 2), 700)
    for i in range(3):
        assert torch.equal(run((i,), lengths[i])[0], together[i])
        assert torch.equal(run((2, i), 5000)[1], together[i])


@triton.jit
def exact_products_kernel(q, k, out, S: tl.constexpr):
    columns = tl.arange(0, S.block_d)[None, :]
    q_tile = tl.load(q + tl.arange(0, S.block_m)[:, None] * S.block_d + columns)
    k_tile = tl.load(k + tl.arange(0, S.block_n)[:, None] * S.block_d + columns)
    places = tl.arange(0, S.block_m)[:, None] * S.block_n + tl.arange(0, S.block_n)[None, :]
    tl.store(out + places, exact_products(q_tile, k_tile, S))


@pytest.mark.parametrize("d", [16, 96, 256])
def test_float32_products_are_as_if_rounded_once(d):
    spec = decoding.decode_spec(
        DecodeProblem(1, 1, 16, 1, d, "float32", 16, 1, 1, 16), decoding.DecodeTile(16, 4, 1)
    )
    rng = np.random.default_rng(d)
    q, k = (rng.standard_normal((16, spec.block_d)).astype(np.float32) for _ in range(2))
    q[1] *= np.float32(1e-30)
    q[2] = 0.0
    k[3] *= 10.0 ** rng.integers(-20, 20, spec.block_d).astype(np.float32)
    k[4] = np.abs(k[4])
    q[5] = np.abs(q[5])
    q[14, 3], k[14, 2], k[15, 7] = np.inf, -np.inf, np.nan
    out = torch.empty((16, 16))
    exact_products_kernel[(1,)](torch.from_numpy(q), torch.from_numpy(k), out, spec)
    with np.errstate(invalid="ignore"):
        exact = q.astype(np.float64) @ k.astype(np.float64).T
    finite = np.isfinite(exact)
    assert np.array_equal(out.numpy()[~finite], exact[~finite].astype(np.float32), equal_nan=True)
    sizes = np.abs(q).max(1)[:, None] * np.abs(k).max(1)[None, :]
    error, rounding = (
        np.abs(out.numpy() - exact)[finite],
        np.spacing(np.abs(exact[finite]).astype(np.float32)) / 2,
    )
    assert (error <= rounding + d * 2.0**-30 * sizes[finite]).all()


# ------------------------------------------------------------------ merge, append, copies


def test_merge_skips_empty_parts_whatever_they_hold():
    rng, parts, rows, d = np.random.default_rng(4), 11, 5, 20
    values = torch.from_numpy(rng.standard_normal((parts, rows, d)).astype(np.float32))
    weights = torch.from_numpy(rng.standard_normal((parts, rows)).astype(np.float32) * 5)
    weights[3], weights[:, 2], weights[0, 1] = -torch.inf, -torch.inf, -torch.inf
    values[3], values[:, 2] = torch.nan, torch.nan
    out, lse = torch.full((rows, d), 7.0), torch.full((rows,), 7.0)
    decoding.run_merge(values, weights, out, lse)
    exact = np.logaddexp.reduce(weights.double().numpy(), axis=0)
    assert np.isneginf(exact[2])
    assert lse[2] == -torch.inf
    assert (out[2] == 0).all()
    live = [0, 1, 3, 4]
    assert np.allclose(lse[live], exact[live], atol=1e-5)
    shares = np.exp(weights.double().numpy()[:, live] - exact[live])
    expected = np.einsum("pr,prd->rd", shares, np.nan_to_num(values.double().numpy()[:, live]))
    assert np.allclose(out[live], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("rotary", "interleaved"), [(0, False), (8, False), (16, True), (12, True)])
def test_append_turns_keys_and_skips_padded_rows(dtype, rotary, interleaved):
    rng, kind, h, d, page = np.random.default_rng(5), getattr(torch, dtype), 3, 16, 8
    k_pages, v_pages = (torch.from_numpy(rng.standard_normal((5, page, h, d))).to(kind) for _ in range(2))
    k = torch.from_numpy(rng.standard_normal((6, h, 2 * d))).to(kind)[:, :, :d]
    v = torch.from_numpy(rng.standard_normal((6, h, d))).to(kind)
    slots, places = torch.tensor([3, -1, 17, 39, 0, 20]), torch.tensor([0, 1, 2, 7, 9, 3])
    cos, sin = (rng.standard_normal((10, rotary // 2)).astype(np.float32) for _ in range(2))
    expected, expected_v = (
        k_pages.reshape(-1, h, d).double().numpy().copy(),
        v_pages.reshape(-1, h, d).clone(),
    )
    turned = k.double().numpy().copy()
    for c in range(rotary // 2):
        i, j = (2 * c, 2 * c + 1) if interleaved else (c, c + rotary // 2)
        x, y = turned[:, :, i].copy(), turned[:, :, j].copy()
        co, si = (t[places.numpy(), c].astype(np.float64)[:, None] for t in (cos, sin))
        turned[:, :, i], turned[:, :, j] = x * co - y * si, x * si + y * co
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            expected[slot], expected_v[slot] = turned[token], v[token]
    problem = AppendProblem(6, h, d, dtype, page, 5, rotary, interleaved)
    tables = (torch.from_numpy(cos), torch.from_numpy(sin)) if rotary else (None, None)
    caching.append_pages(problem, k, v, slots, places, *tables, k_pages, v_pages)
    assert torch.equal(v_pages.reshape(-1, h, d), expected_v)
    agrees(k_pages.reshape(-1, h, d), expected, {"float32": 2e-6, "float16": 4e-3}[dtype])
    if rotary:
        x = k.contiguous()
        caching.rotate(x, places, *tables, interleaved, x)
        agrees(x, turned, {"float32": 2e-6, "float16": 4e-3}[dtype])


def test_copy_of_pages():
    k, v = (torch.arange(5 * 8 * 2 * 24.0).reshape(5, 8, 2, 24) + shift for shift in (0, 9))
    before = k.clone(), v.clone()
    caching.copy_pages(torch.tensor([0, 2]), torch.tensor([4, 3]), k, v)
    for now, then in zip((k, v), before, strict=True):
        assert torch.equal(now, then[[0, 1, 2, 2, 0]])
