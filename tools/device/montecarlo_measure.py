"""Measurement of Monte Carlo pricing on a GPU, for montecarlo.py beside it: sweep of K, peers, sizes, methods."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import perf_counter

import numpy as np

from warpfront.backend import compile as compiling
from warpfront.montecarlo import AsianArithmetic, Barrier, European, Settings, _cuda, price
from warpfront.montecarlo._run import CHANNELS, Run

MARKET = {"spot": 100.0, "strike": 100.0, "rate": 0.05, "volatility": 0.2, "maturity": 1.0}
OPTION = European(**MARKET)
LANES, SWEEPS = (64, 128, 256, 512), (1, 2, 4, 8, 16, 32, 64, 128)
PRECISIONS = ("float32", "float64")


def variants(precision):
    """Every (lanes, sweeps, expression) of the sweep; K = 4 * sweeps samples a thread."""
    settings = Settings(precision=precision)
    for lanes in LANES:
        for sweeps in SWEEPS:
            yield lanes, sweeps, _cuda.expression(0, True, settings, lanes, sweeps)


def compile_one(job):
    name, arch, compiler = job
    try:
        built = compiling.build(_cuda.SOURCE, (name,), arch, options=_cuda.OPTIONS, compiler=compiler)
    except Exception as error:
        return {"name": name, "arch": arch, "compiler": compiler, "error": str(error)[:600]}
    found = built.resources[name]
    return {
        "name": name,
        "arch": arch,
        "compiler": compiler,
        "seconds": built.seconds,
        "registers": found.registers,
        "spill_bytes": found.spill_store_bytes + found.spill_load_bytes,
    }


def compile_all(jobs, workers):
    # Spawned, not forked: this process may hold a CUDA context.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(compile_one, jobs))


class Ours:
    """The kernel on one European option, called directly: words to sums of chunks."""

    def __init__(self, precision, lanes=_cuda.LANES, sweeps=_cuda.SWEEPS, seed=1):
        import cupy

        from warpfront.backend import capability, cuda

        self.run = Run.of((OPTION,), Settings(precision=precision, seed=seed))
        name = _cuda.expression(0, True, self.run.settings, lanes, sweeps)
        self.kernel = cuda.load(_cuda.SOURCE, name, _cuda.SIGNATURE, 0, _cuda.OPTIONS)
        self.lanes, self.chunk = lanes, 4 * lanes * sweeps
        self.per_sm = self.kernel.blocks_per_sm(lanes)
        self.held = self.per_sm * capability.probe(0).sm_count
        self.coefficients = cupy.asarray(self.run.coefficients)
        self.whole = cupy.asarray(np.array([[1, 0]], np.int32))
        self.points = cupy.zeros(1, cupy.uint32)
        self.out = None

    def launch(self, n, waves=8):
        import cupy

        chunks = -(-n // self.chunk)
        if self.out is None or self.out.shape[0] != chunks:
            self.out = cupy.empty((chunks, CHANNELS))
        arrays = (self.out, self.coefficients, self.whole, self.points, self.points)
        numbers = (self.run.settings.seed, n, 0, chunks, 1, 1, 1)
        blocks = min(chunks, waves * self.held)
        self.kernel.launch(0, blocks, self.lanes, [*(a.data.ptr for a in arrays), *numbers])

    def mean(self, n):
        import cupy

        total = cupy.asnumpy(self.out.sum(axis=0))
        return float(self.run.coefficients[0, 4] + total[0] / n)


def event_seconds(work):
    """Seconds between two events around work on the default stream."""
    import cupy

    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    work()
    end.record()
    end.synchronize()
    return cupy.cuda.get_elapsed_time(start, end) * 1e-3


def interleaved(contenders, rounds):
    """Name -> samples; the order turns round every time."""
    taken = {name: [] for name in contenders}
    for k in range(rounds):
        for name in list(contenders)[:: 1 if k % 2 == 0 else -1]:
            taken[name].append(event_seconds(contenders[name]))
    return taken


def sweep(precision, n, rounds=5):
    """Rate, registers and occupancy over lanes and K."""
    import cupy

    rows = []
    for lanes, sweeps, name in variants(precision):
        ours = Ours(precision, lanes, sweeps)
        ours.launch(n)
        cupy.cuda.runtime.deviceSynchronize()
        z = (ours.mean(n) - 10.450583572185565) / (14.7 / math.sqrt(n))
        samples = interleaved({"ours": lambda o=ours: o.launch(n)}, rounds)["ours"]
        resources = ours.kernel.resources
        rows.append(
            {
                "lanes": lanes,
                "K": 4 * sweeps,
                "seconds": samples,
                "gpaths_per_s": n / float(np.median(samples)) / 1e9,
                "registers": resources.registers,
                "occupancy": ours.per_sm * lanes / 2048,
                "z": z,
                "name": name,
            }
        )
        ours.out = None
    return rows


def waves(precision, n, rounds=5):
    """Rate over the number of blocks, in units of what the device holds."""
    ours = Ours(precision)
    result = {}
    for count in (1, 2, 4, 8, 16, 64):
        ours.launch(n, count)
        samples = interleaved({"ours": lambda c=count: ours.launch(n, c)}, rounds)["ours"]
        result[count] = n / float(np.median(samples)) / 1e9
    return result


def sizes(precision, rounds=5):
    """Rate over the number of paths."""
    ours, result = Ours(precision), {}
    for power in (20, 22, 24, 26, 28, 30, 32, 34):
        n = 1 << power
        ours.launch(n)
        samples = interleaved({"ours": lambda m=n: ours.launch(m)}, rounds)["ours"]
        result[power] = n / float(np.median(samples)) / 1e9
    return result


def constants():
    return (
        (MARKET["rate"] - 0.5 * MARKET["volatility"] ** 2) * MARKET["maturity"],
        MARKET["volatility"] * math.sqrt(MARKET["maturity"]),
        math.exp(-MARKET["rate"] * MARKET["maturity"]),
    )


def torch_peers(n, precision):
    """Eager and compiled PyTorch: normals, path, payoff, sum and sum of squares in float64."""
    import torch

    kind = torch.float32 if precision == "float32" else torch.float64
    drift, vol, discount = constants()

    def payoff_sums():
        z = torch.randn(n, device="cuda", dtype=kind)
        paid = discount * torch.clamp(MARKET["spot"] * torch.exp(drift + vol * z) - MARKET["strike"], min=0.0)
        return paid.sum(dtype=torch.float64), (paid * paid).sum(dtype=torch.float64)

    return {"torch": payoff_sums, "torch.compile": torch.compile(payoff_sums, fullgraph=True)}


def cupy_peer(n, precision):
    """CuPy: its normals, then one fused reduction for each sum."""
    import cupy

    drift, vol, discount = constants()
    kind = "float32" if precision == "float32" else "float64"
    suffix = "f" if kind == "float32" else ""
    body = (
        f"fmax{suffix}(T(0), T({MARKET['spot']!r}) * exp{suffix}(T({drift!r}) + T({vol!r}) * z) - "
        f"T({MARKET['strike']!r})) * T({discount!r})"
    )
    plain = cupy.ReductionKernel(
        "T z", "float64 s", f"(double)({body})", "a + b", "s = a", "0", f"mc_sum_{kind}"
    )
    square = cupy.ReductionKernel(
        "T z", "float64 s", f"(double)({body}) * (double)({body})", "a + b", "s = a", "0", f"mc_square_{kind}"
    )
    generator = cupy.random.default_rng(1)

    def sums():
        z = generator.standard_normal(n, dtype=kind)
        return plain(z), square(z)

    return {"cupy": sums}


def peers(precision, n, rounds=7):
    """Everyone on n paths in one process; returns name -> samples or the reason, and means for the check."""
    import cupy

    contenders, notes, means = {}, {}, {}
    ours = Ours(precision)
    contenders["warpfront"] = lambda: ours.launch(n)
    for make in (torch_peers, cupy_peer):
        try:
            contenders |= make(n, precision)
        except Exception as error:
            notes[make.__name__] = f"{type(error).__name__}: {error}"[:300]
    for name in list(contenders):
        try:
            started = perf_counter()
            found = contenders[name]()
            cupy.cuda.runtime.deviceSynchronize()
            means[name] = ours.mean(n) if name == "warpfront" else float(found[0]) / n
            notes[f"{name} first call s"] = perf_counter() - started
            contenders[name]()
        except Exception as error:
            notes[name] = f"{type(error).__name__}: {error}"[:300]
            del contenders[name]
    return interleaved(contenders, rounds), notes, means


def methods():
    """Paths a second of `price`, the host's work included, for each payoff and method."""
    barrier = {"barrier": 130.0, "knock": "up-and-out", "n_steps": 12, **MARKET}
    cases = {
        "european": ([OPTION], 1 << 32, {}),
        "european antithetic": ([OPTION], 1 << 32, {"antithetic": True}),
        "european control": ([OPTION], 1 << 32, {"control_variate": True}),
        "european greeks": ([OPTION], 1 << 32, {"greeks": True}),
        "european sobol": ([OPTION], 32 << 24, {"sobol": True}),
        "asian 12 control": ([AsianArithmetic(n_steps=12, **MARKET)], 1 << 29, {"control_variate": True}),
        "asian 252": ([AsianArithmetic(n_steps=252, **MARKET)], 1 << 26, {}),
        "barrier 12": ([Barrier(**barrier)], 1 << 29, {}),
        "barrier 12 continuous": ([Barrier(monitoring="continuous", **barrier)], 1 << 29, {}),
        "1000 options": ([European(**{**MARKET, "strike": 50 + 0.1 * k}) for k in range(1000)], 1 << 22, {}),
    }
    rows = []
    for name, (options, n, more) in cases.items():
        for precision in PRECISIONS:
            price(options, min(n, 32 << 14), device="cuda", precision=precision, **more)
            seconds = [
                price(options, n, device="cuda", precision=precision, **more).seconds for _ in range(3)
            ]
            steps = n * len(options) * max(option.n_steps for option in options)
            rate = steps / float(np.median(seconds)) / 1e9
            rows.append(
                {"case": name, "precision": precision, "seconds": seconds, "gsteps_per_s": rate, "n": n}
            )
    return rows


def float32_error():
    """Difference of the two precisions on one stream, which cancels nearly all of the sampling error."""
    rows = []
    for strike in (80.0, 100.0, 120.0, 150.0):
        option = European(**{**MARKET, "strike": strike})
        a = price(option, 1 << 34, device="cuda", precision="float32", seed=7)[0]
        b = price(option, 1 << 34, device="cuda", precision="float64", seed=7)[0]
        rows.append(
            {
                "strike": strike,
                "float32": a.price,
                "float64": b.price,
                "difference": a.price - b.price,
                "standard_error": b.standard_error,
                "z32": a.z,
                "z64": b.z,
            }
        )
    return rows
