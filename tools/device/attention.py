"""Prove and measure attention on a GPU. Run from the repository's root on a machine with a GPU:

    PYTHONPATH=src python3 tools/device/attention.py --phase check --out "$OUT"   # others may use the GPU meanwhile
    PYTHONPATH=src python3 tools/device/attention.py --phase time --out "$OUT"    # alone on the GPU

check: every variant compiled, the option grid against float64, containment, far pages, repeats, the device tests and
compute-sanitizer. time: the tuning of tiles (``tuning.json``), and times with peers (``attention.json``, for
``benchmarks/records``). Each section may fail by itself; the exit code then is 1. ``--dry`` walks through the flow
without a GPU, kernels interpreted; ``--driver`` is what compute-sanitizer runs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from shutil import which
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
if "--dry" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"

import attention_measure as measure  # noqa: E402

STARTED = perf_counter()


def tune_cases(options):
    if options.dry:
        return measure.SMALL_PREFILL, measure.SMALL_DECODE
    return (measure.PREFILL if options.tune == "all" else measure.FLAGSHIP), measure.DECODE


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
    jobs += [(case, tile) for case in prefills for tile in measure.prefill_tiles(case)]
    done = measure.compile_all([(options.cc, *job) for job in jobs], seconds)
    bad = [entry for entry in done if entry[3]]
    print(f"compiled {len(done)} variants, {len(bad)} refused", flush=True)
    for entry in bad[:12]:
        print("  refused", entry[0], entry[1], entry[3][:160], flush=True)
    return done


def judge(job):
    """One problem of the option grid, in a process of its own: compiling is what takes the time."""
    kind, name, more, device = job
    import attention_check as check

    try:
        return name, getattr(check, kind)(device, **more), ""
    except Exception as error:  # one option's failure must not hide the others
        return name, {"right": False, "why": f"{type(error).__name__}: {error}"[:300]}, traceback.format_exc()


def correctness(options, seconds):
    import attention_check as check

    jobs = [("decode_case", f"decode {name}", more) for name, more in check.decode_options()]
    jobs += [("varlen_case", f"varlen {right} {dtype}", {"right": right, "dtype": dtype})
             for right in (0, -1) for dtype in ("bfloat16", "float16")]  # fmt: skip
    jobs += [("prefill_case", f"prefill {name}", more) for name, more in check.prefill_options()]
    jobs = [(*job, options.device) for job in (jobs[2::16] if options.dry else jobs)]
    found, wrong, started = {}, [], perf_counter()
    pool = ProcessPoolExecutor(2 if options.dry else 8, mp_context=get_context("spawn"))
    futures = {pool.submit(judge, job): job[1] for job in jobs}
    try:
        for future in as_completed(futures, timeout=seconds):
            name, verdict, trace = future.result()
            found[name] = verdict
            if trace:
                (options.out / "correctness.traceback.txt").open("a").write(f"{name}\n{trace}\n")
            if not verdict["right"]:
                wrong.append(name)
                print("  WRONG", name, {k: v for k, v in verdict.items() if k != "right"}, flush=True)
            (options.out / "correctness.json").write_text(json.dumps(found, indent=1))
    except TimeoutError:
        wrong.append(f"{len(jobs) - len(found)} problems not done in time")
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
    print(
        f"{len(found)} of {len(jobs)} problems against float64 in {perf_counter() - started:.0f} s, {len(wrong)} wrong"
    )
    if wrong:
        raise AssertionError(f"wrong: {', '.join(wrong)[:600]}")
    return len(found)


# ------------------------------------------------------------------ tests and sanitizers, side by side


def start_checks(out):
    python = sys.executable
    commands = {
        "pytest": [
            python,
            "-m",
            "pytest",
            "-q",
            "-m",
            "cuda",
            "-W",
            "default",
            "-p",
            "no:cacheprovider",
            "tests/attention",
        ]
    }
    place = Path("/usr/local/cuda/bin/compute-sanitizer")
    tool = which("compute-sanitizer") or (str(place) if place.is_file() else None)
    for check in ("memcheck", "racecheck") if tool else ():
        quiet = ("--report-api-errors", "no") if check == "memcheck" else ()
        commands[check] = [tool, "--tool", check, "--error-exitcode", "1", *quiet, "--target-processes", "all",
                           python, str(Path(__file__).resolve()), "--driver"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # each tensor an allocation of its own, for memcheck
    running = {}
    for name, command in commands.items():
        log = (out / f"{name}.log").open("w")
        running[name] = (
            subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            ),
            log,
        )
    return running


def finish_checks(running, out, seconds):
    deadline, results = perf_counter() + seconds, {}
    for name, (process, log) in running.items():
        try:
            code = process.wait(max(1.0, deadline - perf_counter()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the process and what it started: it leads its own group
            code = "timeout"
        log.close()
        text = (out / f"{name}.log").read_text(errors="replace").strip().splitlines()
        results[name] = {"exit": code, "last": text[-1:] or [""]}
        print(f"{name:10s} exit {code}: {(text or [''])[-1][:150]}", flush=True)
        if code not in (0, 5):
            print("\n".join("    " + line[:200] for line in text[-12:]), flush=True)
    return results


def driver():
    """Every kernel on small problems, for compute-sanitizer."""
    import attention_check as check

    for more in (
        {"n": 70, "m": 90, "right": 0},
        {"n": 70, "m": 90, "left": 9, "right": 3},
        {"n": 33, "m": 40, "bias": True},
    ):
        assert check.prefill_case("cuda", b=1, h=2, g=1, **more)["right"], more
    for more in ({"splits": 2}, {"t": 3, "left": 40}):
        assert check.decode_case("cuda", lengths=(130, 0, 300), h=4, g=2, **more)["right"], more
    check.containment("cuda")
    print("driver: all right")


# ------------------------------------------------------------------ times


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
        print(f"{case.name} at {perf_counter() - STARTED:.0f} s:", flush=True)
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


def peers(options, cases, best, deadline):
    """Ours beside torch's backends, interleaved."""
    import torch

    found = {}
    for case in cases:
        if perf_counter() > deadline or not best.get(case.name):
            continue
        tensors, calls = case.tensors(options.device), {}
        paged = isinstance(case, measure.DecodeCase)
        kind = type(measure.decode_tiles(case)[0]) if paged else type(measure.prefill_tiles(case)[0])
        calls["warpfront"] = measure.runner(case, kind(**best[case.name][0][1]), tensors)
        for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"):
            call = (measure.dense_decode if paged else measure.sdpa)(case, tensors, backend)
            try:
                call()
                calls[backend] = call
            except Exception as error:
                print(f"   {backend} refuses {case.name}: {str(error)[:100]}", flush=True)
        if paged and not options.dry:
            calls = {
                name: measure.captured(call, 1 if case.bytes > 1 << 26 else 20)
                for name, call in calls.items()
            }
        samples = measure.interleaved(calls, 10)
        found[case.name] = samples
        unit = bandwidth if paged else rate
        for name, values in samples.items():
            print(f"{case.name:34s} {name:20s} {unit(case, sorted(values)[len(values) // 2])}", flush=True)
        (options.out / "peers.json").write_text(json.dumps(found, indent=1))
        del tensors, calls
        if not options.dry:
            torch.cuda.empty_cache()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("check", "time"), default="check")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--tune", choices=("flagship", "all"), default="flagship")
    parser.add_argument("--cuts", action="store_true", help="also try other ways of cutting sequences")
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--seconds", type=float, default=None)
    options = parser.parse_args()
    if options.driver:
        driver()
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    import torch

    options.tuned = {}
    options.device = "cpu" if options.dry else "cuda"
    options.cc = 90 if options.dry else int("".join(map(str, torch.cuda.get_device_capability())))
    failed, done = [], {}

    def section(name, work, *arguments):
        try:
            done[name] = work(*arguments)
        except Exception:  # a failed section must not cost the rest
            failed.append(name)
            (options.out / f"{name}.traceback.txt").write_text(traceback.format_exc())
            print(f"section {name} FAILED\n{traceback.format_exc()[-1500:]}", flush=True)
        print(f"[{perf_counter() - STARTED:.0f} s] {name}", flush=True)

    prefills, decodes = tune_cases(options)
    if options.phase == "check":
        import attention_check as check

        seconds = options.seconds or 145
        running = {} if options.dry else start_checks(options.out)
        section("correctness", correctness, options, seconds - 50)
        if not options.dry:
            section("repeats", check.repeats, options.device)
            section("containment", check.containment, options.device)
            section("far_pages", check.far_pages, options.device)
        section("checks", finish_checks, running, options.out, seconds - (perf_counter() - STARTED))
        failed += [name for name, entry in done.get("checks", {}).items() if entry["exit"] not in (0, 5)]
    else:
        seconds = options.seconds or 80
        end = STARTED + seconds
        section("build", build, options, seconds * 0.4)
        section("prefill", tune, options, prefills, measure.prefill_tiles, end - 30, rate)
        section("decode", tune, options, decodes, measure.decode_tiles, end - 15, bandwidth)
        best = {**(done.get("prefill") or {}), **(done.get("decode") or {})}
        section("peers", peers, options, (*prefills, *decodes), best, end - 5)
        if options.cuts:
            section("cuts", tune, options, measure.cut_cases(), measure.cut_tiles, end, bandwidth)
    (options.out / f"{options.phase}.json").write_text(json.dumps(done, indent=1, default=str))
    print(f"failed: {', '.join(failed) or 'nothing'}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
