"""Correctness on a device for ``attention.py``: the option grid against float64, NaN, offsets, repeats, batches."""

from __future__ import annotations

from itertools import product

import torch

from warpfront.attention import _triton_decode as decoding
from warpfront.attention import _triton_prefill as prefilling
from warpfront.attention._problem import DecodeProblem, PrefillProblem


def dense(q, k, v, *, scale, visible, soft_cap=0.0, bias=None, dtype=torch.float64):
    """Attention of (b, n, h, d) over (b, m, g, d) in one type throughout; also the LSE."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (t.to(dtype).transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)) * scale
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if bias is not None:
        scores = scores + bias.to(dtype)
    scores = scores.masked_fill(~visible, float("-inf"))
    lse = torch.logsumexp(scores.to(torch.float64 if dtype == torch.float64 else torch.float32), -1)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    return (weights @ v).transpose(1, 2), lse


def window(n, m, left, right, device):
    """Which keys each query sees: (n, m)."""
    away = torch.arange(m, device=device)[None] - torch.arange(n, device=device)[:, None] - (m - n)
    seen = torch.ones_like(away, dtype=torch.bool)
    if left >= 0:
        seen &= away >= -left
    if right >= 0:
        seen &= away <= right
    return seen


def verdict(ours, lse, reference, same, reference_lse):
    """The error rule: at most twice the error of the same type's reference, and twice the rounding of the result."""
    exact = reference.double()
    error = (ours.double() - exact).abs().max().item()
    peer = (same.double() - exact).abs().max().item()
    rounding = (exact.to(ours.dtype).double() - exact).abs().max().item()
    limit = 2 * peer + 2 * rounding
    far = 0.0
    if lse is not None:
        known = torch.isfinite(reference_lse)
        far = (lse.double() - reference_lse)[known].abs().max().item() if known.any() else 0.0
        if not torch.equal(torch.isfinite(lse), known):
            return {"right": False, "why": "LSE is -inf in other places", "error": error, "limit": limit}
    return {"right": error <= limit and far <= 1e-4, "error": error, "limit": limit, "lse_error": far}


def whole(found):
    """The rule for a call, as the tests apply it: the largest error of its sequences against the largest limit of them."""
    if not found:
        return {"right": True, "error": 0.0, "limit": 0.0}
    worst = {name: max(one.get(name, 0.0) for one in found) for name in ("error", "limit", "lse_error")}
    why = [one["why"] for one in found if "why" in one]
    right = not why and worst["error"] <= worst["limit"] and worst["lse_error"] <= 1e-4
    return {"right": right, **worst, **({"why": why[0]} if why else {})}


QUICK = (
    "d64 bfloat16 causal", "d80 bfloat16 causal", "d96 float16", "d128 bfloat16", "d256 bfloat16 causal",
    "bfloat16 window 100 0", "bfloat16 window 33 20", "float16 cap", "bfloat16 bias causal cap", "bfloat16 more queries",
    "bfloat16 one query", "bfloat16 heads first", "bfloat16 whole tiles", "float16 negative scale", "varlen 0 bfloat16",
    "page 16", "splits 3", "ahead 64 4 3", "ahead 64 2 3", "ahead 32 4 4", "ahead 32 2 3", "window, splits",
    "short, 4 tokens", "decode window", "4 tokens window", "33 tokens mha", "decode short", "decode mqa",
)  # fmt: skip


def prefill_options():
    """(name, settings): every option alone and the pairs that meet in the kernel."""
    for head_dim, dtype in product((64, 80, 96, 128, 256), ("bfloat16", "float16", "float32")):
        yield f"d{head_dim} {dtype} causal", {"d": head_dim, "dtype": dtype, "right": 0}
        yield f"d{head_dim} {dtype}", {"d": head_dim, "dtype": dtype}
    for dtype in ("bfloat16", "float16"):
        for left, right in ((100, 0), (33, 20), (0, 0), (-1, 5)):
            yield f"{dtype} window {left} {right}", {"dtype": dtype, "left": left, "right": right}
        yield f"{dtype} cap", {"dtype": dtype, "right": 0, "cap": 5.0}
        yield f"{dtype} bias", {"dtype": dtype, "bias": True}
        yield f"{dtype} bias causal cap", {"dtype": dtype, "bias": True, "right": 0, "cap": 5.0}
        yield f"{dtype} more queries", {"dtype": dtype, "n": 300, "m": 129, "right": 0}
        yield f"{dtype} one query", {"dtype": dtype, "n": 1, "m": 511, "right": 0}
        yield f"{dtype} mqa", {"dtype": dtype, "g": 1, "right": 0}
        yield f"{dtype} heads first", {"dtype": dtype, "right": 0, "heads_first": True}
        yield f"{dtype} whole tiles", {"dtype": dtype, "n": 512, "m": 512}
        yield f"{dtype} negative scale", {"dtype": dtype, "scale": -0.2}


PROBLEM = {"n": 257, "m": 391, "b": 2, "h": 4, "g": 2, "d": 128, "dtype": "bfloat16", "left": -1, "right": -1,
           "cap": 0.0, "bias": False, "scale": None, "heads_first": False}  # fmt: skip


def prefill_case(device, tile=None, **more):
    """Run one problem, `PROBLEM` but for what is given, and judge it."""
    n, m, b, h, g, d, dtype, left, right, cap, bias, scale, heads_first = {**PROBLEM, **more}.values()
    kind, scale = getattr(torch, dtype), d**-0.5 if scale is None else scale
    torch.manual_seed(n * 7 + d)
    make = lambda rows, heads: torch.randn((b, rows, heads, d), device=device).to(kind)  # noqa: E731
    q, k, v = make(n, h), make(m, g), make(m, g)
    if heads_first:
        q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
    extra = None
    if bias:
        extra = torch.randn((1, h, n, m), device=device).to(kind)
        extra[:, :, :, m // 2 : m // 2 + 3] = float("-inf")
        extra[:, :, 5] = float("-inf")
    problem = PrefillProblem(
        b, n, m, b * n, b * m, h, g, d, dtype, on_device=True, left=left, right=right, soft_cap=cap, scale=scale,
        bias_shape=tuple(extra.shape) if bias else None, bias_dtype=dtype if bias else None, return_lse=True,
    )  # fmt: skip
    out = torch.full_like(q, float("nan"))
    lse = torch.full((b, h, n), float("nan"), device=device)
    prefilling.run_prefill(problem, q, k, v, extra, None, None, out, lse, tile=tile)
    settings = {"scale": scale, "visible": window(n, m, left, right, device), "soft_cap": cap, "bias": extra}
    exact, exact_lse = dense(q, k, v, **settings)
    same, _ = dense(q, k, v, **settings, dtype=kind)
    return verdict(out, lse, exact, same, exact_lse)


def spot(case, tensors):
    """The last queries of the first head of a measured case, as its timed call left them, by the rule of errors."""
    q, k, v, out = tensors
    rows = min(case.length, 1024)
    parts = (q[:1, -rows:, :1], k[:1, :, :1], v[:1, :, :1])
    right = 0 if case.causal else -1
    settings = {
        "scale": case.head_dim**-0.5,
        "visible": window(rows, case.length, case.left, right, q.device),
    }
    exact, _ = dense(*parts, **settings)
    same, _ = dense(*parts, **settings, dtype=q.dtype)
    found = verdict(out[:1, -rows:, :1], None, exact, same, None)
    return {"right": found["right"], "error": found["error"], "error_limit": found["limit"]}


def varlen_case(device, dtype="bfloat16", right=0, tile=None):
    """A packed batch with empty and unequal sequences: each sequence against its own dense problem."""
    kind, h, g, d = getattr(torch, dtype), 4, 2, 128
    q_lens, k_lens = (5, 0, 130, 300, 1, 7), (5, 17, 300, 120, 64, 0)
    torch.manual_seed(3)
    make = lambda rows, heads: torch.randn((rows, heads, d), device=device).to(kind)  # noqa: E731
    q, k, v = make(sum(q_lens), h), make(sum(k_lens), g), make(sum(k_lens), g)
    cu = [torch.tensor([0, *lens], device=device).cumsum(0).to(torch.int32) for lens in (q_lens, k_lens)]
    problem = PrefillProblem(
        6, max(q_lens), max(k_lens), sum(q_lens), sum(k_lens), h, g, d, dtype, on_device=True, varlen=True,
        right=right, scale=d**-0.5, return_lse=True,
    )  # fmt: skip
    out = torch.full_like(q, float("nan"))
    lse = torch.full((h, sum(q_lens)), float("nan"), device=device)
    prefilling.run_prefill(problem, q, k, v, None, *cu, out, lse, tile=tile)
    judged = []
    for i, (n, m) in enumerate(zip(q_lens, k_lens, strict=True)):
        if not n:
            continue
        rows, keys = slice(cu[0][i], cu[0][i + 1]), slice(cu[1][i], cu[1][i + 1])
        parts = (q[None, rows], k[None, keys], v[None, keys])
        settings = {"scale": d**-0.5, "visible": window(n, m, -1, right, device)}
        exact, exact_lse = dense(*parts, **settings)
        found = verdict(
            out[None, rows], lse[None, :, rows], exact, dense(*parts, **settings, dtype=kind)[0], exact_lse
        )
        judged.append(found)
    return whole(judged)


def decode_options():
    for page in (8, 16, 32, 64, 128):
        yield f"page {page}", {"page": page}
    for head_dim, dtype in product((64, 80, 96, 128, 256), ("bfloat16", "float16", "float32")):
        yield f"d{head_dim} {dtype}", {"d": head_dim, "dtype": dtype}
    for splits in (1, 3, 16):
        yield f"splits {splits}", {"splits": splits}
    for shape in ((64, 4, 3), (64, 2, 3), (32, 4, 4), (32, 2, 3)):
        ahead = {"tile": decoding.DecodeTile(*shape, "", True, True)}
        yield "ahead {} {} {}".format(*shape), ahead
        yield "ahead {} {} {} window, splits".format(*shape), {**ahead, "left": 300, "splits": 5}
        yield (
            "ahead {} {} {} short, 4 tokens".format(*shape),
            {**ahead, "t": 4, "lengths": (4, 0, 17, 200, 1100)},
        )
    yield "window", {"left": 100}
    yield "cap", {"cap": 5.0}
    yield "4 tokens", {"t": 4}
    yield "4 tokens window", {"t": 4, "left": 70}
    yield "33 tokens mha", {"t": 33, "h": 4, "g": 4}
    yield "mqa", {"g": 1, "h": 16}
    yield "short", {"lengths": (1, 0, 17, 200)}


def paged(device, lengths, page, g, d, kind, spare=3):
    """Keys, values and a block table in random order; all that is not a sequence's own is NaN."""
    columns = max(1, -(-max(lengths) // page))
    pages = len(lengths) * columns + spare
    k, v = (torch.full((pages, page, g, d), float("nan"), device=device, dtype=kind) for _ in range(2))
    table = torch.full((len(lengths), columns), -1, dtype=torch.int32, device=device)
    order = torch.randperm(pages, device=device).to(torch.int32)
    rows = []
    for i, length in enumerate(lengths):
        used = -(-length // page)
        table[i, :used] = order[i * columns : i * columns + used]
        at = torch.arange(length, device=device)
        rows.append((table[i, at // page].long(), at % page))
        for tensor in (k, v):
            tensor[rows[-1]] = torch.randn((length, g, d), device=device).to(kind)
    return k, v, table, rows


def decode_case(device, tile=None, *, lengths=(37, 0, 1000, 4096, 64), t=1, h=8, g=2, d=128, dtype="bfloat16",
                page=16, splits=0, left=-1, cap=0.0):  # fmt: skip
    kind = getattr(torch, dtype)
    torch.manual_seed(d + page)
    k, v, table, rows = paged(device, lengths, page, g, d, kind)
    q = torch.randn((len(lengths), t, h, d), device=device).to(kind)
    problem = DecodeProblem(
        len(lengths), t, h, g, d, dtype, page, table.shape[1], k.shape[0], max(lengths), splits=splits, left=left,
        soft_cap=cap, scale=d**-0.5, return_lse=True, on_device=True,
    )  # fmt: skip
    out = torch.full_like(q, float("nan"))
    lse = torch.full((len(lengths), t, h), float("nan"), device=device)
    work = tuple(torch.full(s, float("nan"), device=device) for s in problem.workspace_shapes)
    size = torch.tensor(lengths, dtype=torch.int32, device=device)
    decoding.run_decode(problem, q, k, v, table, size, out, lse, work, tile=tile)
    judged = []
    for i, length in enumerate(lengths):
        parts = (q[i : i + 1], k[rows[i]][None], v[rows[i]][None])
        settings = {"scale": d**-0.5, "visible": window(t, length, left, 0, device), "soft_cap": cap}
        exact, exact_lse = dense(*parts, **settings)
        found = verdict(
            out[i : i + 1],
            lse[i : i + 1].transpose(1, 2),
            exact,
            dense(*parts, **settings, dtype=kind)[0],
            exact_lse,
        )
        judged.append(found)
    return whole(judged)


def containment(device):
    """A masked value that is not finite reaches no row that does not see it, on both kernels' ways."""
    torch.manual_seed(1)
    q, k, v = (torch.randn((1, 200, 2, 128), device=device, dtype=torch.bfloat16) for _ in range(3))
    k[0, 150], v[0, 150], v[0, 70, 0, 5] = float("nan"), float("nan"), float("inf")
    problem = PrefillProblem(1, 200, 200, 200, 200, 2, 2, 128, "bfloat16", on_device=True, right=0, scale=0.1)
    out = torch.empty_like(q)
    for by_descriptor in (False, True):
        tile = prefilling.Tile(128, 64, 8, 2, by_descriptor)
        prefilling.run_prefill(problem, q, k, v, None, None, None, out, None, tile=tile)
        assert torch.isfinite(out[0, :70]).all(), "a later key's value leaked"
        assert torch.isfinite(out[0, :150, :, :5]).all(), "the neighbour of an infinite value was spoilt"
        assert (out[0, 70:150, 0, 5] == float("inf")).all(), "an infinite value was lost"
        assert torch.isnan(out[0, 150:]).all(), "a visible NaN was lost"
    return "contained"


def leak(device):
    """Whether cuDNN lets a value that a row does not see reach it: what its path cannot promise."""
    torch.manual_seed(1)
    q, k, v = (torch.randn((1, 2, 256, 128), device=device, dtype=torch.bfloat16) for _ in range(3))
    k[:, :, 150], v[:, :, 150] = float("nan"), float("nan")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        again = [
            torch.nn.functional.scaled_dot_product_attention(q, k[..., :], v, is_causal=True)
            for _ in range(20)
        ]
    rows = torch.isnan(out).any(-1)[0, 0].nonzero()[:, 0].tolist()
    same = all(torch.equal(out.view(torch.int16), other.view(torch.int16)) for other in again)
    print(
        f"cuDNN: NaN in key 150 reaches rows {rows[0] if rows else None} and on; repeats have the same bits: {same}"
    )
    return {"first_row": rows[0] if rows else None, "same_bits": same}


def far_pages(device):
    """Pages whose element offsets pass 2^31: the last ones of a pool of more than 2^31 elements."""
    pages, page, g, d = 66_000, 128, 4, 64
    if torch.cuda.mem_get_info()[0] < 14 << 30:
        return "too little memory free"
    torch.manual_seed(1)
    k, v = (torch.empty((pages, page, g, d), device=device, dtype=torch.bfloat16) for _ in range(2))
    assert k.numel() > 2**31
    table = torch.arange(pages - 4, pages, device=device, dtype=torch.int32).reshape(1, 4)
    k[-4:].normal_()
    v[-4:].normal_()
    q = torch.randn((1, 1, 8, d), device=device, dtype=torch.bfloat16)
    problem = DecodeProblem(1, 1, 8, g, d, "bfloat16", page, 4, pages, 500, scale=0.125, on_device=True)
    out, work = torch.empty_like(q), tuple(torch.empty(s, device=device) for s in problem.workspace_shapes)
    lengths = torch.tensor([500], device=device, dtype=torch.int32)
    decoding.run_decode(problem, q, k, v, table, lengths, out, None, work)
    keys, values = (t[-4:].reshape(1, 512, g, d)[:, :500] for t in (k, v))
    everything = torch.ones((1, 500), dtype=torch.bool, device=device)
    exact, _ = dense(q, keys, values, scale=0.125, visible=everything)
    same, _ = dense(q, keys, values, scale=0.125, visible=everything, dtype=torch.bfloat16)
    return verdict(out, None, exact, same, None)


def repeats(device, times=20):
    """The same bits again and again, and a sequence's bits whatever batch it is in."""
    torch.manual_seed(2)
    lengths, kind = (4096, 100, 1000, 2500), torch.bfloat16
    k, v, table, _ = paged(device, lengths, 16, 8, 128, kind)
    q = torch.randn((4, 1, 32, 128), device=device, dtype=kind)
    found = {}
    tiles = (
        None,
        decoding.DecodeTile(64, 4, 3, "", True, True),
        decoding.DecodeTile(32, 4, 4, "", True, True),
    )
    for splits, tile in product((0, 8), tiles):

        def run(chosen, capacity, splits=splits, tile=tile):
            problem = DecodeProblem(
                len(chosen), 1, 32, 8, 128, "bfloat16", 16, table.shape[1], k.shape[0], capacity, splits=splits,
                scale=0.1, return_lse=True, on_device=True,
            )  # fmt: skip
            rows = torch.tensor(chosen, device=device)
            out = torch.empty_like(q[rows])
            lse = torch.empty((len(chosen), 1, 32), device=device)
            work = tuple(torch.full(s, float("nan"), device=device) for s in problem.workspace_shapes)
            size = torch.tensor([lengths[i] for i in chosen], dtype=torch.int32, device=device)
            decoding.run_decode(problem, q[rows], k, v, table[rows], size, out, lse, work, tile=tile)
            return out

        first = run((0, 1, 2, 3), 4096)
        assert all(torch.equal(first, run((0, 1, 2, 3), 4096)) for _ in range(times)), "bits vary"
        for i in range(4):
            alone = run((i,), lengths[i])
            assert torch.equal(alone[0], first[i]), f"sequence {i} has other bits alone (splits {splits})"
            assert torch.equal(run((i, 0), 40_000)[0], first[i]), f"sequence {i}: bits depend on the capacity"
        found[f"{splits} {tile}"] = "same bits"
    return found
