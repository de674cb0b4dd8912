"""A saved analysis: one ``.npz`` file of plain arrays and a line of JSON; nothing in it is executed on loading."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from warpfront.errors import FormatError
from warpfront.formats.canonical import Canonical
from warpfront.report import OrderingCandidate
from warpfront.sparse.analysis.ordering import Ordering
from warpfront.sparse.analysis.symbolic import Coupling, General, Symbolic
from warpfront.sparse.plan import FrontPlan

__all__ = ["load_symbolic", "save_symbolic"]

FORMAT = "warpfront analysis 2"


def save_symbolic(symbolic: Symbolic, path: str | Path) -> None:
    """Write an analysis to ``path``, as it is named (no suffix is added)."""
    arrays: dict[str, Any] = {}
    meta: dict[str, Any] = {"format": FORMAT}
    for prefix, record in _records(symbolic):
        for name, value in record.items():
            if isinstance(value, np.ndarray):
                arrays[f"{prefix}.{name}"] = value
            elif isinstance(value, (int, float, str, bool)):
                meta[f"{prefix}.{name}"] = value
    meta["candidates"] = [
        {k: v for k, v in asdict(candidate).items() if v is not None}
        for candidate in symbolic.ordering.candidates
    ]
    meta["sha256"] = _digest(arrays, meta)
    with Path(path).open("wb") as file:
        np.savez(file, meta=np.array(json.dumps(meta)), **arrays)


def _digest(arrays: dict[str, Any], meta: dict[str, Any]) -> str:
    """Hash of everything in a file: an index that changed on its way would send a kernel outside its arrays."""
    found = sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _records(symbolic: Symbolic) -> list[tuple[str, dict[str, Any]]]:
    """Parts of an analysis, flat; members that are records themselves are left out of their owner's part."""

    def flat(record: Any) -> dict[str, Any]:
        return {field.name: getattr(record, field.name) for field in fields(record)}

    parts = [
        ("symbolic", flat(symbolic)),
        ("pattern", flat(symbolic.pattern)),
        ("ordering", flat(symbolic.ordering)),
        ("plan", symbolic.plan._asdict()),
    ]
    if symbolic.general is not None:
        parts += [("general", flat(symbolic.general)), ("coupling", symbolic.general.coupling._asdict())]
    return parts


def load_symbolic(path: str | Path) -> Symbolic:
    """Read what `save_symbolic` wrote.

    Raises
    ------
    FormatError
        Not such a file, one of another version, or one that has changed since it was written.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            if meta.get("format") != FORMAT:
                raise FormatError(f"{path} holds {meta.get('format')!r}; this build reads {FORMAT!r}")
            held = {name: file[name] for name in file.files if name != "meta"}
    except (KeyError, ValueError, zipfile.BadZipFile, EOFError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path} is not a saved analysis: {error}") from error
    if meta.pop("sha256", None) != _digest(held, meta):
        raise FormatError(f"{path} is damaged: it does not hold what was written")
    held |= meta
    parts: dict[str, dict[str, Any]] = {}
    for name, value in held.items():
        prefix, _, member = name.partition(".")
        if member:
            parts.setdefault(prefix, {})[member] = value
    try:
        return _assembled(parts, meta["candidates"])
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path} is not a complete analysis: {error}") from error


def _assembled(parts: dict[str, dict[str, Any]], candidates: list[dict[str, Any]]) -> Symbolic:
    general = None
    if "general" in parts:
        general = General(**parts["general"], coupling=Coupling(**parts["coupling"]))
    ordering = Ordering(
        **parts["ordering"], candidates=tuple(OrderingCandidate(**candidate) for candidate in candidates)
    )
    return Symbolic(
        **parts["symbolic"],
        pattern=Canonical(**parts["pattern"]),
        ordering=ordering,
        plan=FrontPlan(**parts["plan"]),
        general=general,
    )
