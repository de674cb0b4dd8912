"""What every test shares: the tree under test is the one beside it; what a machine lacks is said."""

import shutil
from pathlib import Path

import hypothesis
import pytest

import warpfront

ROOT = Path(__file__).resolve().parents[1]

# No deadline: the first example of a property pays the compilation. Derandomised: red here is red everywhere.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("house")


def pytest_sessionstart(session):
    """Refuse to test an installed copy that is not the source beside these tests."""
    installed, source = Path(warpfront.__file__).parent, ROOT / "src" / "warpfront"
    if installed == source:
        return
    for file in source.rglob("*"):
        if not file.is_file() or file.suffix in (".pyc", ".nbi", ".nbc"):
            continue
        copy = installed / file.relative_to(source)
        if not copy.is_file() or copy.read_bytes() != file.read_bytes():
            raise pytest.UsageError(
                f"the installed {copy} is not this tree's: install it again (pip install .)"
            )


def _without_gpu_for_torch():
    try:
        import torch
    except ImportError:
        return "needs PyTorch (extra torch)"
    return "" if torch.cuda.is_available() else "needs an NVIDIA GPU that PyTorch sees"


def _without_gpu():
    try:
        import cupy
    except ImportError:
        return "needs CuPy (extra cuda13 or cuda12)"
    try:
        found = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"needs an NVIDIA GPU: {error}"
    return "" if found else "needs an NVIDIA GPU"


def pytest_collection_modifyitems(items):
    """Skip, with the reason, the tests whose machine this is not."""
    lacking = {
        ("cuda", None): _without_gpu,
        ("cuda", "torch"): _without_gpu_for_torch,
        ("simt", None): lambda: "" if shutil.which("g++") else "needs g++",
    }
    for (name, library), reason_of in lacking.items():
        marks = [(item, item.get_closest_marker(name)) for item in items]
        marked = [item for item, mark in marks if mark and mark.kwargs.get("by") == library]
        reason = reason_of() if marked else ""
        for item in marked if reason else ():
            item.add_marker(pytest.mark.skip(reason=reason))
