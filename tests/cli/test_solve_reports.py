"""Reports of `warpfront solve`, `analyze` and `info`: JSON, a page that stands alone, a figure."""

import json
import re
import subprocess
import sys
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from warpfront import DirectSolver
from warpfront.cli import _progress
from warpfront.cli.main import main
from warpfront.errors import NotAnalyzedError
from warpfront.sparse import plots

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "data"
KKT = EXAMPLES / "case118_kkt.mtx.gz"


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    words = ["--report", folder / "r.json", "--report", folder / "r.html", "--plot", folder / "p.png"]
    assert main([str(word) for word in ["solve", KKT, *words]]) == 0
    return folder


def test_json_has_everything(reports):
    found = json.loads(
        (reports / "r.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON")
    )
    assert list(found)[:3] == ["schema", "status", "message"]
    assert found["schema"] == "warpfront.solve/1"
    assert isinstance(found["backward_error"], float)
    assert set(found["inertia"]) == {"positive", "negative", "zero"}
    assert found["files"]["matrix"] == {
        "path": str(KKT),
        "bytes": KKT.stat().st_size,
        "sha256": sha256(KKT.read_bytes()).hexdigest(),
    }
    assert found["versions"]["numpy"] == np.__version__
    assert found["machine"]["threads"] >= found["records"]["factor"]["threads"] >= 1
    assert found["records"]["factor"]["status"] == "ok"
    assert found["records"]["factor"]["pivots"]["perturbed"] == 0
    assert found["records"]["analysis"]["candidates"][0]["method"]
    assert set(found["seconds"]) - {"compiling"} == {
        "loading",
        "reading",
        "analysing",
        "factorising",
        "solving",
        "estimating",
    }
    assert 0 < sum(found["seconds"].values()) + found["jit_seconds"] <= found["wall_seconds"]
    assert found["memory"]["process_peak_bytes"] > found["memory"]["factor_bytes"] > 0


class Page(HTMLParser):
    """Collects tags and checks that they nest."""

    VOID = ("meta", "br")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.ids, self.text = [], [], [], text
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_reads_aloud(reports):
    page = Page((reports / "r.html").read_text("utf-8"))
    assert page.open == []
    names = {tag for tag, _ in page.tags}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    assert re.search(r"https?:|//|@import|url\(|@font-face", page.text) is None
    assert dict(page.tags[0][1]) == {"lang": "en"}
    assert {"title", "main", "h1", "h2", "nav"} <= names
    assert len(page.ids) == len(set(page.ids))
    for tag, attrs in page.tags:
        if tag == "a":
            assert attrs["href"][0] == "#"
            assert attrs["href"][1:] in page.ids
        if tag == "svg":
            assert attrs["role"] == "img"
            assert attrs["aria-labelledby"] in page.ids
        if tag == "th":
            assert attrs["scope"] in ("row", "col")
    assert [tag for tag, _ in page.tags].count("svg") == 3
    assert "prefers-color-scheme:dark" in page.text
    assert "Solved by LDL^T" in page.text


def test_the_page_escapes_what_it_is_given(tmp_path):
    path = tmp_path / "<b>&.npz"
    sparse.save_npz(path, sparse.csr_array(np.diag([2.0, 3.0])))
    assert main(["solve", str(path), "--report", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "<b>" not in text
    assert "&lt;b&gt;&amp;.npz" in text


def test_the_figure_is_a_picture_with_ink(reports):
    from PIL import Image

    assert (reports / "p.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(reports / "p.png") as image:
        assert min(image.size) > 600
        assert len(np.unique(np.asarray(image.convert("L")))) > 20


@pytest.mark.parametrize("cells", [7, 50, 10_000])
def test_a_portrait_counts_every_entry(cells):
    rng = np.random.default_rng(5)
    A = sparse.random_array((131, 131), density=0.04, rng=rng)
    A = sparse.csc_array(A + A.T + 20 * sparse.eye_array(131))
    solver = DirectSolver(A).factorize()
    picture = plots.portrait(solver._symbolic, cells)
    m = picture.matrix.shape[0]
    assert m == min(cells, 131)
    width = np.bincount(np.arange(131) * m // 131)
    area = np.outer(width, width)
    assert (picture.matrix * area).sum() == pytest.approx(A.nnz)
    order = solver._symbolic.perm
    dense = A.toarray() != 0
    edges = np.concatenate([[0], np.cumsum(width)[:-1]])

    def counted(entries):
        return np.add.reduceat(np.add.reduceat(entries, edges, axis=0), edges, axis=1)

    assert np.allclose(picture.matrix * area, counted(dense.astype(float)))
    assert np.allclose(picture.permuted * area, counted(dense[np.ix_(order, order)].astype(float)))
    from warpfront import cholesky

    L = cholesky(A).L
    L.data[:] = 1.0
    assert np.allclose(picture.factor * area, counted(L.toarray()))
    classes = plots.front_classes(picture)
    assert sum(c.count for c in classes) == solver.report.analysis.n_supernodes
    assert sum(c.flops_share for c in classes) == pytest.approx(1.0)
    assert classes[-1].low <= solver.report.analysis.max_front <= classes[-1].high


def test_plots_from_python(tmp_path):
    solver = DirectSolver(np.diag([1.0, 2.0, 3.0]))
    with pytest.raises(NotAnalyzedError, match="plot_solver"):
        plots.plot_solver(solver)
    solver.factorize()
    figure = plots.plot_solver(solver, "three")
    assert [axes.get_title() for axes in figure.axes][2] == "L (predicted): 3 entries"
    assert len(figure.axes) == len(plots.plot_symbolic(solver._symbolic).axes) + 1
    assert list(plots.phase_seconds(solver)) == ["analysis", "factorisation"]


def test_analyze_predicts_what_solve_finds(tmp_path, capsys):
    words = ["--report", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.svg")]
    assert main(["analyze", str(EXAMPLES / "bcsstk13.mtx.gz"), "--structure", "SPD", *words]) == 0
    out = capsys.readouterr().out
    for row in ("candidates", "fill: nnz(L)", "flops", "fronts", "predicted factor", "predicted total"):
        assert row in out
    assert "Factorisation" not in out
    assert "<svg" in (tmp_path / "a.svg").read_text("utf-8")
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["records"]["factor"] is None
    assert main(["solve", str(EXAMPLES / "bcsstk13.mtx.gz"), "--structure", "SPD", *words[:2]]) == 0
    solved = json.loads((tmp_path / "a.json").read_text())
    assert solved["records"]["factor"]["nnz_factor"] == found["records"]["analysis"]["nnz_factor"]


def test_info(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for row in ("warpfront", "numba", "BLAS", "model", "threads", "caches of a core", "GPU", "usable"):
        assert row in out
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["machine"]["packages"]["numpy"] == np.__version__
    assert found["machine"]["threads"] >= 1
    assert found["gpu"]["available"] or found["gpu"]["reason"]


def test_compiling_is_said_once_and_nothing_before_the_file_is_read(capsys):
    from numba.core import event

    with _progress.Phases() as phases:
        with phases.phase("reading"):
            pass
        assert capsys.readouterr().out == ""
        phases.announce()
        phases.watch_compiler()
        with phases.phase("analysing", "3 x 3"):
            for _ in range(2):
                with event.trigger_event("numba:compile"):
                    pass
    assert capsys.readouterr().out == f"analysing 3 x 3 ...\n{_progress.COMPILING}\n"
    with event.trigger_event("numba:compile"):
        pass
    assert capsys.readouterr().out == ""
    assert set(phases.seconds) == {"reading", "analysing"}


def test_on_a_terminal_progress_leaves_the_error_alone(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["solve", str(KKT)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Matrix\n")  # the table and nothing before it
    assert "error" not in err


def test_the_process_solves_without_matplotlib(tmp_path):
    code = (
        "import sys\nfrom warpfront.cli.main import main\n"
        f"code = main(['solve', {str(KKT)!r}, '-o', {str(tmp_path / 'x.mtx')!r},\n"
        f"             '--report', {str(tmp_path / 'r.html')!r}])\n"
        "sys.exit('matplotlib was imported' if 'matplotlib' in sys.modules else code)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Traceback" not in done.stdout
    assert (tmp_path / "x.mtx").is_file()
