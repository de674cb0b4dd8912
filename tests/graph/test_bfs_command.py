"""``warpfront bfs`` as a stranger uses it: output, files, messages, exit codes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from warpfront.cli.main import main
from warpfront.graph import read_graph

DATA = Path(__file__).parent / "data"
KARATE = str(DATA / "karate.mtx.gz")


def test_a_search(capsys):
    assert main(["bfs", KARATE, "--verify"]) == 0
    out = capsys.readouterr().out
    assert "34 vertices, 156 arcs, undirected" in out
    assert re.search(r"from\s+33, which has most arcs", out)
    assert "34 vertices (100.0%), the furthest at distance 4" in out
    assert len(re.findall(r"^\s*holds", out, re.MULTILINE)) == 5
    assert re.search(r"^\s*0\s+push, frontier 1, found 17", out, re.MULTILINE)


def test_files(tmp_path, capsys):
    csv, npz, report, plot = (tmp_path / name for name in ("d.csv", "d.npz", "r.json", "p.svg"))
    line = [
        "bfs",
        KARATE,
        "-s",
        "0",
        "-s",
        "33",
        "-o",
        str(csv),
        "--report",
        str(report),
        "--plot",
        str(plot),
    ]
    assert main([*line, "--teps", "4", "--verify"]) == 0
    out = capsys.readouterr().out
    assert "harmonic mean" in out
    assert str(csv) in out
    table = np.loadtxt(csv, delimiter=",", skiprows=1, dtype=int)
    assert csv.read_text().startswith("vertex,distance,parent\n")
    assert table[0].tolist() == [0, 0, 0]
    assert table[33].tolist() == [33, 0, 33]
    record = json.loads(report.read_text())
    assert record["search"]["n_sources"] == 2
    assert len(record["search"]["levels"]) >= 2
    assert [rule["broken"] for rule in record["rules"]] == [None] * 5
    assert len(record["teps"]["sources"]) == 4
    assert record["teps"]["verified"]
    assert "<svg" in plot.read_text()
    assert main(["bfs", KARATE, "-o", str(npz), "--by-degree"]) == 0
    assert np.load(npz)["distances"].max() == 4


def test_made_graphs_and_options(capsys):
    assert main(["bfs", "grid:20:30:0.9", "-s", "7", "--max-depth", "3", "--direction", "push"]) == 0
    out = capsys.readouterr().out
    assert "the furthest at distance 3" in out
    assert 'off: direction="push" was asked for' in out
    assert main(["bfs", "uniform:500:4000", "--seed", "3"]) == 0
    assert main(["bfs", str(DATA / "EVA.mtx.gz"), "--transpose", "--direction", "pull"]) == 0
    assert re.search(r"pulling\s+used", capsys.readouterr().out)
    assert main(["bfs", str(DATA / "EVA.mtx.gz"), "--undirected"]) == 0
    assert ", undirected" in capsys.readouterr().out
    assert read_graph(DATA / "EVA.mtx.gz").directed


def test_long_searches_show_their_ends(capsys):
    assert main(["bfs", "grid:1:100", "-s", "0"]) == 0
    out = capsys.readouterr().out
    assert "84 levels more (--report has all)" in out
    assert re.search(r"^\s*99\s+push", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (["none.mtx"], 2, "none.mtx: no such file"),
        (["README.md"], 2, "unknown suffix"),
        (["hyper:3"], 2, "graphs that can be made are kronecker, uniform, grid"),
        (["grid:3"], 2, "grid takes 2 to 3 numbers, got 1"),
        (["grid:3:x"], 2, "a number is expected after each colon"),
        (["grid:0:5"], 2, "no vertices"),
        ([KARATE, "-s", "99"], 2, "source 99 is not a vertex of the graph: there are 0 … 33"),
        ([KARATE, "--direction", "up"], 2, "direction must be one of"),
        ([KARATE, "--alpha", "0"], 2, "alpha must be"),
        ([KARATE, "--max-depth", "-1"], 2, "max_depth must be"),
        ([KARATE, "-o", "x.txt"], 2, "--output writes .csv, .npz"),
        ([KARATE, "--variant", "fast"], 2, "variant must be"),
        ([KARATE, "--variant", "naive"], 4, 'ask for device="cuda"'),
        ([str(DATA / "EVA.mtx.gz"), "--direction", "pull"], 2, "--transpose"),
        (["grid:3:3", "--directed"], 2, "--directed is for files"),
    ],
)
def test_messages(line, code, message, capsys):
    assert main(["bfs", *line]) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert message in said


def test_explain(capsys):
    assert main(["explain", "bfs", "4941", "13188"]) == 0
    out = capsys.readouterr().out
    assert all(path in out for path in ("block", "persistent", "levels", "cpu"))
    assert main(["explain", "bfs", "1"]) == 2
    assert "VERTICES ARCS" in capsys.readouterr().err
