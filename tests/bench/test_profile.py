"""`warpfront profile`: the engine on this machine's CPU, ncu's table, and what is refused."""

import json

import pytest

from warpfront.bench import profile as engine
from warpfront.bench import profile_ncu, profile_work
from warpfront.cli.main import main
from warpfront.errors import InvalidValueError, NotSupportedError

HEAD = ["ID", "Process ID", "Kernel Name", profile_ncu.CONFLICTS, profile_ncu.MEMORY, profile_ncu.TIME]
HEAD += [profile_ncu.COMPUTE, profile_ncu.EFFICIENCY]
CSV = f"""==PROF== Connected to process 7
==PROF== Profiling "lu_panel" - 0: 0%....100% - 1 pass
{",".join(f'"{name}"' for name in HEAD)}
"","","","","%","nsecond","%","%"
"0","7","void lu_panel<float, (int)1>(float *, int)","12","50","3,000","10","75.5"
"1","7","void lu_rows<float>(float *)","0","80","1,000","20","100"
"2","7","void lu_panel<float, (int)1>(float *, int)","8","10","1,000","30","n/a"
"""


@pytest.mark.parametrize(("operation", "sizes"), [("solve", (600,)), ("spmm", (20, 4)), ("slogdet", (40, 3))])
def test_an_operation_is_taken_apart_on_the_cpu(operation, sizes):
    found = engine.profile(operation, sizes, device="cpu", calls=2)
    assert (found.device, found.tool) == ("cpu", "python")
    assert found.seconds > 0
    assert found.flops > 0
    assert found.bytes > 0
    assert all(value > 0 for value in found.ceilings.values())
    times = [part.seconds for part in found.parts]
    assert times == sorted(times, reverse=True)
    names = {part.name for part in found.parts}
    wanted = {"solve": "_lapack.getrf", "spmm": "_product_kernels", "slogdet": "_pivot_kernels"}[operation]
    assert any(name.startswith(wanted) for name in names), names


def test_transpose_has_bytes_and_no_operations():
    found = engine.profile("transpose", (300, 200), dtype="float32", device="cpu", calls=1)
    assert found.flops == 0
    assert found.bytes == 2 * 300 * 200 * 4


def test_ncu_rows_are_added_up_by_kernel():
    panel, rows = profile_ncu.read_csv(CSV)
    assert (panel["name"], panel["calls"]) == ("lu_panel<float, (int)1>", 2)
    assert panel["seconds"] == pytest.approx(4e-6)
    assert panel["compute"] == pytest.approx((3 * 0.10 + 1 * 0.30) / 4)
    assert panel["memory"] == pytest.approx((3 * 0.5 + 1 * 0.1) / 4)
    assert panel["conflicts"] == 20
    assert panel["load_efficiency"] == pytest.approx(0.755)
    assert rows["seconds"] == pytest.approx(1e-6)


def test_ncu_without_a_table_says_why():
    with pytest.raises(NotSupportedError, match="ERR_NVGPUCTRPERM"):
        profile_ncu.read_csv("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - no permission\n")
    with pytest.raises(NotSupportedError, match="no launch"):
        profile_ncu.read_csv("\n".join(CSV.splitlines()[:3]))


@pytest.mark.parametrize(
    ("operation", "sizes", "options", "words"),
    [
        ("cholesky", (5,), {}, "no such operation"),
        ("solve", (), {}, "N \\[BATCH\\]"),
        ("solve", (0,), {}, "at least 1"),
        ("transpose", (5,), {}, "M N"),
        ("solve", (5,), {"dtype": "float16"}, "float16"),
        ("solve", (5,), {"device": "tpu"}, "tpu"),
        ("solve", (5,), {"calls": 0}, "calls 0"),
    ],
)
def test_misuse_is_refused(operation, sizes, options, words):
    with pytest.raises(InvalidValueError, match=words):
        engine.profile(operation, sizes, **{"device": "cpu", **options})


@pytest.mark.parametrize("tool", ["ncu", "events"])
def test_a_tool_of_the_gpu_does_not_look_at_the_cpu(tool):
    with pytest.raises(NotSupportedError, match="cannot look at"):
        engine.profile("solve", (5,), device="cpu", tool=tool)


def test_command(capsys):
    assert main(["profile", "solve", "100", "--device", "cpu", "--calls", "1", "--top", "3"]) == 0
    out = capsys.readouterr().out
    assert "order 100" in out
    assert "others" in out
    assert main(["profile", "spmv", "10", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tool"] == "python"
    assert main(["profile", "nothing", "10"]) == 2
    assert "there are solve" in capsys.readouterr().err


def test_every_operation_is_named_in_the_help():
    from warpfront.cli.profile import NAMES

    assert NAMES.replace(" or ", ", ").split(", ") == list(profile_work.OPERATIONS)


@pytest.mark.cuda
@pytest.mark.parametrize(("operation", "sizes", "tool"), [("inv", (100,), "auto"), ("spmv", (50,), "events")])
def test_an_operation_is_taken_apart_on_the_device(operation, sizes, tool):
    found = engine.profile(operation, sizes, device="cuda", tool=tool, calls=2)
    assert found.tool in ("ncu", "events")
    names = " ".join(part.name for part in found.parts)
    assert ("lu_panel" if operation == "inv" else "rows") in names
    assert all(value > 1e11 for value in found.ceilings.values())
