"""``warpfront attention bench`` and ``warpfront explain prefill``: what they say, and their exit codes."""

import json

import pytest

from warpfront.attention import explain_prefill, selftest
from warpfront.backend.capability import Capability
from warpfront.cli.main import main
from warpfront.errors import InvalidValueError


def small(*more):
    return [
        "attention",
        "bench",
        "-n",
        "40",
        "--heads",
        "2",
        "--head-dim",
        "8",
        "--device",
        "cpu",
        "--samples",
        "1",
        *more,
    ]


def test_bench_prints_every_contender(capsys):
    assert main(small()) == 0
    shown = capsys.readouterr().out
    assert "1 x 40 tokens, 2 heads on 2 of 8, float32, causal, cpu" in shown
    assert shown.count("warpfront") == 2
    assert "wrong" not in shown


def test_bench_as_json_and_picture(capsys, tmp_path):
    picture = tmp_path / "rates.png"
    assert (
        main(small("--json", "--dtype", "float16", "--full", "--kv-heads", "1", "--plot", str(picture))) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert {row["operation"] for row in found["results"]} == {"prefill", "decode"}
    assert all(row["ok"] for row in found["results"] if row["contender"] == "warpfront")
    assert picture.stat().st_size > 1000


def test_bench_says_when_a_result_is_wrong(monkeypatch, capsys):
    monkeypatch.setattr(selftest, "_check", lambda *arguments: (1.0, 1e-7))
    assert main(small()) == 1
    assert "wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--dtype", "float64"], 2, "--dtype is float32, float16 or bfloat16"),
        (["--heads", "3", "--kv-heads", "2"], 2, "3 query heads cannot share 2 key heads"),
        (["-d", "300"], 2, "head_dim must be 1 to 256, got 300"),
        (["--plot", "rates.txt"], 2, "--plot writes"),
        (["--device", "tpu"], 2, "--device is auto, cpu or cuda"),
    ],
)
def test_bench_misuse(words, code, message, capsys):
    assert main(["attention", "bench", *words]) == code
    assert message in capsys.readouterr().err


def test_explain(capsys):
    assert main(["explain", "prefill", "4", "4096", "32", "8", "--device", "cpu", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["path"] for row in rows if row["taken"]] == ["cpu"]
    assert {row["path"] for row in rows} == {"triton", "cudnn", "cpu"}
    assert main(["explain", "prefill", "4"]) == 2
    assert "BATCH LENGTH HEADS" in capsys.readouterr().err


HOPPER = Capability(
    device=0,
    cc_major=9,
    cc_minor=0,
    sm_count=132,
    shared_bytes=49152,
    shared_bytes_optin=232448,
    shared_bytes_per_sm=233472,
    registers_per_sm=65536,
    threads_per_sm=2048,
    l2_bytes=60 << 20,
    cooperative_launch=True,
    clusters=True,
    memory_pools=True,
    managed=True,
    concurrent_managed=True,
    vmm=True,
    graphs=True,
    mig=None,
    driver_version=(13, 0),
    runtime_version=(13, 0),
    nvrtc_version=(13, 0),
    total_bytes=140 << 30,
    free_bytes=140 << 30,
)


def test_explain_for_a_device_that_is_not_here():
    def taken(**options):
        decisions = explain_prefill(4, 4096, 32, **options)
        (one,) = [decision for decision in decisions if decision.taken]
        return one

    assert taken(capability_=HOPPER).path in ("triton", "cudnn")
    assert taken(capability_=HOPPER, soft_cap=30.0).path == "triton"
    assert taken(capability_=HOPPER, algorithm="triton").reason.startswith("asked for by name")
    assert taken(capability_=HOPPER, device="cpu").path == "cpu"
    with pytest.raises(InvalidValueError, match="no option 'bias'"):
        explain_prefill(1, 1, 1, bias=True)
    with pytest.raises(InvalidValueError, match="algorithm must be one of"):
        explain_prefill(1, 1, 1, algorithm="fast")
