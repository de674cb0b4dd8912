"""What `batched.py` measures: kernel time of every variant beside torch and CuPy, and wall time of whole calls."""

from __future__ import annotations

import itertools
from functools import partial
from statistics import median
from time import perf_counter

from batched_variants import BATCH, GOALS, GRID, MORE, PROFILED, SWEEP, floor_bytes, planned, variants

from warpfront.batched import _batched_cuda as plans


class Bench:
    """Measures on the GPU."""

    built: frozenset[str] | set[str] = frozenset()  # of variants that no entry takes, only these are timed

    def device(self):
        from warpfront.bench import gpu_fingerprint

        try:
            return gpu_fingerprint.gpu_fingerprint()
        except Exception as error:
            return {"error": str(error)}

    def profile(self):
        """Launch each of PROFILED once."""
        import cupy
        import numpy as np

        for method, n, nrhs, dtype, variant in PROFILED:
            made = plans.plan(plans.BatchedProblem(method, n, nrhs, BATCH, dtype), variant)
            ((a, b),) = self.inputs(method, n, nrhs, BATCH, dtype, 1)
            numbers = (0.0, 64 * float(np.finfo(dtype).eps), 0.0) if method == "cholesky" else ()
            self.ours(made, numbers, [(a, b, self.outputs(method, a, b))])[0]()
            cupy.cuda.runtime.deviceSynchronize()

    def sections(self):
        yield "copy", self.copy
        for dtype in ("float32", "float64"):
            for n, nrhs in SWEEP:
                for method in plans.METHODS:
                    yield f"{method} {dtype} {n},{nrhs}", self.sweep(method, n, nrhs, dtype)
        yield "calls", self.calls
        for n, nrhs in MORE:
            for method in plans.METHODS:
                yield f"{method} float32 {n},{nrhs}", self.sweep(method, n, nrhs, "float32")

    # -------------------------------------------------------------- data

    def inputs(self, method, n, nrhs, batch, dtype, sets):
        import cupy

        made = []
        for k in range(sets):
            cupy.random.seed(k + 1)
            g = cupy.random.standard_normal((batch, n, n), dtype)
            if method == "cholesky":
                a = cupy.empty_like(g)
                for at in range(0, batch, 8192):
                    part = g[at : at + 8192]
                    s = part @ part.transpose(0, 2, 1) + n * cupy.eye(n, dtype=dtype)
                    low = cupy.tril(s)
                    a[at : at + 8192] = low + cupy.tril(s, -1).transpose(0, 2, 1)
            else:
                a = g
            made.append((a, cupy.random.standard_normal((batch, n, nrhs), dtype)))
        return made

    def outputs(self, method, a, b):
        import cupy

        batch, n, _ = a.shape
        arrays = [cupy.zeros_like(a), cupy.zeros_like(b)]
        arrays += [cupy.zeros((batch, n), "i4")] * (method == "lu") + [cupy.zeros(batch, "i4")]
        return arrays

    def judge(self, method, a, b, outputs, count=2048):
        """Backward error of the solutions and of the factors, in FP64, on some systems; failures are counted on all."""
        import cupy

        factor, x = (o[-count:].astype("f8") for o in outputs[:2])
        a, b = a[-count:].astype("f8"), b[-count:].astype("f8")
        scale = abs(a).max(axis=(1, 2))
        residual = abs(b - a @ x).max(axis=(1, 2)) / (
            a.shape[1] * scale * abs(x).max(axis=(1, 2)) + abs(b).max(axis=(1, 2))
        )
        if method == "cholesky":
            low = cupy.tril(factor)
            rebuilt = low @ low.transpose(0, 2, 1)
        else:
            low = cupy.tril(factor, -1) + cupy.eye(a.shape[1])
            rebuilt = low @ cupy.triu(factor)
            everyone = cupy.arange(len(a))
            a = a.copy()
            for k in range(a.shape[1]):
                p = outputs[2][-count:][:, k]
                upper = a[everyone, k].copy()
                a[:, k] = a[everyone, p]
                a[everyone, p] = upper
        again = abs(rebuilt - a).max(axis=(1, 2)) / scale
        return {
            "residual": float(residual.max()),
            "factor": float(again.max()),
            "failed": int((outputs[-1] != 0).sum()),
        }

    # -------------------------------------------------------------- kernel time

    def copy(self, deadline):
        import cupy

        size = 1 << 28
        src, dst = cupy.zeros(size, "u1"), cupy.zeros(size, "u1")
        times = self.round_robin({"copy": [lambda: cupy.copyto(dst, src)]}, 10)
        rate = 2 * size / median(times["copy"])
        self.rate = rate
        return {"bytes": 2 * size, "tb_per_s": rate * 1e-12, "samples_us": [t * 1e6 for t in times["copy"]]}

    def ours(self, made, numbers, data):
        import cupy

        from warpfront.backend import cuda

        kernel = cuda.load(made.source, made.expression, made.signature, 0, plans.OPTIONS)
        stream = cupy.cuda.get_current_stream().ptr

        def call_for(arrays):
            arguments = (*[x.data.ptr for x in arrays], *made.tail, *numbers)
            return lambda: kernel.launch(stream, made.blocks, made.threads, arguments)

        return [call_for([a, b, *outputs]) for a, b, outputs in data]

    def peers(self, method, data):
        import cupy
        import torch

        pairs = [(torch.as_tensor(a, device="cuda"), torch.as_tensor(b, device="cuda")) for a, b, _ in data]

        def cholesky(a, b):
            low, _ = torch.linalg.cholesky_ex(a)
            return torch.cholesky_solve(b, low)

        found = {"torch solve_ex": [lambda a=a, b=b: torch.linalg.solve_ex(a, b) for a, b in pairs]}
        if method == "cholesky":
            found["torch cholesky"] = [lambda a=a, b=b: cholesky(a, b) for a, b in pairs]
        else:
            found["cupy solve"] = [lambda a=a, b=b: cupy.linalg.solve(a, b) for a, b, _ in data]
        return found

    def round_robin(self, contenders, samples, target=1.5e-3):
        """Seconds of one call, by device events; every contender in every round, the order turned each time."""
        import cupy

        def elapsed(calls, passes):
            first, last = cupy.cuda.Event(), cupy.cuda.Event()
            first.record()
            for _ in range(passes):
                for call in calls:
                    call()
            last.record()
            last.synchronize()
            return cupy.cuda.get_elapsed_time(first, last) * 1e-3 / (passes * len(calls))

        times, passes = {name: [] for name in contenders}, {}
        for name, calls in contenders.items():
            elapsed(calls[:1], 1)
            once = elapsed(calls, 1)
            passes[name] = max(1, min(20, round(target / max(once * len(calls), 1e-6))))
        for sample in range(samples):
            for name in list(contenders) if sample % 2 == 0 else reversed(list(contenders)):
                times[name].append(elapsed(contenders[name], passes[name]))
        return times

    def sweep(self, method, n, nrhs, dtype):
        def section(deadline):
            import cupy
            import numpy as np

            from warpfront.bench import gpu

            itemsize = np.dtype(dtype).itemsize
            nbytes = BATCH * floor_bytes(method, n, nrhs, itemsize)
            pairs = self.inputs(method, n, nrhs, BATCH, dtype, min(4, gpu.buffer_sets(nbytes)))
            data = [(a, b, self.outputs(method, a, b)) for a, b in pairs]
            numbers = (0.0, 64 * float(np.finfo(dtype).eps), 0.0) if method == "cholesky" else ()
            contenders, wrong, first, verdict = {}, {}, None, {}
            taken = planned(method, n, nrhs, dtype).values()
            chosen = [
                (name, made)
                for name, made in variants(method, n, nrhs, dtype)
                if name in taken or made.expression in self.built
            ]
            serial = plans.plan(plans.BatchedProblem(method, n, nrhs, BATCH, dtype), "serial")
            extra = (n, nrhs) in SWEEP and dtype == "float32"
            chosen += [("serial", serial)] if extra else []
            for name, made in chosen:
                try:
                    calls = self.ours(made, numbers, data)
                    for output in data[0][2]:
                        output.fill(77)
                    calls[0]()
                    verdict = self.judge(method, *data[0])
                    bits = [cupy.asnumpy(o[:3000]).tobytes() for o in data[0][2]]
                    first = first or bits
                    limit = 100 * n * float(np.finfo(dtype).eps)
                    same = bits == first
                    if not same or verdict["failed"] or max(verdict["residual"], verdict["factor"]) > limit:
                        wrong[name] = {**verdict, "same_bits": same}
                    contenders[name] = calls
                except Exception as error:
                    wrong[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            slow = {k: contenders.pop(k) for k in ("serial",) if k in contenders}
            try:
                slow |= self.peers(method, data) if dtype == "float32" else {}
            except Exception as error:
                wrong["peers"] = {"error": str(error)[:300]}
            times = self.round_robin(contenders, 7) | (self.round_robin(slow, 3, 1e-4) if slow else {})
            return {
                "batch": BATCH,
                "bytes": nbytes,
                "floor_us": nbytes / self.rate * 1e6,
                "planned": planned(method, n, nrhs, dtype),
                "wrong": wrong,
                "verdict": verdict,
                "samples_us": {k: [round(t * 1e6, 2) for t in v] for k, v in times.items()},
            }

        return section

    # -------------------------------------------------------------- whole calls

    def call_contenders(self, method, a, b):
        import cupy
        import torch

        from warpfront import batched

        ta, tb = torch.as_tensor(a, device="cuda"), torch.as_tensor(b, device="cuda")
        solve = {
            v: getattr(batched, f"{method}_solve_batched" + ("" if v == "serial" else f"_{v}"))
            for v in plans.VARIANTS
        }
        found = {v: partial(f, a, b) for v, f in solve.items() if v != "serial" or len(a) < BATCH}
        found["packed, torch tensors"] = partial(solve["packed"], ta, tb)
        found["torch solve_ex"] = lambda: torch.linalg.solve_ex(ta, tb)
        if method == "cholesky":
            found["torch cholesky"] = lambda: torch.cholesky_solve(tb, torch.linalg.cholesky_ex(ta)[0])
        else:
            found["cupy solve"] = lambda: cupy.linalg.solve(a, b)
        return found

    def calls(self, deadline):
        """Wall time of a call with a synchronisation: outputs allocated, work queued and waited for."""
        import cupy

        wait = cupy.cuda.runtime.deviceSynchronize
        rows = []
        for n, nrhs, batch in GRID:
            if perf_counter() > deadline - 8:
                break
            for method in plans.METHODS:
                ((a, b),) = self.inputs(method, n, nrhs, batch, "float32", 1)
                contenders = self.call_contenders(method, a, b)
                times = {name: [] for name in contenders}
                for sample in range(8):
                    order = list(contenders) if sample % 2 else list(contenders)[::-1]
                    for name in order:
                        begin = perf_counter()
                        contenders[name]()
                        wait()
                        if sample:
                            times[name].append(perf_counter() - begin)
                samples = {k: [round(t * 1e6, 1) for t in v] for k, v in times.items()}
                rows.append({"method": method, "n": n, "nrhs": nrhs, "batch": batch, "samples_us": samples})
        return {"rows": rows}

    # -------------------------------------------------------------- table

    def summary(self, record):
        lines = []
        for name, section in record["sections"].items():
            if "samples_us" in section and name != "copy":
                medians = {k: median(v) for k, v in section["samples_us"].items()}
                ours = {k: v for k, v in medians.items() if "lanes" in k}
                best = sorted(ours, key=ours.get)[:3]
                packed = [k for k in ours if k.startswith("32 ")]
                warp = min(packed, key=ours.get) if packed else None
                others = {k: v for k, v in medians.items() if k not in ours}
                key = tuple(int(v) for v in name.split()[-1].split(","))
                text = f"{name}: floor {section['floor_us']:.0f}"
                text += f" goal {GOALS.get(key, 0)} | " + " ".join(f"{k} {ours[k]:.0f};" for k in best)
                text += f" warp {warp} {ours[warp]:.0f} |" if warp else " |"
                text += " ".join(f"{k} {v:.0f}" for k, v in others.items())
                lines.append(text + (f" WRONG {section['wrong']}" if section["wrong"] else ""))
        behind = 0
        rows = record["sections"].get("calls", {}).get("rows", [])
        for row in rows:
            medians = {k: median(v) for k, v in row["samples_us"].items()}
            peer = min(v for k, v in medians.items() if "torch " in k or "cupy" in k)
            if min(medians[k] for k in ("warp", "packed")) > peer:
                behind += 1
                lines.append(
                    f"behind: {row['method']} {row['n']},{row['nrhs']} batch {row['batch']}: {medians}"
                )
        for row in itertools.islice(rows, 0, None, 9):
            lines.append(f"call {row['method']} {row['n']},{row['nrhs']} x {row['batch']}: "
                         + " ".join(f"{k} {median(v):.0f}" for k, v in row["samples_us"].items()))  # fmt: skip
        lines.append(f"calls: {len(rows)} rows, behind a peer in {behind}")
        return "\n".join(line[:330] for line in lines[-56:])


class DryBench(Bench):
    """Plans everything, launches nothing; the times are made up, so that flow and tables can be seen."""

    rate = 4e12

    def device(self):
        return {"dry": True}

    def copy(self, deadline):
        return {"samples_us": [1.0]}

    def sweep(self, method, n, nrhs, dtype):
        def section(deadline):
            names = [name for name, _ in variants(method, n, nrhs, dtype)]
            samples = {name: [10.0 + len(name)] for name in [*names, "torch solve_ex"]}
            nbytes = BATCH * floor_bytes(method, n, nrhs, 4)
            found = {"floor_us": nbytes / self.rate * 1e6, "wrong": {}, "samples_us": samples}
            return {**found, "planned": planned(method, n, nrhs, dtype)}

        return section

    def calls(self, deadline):
        rows = []
        for n, nrhs, batch in GRID:
            samples = {"warp": [5.0], "packed": [4.0], "torch solve_ex": [9.0]}
            rows.append({"method": "lu", "n": n, "nrhs": nrhs, "batch": batch, "samples_us": samples})
        return {"rows": rows}
