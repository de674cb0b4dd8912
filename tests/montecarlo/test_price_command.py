"""``warpfront price``: words and files, the table, reports and pictures, refusals."""

import json

import pytest

from warpfront.cli.main import main
from warpfront.errors import FormatError, InvalidValueError
from warpfront.montecarlo import AsianArithmetic, Barrier, European, Progress, price
from warpfront.montecarlo.plots import convergence_data, plot_convergence
from warpfront.montecarlo.text import option_of_words, read_options

MARKET = ["spot=100", "strike=105", "rate=0.05", "volatility=0.2", "maturity=1"]


@pytest.fixture
def run(capsys):
    def run(*words):
        code = main(["price", *(str(word) for word in words)])
        out, err = capsys.readouterr()
        assert (err == "") == (code == 0)
        if code:
            assert err.startswith("error: ")
            assert err.count("\n") == 1
            assert "internal error" not in err
        return code, out, err

    return run


def test_a_call(run):
    code, out, _ = run("call", *MARKET, "--paths", "1e5", "--seed", 3)
    assert code == 0
    expected = price(European(spot=100, strike=105, rate=0.05, volatility=0.2, maturity=1), 1e5, seed=3)[0]
    assert f"{expected.price:.8g}" in out
    for word in (
        "standard error",
        "95% interval",
        "closed form",
        "8.0213522, z =",
        "paying paths",
        "Philox4x32-10, seed 3",
    ):
        assert word in out


def test_report_and_picture(run, tmp_path):
    report, plot = tmp_path / "r.json", tmp_path / "p.svg"
    code, out, _ = run(
        "asian",
        "put",
        *MARKET,
        "n_steps=4",
        "--paths",
        3e5,
        "--method",
        "control",
        "--method",
        "greeks",
        "--report",
        report,
        "--plot",
        plot,
    )
    assert code == 0
    assert str(report) in out
    found = json.loads(report.read_text())
    assert found["schema"] == "warpfront.price/1"
    assert found["estimates"][0]["option"]["payoff"] == "AsianArithmetic"
    assert found["estimates"][0]["z"] is None
    assert found["machine"]["cpu"]
    assert "delta" in out
    assert "divides the variance by" in out
    assert "<svg" in plot.read_text()


def test_sobol_and_level(run):
    code, out, _ = run("call", *MARKET, "--method", "sobol", "--level", "0.99", "--paths", 32 * 1024)
    assert code == 0
    assert "99% interval" in out
    assert "32 scrambles of Sobol points" in out


def test_tolerance(run):
    code, out, _ = run("call", *MARKET, "--tolerance", "0.02")
    assert code == 0
    assert "Warning" not in out


def test_warnings_are_shown(run):
    code, out, _ = run(
        "call", *MARKET[:1], "strike=400", *MARKET[2:], "--paths", "100000", "--tolerance", "1e-9"
    )
    assert code == 0
    assert "only 0 of 100000 paths pay" in out
    assert "did not reach the tolerance" in out


def test_file_of_options(run, tmp_path):
    file = tmp_path / "book.csv"
    file.write_text(
        "payoff,kind,spot,strike,rate,volatility,maturity,dividend_yield,n_steps,barrier,knock,monitoring\n"
        "european,call,100,105,0.05,0.2,1,0.02,,,,\n"
        "asian,put,100,105,0.05,0.2,1,,12,,,\n"
        "up-and-out,call,100,105,0.05,0.2,1,,4,130,,continuous\n"
        "barrier,put,100,105,0.05,0.2,1,,,80,down-and-in,\n"
    )
    options = read_options(file)
    assert [type(option) for option in options] == [European, AsianArithmetic, Barrier, Barrier]
    assert options[0].dividend_yield == 0.02
    assert (options[2].knock, options[2].monitoring, options[3].n_steps) == ("up-and-out", "continuous", 1)
    code, out, _ = run(file, "--paths", "20000")
    assert code == 0
    assert "4 options" in out
    assert out.count("barrier") >= 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cal", *MARKET], "'cal' is not understood; there are call, put"),
        (["call", "spot=100"], "needs strike=…, rate=…, volatility=…, maturity=…"),
        (["call", *MARKET, "spot=90"], "spot is given twice: 100 and 90"),
        (["call", "put", *MARKET], "kind is given twice"),
        (["call", *MARKET, "volatilty=0.3"], "did you mean volatility?"),
        (["call", *MARKET, "barrier=120"], "a barrier option needs knock=…"),
        (["asian", "call", *MARKET, "barrier=120"], "an asian option has no 'barrier'"),
        (["call", *MARKET[1:], "spot=abc"], "spot must be a number, got 'abc'"),
        (["call", *MARKET[1:], "spot=-3"], "spot must be greater than 0"),
        (["call", *MARKET[1:], "spot=nan"], "spot must be finite"),
        (["call", *MARKET, "n_steps=1.5"], "n_steps must be an integer"),
        (["call", *MARKET, "--paths", "0"], "n_paths must be from 1"),
        (["call", *MARKET, "--paths", "1000", "--method", "sobol"], "replicates times a power of two"),
        (["call", *MARKET, "--method", "magic"], "no method 'magic'; there are antithetic"),
        (["call", *MARKET, "--level", "95"], "95% is 0.95"),
        (["call", *MARKET, "--seed", "-1"], "seed must be from 0"),
        (["call", *MARKET, "--plot", "x.bmp"], "--plot writes .png"),
        (["call", *MARKET, "--report", "nowhere/x.json"], "does not exist"),
        (["missing.csv"], "missing.csv: No such file"),
    ],
)
def test_refusals(run, words, message):
    code, _, err = run(*words)
    assert code == 2
    assert message in err


def test_what_cannot_be_done_here(run):
    from warpfront.backend import capability

    code, _, err = run("call", *MARKET, "--method", "sobol", "--method", "antithetic", "--paths", "1024")
    assert code == 4
    assert "not combined" in err
    if capability.missing() is not None:
        code, _, err = run("call", *MARKET, "--device", "cuda")
        assert code == 4
        assert "install" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the header is empty"),
        ("spot,strke\n1,2\n", "has no field 'strke'"),
        ("spot,strike,rate,volatility,maturity\n", "holds no option"),
        ("spot,strike,rate,volatility,maturity\n100,100,0.05,0.2\n", "line 2: needs 5 cells"),
        (
            "spot,strike,rate,volatility,maturity\n100,100,0.05,0.2,1\n100,100,x,0.2,1\n",
            "line 3: rate must be a number",
        ),
        (
            "spot,strike,rate,volatility,maturity\n100,100,0.05,-0.2,1\n",
            "line 2: volatility must be at least 0",
        ),
    ],
)
def test_files_that_are_refused(tmp_path, text, message):
    file = tmp_path / "book.csv"
    file.write_text(text)
    with pytest.raises(FormatError, match=message):
        read_options(file)
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"spot\n\xff\xfe\x00")
    with pytest.raises(FormatError, match="not a CSV file"):
        read_options(binary)


def test_words_in_any_order():
    option = option_of_words([*MARKET, "barrier=80", "down-and-in", "put", "continuous"])
    assert isinstance(option, Barrier)
    assert (option.kind, option.knock, option.monitoring) == ("put", "down-and-in", "continuous")


def test_picture_of_an_option_without_error_or_history():
    steps: list[Progress] = []
    option = European(spot=100, strike=90, rate=0.0, volatility=0.0, maturity=1)
    price(option, 100_000, progress=steps.append)
    data = convergence_data(steps)
    assert (data["standard_error"] == 0).all()
    assert plot_convergence(steps, title="known").axes
    with pytest.raises(InvalidValueError, match="history is empty"):
        plot_convergence([])
