"""A stand-in for CuPy whose device is the SIMT runner: the whole GPU path runs, kernels included, on any machine.

Arrays are NumPy's under CuPy's names; a launch finds its buffers by address. Streams and graphs only keep order.
"""

import sys
import types
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
from built import simt as built

from warpfront.backend import capability, compile, cuda

WAITING = ("eliminate_strips", "forward_strips", "backward_strips")


class Array(np.ndarray):
    """NumPy array with CuPy's few extra names."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data, device_id=0)

    def get(self):
        return np.array(self)

    def set(self, values):
        self[...] = values


Array.__module__ = "cupy"
_LIVE = {}


def _keep(array):
    array = np.ascontiguousarray(array).view(Array)
    if array.size:
        _LIVE[array.ctypes.data] = array
    return array


class Stream:
    """Everything runs at once, in order of the calls."""

    current = None

    def __init__(self, ptr=0):
        self.ptr, self.capturing, self.tape = ptr, False, []

    def is_capturing(self):
        return self.capturing

    def begin_capture(self):
        self.capturing = True
        Tape.recording = []

    def end_capture(self):
        self.capturing = False
        tape, Tape.recording = Tape.recording, None
        return Tape(tape)

    def record(self, event=None):
        return event

    def wait_event(self, event):
        pass

    def synchronize(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Tape:
    """A captured graph."""

    recording = None

    def __init__(self, calls):
        self.calls = calls

    def launch(self, stream):
        for call in self.calls:
            call()


class Kernel:
    """`backend.cuda.Kernel`, under the runner."""

    def __init__(self, source, expression, signature):
        self.source, self.expression, self.signature = source, expression, signature

    def launch(self, stream, grid, block, args, shared_bytes=0, early=False):
        assert len(args) == len(self.signature)
        assert not early or "grid_wait();" in self.source.read_text()
        if Tape.recording is not None:
            Tape.recording.append(lambda: self._run(grid, block, args, shared_bytes))
        else:
            self._run(grid, block, args, shared_bytes)

    def _run(self, grid, block, args, shared_bytes):
        simt = built(self.source, self.expression)
        infos = simt._infos[simt.built.names.index(self.expression)]
        views, given = {}, []
        for value, letter, info in zip(args, self.signature, infos, strict=True):
            if letter != "p":
                given.append(value)
            elif value == 0:
                given.append(None)
            else:
                size = info.element_size if info.element_kind != "s" else 1
                kind = info.element_kind if info.element_kind in "iuf" else "u"
                if (value, size) not in views:
                    views[value, size] = _bytes_at(value).view(f"{kind}{size}")
                given.append(views[value, size])
        waits = any(name in self.expression for name in WAITING)
        simt.launch(
            self.expression,
            grid,
            block,
            given,
            shared_bytes=shared_bytes,
            schedules=1,
            resident=int(np.prod(grid)) if waits else 4,
        ).check()


def _bytes_at(address):
    for base, array in _LIVE.items():
        if base <= address < base + array.nbytes:
            raw = array.view(np.ndarray).reshape(-1).view(np.uint8)
            return raw[address - base :]
    raise AssertionError(f"no buffer at {address:#x}")


def module():
    """The stand-in module."""
    stream = Stream()
    nothing = lambda *_, **__: SimpleNamespace(__enter__=lambda s: s, __exit__=lambda *a: None)  # noqa: E731

    @contextmanager
    def device(_):
        yield

    made = types.ModuleType("cupy")
    made.ndarray = Array
    made.asarray = lambda a, dtype=None: _keep(np.array(a, dtype))
    made.empty = lambda shape, dtype=float: _keep(
        np.zeros(shape, dtype) - (77 if np.dtype(dtype).kind == "f" else 0)
    )
    made.zeros = lambda shape, dtype=float: _keep(np.zeros(shape, dtype))
    made.concatenate = lambda parts: _keep(np.concatenate(parts))
    made.copyto = np.copyto
    made.cuda = SimpleNamespace(
        Device=device, Stream=lambda non_blocking=False, priority=0: Stream(), Event=nothing,
        get_current_stream=lambda: stream, runtime=SimpleNamespace(getDevice=lambda: 0),
    )  # fmt: skip
    return made


def install(monkeypatch):
    """Put the stand-in in place; returns the module."""
    made = module()
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setattr(capability, "missing", lambda: None)
    monkeypatch.setattr(
        capability, "probe",
        lambda device=0: SimpleNamespace(
            cc=(9, 0), driver_version=(13, 0), arch="sm_90", shared_bytes_optin=232448, sm_count=132
        ),
    )  # fmt: skip
    monkeypatch.setattr(compile, "build", lambda *_, **__: None)
    monkeypatch.setattr(
        cuda, "load", lambda source, expression, signature, device: Kernel(source, expression, signature)
    )
    return made
