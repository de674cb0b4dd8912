"""Transpose on every backend: the CPU, the kernel sources on the host (SIMT runner), and a GPU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfront.dense import _reference, _transpose_host, explain_transpose, transpose
from warpfront.dense import _transpose_cuda as plans
from warpfront.errors import InvalidValueError, NotSupportedError

DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
# Below, at and across the tiles of every element size, narrow and flat ones, and batches.
SHAPES = [
    (1, 1),
    (3, 5),
    (17, 1),
    (1, 40),
    (64, 64),
    (65, 33),
    (130, 70),
    (100, 144),
    (16, 300),
    (3, 9, 11),
    (2, 40, 96),
]
PITCHES = [(0, 0), (3, 0), (0, 5), (16, 32)]


def random_bits(shape, dtype, seed=0):
    """Any bits, NaN payloads and subnormals included."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8).view(dtype).reshape(shape)


def pitched(shape, dtype, extra, seed):
    """A view of ``shape`` whose rows lie ``extra`` elements further apart, random memory between them."""
    whole = random_bits((*shape[:-1], shape[-1] + extra), dtype, seed)
    assert whole.base.dtype == np.uint8  # what any view's base is: the raw memory
    return whole, whole[..., : shape[-1]]


def same_bits(a, b):
    return a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


class Cpu:
    """The public function on NumPy arrays."""

    paths = ("cpu",)

    def run(self, source, target, path):
        assert transpose(source, out=target, path=path) is target


class Cuda:
    """The public function on CuPy arrays that repeat the host arrays' memory, gaps included."""

    paths = ("portable", "sm_80", "sm_90")

    def run(self, source, target, path):
        import cupy

        from warpfront.backend import capability

        if capability.probe(0).cc < {"portable": (7, 5), "sm_80": (8, 0), "sm_90": (9, 0)}[path]:
            pytest.skip(f"the device is older than path {path}")
        memory = {id(a): cupy.asarray(a.base) for a in (source, target)}
        moved = {id(a): self._view(memory[id(a)], a) for a in (source, target)}
        out = moved[id(target)]
        assert transpose(moved[id(source)], out=out, path=path) is out
        target.base[...] = cupy.asnumpy(memory[id(target)])

    @staticmethod
    def _view(memory, a):
        """The part of raw device memory that ``a`` is of its own."""
        pitch = a.strides[-2] // a.itemsize
        return memory.view(a.dtype).reshape(*a.shape[:-1], pitch)[..., : a.shape[-1]]


class Simt:
    """The kernel sources under the SIMT runner, launched as planned; persistent kernels with three blocks."""

    paths = ("portable", "sm_80", "sm_90")

    def run(self, source, target, path):
        from warpfront.backend.simt import Simt as Runner

        in_place = source is target
        problem = problem_of(source, target, in_place)
        made = plans.plan(problem, path)
        names = next(names for file, names, _ in plans.instantiations() if file == made.source)
        blocks = min(made.blocks, 3) if made.persistent else made.blocks
        wholes = [target.base, source.base]
        report = Runner.build(made.source, names).launch(
            made.expression,
            blocks,
            made.threads,
            [*(wholes[:1] if in_place else wholes), *made.tail],
            shared_bytes=made.shared_bytes,
            schedules=2,
        )
        assert not report.findings, report.findings


def problem_of(source, target, in_place):
    batched, size = source.ndim == 3, source.itemsize
    steps = [(a.strides[0] if batched else 0, a.strides[-2]) for a in (source, target)]
    return plans.TransposeProblem(
        m=source.shape[-2],
        n=source.shape[-1],
        batch=source.shape[0] if batched else 1,
        itemsize=size,
        dtype=str(source.dtype),
        on_device=True,
        src_pitch=steps[0][1],
        dst_pitch=steps[1][1],
        src_batch=steps[0][0],
        dst_batch=steps[1][0],
        src_align=np.gcd.reduce([16, *steps[0]]),
        dst_align=np.gcd.reduce([16, *steps[1]]),
        in_place=in_place,
    )


@pytest.fixture(
    params=[
        pytest.param(Cpu, id="cpu"),
        pytest.param(Simt, marks=pytest.mark.simt, id="simt"),
        pytest.param(Cuda, marks=pytest.mark.cuda, id="cuda"),
    ]
)
def backend(request):
    return request.param()


@pytest.mark.parametrize("pitch", PITCHES, ids=str)
@pytest.mark.parametrize("size", DTYPES)
def test_every_size_and_pitch(backend, size, pitch):
    """The result equals the reference and gaps keep their bits, on every path that takes the problem."""
    ran = set()
    for shape in SHAPES:
        _, source = pitched(shape, DTYPES[size], pitch[0], 1)
        for path in backend.paths:
            whole, target = pitched((*shape[:-2], shape[-1], shape[-2]), DTYPES[size], pitch[1], 2)
            if path != "cpu" and plans_refuse(path, problem_of(source, target, False)):
                continue
            expected = whole.copy()
            expected[..., : shape[-2]] = _reference.transpose(source)
            backend.run(source, target, path)
            assert same_bits(whole, expected), (shape, path)
            ran.add(path)
    assert ran >= {"portable"} or ran == {"cpu"}
    if pitch == (16, 32) and backend.paths != ("cpu",):
        assert ran == set(backend.paths)


def plans_refuse(path, problem):
    return path != "portable" and plans.why_not_streamed(problem, whole_chunks=path == "sm_90") is not None


@pytest.mark.simt
@pytest.mark.parametrize("size", DTYPES)
def test_any_address_under_the_runner(size):
    """Bases at every offset of an element from a multiple of 16, both sides; several tiles, edges, a batch."""
    from warpfront.backend.simt import Simt as Runner

    least = min(size, 8)
    for k, (m, n, batch) in enumerate([(150, 141, 1), (33, 290, 1), (40, 35, 2), (113, 16, 1), (17, 129, 1)]):
        for offset in {least * (1 + 2 * k) % 16, 16 - least} - {0}:
            source = random_bits((batch, m, n), DTYPES[size], k)
            pitches = (n * size, m * size, m * n * size, m * n * size)
            problem = plans.TransposeProblem(m, n, batch, size, "bytes", True, *pitches, least, least)
            made = plans.plan(problem, "portable")
            names = next(names for file, names, _ in plans.instantiations() if file == made.source)
            raw = np.empty(source.nbytes + 48, np.uint8)
            given = raw[-raw.ctypes.data % 16 + offset :][: source.nbytes]
            given[:] = source.reshape(-1).view(np.uint8)
            back = np.empty_like(raw)[-raw.ctypes.data % 16 + 16 - offset :][: source.nbytes]
            Runner.build(made.source, names).launch(
                made.expression, made.blocks, made.threads, [back, given, *made.tail], schedules=2
            ).check()
            assert same_bits(back, _reference.transpose(source).view(np.uint8).reshape(-1)), (m, n, offset)


@pytest.mark.parametrize("extra", [0, 3, 16])
@pytest.mark.parametrize("size", DTYPES)
def test_in_place(backend, size, extra):
    for shape in [(1, 1), (5, 5), (64, 64), (65, 65), (130, 130), (4, 9, 9), (2, 70, 70)]:
        whole, square = pitched(shape, DTYPES[size], extra, 3)
        expected = whole.copy()
        expected[..., : shape[-1]] = _reference.transpose(square)
        backend.run(square, square, "cpu" if backend.paths == ("cpu",) else "portable")
        assert same_bits(whole, expected), shape


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("size", DTYPES)
def test_cpu_kernels_and_threads(monkeypatch, size, threads):
    """Sizes that reach the blocked kernel, in one strip and in several; a power-of-two pitch among them."""
    monkeypatch.setenv("WARPFRONT_THREADS", threads)
    monkeypatch.setattr(_transpose_host, "_THREAD_BYTES", 1 << 20)
    for shape in [(301, 517), (2, 257, 1024), (9_000_000 // size // 500, 501)]:
        a = random_bits(shape, DTYPES[size])
        assert same_bits(transpose(a), _reference.transpose(a))
    square = random_bits((3100 // size + 700,) * 2, DTYPES[size])
    expected = _reference.transpose(square)
    assert transpose(square, out=square) is square
    assert same_bits(square, expected)


@given(
    shape=st.one_of(
        st.tuples(st.integers(0, 200), st.integers(0, 200)),
        st.tuples(st.integers(0, 4), st.integers(0, 60), st.integers(0, 60)),
    ),
    dtype=st.sampled_from(["?", "i1", "f2", "<f4", ">f4", "c8", "f8", "M8[ns]", "V16", "S4", "c16", "V2"]),
    order=st.sampled_from(["C", "F", "step", "reversed"]),
)
def test_any_layout_and_type(shape, dtype, order):
    a = (
        random_bits(shape, np.dtype(dtype).str.replace("?", "u1")).view(dtype)
        if dtype != "?"
        else random_bits(shape, "u1") > 9
    )
    a = {"C": a, "F": np.asfortranarray(a), "step": a[..., ::2], "reversed": a[..., ::-1, :]}[order]
    before = a.tobytes()
    result = transpose(a)
    assert result.dtype == a.dtype
    assert result.flags.c_contiguous
    assert same_bits(result, _reference.transpose(a))
    assert a.tobytes() == before


def test_empty():
    for shape in [(0, 3), (3, 0), (0, 0), (0, 4, 5), (2, 0, 5)]:
        assert transpose(np.empty(shape)).shape == (*shape[:-2], shape[-1], shape[-2])


@pytest.mark.parametrize(
    ("a", "options", "message"),
    [
        (np.zeros(3), {}, "2 or 3 axes"),
        (np.zeros((1, 1, 1, 1)), {}, "2 or 3 axes"),
        (np.zeros((2, 2), object), {}, "plain data"),
        (np.zeros((2, 2), "S3"), {}, "1, 2, 4, 8 or 16 bytes"),
        (np.zeros((2, 2), "V32"), {}, "1, 2, 4, 8 or 16 bytes"),
        (np.zeros((2, 3)), {"out": np.zeros((2, 3))}, "out must have shape"),
        (np.zeros((2, 3)), {"out": np.zeros((3, 2), "f4")}, "type float64"),
        (np.zeros((2, 3)), {"out": np.zeros((3, 4))[:, ::2]}, "last axis"),
        (np.zeros((2, 3)), {"out": [[0, 0]] * 3}, "out must have shape"),
        (np.zeros((2, 3)), {"device": "gpu"}, "device must be"),
        (np.zeros((2, 3)), {"path": "fast"}, "path must be"),
    ],
)
def test_refusals(a, options, message):
    with pytest.raises(InvalidValueError, match=message):
        transpose(a, **options)


def test_overlap_is_refused():
    memory = np.arange(200.0)
    a, out = memory[:100].reshape(10, 10), memory[50:150].reshape(10, 10)
    with pytest.raises(InvalidValueError, match="overlaps"):
        transpose(a, out=out)
    with pytest.raises(InvalidValueError, match="overlaps"):
        transpose(a, out=memory[8:108].reshape(10, 10))
    read_only = np.zeros((3, 2))
    read_only.flags.writeable = False
    with pytest.raises(InvalidValueError, match="writable"):
        transpose(np.zeros((2, 3)), out=read_only)


def test_a_gpu_asked_for_and_absent_says_what_to_install():
    from warpfront.backend import capability

    if capability.missing() is None:
        pytest.skip("this machine has a GPU")
    for options in ({"device": "cuda"}, {"path": "sm_90"}, {"device": "cuda", "path": "portable"}):
        with pytest.raises(NotSupportedError, match="install"):
            transpose(np.zeros((4, 4)), **options)
    assert [d.path for d in explain_transpose(4096, 4096) if d.taken] == ["cpu"]


# A GPU alone can answer these.


@pytest.mark.cuda
class TestOnAGpu:
    @pytest.mark.parametrize("size", DTYPES)
    @pytest.mark.parametrize(
        "shape",
        [(4096, 4096), (4097, 2049), (1 << 20, 3), (5, 1 << 20), (20000, 8, 8), (3, 1000, 2000)],
        ids=str,
    )
    def test_large(self, size, shape):
        import cupy

        a = random_bits(shape, DTYPES[size])
        device, expected = cupy.asarray(a), _reference.transpose(a)
        for path in ("auto", "portable"):
            poisoned = cupy.asarray(~expected.view(np.uint8)).view(a.dtype).reshape(expected.shape)
            assert same_bits(cupy.asnumpy(transpose(device, out=poisoned, path=path)), expected)

    def test_numpy_through_the_gpu(self):
        a = random_bits((300, 200), "M8[ns]")
        result = transpose(a, device="cuda")
        assert isinstance(result, np.ndarray)
        assert same_bits(result, _reference.transpose(a))

    def test_torch(self):
        torch = pytest.importorskip("torch")
        for dtype in (torch.bfloat16, torch.float32, torch.complex128, torch.bool):
            a = (torch.rand((700, 300), device="cuda") * 3).to(dtype)
            result = transpose(a)
            assert isinstance(result, torch.Tensor)
            assert torch.equal(result, a.t())
            assert result.is_contiguous()
        with pytest.raises(InvalidValueError, match="detach"):
            transpose(torch.ones((3, 3), device="cuda", requires_grad=True))

    def test_torch_stream_is_the_callers(self):
        torch = pytest.importorskip("torch")
        side = torch.cuda.Stream()
        a = torch.zeros((4096, 4096), device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)  # the fill is still waiting when the transpose is queued
            a.copy_(torch.arange(4096, device="cuda", dtype=torch.float32)[None, :].expand(4096, 4096))
            result = transpose(a)
        side.synchronize()
        assert torch.equal(result, a.t())

    def test_jax(self):
        jax = pytest.importorskip("jax")
        a = jax.numpy.arange(600.0).reshape(20, 30)
        if all(d.platform == "cpu" for d in a.devices()):
            pytest.skip("this JAX has no GPU plugin")
        result = transpose(a)
        assert isinstance(result, jax.Array)
        np.testing.assert_array_equal(np.asarray(result), np.asarray(a).T)

    def test_layouts(self):
        import cupy

        a = cupy.arange(60_000, dtype="f4").reshape(200, 300)
        for source in (a.T, a[:, ::2], a[::-1], a[10:90, 1:201], cupy.asfortranarray(a)):
            cupy.testing.assert_array_equal(transpose(source), source.T)

    def test_overlap_is_refused(self):
        import cupy

        memory = cupy.arange(200.0)
        with pytest.raises(InvalidValueError, match="overlaps"):
            transpose(memory[:100].reshape(10, 10), out=memory[50:150].reshape(10, 10))

    def test_graph_replay(self):
        import cupy

        from warpfront.backend import cuda

        a, out = cupy.random.rand(1000, 800), cupy.empty((800, 1000))
        transpose(a, out=out)
        graph = cuda.capture(lambda: transpose(a, out=out))
        a += 1
        cupy.cuda.get_current_stream().synchronize()
        graph.replay()
        graph.stream.synchronize()
        cupy.testing.assert_array_equal(out, a.T)

    def test_twenty_runs_give_the_same_bits(self):
        import cupy

        a = cupy.asarray(random_bits((3000, 2999), np.uint32))
        first = cupy.asnumpy(transpose(a)).tobytes()
        assert all(cupy.asnumpy(transpose(a)).tobytes() == first for _ in range(19))
