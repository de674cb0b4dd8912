"""Sums of chunks on every backend, against plain NumPy paths; float64 has the same bits on all of them."""

import numpy as np
import pytest

from warpfront.montecarlo import AsianArithmetic, Barrier, European, Settings, _cuda, _reference
from warpfront.montecarlo import _path_kernels as kernels
from warpfront.montecarlo._run import CHANNELS, CHUNK, Run
from warpfront.montecarlo._tree import SumTree

MARKET = {"spot": 100.0, "rate": 0.05, "volatility": 0.25, "maturity": 1.5, "dividend_yield": 0.02}
OPTIONS = {
    "european": [European(strike=105, **MARKET), European(kind="put", strike=90, **MARKET)],
    "steps": [
        European(strike=105, n_steps=3, **MARKET),
        European(kind="put", strike=90, n_steps=5, **MARKET),
    ],
    "asian": [
        AsianArithmetic(strike=100, n_steps=4, **MARKET),
        AsianArithmetic(kind="put", strike=100, n_steps=2, **MARKET),
    ],
    "discrete": [
        Barrier(strike=100, n_steps=3, barrier=140, knock="up-and-out", **MARKET),
        Barrier(kind="put", strike=100, n_steps=3, barrier=80, knock="down-and-in", **MARKET),
    ],
    "continuous": [
        Barrier(strike=100, n_steps=2, barrier=140, knock="up-and-in", monitoring="continuous", **MARKET),
        Barrier(
            kind="put",
            strike=100,
            n_steps=3,
            barrier=80,
            knock="down-and-out",
            monitoring="continuous",
            **MARKET,
        ),
    ],
}
METHODS = [
    {},
    {"antithetic": True},
    {"control_variate": True},
    {"greeks": True},
    {"antithetic": True, "control_variate": True, "greeks": True},
    {"sobol": True, "replicates": 16},
    {"sobol": True, "replicates": 16, "greeks": True},
]


def cpu_sums(run, n, first, last, grid=0):
    from warpfront.montecarlo import _host

    points = _host._points(run)
    out = np.zeros((run.n_series, last - first, CHANNELS))
    for series in range(run.n_series):
        option, replicate = divmod(series, run.replicates)
        whole = run.whole(option, n)
        kernels.chunk_sums(out[series], first, last, run.coefficients[option], whole, *points[replicate])
    return out


def simt_sums(run, n, first, last, grid=2):
    from warpfront.backend.simt import Out, Simt
    from warpfront.montecarlo._sobol import scrambles

    (_, names, _), *_ = _cuda.instantiations()
    kernel = Simt.build(
        _cuda.SOURCE, [name for name in names if "double" in name or "0, 1, false, false" in name]
    )
    steps = tuple(option.n_steps for option in run.options)
    made = _cuda.plan(run.options[0].payoff_code, steps, run.settings, run.n_series, last - first)
    points = [np.zeros(1, np.uint32)] * 2
    if run.settings.sobol:
        points = [a.astype(np.uint32) for a in scrambles(run.dims, run.replicates, run.settings.seed)]
    whole = np.array([[o.n_steps, run.stream(k)] for k, o in enumerate(run.options)], np.int32)
    out = np.empty((run.n_series, last - first, CHANNELS))
    numbers = (run.settings.seed, n, first, last - first, run.n_series, run.replicates, run.dims)
    arguments = [Out(out), run.coefficients, whole, *points, *numbers]
    report = kernel.launch(made.expression, grid, made.threads, arguments, schedules=2)
    assert not report.findings, report.findings
    return out


def cuda_sums(run, n, first, last, grid=0):
    tree = SumTree()
    for chunk in range(first, last):
        one = SumTree()
        _cuda.add_chunks(run, n, chunk, chunk + 1, one)
        ((_, block),) = one.nodes.items()
        tree.nodes[0, chunk] = block
    return np.stack([tree.nodes[0, chunk] for chunk in range(first, last)], axis=1)


@pytest.fixture(
    params=[
        pytest.param(cpu_sums, id="cpu"),
        pytest.param(simt_sums, marks=pytest.mark.simt, id="simt"),
        pytest.param(cuda_sums, marks=pytest.mark.cuda, id="cuda"),
    ]
)
def sums_of(request):
    return request.param


def run_of(name, **settings):
    return Run.of(tuple(OPTIONS[name]), Settings(seed=(7 << 32) + 5, **settings))


def allowed(name, method):
    return not (method.get("greeks") and name in ("discrete", "continuous"))


def reference_samples(run, k, samples):
    """Discounted payoffs of the samples of a pseudo-random run (pair means when antithetic), and how many paths pay."""
    option = run.options[k]
    z = np.array(
        [_reference.normals(samples, s, run.stream(k), run.settings.seed) for s in range(option.n_steps)]
    )
    up = _reference.discounted_payoffs(option, z)
    if not run.settings.antithetic:
        return up, (up > 0).sum()
    down = _reference.discounted_payoffs(option, -z)
    return (up + down) / 2, (up > 0).sum() + (down > 0).sum()


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("streams", ["common", "independent"])
@pytest.mark.parametrize("name", OPTIONS)
def test_sums_are_those_of_plain_paths(sums_of, name, streams, antithetic):
    run, n = run_of(name, antithetic=antithetic, streams=streams), 1700
    got = sums_of(run, n, 0, 1)
    for k in range(len(run.options)):
        paid, paying = reference_samples(run, k, np.arange(n, dtype=np.uint64))
        d = paid - run.coefficients[k, 4]
        scale = np.abs(d).sum()
        assert abs(got[k, 0, 0] - d.sum()) < 1e-13 * scale
        assert got[k, 0, 1] == pytest.approx((d * d).sum(), rel=1e-12)
        assert got[k, 0, 2] == paying


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_float64_has_the_same_bits_on_every_backend(sums_of, name, method):
    """With every method: a partial lane, a partial sweep, and for pseudo-random words a second chunk."""
    if not allowed(name, method):
        return
    run = run_of(name, **method)
    n, chunks = (256, 1) if method.get("sobol") else (CHUNK + 1401, 2)
    first = 0 if method.get("sobol") else 1
    expected = cpu_sums(run, n, first, chunks)
    assert np.array_equal(sums_of(run, n, first, chunks), expected)
    assert np.isfinite(expected).all()


def test_a_full_chunk_has_the_same_bits(sums_of):
    run = run_of("european")
    assert np.array_equal(sums_of(run, 3 * CHUNK, 2, 3), cpu_sums(run, 3 * CHUNK, 2, 3))


@pytest.mark.simt
@pytest.mark.parametrize("grid", [1, 2, 3, 5])
def test_sums_do_not_depend_on_the_grid(grid):
    run, n = run_of("european"), CHUNK + 300
    assert np.array_equal(simt_sums(run, n, 0, 2, grid), cpu_sums(run, n, 0, 2))


@pytest.mark.simt
def test_float32_paths_are_near_float64_ones():
    a = simt_sums(run_of("european", precision="float32"), 1000, 0, 1)
    b = cpu_sums(run_of("european"), 1000, 0, 1)
    assert np.abs(a[..., 0] - b[..., 0]).max() / 1000 < 2e-5
    assert np.array_equal(a[..., 2], b[..., 2])


@pytest.mark.simt
def test_tree_of_chunks_on_the_device_is_the_hosts():
    from warpfront.backend.simt import Out, Simt

    rng = np.random.default_rng(4)
    src = rng.standard_normal((2, 150, CHANNELS))
    groups, skip = 2, 13
    dst = np.empty((2, groups, CHANNELS))
    kernel = Simt.build(_cuda.SOURCE, [_cuda.TREE])
    report = kernel.launch(_cuda.TREE, 1, 128, [Out(dst), src, 2, groups, 150, skip], schedules=2)
    assert not report.findings
    for group in range(groups):
        tree = SumTree()
        tree.add(0, 64 * group, np.moveaxis(src[:, skip + 64 * group : skip + 64 * group + 64], 1, 0))
        assert np.array_equal(dst[:, group], tree.nodes[6, group])


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, 64, (0, 64)), (0, 63, (63, 63)), (1, 130, (64, 128)), (70, 100, (100, 100)), (64, 400, (64, 384))],
)
def test_whole_groups_of_a_range(first, last, expected):
    assert _cuda.split(first, last) == expected


def test_plan_names_an_instantiation_that_is_listed():
    (_, names, _), *_ = _cuda.instantiations()
    for name in OPTIONS:
        for method in METHODS:
            for precision in ("float64", "float32"):
                if allowed(name, method):
                    run = run_of(name, precision=precision, **method)
                    steps = tuple(option.n_steps for option in run.options)
                    made = _cuda.plan(run.options[0].payoff_code, steps, run.settings, run.n_series, 9)
                    assert made.expression in names
                    assert made.items == 9 * run.n_series
    ((_, part, _),) = _cuda.subset()
    assert set(part) < set(names)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_kernels_build_without_a_gpu(arch):
    from warpfront.backend import compile as compiling

    ((file, names, _),) = _cuda.subset()
    for name in names if arch == "sm_90" else names[:4]:
        built = compiling.build(file, (name,), arch, options=_cuda.OPTIONS)
        assert built.cached or built.seconds < 4
        resources = built.resources[name]
        assert resources.spill_store_bytes + resources.spill_load_bytes <= 64, name


# A GPU alone can answer these.


@pytest.mark.cuda
class TestOnAGpu:
    def test_price_has_the_cpus_bits(self):
        from warpfront.montecarlo import price

        for name, options in OPTIONS.items():
            for method in METHODS:
                if allowed(name, method):
                    n = 16 * 1024 if method.get("sobol") else 3_000_000
                    a, b = (price(options, n, device=d, seed=3, **method) for d in ("cpu", "cuda"))
                    assert a.estimates == b.estimates, (name, method)

    def test_many_options_and_parts(self):
        from warpfront.montecarlo import merge, price, simulate

        chain = [European(strike=50 + k, **MARKET) for k in range(100)]
        whole = price(chain, 2_500_000, device="cpu")
        parts = [simulate(chain, 2_500_000, k, 5, device="cuda") for k in range(5)]
        assert merge(parts).estimates == whole.estimates
        assert price(chain, 2_500_000, device="cuda").estimates == whole.estimates

    @pytest.mark.parametrize("name", OPTIONS)
    def test_float32_agrees_within_its_error(self, name):
        from warpfront.montecarlo import price

        options = OPTIONS[name]
        a = price(options, 1 << 26, device="cuda", precision="float32")
        b = price(options, 1 << 26, device="cuda")
        for x, y in zip(a, b, strict=True):
            assert abs(x.price - y.price) < 2e-5 * x.option.spot / 100 + 0.1 * y.standard_error
            assert x.standard_error == pytest.approx(y.standard_error, rel=1e-3)

    def test_float32_z_over_many_streams(self):
        from warpfront.montecarlo import price

        option = European(strike=105, **MARKET)
        z = price([option] * 200, 1 << 20, device="cuda", precision="float32", streams="independent").z
        assert abs(z.mean()) < 4 / np.sqrt(200)
        assert 0.6 < z.var(ddof=1) < 1.5

    def test_twenty_runs_give_the_same_bits(self):
        from warpfront.montecarlo import price

        for precision in ("float64", "float32"):
            found = {
                price(OPTIONS["european"], 5_000_000, device="cuda", precision=precision).estimates
                for _ in range(20)
            }
            assert len(found) == 1
