"""What ``attention.py`` leaves behind: the table that dispatch reads, and the record of times."""

from __future__ import annotations

from math import exp, log
from statistics import median

from warpfront.attention import _dispatch
from warpfront.attention import _triton_decode as decoding
from warpfront.attention import _triton_prefill as prefilling

NAMES = {
    "CUDNN_ATTENTION": "cuDNN",
    "FLASH_ATTENTION": "FlashAttention-2",
    "EFFICIENT_ATTENTION": "memory-efficient",
    "flex": "FlexAttention",
}


def common_tile(tuned, cases):
    """The decode tile with the least geometric mean over cases: one for all, so that bits depend on no length or batch."""
    times = {}
    for case in cases:
        for seconds, tile in tuned.get(case.name, ()):
            times.setdefault(tuple(sorted(tile.items())), []).append(seconds)
    whole = {key: found for key, found in times.items() if len(found) == len(cases)}
    if not whole:
        return None
    best = [min(found[i] for found in whole.values()) for i in range(len(cases))]

    def loss(key):
        return exp(sum(log(t / b) for t, b in zip(whole[key], best, strict=True)) / len(cases))

    ranked = sorted(whole, key=loss)
    for key in ranked[:4]:
        print(f"   common decode tile {loss(key):.3f} of the best: {dict(key)}", flush=True)
    return decoding.DecodeTile(**dict(ranked[0]))


def kind_of(case):
    if case.left >= 0:
        return "window"
    return "causal" if case.causal else "full"


def table(cc, prefills, decode_tile, samples, decode_case):
    """Return the text of dispatch.toml: prefills are (case, tile), samples {case: {contender: seconds}}."""
    lines = ["# Written by tools/device/attention.py from what it measured; not edited by hand.", ""]
    major, minor = divmod(cc, 10)
    for case, tile in prefills:
        found = samples.get(case.name, {})
        if "triton" not in found:
            continue
        us = {name: 1e6 * median(found[name]) for name in ("triton", "CUDNN_ATTENTION") if name in found}
        lines += [
            "[[prefill]]",
            f"cc = [{major}, {minor}]",
            f'dtype = "{case.dtype}"',
            f"head_dim = {case.head_dim}",
            f'kind = "{kind_of(case)}"',
            f"length = {case.length}",
            f'case = "{case.name}"',
            f"tile = {inline(tile)}",
            f"triton_us = {us['triton']:.1f}",
            f"cudnn_us = {us.get('CUDNN_ATTENTION', 0.0):.1f}",
            "",
        ]
    if decode_tile is not None:
        for dtype in ("bfloat16", "float16"):
            lines += ["[[decode]]", f"cc = [{major}, {minor}]", f'dtype = "{dtype}"', f"head_dim = {decode_case.head_dim}",
                      f"tile = {inline(decode_tile)}", ""]  # fmt: skip
    return "\n".join(lines)


def inline(tile):
    """A tile as an inline table of TOML."""
    parts = []
    for name, value in vars(tile).items():
        text = f'"{value}"' if isinstance(value, str) else str(value).lower()
        parts.append(f"{name} = {text}")
    return "{ " + ", ".join(parts) + " }"


def use(text):
    """Let dispatch read a table that was just measured."""
    import tomllib

    parsed = tomllib.loads(text)
    _dispatch._rows.cache_clear()
    _dispatch._table = lambda: parsed


def tile_of(entry, paged):
    return (decoding.DecodeTile if paged else prefilling.Tile)(**entry)


def rows(cases, samples, errors, measure, chosen, per_call):
    """Rows of the record, one a case."""
    from warpfront.bench.collect import collected, refused
    from warpfront.bench.record import Row

    made = []
    for case in cases:
        found = samples.get(case.name)
        if not found:
            continue
        paged = isinstance(case, measure.DecodeCase)
        work = {"bytes": case.bytes} if paged else {"flops": measure.flops(case)}
        contenders = {}
        for name, raw in found.items():
            seconds = [s / per_call(case) for s in raw]
            if name in ("triton", "auto"):
                more = dict(errors.get(case.name, {})) if name == "triton" else {}
                right = more.pop("right", True)
                label = "warpfront" if name == "auto" or paged else "warpfront own kernel"
                contenders[label] = collected(
                    seconds, right=right, detail="" if right else "error above the rule", algorithm=str(chosen[case.name]),
                    **work, **more,
                )  # fmt: skip
            else:
                detail = "keys and values contiguous: no backend of torch reads pages" if paged else ""
                contenders[NAMES[name]] = collected(seconds, detail=detail, **work)
        for name in (n for n in ("CUDNN_ATTENTION", "FLASH_ATTENTION") if n not in found):
            contenders[NAMES[name]] = refused("not offered", "this backend refused the problem")
        ours = [name for name in contenders if name.startswith("warpfront")]
        shapes = {"batch": case.batch, "heads": case.heads, "kv_heads": case.kv_heads, "n": case.length,
                  "head_dim": case.head_dim}  # fmt: skip
        if paged:
            shapes["page_size"] = case.page_size
        made.append(Row(
            case=case.name, operation="paged decode" if paged else "prefill", shapes=shapes, dtype=case.dtype,
            distribution="normal", seed=0, ours=ours, contenders=contenders, reference=None,
        ))  # fmt: skip
    return made
