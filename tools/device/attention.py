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
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from shutil import which
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
if "--dry" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"

import attention_measure as measure  # noqa: E402
import attention_time as times  # noqa: E402

STARTED = perf_counter()
# Every thread's stack after a minute, and the end of the test's process (of its worker, which is started anew) after two:
# a wait for the device listens to no signal.
NAMES_A_HANG = ("-o", "faulthandler_timeout=60", "--timeout", "120", "--timeout-method", "thread")


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
    if options.quick:  # what the kernels' last changes touch, and one of each option
        names = check.QUICK
        jobs = [
            job for job in jobs if any(job[1].endswith(name) for name in names) or "float32" in job[1][:18]
        ]
    jobs = [(*job, options.device) for job in (jobs[2::16] if options.dry else jobs)]
    found, wrong, started = {}, [], perf_counter()
    pool = ProcessPoolExecutor(2 if options.dry else 12, mp_context=get_context("spawn"))
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


def start_checks(out, quick):
    python = sys.executable
    commands = {
        "pytest": [
            python,
            "-m",
            "pytest",
            "-v",
            "-m",
            "cuda",
            "-W",
            "default",
            "-p",
            "no:cacheprovider",
            "--durations",
            "12",
            *NAMES_A_HANG,
            *(("-n", "8", "--dist", "worksteal") if find_spec("xdist") else ()),
            "tests/attention",
        ]
    }
    place = Path("/usr/local/cuda/bin/compute-sanitizer")
    tool = which("compute-sanitizer") or (str(place) if place.is_file() else None)
    for check in ("memcheck", "racecheck") if tool and not quick else ():
        quiet = ("--report-api-errors", "no") if check == "memcheck" else ()
        commands[check] = [tool, "--tool", check, "--error-exitcode", "1", *quiet, "--target-processes", "all",
                           python, str(Path(__file__).resolve()), "--driver"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    running = {}
    for name, command in commands.items():
        log = (out / f"{name}.log").open("w")
        if name != "pytest":  # each tensor an allocation of its own, which is what memcheck can watch
            environment = {**environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
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


def descriptors(options):
    """Each variant by descriptor on a long causal problem, in a process of its own: one that hangs costs its process."""
    if options.dry:
        return {}
    found, running = {}, {}
    for index in range(len(measure.DESCRIPTOR_TILES)):
        command = [sys.executable, str(Path(__file__).resolve()), "--only", str(index)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        running[index] = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
            start_new_session=True,
        )  # fmt: skip
    end = perf_counter() + 40
    for index, process in running.items():
        try:
            text = process.communicate(timeout=max(1.0, end - perf_counter()))[0]
            found[index] = (process.returncode, text.strip().splitlines()[-1:])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            found[index] = ("did not come back", [])
        print(f"by descriptor {measure.DESCRIPTOR_TILES[index]}: {found[index]}", flush=True)
    return found


def one_descriptor(index):
    import torch

    tile = measure.prefilling.Tile(*measure.DESCRIPTOR_TILES[index], True)
    tensors = measure.CAUSAL.tensors("cuda")
    call = measure.runner(measure.CAUSAL, tile, tensors)
    call()
    torch.cuda.synchronize()
    print(times.rate(measure.CAUSAL, measure.quick(call)))


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


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("check", "time"), default="check")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--tune", choices=("flagship", "known", "all"), default="flagship")
    parser.add_argument("--cuts", action="store_true", help="also try other ways of cutting sequences")
    parser.add_argument("--quick", action="store_true", help="fewer problems, no sanitizers, no variants")
    parser.add_argument("--built", action="store_true", help="the check phase has compiled the variants")
    parser.add_argument("--only", default="", help="run one variant by descriptor, in this process")
    parser.add_argument("--flex", action="store_true", help="also FlexAttention: it compiles for 30 s")
    parser.add_argument("--sections", default="", help="only these, by name and with commas")
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--seconds", type=float, default=None)
    return parser.parse_args()


def main():
    options = arguments()
    if options.driver:
        driver()
        return 0
    if options.only:
        one_descriptor(int(options.only))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    import torch

    options.tuned = {}
    options.device = "cpu" if options.dry else "cuda"
    options.cc = 90 if options.dry else int("".join(map(str, torch.cuda.get_device_capability())))
    failed, done = [], {}
    wanted = set(filter(None, options.sections.split(",")))

    def section(name, work, *arguments):
        if wanted and name not in wanted:
            return
        try:
            done[name] = work(*arguments)
        except Exception:  # a failed section must not cost the rest
            failed.append(name)
            (options.out / f"{name}.traceback.txt").write_text(traceback.format_exc())
            print(f"section {name} FAILED\n{traceback.format_exc()[-1500:]}", flush=True)
        print(f"[{perf_counter() - STARTED:.0f} s] {name}", flush=True)

    if options.phase == "check":
        import attention_check as check

        seconds = options.seconds or 145
        running = {}
        if not options.dry and (not wanted or "checks" in wanted):
            running = start_checks(options.out, options.quick)
        section("correctness", correctness, options, seconds - 45)
        if not options.dry:
            section("repeats", check.repeats, options.device)
            section("containment", check.containment, options.device)
            section("leak", check.leak, options.device)
            section("far_pages", check.far_pages, options.device)
        if wanted or not options.quick:
            section("descriptors", descriptors, options)
            section("build", times.build, options, seconds - 15 - (perf_counter() - STARTED))
        section("checks", finish_checks, running, options.out, seconds - (perf_counter() - STARTED))
        failed += [name for name, entry in done.get("checks", {}).items() if entry["exit"] not in (0, 5)]
    else:
        times.timing(options, section, done, STARTED)
    (options.out / f"{options.phase}.json").write_text(json.dumps(done, indent=1, default=str))
    print(f"failed: {', '.join(failed) or 'nothing'}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
