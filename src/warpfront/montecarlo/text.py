"""Options written as words (``up-and-out call barrier=120 spot=100 …``) or as rows of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from warpfront.errors import FormatError, InvalidValueError
from warpfront.montecarlo.options import KNOCKS, AsianArithmetic, Barrier, European, Option

__all__ = ["EXAMPLE", "option_from", "option_of_words", "read_options"]

EXAMPLE = "call spot=100 strike=105 rate=0.05 volatility=0.2 maturity=1"
PAYOFFS: dict[str, type[Option]] = {"european": European, "asian": AsianArithmetic, "barrier": Barrier}
# Words that stand alone -> the field they set.
BARE = {
    **dict.fromkeys(("call", "put"), "kind"),
    **dict.fromkeys(PAYOFFS, "payoff"),
    **dict.fromkeys(KNOCKS, "knock"),
    **dict.fromkeys(("discrete", "continuous"), "monitoring"),
}
NAMES = tuple(field.name for field in fields(Barrier))


def option_of_words(words: Sequence[str]) -> Option:
    """Return the option that words describe.

    Parameters
    ----------
    words : sequence of str
        ``call`` or ``put``, a payoff (``european``, ``asian``, or one of `KNOCKS`), ``discrete`` or ``continuous``, and
        ``name=value`` for the fields of the payoff object.

    Raises
    ------
    InvalidValueError
        A word that is none of these, one that says again what another said, a value that is no number, or
        whatever the payoff object refuses.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip()
        if not equals:
            name, value = BARE.get(word.lower(), ""), word.lower()
            if not name:
                known = ", ".join([*BARE, "name=value"])
                raise InvalidValueError(f"{word!r} is not understood; there are {known}. Example: {EXAMPLE}")
        if name in found:
            raise InvalidValueError(f"{name} is given twice: {found[name]} and {value}")
        found[name] = value.strip()
    return option_from(found)


def option_from(found: dict[str, str]) -> Option:
    """Return the option with these fields, given as text; ``payoff`` may be left out."""
    given = dict(found)
    payoff = given.pop("payoff", "").lower()
    if payoff in KNOCKS:
        given.setdefault("knock", payoff)
        payoff = "barrier"
    payoff = payoff or ("barrier" if "barrier" in given or "knock" in given else "european")
    if payoff not in PAYOFFS:
        raise InvalidValueError(f"payoff must be one of {', '.join([*PAYOFFS, *KNOCKS])}, got {payoff!r}")
    kind, article = PAYOFFS[payoff], "an" if payoff == "asian" else "a"
    names = [field.name for field in fields(kind)]
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1, 0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise InvalidValueError(
                f"{article} {payoff} option has no {name!r}{hint}; it has {', '.join(names)}"
            )
    needed = [f.name for f in fields(kind) if f.name not in given and f.default is MISSING]
    if needed:
        raise InvalidValueError(
            f"{article} {payoff} option needs {', '.join(f'{name}=…' for name in needed)}. Example: {EXAMPLE}"
        )
    values = {name: _value(name, text) for name, text in given.items()}
    return kind(**values)


def _value(name: str, text: str) -> Any:
    if name in ("kind", "knock", "monitoring"):
        return text.lower()
    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(f"{name} must be a number, got {text!r}") from None


def read_options(path: Path) -> list[Option]:
    """Read options from a CSV file: a header with the fields' names (``payoff`` among them), an option in each row.

    An empty cell leaves the field at its default.

    Raises
    ------
    FormatError
        The line that cannot be understood, with its number.
    """
    result: list[Option] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            reader = csv.DictReader(file, strict=True)
            names = [str(name).strip() for name in reader.fieldnames or []]
            unknown = [name for name in names if name not in (*NAMES, "payoff")]
            if unknown or not names:
                allowed = ", ".join(("payoff", *NAMES))
                what = f"has no field {unknown[0]!r}" if unknown else "is empty"
                raise FormatError(f"{path}: the header {what}; there are {allowed}")
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if None in row or None in row.values():
                    raise FormatError(f"{where}: needs {len(names)} cells, as the header has")
                cells = {name: str(cell).strip() for name, cell in zip(names, row.values(), strict=True)}
                try:
                    result.append(option_from({name: cell for name, cell in cells.items() if cell}))
                except InvalidValueError as error:
                    raise FormatError(f"{where}: {error}") from None
        except (csv.Error, UnicodeDecodeError) as error:
            raise FormatError(f"{path}: is not a CSV file: {error}") from None
    if not result:
        raise FormatError(f"{path}: holds no option below its header")
    return result
