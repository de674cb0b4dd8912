"""``warpfront det``, ``inv`` and ``transpose``: dense matrices from files; ``det`` also takes sparse ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["det", "inv", "transpose"]

OUTPUT_SUFFIXES = (".npy", ".npz", ".mtx", ".mtx.gz")
MAX_DENSE_ORDER = 20_000

File = Annotated[Path, typer.Argument(metavar="A", help="Matrix: .npy, .npz, .mtx, .rb (.gz too).")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the result: .npy, .npz, .mtx or .mtx.gz.", show_default=False),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def _read(path: Path) -> Any:
    if path.name.lower().endswith(".npy"):
        import numpy as np

        from warpfront.errors import FormatError

        try:
            return np.load(path, allow_pickle=False)
        except ValueError as error:
            raise FormatError(f"{path}: {error}") from None
    from warpfront.formats import read_matrix

    return read_matrix(path)


def _write(path: Path, value: Any, comment: str) -> None:
    if path.name.lower().endswith(".npy"):
        import numpy as np

        np.save(path, value)
        return
    if path.name.lower().endswith(".npz"):
        import numpy as np
        from scipy import sparse

        if sparse.issparse(value):
            sparse.save_npz(path, value)
        else:
            np.savez_compressed(path, a=value)
        return
    from warpfront.formats import write_matrix_market

    write_matrix_market(path, value, comment)


def _check_square(a: Any, path: Path) -> None:
    from warpfront.errors import InvalidValueError

    if len(a.shape) != 2 or a.shape[0] != a.shape[1]:
        raise InvalidValueError(f"{path}: is {' x '.join(map(str, a.shape))}; it must be square")


def _refuse(path: Path, kind: str, option: str, given: str) -> None:
    """Refuse an option that the kind of file has no use for."""
    from warpfront.errors import InvalidValueError

    if given != "auto":
        raise InvalidValueError(f"{path}: is {kind}; {option} {given} has no meaning for it")


def _show(title: str, rows: list[tuple[str, str]]) -> None:
    from warpfront.cli._rows import Section, print_sections

    print_sections([Section(title, tuple(rows))])


def det(
    matrix: File,
    device: Device = "auto",
    structure: Annotated[str, typer.Option(help="Of a sparse matrix: auto, SPD, HPD, S, H or G.")] = "auto",
) -> None:
    """Compute a determinant: by dense LU for a dense file, by the sparse solver for a sparse one.

    Sign and logarithm have no underflow or overflow; the value says when it left the range of its type.
    """
    a = _read(matrix)
    _check_square(a, matrix)
    if hasattr(a, "tocsc"):
        _refuse(matrix, "sparse", "--device", device)
    else:
        _refuse(matrix, "dense", "--structure", structure)
    begin = time.perf_counter()
    rows = _sparse_determinant(a, structure) if hasattr(a, "tocsc") else _dense_determinant(a, device)
    rows.append(("seconds", f"{time.perf_counter() - begin:.3f} (kernels that had to be compiled included)"))
    _show("Determinant", [("order", str(a.shape[0])), *rows])


def _dense_determinant(a: Any, device: str) -> list[tuple[str, str]]:
    from warpfront import dense

    found = dense.det(a, device=device, check="status")  # type: ignore[arg-type]
    value = f"{found.value}" + ("" if found.flag == "ok" else f" ({found.flag})")
    rows = [("determinant", value), ("sign", f"{found.sign}"), ("log |det|", f"{found.logabsdet:.17g}")]
    if found.column >= 0:
        rows.append(("first zero pivot", f"column {found.column}"))
    return [*rows, ("method", "dense LU, partial pivoting")]


def _sparse_determinant(a: Any, structure: str) -> list[tuple[str, str]]:
    import numpy as np

    from warpfront.sparse.determinant import sparse_slogdet

    sign, logarithm, method = sparse_slogdet(a, structure)
    with np.errstate(over="ignore", under="ignore"):
        value = sign * np.exp(logarithm)
    flag = " (singular)" if sign == 0 else " (underflow)" if value == 0 else ""
    flag = flag or ("" if np.isfinite(value) else " (overflow)")
    rows = [("determinant", f"{value}{flag}"), ("sign", f"{sign}"), ("log |det|", f"{logarithm:.17g}")]
    return [*rows, ("method", f"sparse {method}")]


def inv(
    matrix: File,
    output: Output = None,
    device: Device = "auto",
    precision: Annotated[
        str, typer.Option(help="working, or float32 (tf32, float16 on a GPU) with correction.")
    ] = "working",
) -> None:
    """Invert a matrix by LU with partial pivoting. A singular one is refused with the pivot that is zero."""
    import warnings

    from warpfront import dense
    from warpfront.cli import _files as files
    from warpfront.dense._batch import raise_for
    from warpfront.errors import InvalidValueError

    files.check_output(output, "--output", OUTPUT_SUFFIXES, [matrix])
    a = _read(matrix)
    _check_square(a, matrix)
    if hasattr(a, "tocsc"):
        if a.shape[0] > MAX_DENSE_ORDER:
            raise InvalidValueError(
                f"{matrix}: the inverse of a sparse matrix is dense, {a.shape[0]}^2 entries; solve with it instead "
                "(warpfront solve)"
            )
        a = a.toarray()
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the condition estimate is in the table
        found = dense.inv(a, device=device, precision=precision, check="status")  # type: ignore[arg-type]
    seconds = time.perf_counter() - begin
    raise_for(found, "")
    if output is not None:
        _write(output, found.value, "inverse, written by warpfront inv")
    rows = [
        ("order", str(a.shape[0])),
        ("method", found.method),
        ("backward error of A X = I", f"{found.backward_error:.1e}"),
        ("condition estimate", f"{1 / found.rcond:.1e}" if found.rcond > 0 else "infinite"),
        ("seconds", f"{seconds:.3f} (kernels that had to be compiled included)"),
    ]
    _show("Inverse", [*rows, *([] if output is None else [("written", str(output))])])


def transpose(matrix: File, output: Output = None, device: Device = "auto") -> None:
    """Transpose a matrix; a sparse file stays sparse."""
    from warpfront.cli import _files as files

    files.check_output(output, "--output", OUTPUT_SUFFIXES, [matrix])
    a = _read(matrix)
    if hasattr(a, "tocsc"):
        _refuse(matrix, "sparse", "--device", device)
    begin = time.perf_counter()
    if hasattr(a, "tocsc"):
        from warpfront.formats.storage import compressed

        turned = compressed(a).transposed().to_rows().to_scipy()
        what = f"sparse, {turned.nnz} entries"
    else:
        from warpfront import dense

        turned = dense.transpose(a, device=device)  # type: ignore[arg-type]
        what = f"dense, {turned.dtype}"
    seconds = time.perf_counter() - begin
    if output is not None:
        _write(output, turned, "transpose, written by warpfront transpose")
    rows = [("result", f"{' x '.join(map(str, turned.shape))}, {what}"), ("seconds", f"{seconds:.3f}")]
    _show("Transpose", [*rows, *([] if output is None else [("written", str(output))])])
