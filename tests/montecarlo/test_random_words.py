"""The random stream: known answers, the same words everywhere, normals within their stated errors."""

import re

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import kstest, qmc

from warpfront.errors import NotSupportedError
from warpfront.montecarlo import _cuda, _reference, _sobol
from warpfront.montecarlo import _normal_kernels as kernels

# Random123's known answers: counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
COUNTERS = kernels.LANES


def cpu_words(first, count, step, stream, seed, grid):
    blocks = []
    u = np.uint64
    for at in range(0, count, COUNTERS):
        words = np.empty((4, COUNTERS), np.uint64)
        kernels.philox(words, u(first + at), u(step), u(stream), u(seed % 2**32), u(seed >> 32))
        blocks.append(words.T)
    return np.concatenate(blocks)[:count]


def simt_words(first, count, step, stream, seed, grid):
    from warpfront.backend.simt import Out, Simt

    out = np.empty(4 * count, np.uint32)
    kernel = Simt.build(_cuda.SOURCE, ["philox_words<10>"])
    report = kernel.launch(
        "philox_words<10>", -(-count // grid), grid, [Out(out), first, count, step, stream, seed], schedules=2
    )
    assert not report.findings, report.findings
    return out.reshape(count, 4)


def cuda_words(first, count, step, stream, seed, grid):
    import cupy

    from warpfront.backend import cuda

    out = cupy.empty(4 * count, cupy.uint32)
    kernel = cuda.load(_cuda.SOURCE, "philox_words<10>", "pqqiiq", 0, _cuda.OPTIONS)
    signed = [_cuda._signed(seed), stream - 2**32 if stream >= 2**31 else stream]
    step = step - 2**32 if step >= 2**31 else step
    arguments = [out.data.ptr, first, count, step, signed[1], signed[0]]
    kernel.launch(cupy.cuda.get_current_stream().ptr, -(-count // grid), grid, arguments)
    return cupy.asnumpy(out).reshape(count, 4)


@pytest.fixture(
    params=[
        pytest.param(cpu_words, id="cpu"),
        pytest.param(simt_words, marks=pytest.mark.simt, id="simt"),
        pytest.param(cuda_words, marks=pytest.mark.cuda, id="cuda"),
    ]
)
def words_of(request):
    return request.param


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_reference_known_answers(counter, key, expected):
    assert tuple(_reference.philox(np.array(counter), key)) == expected


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(words_of, counter, key, expected):
    c0, c1, c2, c3 = counter
    first = c0 | c1 << 32
    if words_of is not cpu_words and first >= 2**63:
        first -= 2**64
    got = words_of(first, 1, c2, c3, key[0] | key[1] << 32, 128)
    assert tuple(int(word) for word in got[0]) == expected


@pytest.mark.parametrize("grid", [32, 64, 128])
def test_every_backend_and_grid_has_the_reference_stream(words_of, grid):
    """Counters across a 2^32 boundary, several blocks, a partial one: word i mod 4 of counter i div 4."""
    first, count, seed = 2**32 - 150, 300, 0x0123456789ABCDEF
    samples = np.arange(4 * first, 4 * (first + count), dtype=np.uint64)
    expected = _reference.words(samples, 5, 7, seed)
    assert np.array_equal(words_of(first, count, 5, 7, seed, grid).reshape(-1), expected)


def test_normals_are_box_muller_of_the_words():
    words, z = np.empty((4, COUNTERS), np.uint64), np.empty((4, COUNTERS))
    for first in range(0, 40 * COUNTERS, COUNTERS):
        kernels.philox(words, np.uint64(first), np.uint64(0), np.uint64(0), np.uint64(3), np.uint64(0))
        kernels.normals(words, z)
        samples = np.arange(4 * first, 4 * (first + COUNTERS), dtype=np.uint64)
        assert np.abs(z.T.reshape(-1) - _reference.normals(samples, 0, 0, 3)).max() < 4e-15


def test_no_word_makes_an_infinite_normal():
    """Uniforms lie in (0, 1]: the extreme words give the extreme normals and nothing else."""
    ends = np.array([0, 1, 2**32 - 1, 2**32 - 2, 2**31, 2**31 - 1, 2**29, 2**29 - 1], np.uint64)
    words = np.zeros((4, COUNTERS), np.uint64)
    words[0, : ends.size**2] = words[2, : ends.size**2] = np.repeat(ends, ends.size)
    words[1, : ends.size**2] = words[3, : ends.size**2] = np.tile(ends, ends.size)
    z = np.empty((4, COUNTERS))
    kernels.normals(words, z)
    assert np.isfinite(z).all()
    assert np.abs(z).max() == pytest.approx(np.sqrt(2 * 33 * np.log(2)), rel=1e-14)
    kernels.inverse_normals(words, z)
    assert np.isfinite(z).all()
    assert np.allclose(z, ndtri((words + 0.5) / 2.0**32), rtol=1e-14, atol=0)


def test_inverse_normal_within_its_stated_error():
    rng = np.random.default_rng(5)
    words, z = rng.integers(0, 2**32, (4, COUNTERS), np.uint64), np.empty((4, COUNTERS))
    words[1] >>= np.uint64(20)  # the far tail
    kernels.inverse_normals(words, z)
    assert np.abs(z / ndtri((words + 0.5) / 2.0**32) - 1).max() < 1e-15


def test_logarithm_within_its_stated_error():
    rng = np.random.default_rng(2)
    words = np.concatenate([rng.integers(0, 2**32, 4000, np.uint64), np.arange(9, dtype=np.uint64)])
    words = np.concatenate([words, np.uint64(2**32 - 1) - np.arange(9, dtype=np.uint64)])
    got = np.array([kernels.minus_2_log(word) for word in words], np.longdouble)
    exact = -2 * np.log((words.astype(np.longdouble) + 0.5) / np.longdouble(2) ** 32)
    assert np.abs(got / exact - 1).max() < 4e-16


def test_sine_and_cosine_within_their_stated_error():
    """z over its radius, which adds the roundings of radius and product to those of sine and cosine."""
    rng = np.random.default_rng(3)
    words, z = rng.integers(0, 2**32, (4, COUNTERS), np.uint64), np.empty((4, COUNTERS))
    kernels.normals(words, z)
    turn = 2 * np.pi * (words[1].astype(np.longdouble) / np.longdouble(2) ** 32)
    turn += np.longdouble("2.4492935982947064e-16") * (
        words[1].astype(np.longdouble) / np.longdouble(2) ** 32
    )
    radius = np.sqrt(-2 * np.log((words[0].astype(np.longdouble) + 0.5) / np.longdouble(2) ** 32))
    assert np.abs(z[0] / radius - np.cos(turn)).max() < 4e-16
    assert np.abs(z[1] / radius - np.sin(turn)).max() < 4e-16


def test_power_of_two_within_its_stated_error():
    x = np.random.default_rng(1).uniform(-60, 60, 5000)
    got = np.array([kernels.exp2(value) for value in x], np.longdouble)
    assert np.abs(got / np.exp2(x.astype(np.longdouble)) - 1).max() < 3e-16
    assert [kernels.exp2(value) for value in (0.0, 1.0, -3.0, 1019.0)] == [1.0, 2.0, 0.125, 2.0**1019]


def test_normals_have_a_normal_distribution():
    samples = np.arange(200_000, dtype=np.uint64)
    z = _reference.normals(samples, 2, 0, 11)
    assert kstest(z, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(z[0::2], z[1::2])[0, 1]) < 0.02


def test_device_and_host_have_the_same_coefficients():
    """Every coefficient of the CPU kernels stands in the device header, as the same double."""
    text = _cuda.SOURCE.with_name("normal.cuh").read_text(encoding="utf-8")
    numbers = {abs(float(word)) for word in re.findall(r"\d+\.\d+(?:e-?\d+)?(?![\df.])", text)}
    for name in ("LOG", "SIN", "COS", "EXP2", "CENTRE_P", "CENTRE_Q", "TAIL_P", "TAIL_Q"):
        assert {abs(value) for value in getattr(kernels, name)} <= numbers, name


def test_sobol_points_are_scipys():
    dims = 40
    plain = _sobol.directions(dims)
    i = np.arange(256, dtype=np.uint64)
    gray = i ^ (i >> np.uint64(1))
    points = np.zeros((256, dims), np.uint64)
    for bit in range(32):
        points ^= ((gray >> np.uint64(bit)) & np.uint64(1))[:, None] * plain[:, bit]
    assert np.array_equal(points / 2.0**32, qmc.Sobol(dims, scramble=False).random(256))


def test_scrambled_sobol_keeps_the_net_and_is_uniform():
    """256 points of each scramble lie one in each of 256 equal intervals of every coordinate; shifts differ."""
    directions, shifts = _sobol.scrambles(6, 16, 9)
    words, block = np.empty((4, COUNTERS), np.uint64), np.uint64(0)
    first = []
    for r in range(16):
        for d in range(6):
            kernels.sobol_points(words, block, np.uint64(d), directions[r], shifts[r])
            cells = words.T.reshape(-1)[:256] >> np.uint64(24)
            assert np.array_equal(np.sort(cells), np.arange(256))
            first.append(words[0, 0] / 2.0**32)
    assert kstest(first, "uniform").pvalue > 1e-3
    assert not np.array_equal(_sobol.scrambles(6, 16, 10)[1], shifts)


def test_sobol_has_an_end():
    with pytest.raises(NotSupportedError, match="21201 time steps"):
        _sobol.directions(21202)
