"""The time phase of ``attention.py``: compile the variants, time them, compare with peers, write what was found."""

from __future__ import annotations

import json
import traceback
from time import perf_counter

import attention_measure as measure
import attention_peers as against


def tune_cases(options):
    if options.dry:
        return measure.SMALL_PREFILL, measure.SMALL_DECODE
    return (measure.FLAGSHIP if options.tune == "flagship" else measure.PREFILL), measure.DECODE


def prefill_tiles_of(options):
    """What makes the variants of a prefill case: with ``--tune known`` only the tile that the table has for it."""
    return measure.known_tiles if options.tune == "known" else measure.prefill_tiles


def build(options, seconds):
    """Compile every variant of the tuning for this device."""
    if options.dry:
        return "interpreted"
    prefills, decodes = tune_cases(options)
    jobs = [(case, tile) for case in decodes for tile in measure.decode_tiles(case)]
    jobs += (
        [(case, tile) for case in measure.cut_cases() for tile in measure.cut_tiles(case)]
        if options.cuts
        else []
    )
    jobs += [(case, tile) for case in prefills for tile in prefill_tiles_of(options)(case)]
    print(f"compiling {len(jobs)} variants", flush=True)
    done = measure.compile_all([(options.cc, *job) for job in jobs], seconds)
    bad = [entry for entry in done if entry[3]]
    print(f"compiled {len(done)} variants, {len(bad)} refused", flush=True)
    for entry in bad[:12]:
        print("  refused", entry[0], entry[1], entry[3][:160], flush=True)
    return done


def tune(options, cases, tiles_of, deadline, unit):
    """Times of every variant of every case, best first: {case: [(seconds, tile)]}."""
    import torch

    found = {}
    results = options.tuned
    for case in cases:
        if perf_counter() > deadline:
            print(f"out of time before {case.name}", flush=True)
            break
        tensors, rows, failed = case.tensors(options.device), [], []
        for tile in tiles_of(case):
            try:
                call = measure.runner(case, tile, tensors)
                if isinstance(case, measure.DecodeCase) and not options.dry:
                    call()
                    call = measure.captured(call, 1 if case.bytes > 1 << 26 else 20)
                rows.append((measure.quick(call), tile))
            except Exception as error:
                failed.append(f"{tile}: {type(error).__name__}: {str(error)[:120]}")
        rows.sort(key=lambda row: row[0])
        found[case.name] = [(seconds, vars(tile)) for seconds, tile in rows]
        results[case.name] = {
            "unit": unit(case, rows[0][0]) if rows else "",
            "rows": found[case.name],
            "failed": failed,
        }
        (options.out / "tuning.json").write_text(json.dumps(results))
        print(f"{case.name}:", flush=True)
        for seconds, tile in rows[:5]:
            print(f"   {unit(case, seconds)} {tile}", flush=True)
        for line in failed[:4]:
            print("   FAILED", line, flush=True)
        del tensors
        if not options.dry:
            torch.cuda.empty_cache()
    return found


def rate(case, seconds):
    return f"{seconds * 1e3:8.3f} ms {measure.flops(case) / seconds * 1e-12:7.1f} TFLOP/s"


def bandwidth(case, seconds):
    calls = 1 if case.bytes > 1 << 26 else 20
    return f"{seconds / calls * 1e6:8.2f} us {case.bytes * calls / seconds * 1e-12:6.3f} TB/s"


def per_call(case):
    """Calls within the graph that a sample replays."""
    return 20 if isinstance(case, measure.DecodeCase) and case.bytes < 1 << 26 else 1


def contenders(options, case, tensors, tile):
    """Calls of ours and of torch's backends, captured where there is a device."""
    paged = isinstance(case, measure.DecodeCase)
    calls = {"triton": measure.runner(case, tile, tensors)}
    if not paged:
        calls["auto"] = against.public(case, tensors)
    for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
        if paged or case.left < 0:
            calls[backend] = (against.dense_decode if paged else against.sdpa)(case, tensors, backend)
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = call if options.dry else measure.captured(call, per_call(case))
        except Exception as error:
            print(f"   {name} refuses {case.name}: {str(error)[:100]}", flush=True)
    return found


def peers(options, cases, tiles, deadline, found, rounds=10):
    """Ours beside torch's backends, interleaved; twice, so that dispatch already knows the first times."""
    import attention_check as check
    import attention_record as record
    import torch

    samples, errors = found
    for case in cases:
        if perf_counter() > deadline or case.name not in tiles:
            print(
                f"out of time before {case.name}" if case.name in tiles else f"{case.name}: no tile",
                flush=True,
            )
            continue
        try:
            tensors, tile, paged = (
                case.tensors(options.device),
                tiles[case.name],
                isinstance(case, measure.DecodeCase),
            )
            calls = contenders(options, case, tensors, tile)
            if not paged:
                first = {name: [measure.quick(call)] for name, call in calls.items() if name != "auto"}
                record.use(record.table(options.cc, [(case, tile)], None, {case.name: first}, None))
                calls = contenders(options, case, tensors, tile)
                errors[case.name] = check.spot(case, tensors)
            samples[case.name] = measure.interleaved(calls, rounds)
            unit = bandwidth if paged else rate
            for name, values in samples[case.name].items():
                print(
                    f"{case.name:34s} {name:20s} {unit(case, sorted(values)[len(values) // 2])}", flush=True
                )
        except Exception as error:  # one case's failure must not cost the rest
            (options.out / "peers.traceback.txt").open("a").write(f"{case.name}\n{traceback.format_exc()}\n")
            print(f"{case.name} FAILED: {type(error).__name__}: {str(error)[:200]}", flush=True)
        (options.out / "peers.json").write_text(json.dumps({"samples": samples, "errors": errors}))
        tensors = calls = None
        if not options.dry:
            torch.cuda.empty_cache()
    return len(samples)


def flex(options, cases, tiles, samples):
    """FlexAttention, compiled, beside ours and cuDNN, into the samples of the flagship cases."""
    for case in cases:
        if case.name not in samples:
            continue
        tensors = case.tensors(options.device)
        calls = contenders(options, case, tensors, tiles[case.name])
        call = against.flex(case, tensors)
        call()
        calls["flex"] = measure.captured(call)
        samples[case.name] = measure.interleaved(calls, 10)
        for name, values in samples[case.name].items():
            print(f"{case.name:34s} {name:20s} {rate(case, sorted(values)[len(values) // 2])}", flush=True)


def leave(options, prefills, decodes, tiles, samples, errors):
    """Write dispatch.toml and the record."""
    import attention_record as record

    decode_tile = tiles.get(decodes[0].name)
    pairs = [(case, tiles[case.name]) for case in prefills if case.name in tiles]
    text = record.table(options.cc, pairs, decode_tile, samples, decodes[0])
    (options.out / "dispatch.toml").write_text(text)
    record.use(text)  # what is timed after this goes by it
    made = record.rows((*prefills, *decodes), samples, errors, measure, tiles, per_call)
    if options.dry:
        return len(made)
    from warpfront.bench.collect import gpu_record
    from warpfront.bench.record import write

    compiled = {"triton": "device's own architecture"}
    found = gpu_record("attention", made, {"samples": 10, "clock": "graph replay"}, packages=("torch", "triton"),
                       compile_options=compiled)  # fmt: skip
    write(found, options.out / "attention.json")
    return len(made)


def timing(options, section, done, started):
    """The time phase: tune, compare, write; the rows that matter most first."""
    import attention_record as record

    prefills, decodes = tune_cases(options)
    end = started + (options.seconds or 60)
    if not options.built:
        section("build", build, options, (end - perf_counter()) * 0.45)
    section("decode", tune, options, decodes, measure.decode_tiles, end - 20, bandwidth)
    section("prefill", tune, options, prefills, prefill_tiles_of(options), end - 25, rate)
    tiles = {
        name: record.tile_of(rows[0][1], False) for name, rows in (done.get("prefill") or {}).items() if rows
    }
    common = record.common_tile(done.get("decode") or {}, decodes)
    tiles |= {case.name: common for case in decodes if common}
    found = ({}, {})
    for name, cases in (("peers", (*decodes, *prefills[:2])), ("more_peers", prefills[2:])):
        section(name, peers, options, cases, tiles, end - 5, found)
        section("leave", leave, options, prefills, decodes, tiles, *found)
    if not options.dry and options.flex and perf_counter() < end - 15:
        section("flex", flex, options, measure.FLAGSHIP, tiles, found[0])
        section("leave", leave, options, prefills, decodes, tiles, *found)
    if options.cuts:
        section("cuts", tune, options, measure.cut_cases(), measure.cut_tiles, end + 5, bandwidth)
