"""What a cubin says of itself, against the assembler's own report; and compilers that leave the report out."""

from pathlib import Path

import pytest

from warpfront.backend import compile as compiling
from warpfront.backend import compiled, elf, nvrtc
from warpfront.dense import _transpose_cuda as plans
from warpfront.errors import FormatError

HEADERS = Path(__file__).with_name("device_headers.cu")
SPILLING = """
__global__ void __launch_bounds__(1024) spilling(float* x, int n) {
  float v[200];
  for (int k = 0; k < 200; ++k) v[k] = x[k * n];
  for (int k = 0; k < 200; ++k) v[(k * n) % 200] += v[k];
  for (int k = 0; k < 200; ++k) x[k + n] = v[k];
}
extern "C" __global__ void plain(float* x) { __shared__ float s[77]; s[threadIdx.x] = x[0]; __syncthreads(); x[1] = s[3]; }
"""


def built(source, names, arch):
    return nvrtc.compile(source, names, arch, compiling.CompileOptions())


@pytest.fixture
def spilling(tmp_path):
    file = tmp_path / "spilling.cu"
    file.write_text(SPILLING)
    return file


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_the_cubin_agrees_with_the_assembler(arch, spilling):
    jobs = [(spilling, ("spilling", "plain")), (HEADERS, ("meet", "block_reductions<double>"))]
    jobs += [(file, names[:6]) for file, names, least in plans.instantiations() if int(arch[3:]) >= least]
    stacks = []
    for file, names in jobs:
        found = built(file, names, arch)
        inside = elf.kernels(found.cubin)
        for name in names:
            said, own = found.resources[name], inside[found.names[name]]
            assert (own.registers, own.stack_bytes, own.shared_bytes) == (
                said.registers, said.stack_bytes, said.shared_bytes,
            ), name  # fmt: skip
            stacks.append(own.stack_bytes)
    assert max(stacks) >= 800  # the array that cannot be in registers


@pytest.mark.parametrize("silence", ["everything", "one kernel"])
def test_a_compiler_that_reports_nothing_is_no_error(silence, monkeypatch, spilling):
    """One cubin, read with and without its report: two compilations need not choose the same registers."""
    whole, logs = compiled.parse_resources, []

    def heard(log):
        logs.append(log)
        return whole(log)

    def silent(log):
        found = whole(log)
        return {} if silence == "everything" else {k: v for k, v in found.items() if k != "plain"}

    monkeypatch.setattr(compiled, "parse_resources", heard)
    made = built(spilling, ("spilling", "plain"), "sm_90")
    assert set(whole(logs[-1])) == {made.names["spilling"], "plain"}  # this compiler did report
    monkeypatch.setattr(compiled, "parse_resources", silent)
    found = compiled.kernel_resources(made.names, made.cubin, logs[-1], spilling)
    assert found["plain"] == made.resources["plain"]
    assert found["spilling"].registers == made.resources["spilling"].registers
    assert found["spilling"].spill_store_bytes >= made.resources["spilling"].spill_store_bytes


def test_a_kernel_that_is_nowhere_is_named(spilling):
    cubin = built(spilling, ("plain",), "sm_80").cubin
    with pytest.raises(compiling.CompileError, match="holds no kernel absent<3>"):
        compiled.kernel_resources({"absent<3>": "_Z6absent"}, cubin, "", spilling)


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(100), None])
def test_what_is_no_cubin_is_refused(damage, spilling):
    data = built(spilling, ("plain",), "sm_80").cubin[:900] if damage is None else damage
    with pytest.raises(FormatError, match="not a cubin"):
        elf.kernels(data)
