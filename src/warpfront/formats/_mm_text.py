"""The text of a Matrix Market file: loading it, its grammar as one regular expression, and where an error is.

The grammar is matched over the whole body at once; it never backtracks (every repeat is possessive), so a bad
file costs no more than a good one. The end of the match is the start of the first malformed line.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warpfront.errors import FormatError, InvalidValueError

__all__ = ["Body", "FileText", "load_text"]

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib: 32 KiB window, gzip header
_CHUNK = 1 << 16
_SHOWN = 40

_INTEGER = rb"[-+]?\d++"
_REAL = rb"[-+]?(?>(?>\d++\.?+\d*+|\.\d++)(?>[eE][-+]?\d++)?+|(?i:nan|inf(?:inity)?+))"
_VALUES = {
    "real": (_REAL,),
    "complex": (_REAL, _REAL),
    "integer": (_INTEGER,),
    "unsigned-integer": (rb"\+?\d++",),
    "pattern": (),
}
_COMMENT_OR_BLANK = rb"[ \t\r]*+(?:%[^\n]*+)?\n"
_STRAY = re.compile(rb"^" + _COMMENT_OR_BLANK, re.MULTILINE)
_HAS_STRAY = re.compile(rb"\n[ \t\r]*+[%\n]")


@dataclass(frozen=True)
class FileText:
    """The decompressed bytes of a file. `text` ends in a newline, except that an empty file stays empty."""

    path: Path
    text: bytes

    def error(self, line: int, what: str) -> FormatError:
        """Return the error ``path:line: what``; line numbers count from 1."""
        return FormatError(f"{self.path}:{line}: {what}")

    def line_at(self, offset: int) -> int:
        """Return the number of the line that holds byte `offset`."""
        return self.text.count(b"\n", 0, offset) + 1

    @property
    def last_line(self) -> int:
        """Number of the last line (1 for an empty file)."""
        return max(1, self.text.count(b"\n"))


def load_text(path: Path) -> FileText:
    """Read a file, through gzip if it is compressed (told by its first bytes or a ``.gz`` suffix).

    Raises
    ------
    InvalidValueError
        No such file, not a regular file, or not readable.
    FormatError
        The gzip stream is damaged or ends early; the line is where the readable text stops.
    """
    if not path.exists():
        raise InvalidValueError(f"{path}: no such file")
    if not path.is_file():
        raise InvalidValueError(f"{path}: not a regular file")
    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == _GZIP_MAGIC or path.suffix.lower() == ".gz"
            stream.seek(0)
            if not packed:
                return FileText(path, _ended(stream.read()))
            return FileText(path, _ended(_gunzip(path, stream.read())))
    except OSError as error:
        raise InvalidValueError(f"{path}: cannot be read: {error.strerror or error}") from None


def _gunzip(path: Path, packed: bytes) -> bytes:
    """Decompress all members; zlib itself instead of `gzip`, which drops the text before the damage."""
    parts: list[bytes] = []
    at, end = 0, len(packed.rstrip(b"\0"))  # what pads the last member
    try:
        while at < end:
            member = zlib.decompressobj(_GZIP_WINDOW)
            while at < len(packed) and not member.eof:
                parts.append(member.decompress(packed[at : at + _CHUNK]))
                at += _CHUNK
            if not member.eof:
                raise zlib.error("it ends early")
            at = min(at, len(packed)) - len(member.unused_data)
            while at < end and packed[at] == 0:
                at += 1
    except zlib.error as error:
        line = sum(part.count(b"\n") for part in parts) + 1
        raise FormatError(f"{path}:{line}: damaged gzip stream: {_one_line(str(error))}") from None
    return b"".join(parts)


def _ended(text: bytes) -> bytes:
    return text + b"\n" if text and not text.endswith(b"\n") else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def shown(token: bytes) -> str:
    """Return `token` quoted for a message: printable ASCII, at most 40 characters."""
    text = token[:_SHOWN].decode("ascii", "backslashreplace")
    return repr(text.replace("\\", "/") if "\\" in text else text) + ("..." if len(token) > _SHOWN else "")


@dataclass(frozen=True)
class Body:
    """The lines after the size line: `n_index` integers and the values of one `field` on each.

    Attributes
    ----------
    source : FileText
        The whole file.
    start : int
        Offset of the first body line.
    n_index : int
        2 for a coordinate matrix, 1 for a coordinate vector, 0 for an array.
    field : str
        real, complex, integer, unsigned-integer or pattern.
    """

    source: FileText
    start: int
    n_index: int
    field: str

    def entries(self, expected: int) -> bytes:
        """Check grammar and count; return the entry lines without comments and blank lines.

        Nothing is allocated for `expected`, which is only what the file claims.
        """
        text = self.source.text
        line = (
            rb"[ \t]*+" + rb"[ \t]++".join((_INTEGER,) * self.n_index + _VALUES[self.field]) + rb"[ \t\r]*+\n"
        )
        match = re.compile(rb"(?>" + line + rb"|" + _COMMENT_OR_BLANK + rb")*+").match(text, self.start)
        assert match is not None
        if match.end() != len(text):
            raise self._syntax_error(match.end())
        body = text[self.start :]
        if _HAS_STRAY.search(text, max(self.start - 1, 0)):
            body = _STRAY.sub(b"", body)
        count = body.count(b"\n")
        if count > expected:
            raise self.source.error(self.line_of(expected), f"more entries than the {expected} declared")
        if count < expected:
            raise self.source.error(
                self.source.last_line, f"the file ends after {count} of the {expected} entries declared"
            )
        return body

    def lines(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield line number and tokens of every entry."""
        number = self.source.line_at(self.start) - 1
        for line in self.source.text[self.start :].split(b"\n"):
            number += 1
            tokens = line.split()
            if tokens and not tokens[0].startswith(b"%"):
                yield number, tokens

    def line_of(self, entry: int) -> int:
        """Return the number of the line that holds entry `entry` (from 0)."""
        return next(number for k, (number, _) in enumerate(self.lines()) if k == entry)

    def _syntax_error(self, offset: int) -> FormatError:
        text = self.source.text
        tokens = text[offset : text.index(b"\n", offset)].split()
        line = self.source.line_at(offset)
        wanted = self.n_index + len(_VALUES[self.field])
        for k, token in enumerate(tokens[:wanted]):
            what = "index" if k < self.n_index else f"{self.field} value"
            if (
                re.fullmatch(_INTEGER if k < self.n_index else _VALUES[self.field][k - self.n_index], token)
                is None
            ):
                return self.source.error(line, f"{shown(token)} is not {_article(what)} {what}")
        indices = f"{self.n_index} indices and " if self.n_index else ""
        return self.source.error(
            line, f"{len(tokens)} items on the line; expected {indices}{wanted - self.n_index} for the value"
        )


def _article(what: str) -> str:
    return "an" if what[0] in "aeiou" else "a"
