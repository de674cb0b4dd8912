"""Which kernel a prefill on a GPU takes, and with which tile: by capability, by what fits, by measured times.

``dispatch.toml`` holds what ``tools/device/attention.py`` measured, own kernel beside cuDNN in the same run, for some
problems of each compute capability. A problem takes the row of its type, head and kind of mask whose sequences are nearest
in length (the longest, for sequences of several lengths); where no row is, the own kernel runs with a default tile, and
`explain_prefill` says that it was not measured. The table is data and nothing is tried out at run time; nor does the choice
look at the batch or the number of heads. So a sequence takes the same kernel, and has the same bits, in any batch.

The tile of `decode` depends on the device, the type and the head alone: never on the batch or on lengths.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log2
from typing import Any

from warpfront.attention._problem import DTYPES, DecodeProblem, PrefillProblem
from warpfront.attention._triton_decode import DecodeTile
from warpfront.attention._triton_decode import default_tile as default_decode_tile
from warpfront.attention._triton_prefill import Tile, run_prefill
from warpfront.attention._triton_prefill import default_tile as default_prefill_tile
from warpfront.backend.capability import Capability
from warpfront.backend.dispatch import Choice, Decision, Path, Policy, choose, explain, requires

__all__ = [
    "Row",
    "decode_tile",
    "device_capability",
    "device_cc",
    "explain_prefill",
    "measured",
    "prefill_choice",
    "prefill_path",
    "prefill_tile",
]

KINDS = ("full", "causal", "window")


@dataclass(frozen=True)
class Row:
    """One measured problem: what finds it, its name, the best tile, microseconds of both (0: cuDNN does not run it)."""

    cc: tuple[int, int]
    dtype: str
    head_dim: int
    kind: str
    length: int
    case: str
    tile: Tile
    triton_us: float
    cudnn_us: float

    @property
    def verdict(self) -> str:
        """The measurement in words."""
        other = f"cuDNN {self.cudnn_us:.0f} us" if self.cudnn_us else "cuDNN did not run it"
        return f"{self.case}, {self.dtype}: own kernel {self.triton_us:.0f} us, {other}"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files("warpfront.attention") / "dispatch.toml").read_text("utf-8"))


@cache
def _rows() -> tuple[Row, ...]:
    found = []
    for entry in _table().get("prefill", ()):
        values = {**entry, "cc": tuple(entry["cc"]), "tile": Tile(**entry["tile"])}
        found.append(Row(**values))
    return tuple(found)


def kind_of(problem: PrefillProblem) -> str:
    """Return which part of the keys a problem's queries see: "full", "causal" or "window"."""
    if problem.left < 0 and problem.right in (-1, 0):
        return "causal" if problem.right == 0 else "full"
    return "window"


def measured(problem: PrefillProblem, cc: tuple[int, int]) -> Row | None:
    """Return the table's row for a problem, or ``None`` where nothing like it was measured.

    Type and head must agree (a 16-bit type stands for the other one where only that was measured), then the kind of mask,
    then the nearest length.
    """

    def distance(row: Row) -> tuple[bool, bool, float]:
        away = -float(row.length) if problem.varlen else abs(log2(row.length / max(1, problem.k_len)))
        return row.dtype != problem.dtype, row.kind != kind_of(problem), away

    small = ("float16", "bfloat16")
    fits = [
        row
        for row in _rows()
        if row.cc == cc
        and row.head_dim == problem.head_dim
        and (row.dtype == problem.dtype or (row.dtype in small and problem.dtype in small))
    ]
    return min(fits, key=distance, default=None)


def prefill_tile(problem: PrefillProblem, cc: tuple[int, int]) -> Tile:
    """Return the own kernel's tile for a problem: a measured row's, else a default that every device has room for."""
    row = measured(problem, cc)
    return default_prefill_tile(problem, _shared_bytes(cc), narrow=cc[0] == 10) if row is None else row.tile


def _shared_bytes(cc: tuple[int, int]) -> int:
    """Shared memory that a block can get, by compute capability; the least of them for one that is not known."""
    known = {(8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227, (10, 3): 227}
    return known.get(cc, 99) << 10


def decode_tile(problem: DecodeProblem, cc: tuple[int, int]) -> DecodeTile:
    """Return the tile of `decode`: of the device, the type and the head alone."""
    for entry in _table().get("decode", ()):
        if (tuple(entry["cc"]), entry["dtype"], entry["head_dim"]) == (cc, problem.dtype, problem.head_dim):
            return DecodeTile(**entry["tile"])
    return default_decode_tile(problem)


# ------------------------------------------------------------------ paths


@requires(cc_min=(8, 0), dtypes=DTYPES)
def run_triton(
    problem: PrefillProblem,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    cu_q: Any,
    cu_k: Any,
    out: Any,
    lse: Any,
    *,
    fresh: bool = False,
) -> None:
    """Run the own kernel; arguments as `warpfront.attention._triton_prefill.run_prefill`, ``fresh`` as `run_cudnn`."""
    tile = prefill_tile(problem, device_cc(q))
    run_prefill(problem, q, k, v, bias, cu_q, cu_k, out, lse, tile=tile)


def why_not_cudnn(problem: PrefillProblem) -> str | None:
    """Return what keeps a problem from cuDNN through SDPA, or ``None``."""
    if problem.return_lse:
        return "SDPA returns no LSE"
    if problem.varlen:
        return "SDPA takes sequences of one length"
    if problem.soft_cap > 0.0:
        return "SDPA has no soft cap"
    if problem.bias_shape is not None:
        return "rows whose keys a bias hides altogether are not 0 there"
    if kind_of(problem) == "window":
        return "SDPA has no window"
    if problem.causal and problem.q_len != problem.k_len:
        return "SDPA's diagonal begins in the top left corner, and queries and keys are not as many"
    if problem.head_dim % 8:
        return "cuDNN takes heads of a multiple of 8 elements"
    if problem.scale <= 0.0:
        return "the scale is not positive"
    return None


@requires(cc_min=(9, 0), dtypes=("float16", "bfloat16"), when=why_not_cudnn)
def run_cudnn(
    problem: PrefillProblem,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    cu_q: Any,
    cu_k: Any,
    out: Any,
    lse: Any,
    *,
    fresh: bool = False,
) -> None:
    """Run cuDNN's kernel through torch; arguments as `warpfront.attention._triton_prefill.run_prefill`.

    SDPA allocates its result. Where nobody else has ``out`` yet (``fresh``), it takes over that memory; else it is copied.

    Under a diagonal cuDNN lets a value that is not finite reach rows that do not see it. A second launch looks for rows
    that are not numbers, a sixteenth of all, and has the own kernel compute the tiles where it finds one.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    turned = (tensor.transpose(1, 2) for tensor in (q, k, v))
    more = {"enable_gqa": True} if problem.group > 1 else {}
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        result = torch.nn.functional.scaled_dot_product_attention(
            *turned, is_causal=problem.causal, scale=problem.scale, **more
        )
    if fresh:
        out.set_(result.transpose(1, 2))
    else:
        out.copy_(result.transpose(1, 2))
    if problem.causal:
        tile = default_prefill_tile(problem, _shared_bytes(device_cc(q)), narrow=device_cc(q)[0] == 10)
        run_prefill(problem, q, k, v, bias, cu_q, cu_k, out, lse, tile=tile, repair=True)


TRITON = Path("triton", run_triton, "own kernel: online softmax over tiles, every option")
CUDNN = Path(
    "cudnn",
    run_cudnn,
    "cuDNN through torch's SDPA; rows that a hidden value spoils are made by the own kernel",
)


def _paths(problem: PrefillProblem, cc: tuple[int, int] | None) -> tuple[Path, ...]:
    """Both paths, the faster one first; the own one where nothing within four times or a quarter of the length was."""
    row = None if cc is None else measured(problem, cc)
    if row is None or not row.length <= 4 * problem.k_len <= 16 * row.length or row.kind != kind_of(problem):
        return TRITON, CUDNN
    return (CUDNN, TRITON) if 0.0 < row.cudnn_us < row.triton_us else (TRITON, CUDNN)


def device_cc(tensor: Any) -> tuple[int, int]:
    """Return the compute capability of a tensor's device; (0, 0), which no table has, for one in host memory."""
    import torch

    return torch.cuda.get_device_capability(tensor.device) if tensor.is_cuda else (0, 0)


def device_capability(device: Any = None) -> Capability:
    """Return what torch says of a device; launch features that attention does not use are left False."""
    import torch

    found = torch.cuda.get_device_properties(device)
    shared = getattr(found, "shared_memory_per_block_optin", 99 << 10)
    return Capability(
        device=torch.cuda.current_device() if device is None else torch.device(device).index or 0,
        cc_major=found.major,
        cc_minor=found.minor,
        sm_count=found.multi_processor_count,
        shared_bytes=getattr(found, "shared_memory_per_block", 48 << 10),
        shared_bytes_optin=shared,
        shared_bytes_per_sm=getattr(found, "shared_memory_per_multiprocessor", shared),
        registers_per_sm=getattr(found, "regs_per_multiprocessor", 65536),
        threads_per_sm=found.max_threads_per_multi_processor,
        l2_bytes=getattr(found, "L2_cache_size", 0),
        cooperative_launch=False,
        clusters=False,
        memory_pools=False,
        managed=False,
        concurrent_managed=False,
        vmm=False,
        graphs=True,
        mig=None,
        driver_version=(0, 0),
        runtime_version=(0, 0),
        nvrtc_version=(0, 0),
        total_bytes=found.total_memory,
        free_bytes=found.total_memory,
    )


def prefill_choice(problem: PrefillProblem, algorithm: str, capability: Capability | None) -> Choice:
    """Return the path of a problem; raises as `warpfront.backend.dispatch.choose`."""
    paths = _paths(problem, None if capability is None else capability.cc)
    return choose(paths, problem, Policy(path=algorithm), capability, "needs a GPU, and PyTorch sees none")


def prefill_path(problem: PrefillProblem, algorithm: str) -> Path:
    """Return the path that runs on torch's current device.

    Parameters
    ----------
    problem : PrefillProblem
    algorithm : {"auto", "triton", "cudnn"}

    Raises
    ------
    InvalidValueError
        No such algorithm.
    NotSupportedError
        The one asked for cannot run this problem; the message says why.
    """
    return prefill_choice(problem, algorithm, device_capability()).path


def explain_prefill(
    problem: PrefillProblem, algorithm: str = "auto", capability: Capability | None = None
) -> tuple[tuple[Decision, ...], str]:
    """Return the decision about both paths, and what the measured table says of the problem.

    ``capability`` is that of the device in question, ``None`` where there is none.
    """
    cc = None if capability is None else capability.cc
    decisions = explain(
        _paths(problem, cc), problem, Policy(path=algorithm), capability, "needs a GPU, and PyTorch sees none"
    )
    row = None if cc is None else measured(problem, cc)
    tile = None if cc is None else prefill_tile(problem, cc)
    if cc is None:
        return decisions, "no device, no table"
    if row is None:
        return (
            decisions,
            f"nothing like it was measured on compute capability {cc[0]}.{cc[1]}; default {tile}",
        )
    return decisions, f"nearest measurement: {row.verdict}; {tile}"
