"""Errors become one line and an exit code; the command table is lazy."""

import subprocess
import sys
import types

import pytest
import typer

from warpfront import errors
from warpfront.cli import main as cli


def command(monkeypatch, function, name="dummy"):
    module = types.ModuleType("dummy_command")
    module.command = function
    monkeypatch.setitem(sys.modules, "dummy_command", module)
    monkeypatch.setitem(cli.COMMANDS, name, "dummy_command:command")


def raising(error):
    def dummy() -> None:
        """Raise."""
        raise error

    return dummy


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (errors.FormatError("a.mtx line 3: bad\nindex"), 2, "a.mtx line 3: bad index"),
        (errors.InvalidValueError("ordering must be"), 2, "ordering must be"),
        (errors.PatternChangedError("nnz 3 against 4"), 2, "nnz 3 against 4"),
        (FileNotFoundError(2, "No such file or directory", "a.mtx"), 2, "a.mtx: No such file or directory"),
        (PermissionError(13, "Permission denied", "x.mtx"), 2, "x.mtx: Permission denied"),
        (errors.SingularMatrixError("singular at column 7", 7), 3, "singular at column 7"),
        (errors.NotPositiveDefiniteError("column 2", 2), 3, "column 2"),
        (errors.NonFiniteError("entry 5", 5), 3, "entry 5"),
        (errors.UnstablePivotError("column 4 has no stable pivot", 4), 3, "column 4 has no stable pivot"),
        (errors.BatchFailedError("2 of 9 systems failed", [1, 5], [3, -1]), 3, "2 of 9 systems failed"),
        (errors.RefinementFailedError("backward error 1e-3", 1e-3), 3, "backward error 1e-3"),
        (errors.NotSupportedError("needs a GPU"), 4, "needs a GPU"),
        (
            errors.CompileError("k.cu did not compile", "line 3: error"),
            4,
            "k.cu did not compile line 3: error",
        ),
        (errors.OrderingFailedError("METIS failed: out of memory"), 4, "METIS failed: out of memory"),
        (
            errors.OutOfPagesError("3 pages are needed, and 2 are free", 3, 2),
            4,
            "3 pages are needed, and 2 are free",
        ),
        (MemoryError("745 GiB"), 4, "not enough memory on this machine: 745 GiB"),
        (
            errors.NotAnalyzedError("order"),
            1,
            "internal error, NotAnalyzedError: order (--debug shows where)",
        ),
        (KeyError("k"), 1, "internal error, KeyError: 'k' (--debug shows where)"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(monkeypatch, capsys, error, code, text):
    command(monkeypatch, raising(error))
    assert cli.main(["dummy"]) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {text}\n")


def test_every_exception_of_the_package_has_a_test_here():
    tested = {name for name in errors.__all__ if name.endswith("Error")} - {"WarpfrontError"}
    mark = test_an_error_is_one_line_and_an_exit_code.pytestmark[0]
    listed = {type(row[0]).__name__ for row in mark.args[1]}
    assert tested - listed == {"NotFactorizedError"}  # the same case as NotAnalyzedError


@pytest.mark.parametrize("line", [["--debug", "dummy"], ["dummy", "--debug"]])
def test_debug_lets_the_error_through(monkeypatch, line):
    command(monkeypatch, raising(errors.FormatError("where")))
    with pytest.raises(errors.FormatError, match="where"):
        cli.main(line)


def test_debug_after_the_end_of_options_is_an_argument(monkeypatch, capsys):
    def dummy(word: str) -> None:
        typer.echo(word)

    command(monkeypatch, dummy)
    assert cli.main(["dummy", "--", "--debug"]) == 0
    assert capsys.readouterr().out == "--debug\n"


@pytest.mark.parametrize("line", [["no-such"], ["dummy", "--no-such"], ["dummy"], ["--no-such"]])
def test_a_usage_error_is_one_line_and_code_two(monkeypatch, capsys, line):
    def dummy(word: str) -> None:
        typer.echo(word)

    command(monkeypatch, dummy)
    assert cli.main(line) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_mistyped_command_is_guessed(monkeypatch, capsys):
    command(monkeypatch, raising(KeyError()))
    assert cli.main(["dumy"]) == 2
    assert "Did you mean 'dummy'?" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_can_choose_its_exit_code(monkeypatch, code):
    def dummy() -> None:
        raise typer.Exit(code)

    command(monkeypatch, dummy)
    assert cli.main(["dummy"]) == code


def test_a_group_of_commands(monkeypatch, capsys):
    group = typer.Typer()
    group.command("one")(lambda: typer.echo("1"))
    group.command("two")(lambda: typer.echo("2"))
    command(monkeypatch, group)
    assert cli.main(["dummy", "two"]) == 0
    assert capsys.readouterr().out == "2\n"


@pytest.mark.parametrize("line", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(monkeypatch, capsys, line):
    command(monkeypatch, raising(KeyError()))
    assert cli.main(line) == 0
    out = capsys.readouterr().out
    assert [name for name in cli.COMMANDS if f" {name} " not in out] == []


def test_version(capsys):
    import warpfront

    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"warpfront {warpfront.__version__}\n"


@pytest.mark.parametrize(
    "program", [["-m", "warpfront"], ["-c", "from warpfront.cli.main import *; exit(main())"]]
)
def test_the_process_ends_with_the_exit_code(program):
    command = [sys.executable, *program, "no-such"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: No such command 'no-such'")


def test_only_the_command_that_runs_is_imported(monkeypatch):
    command(monkeypatch, lambda: None)
    monkeypatch.setitem(cli.COMMANDS, "absent", "no_such_module:command")
    assert cli.main(["dummy"]) == 0


def test_help_is_cheap():
    code = (
        "import sys\nfrom warpfront.cli.main import main\nmain(['--help'])\n"
        "heavy = {'numpy', 'scipy', 'numba', 'matplotlib', 'PIL', 'cupy', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_is_no_error():
    code = (
        "import sys, types, typer\nfrom warpfront.cli import main as cli\n"
        "m = types.ModuleType('m'); m.f = lambda: [typer.echo('x' * 1000) for _ in range(1000)]\n"
        "sys.modules['m'] = m; cli.COMMANDS['many'] = 'm:f'\nsys.exit(cli.main(['many']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1
