"""Device headers, on the host through their twins and on a GPU: reductions, signals, products, copies."""

from pathlib import Path

import numpy as np
import pytest

SOURCE = Path(__file__).with_name("device_headers.cu")
SIGNATURES = {
    "warp_reductions<double>": "pppp",
    "warp_reductions<float>": "pppp",
    "warp_reductions<int>": "pppp",
    "block_reductions<double>": "pppp",
    "signal_chain": "ppi",
    "meet": "ppp",
    "complex_arithmetic": "ppp",
    "copy_vec16": "pp",
    "product_m8n8k4": "pppp",
    "product_m16n8k16": "pppp",
    "copy_async": "ppi",
    "copy_bulk": "pp",
}
KERNELS = tuple(SIGNATURES)


def _run_simt(name, grid, block, args, cooperative):
    from warpfront.backend.simt import Simt

    simt = Simt.build(SOURCE, KERNELS)
    report = simt.launch(name, grid, block, args, resident=grid)
    assert not report.findings, report.findings


def _run_cuda(name, grid, block, args, cooperative):
    import cupy

    from warpfront.backend import capability, cuda

    have = capability.probe(0)
    least = {"product_m8n8k4": (8, 0), "copy_async": (8, 0), "product_m16n8k16": (9, 0), "copy_bulk": (9, 0)}
    if have.cc < least.get(name, (0, 0)):
        pytest.skip(f"{name} needs compute capability {least[name]}, the device has {have.cc}")
    kernel = cuda.load(SOURCE, name, SIGNATURES[name], 0)
    moved = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
    pointers = [a.data.ptr if isinstance(a, cupy.ndarray) else a for a in moved]
    kernel.launch(cupy.cuda.get_current_stream().ptr, grid, block, pointers, cooperative=cooperative)
    for host, device in zip(args, moved, strict=True):
        if isinstance(host, np.ndarray) and host.flags.writeable:
            host[...] = cupy.asnumpy(device)


@pytest.fixture(
    params=[
        pytest.param(_run_simt, marks=pytest.mark.simt, id="simt"),
        pytest.param(_run_cuda, marks=pytest.mark.cuda, id="cuda"),
    ]
)
def run(request):
    """``run(kernel, grid, block, args)``: arrays are updated in place."""

    def launch(name, grid, block, *args, cooperative=False):
        request.param(name, grid, block, list(args), cooperative)

    return launch


def _serial_arg_max(values, index):
    """What a scan in order of index with a strict comparison finds; the first NaN beats all."""
    best = None
    for k in np.argsort(index, kind="stable"):
        if index[k] == 0x7FFFFFFF:
            continue
        if best is None or (np.isnan(values[k]) and not np.isnan(values[best])) or values[k] > values[best]:
            best = k
    return best


CASES = ("random", "ties", "nan", "two_nans", "all_equal", "infinities", "few", "one")


def _values(case, count, dtype):
    rng = np.random.default_rng(5)
    x = rng.standard_normal(count) * 100
    index = rng.permutation(count).astype(np.int32)
    if case == "ties":
        x = rng.integers(0, 4, count).astype(float)
    elif case == "nan":
        x[count // 3] = np.nan
    elif case == "two_nans":
        x[[3, count - 2]] = np.nan
    elif case == "all_equal":
        x[:] = -2.5
    elif case == "infinities":
        x[1], x[2], x[7] = np.inf, -np.inf, np.inf
    elif case in ("few", "one"):
        index[5 if case == "few" else 1 :] = 0x7FFFFFFF
    return x.astype(dtype), index


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_warp_reductions(run, case, dtype):
    if dtype == "int32" and case in ("nan", "two_nans", "infinities"):
        case = "ties"
    values, index = _values(case, 32, dtype)
    out, where = np.zeros((32, 4), dtype), np.zeros(32, np.int32)
    name = {"float64": "double", "float32": "float", "int32": "int"}[dtype]
    run(f"warp_reductions<{name}>", 1, 32, out, where, values, index)
    _check_reductions(values, index, out, where)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [32, 96, 256])
def test_block_reductions(run, case, threads):
    values, index = _values(case, threads, "float64")
    out, where = np.zeros((threads, 4)), np.zeros(threads, np.int32)
    run("block_reductions<double>", 1, threads, out, where, values, index)
    _check_reductions(values, index, out, where)


def _check_reductions(values, index, out, where):
    with np.errstate(invalid="ignore"):
        # Bound of any order of summation: (count - 1) rounding errors on the sum of magnitudes.
        exact = values.astype(np.float64).sum()
        finite = values[np.isfinite(values)].astype(np.float64)
    bound = (
        len(values) * (np.finfo(values.dtype).eps if values.dtype.kind == "f" else 0) * np.abs(finite).sum()
    )
    if np.isfinite(exact):
        assert np.all(np.abs(out[:, 0] - exact) <= bound)
    else:
        assert np.all(np.isnan(out[:, 0]))
    assert out[:, 0].tobytes() == np.repeat(out[:1, 0], len(out)).tobytes()  # the same bits in every thread
    np.testing.assert_array_equal(out[:, 1], np.repeat(values.max(), len(out)))
    np.testing.assert_array_equal(out[:, 2], np.repeat(values.min(), len(out)))
    best = _serial_arg_max(values, index)
    np.testing.assert_array_equal(where, np.repeat(index[best], len(out)))
    np.testing.assert_array_equal(out[:, 3], np.repeat(values[best], len(out)))


def test_signals_order_a_chain_of_blocks(run):
    blocks, threads = 6, 32
    flags = np.zeros(blocks, np.uint32)
    for epoch in (1, 2):  # the second launch uses the flags as the first left them
        values = np.zeros((blocks, threads), np.uint32)
        run("signal_chain", blocks, threads, values, flags, epoch, cooperative=True)
        expected = np.cumsum(np.arange(1, blocks + 1))
        np.testing.assert_array_equal(values, np.repeat(expected[:, None], threads, axis=1))
        np.testing.assert_array_equal(flags, epoch)


def test_grid_barrier(run):
    blocks = 5
    sums, cells, counter = (
        np.zeros((2, blocks), np.uint32),
        np.zeros(blocks, np.uint32),
        np.zeros(1, np.uint32),
    )
    run("meet", blocks, 32, sums, cells, counter, cooperative=True)
    np.testing.assert_array_equal(sums, [[15] * blocks, [30] * blocks])


def test_complex_arithmetic(run):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(32) + 1j * rng.standard_normal(32) for _ in range(2))
    a[0], b[0] = 1e200 + 1e200j, 2e200 - 1e199j  # |b|^2 overflows
    out = np.zeros((32, 6), complex)
    flat = [x.view(float) for x in (out, a, b)]
    run("complex_arithmetic", 1, 32, *flat)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.stack([a + b, a - b, a * b, a / b, a.conj(), np.abs(a) ** 2 + 0j], axis=1)
    for column in (0, 1, 3, 4):
        assert np.all(
            np.abs(out[:, column] - expected[:, column])
            <= 8 * np.finfo(float).eps * np.abs(expected[:, column])
        )
    scale = np.abs(a[1:]) * np.abs(b[1:])
    assert np.all(np.abs(out[1:, 2] - expected[1:, 2]) <= 4 * np.finfo(float).eps * scale)
    assert np.all(np.abs(out[1:, 5] - expected[1:, 5]) <= 4 * np.finfo(float).eps * expected[1:, 5].real)


def test_sixteen_byte_copies(run):
    source = np.random.default_rng(2).integers(0, 256, 512, np.uint8)
    out = np.zeros(512, np.uint8)
    run("copy_vec16", 1, 32, out, source)
    np.testing.assert_array_equal(out, source)


@pytest.mark.simt
@pytest.mark.parametrize("side", ["read", "write"])
def test_a_misaligned_copy_of_sixteen_bytes_is_reported(side):
    """The device would fault: the host twins must not hide it."""
    from warpfront.backend.simt import Simt

    raw = np.zeros(1056, np.uint8)
    start = -raw.ctypes.data % 16
    aligned, off = raw[start : start + 512], raw[start + 516 : start + 1028]
    args = [aligned, off] if side == "read" else [off, aligned]
    report = Simt.build(SOURCE, KERNELS).launch("copy_vec16", 1, 32, args)
    found = [str(one) for one in report.findings if one.kind == "misaligned access"]
    assert found
    assert all(f"{side} of 16 bytes" in text for text in found), report


@pytest.mark.parametrize(
    ("name", "m", "n", "k"), [("product_m8n8k4", 8, 8, 4), ("product_m16n8k16", 16, 8, 16)]
)
def test_matrix_products(run, name, m, n, k):
    rng = np.random.default_rng(3)
    a, b, c = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal((m, n))
    d = np.zeros((m, n))
    run(name, 1, 32, d, a, b, c)
    magnitude = np.abs(a) @ np.abs(b) + np.abs(c)
    assert np.all(np.abs(d - (a @ b + c)) <= (k + 1) * np.finfo(float).eps * magnitude)
    small = rng.integers(-8, 9, (m, k)).astype(float), rng.integers(-8, 9, (k, n)).astype(float)
    run(name, 1, 32, d, *small, np.zeros((m, n)))
    np.testing.assert_array_equal(d, small[0] @ small[1])  # integers: exact in any order


@pytest.mark.parametrize("valid", [0, 1, 4, 15, 16])
def test_asynchronous_copies(run, valid):
    source = np.random.default_rng(4).integers(1, 256, 512, np.uint8)
    out = np.full(512 + 384, 7, np.uint8)
    run("copy_async", 1, 32, out, source, valid)
    expected = source.reshape(32, 16).copy()
    expected[:, valid:] = 0
    np.testing.assert_array_equal(out[:512].reshape(32, 16), expected)
    pieces = np.hstack([source[:256].reshape(32, 8), source[:128].reshape(32, 4)])
    np.testing.assert_array_equal(out[512:].reshape(32, 12), pieces)


def test_bulk_copies(run):
    source = np.random.default_rng(6).integers(0, 256, 4096, np.uint8)
    out = np.zeros(4096, np.uint8)
    run("copy_bulk", 1, 32, out, source)
    np.testing.assert_array_equal(out.reshape(2, 32, 64), source.reshape(2, 32, 64)[:, ::-1])
