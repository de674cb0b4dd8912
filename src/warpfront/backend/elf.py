"""What a cubin itself says about its kernels: registers, stack and static shared memory, without the assembler's log.

A cubin is a 64-bit little-endian ELF file. ``.nv.info`` holds a list of attributes: a format byte, an attribute
byte and 16 bits, which are the value or, in format 4, the length of the payload that follows. Two of the
payloads that begin with a symbol's index matter here, the register count and the frame size. A kernel's static
shared memory is the size of its section ``.nv.shared.<symbol>``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from warpfront.errors import FormatError

__all__ = ["Kernel", "kernels"]

_SYMBOL_TABLE, _SIZED = 2, 4
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F
# From compute capability 9.0 on the system keeps this much of each block's shared memory, and the section's
# size includes it; such cubins have a section of reserved memory by this name.
_RESERVED, _RESERVED_BYTES = ".nv.shared.reserved.0", 1024


@dataclass(frozen=True)
class Kernel:
    """Resources of one kernel: registers a thread, bytes of stack a thread, bytes of static shared memory a block."""

    registers: int
    stack_bytes: int
    shared_bytes: int


class _Section(NamedTuple):
    name: str
    kind: int
    data: bytes
    size: int
    link: int


def kernels(cubin: bytes) -> dict[str, Kernel]:
    """Return the resources of every kernel in a cubin, by symbol.

    Raises
    ------
    FormatError
        The bytes are not a cubin.
    """
    try:
        sections = _sections(cubin)
        symbols = _symbols(sections)
        found = _attributes(sections, symbols)
    except (struct.error, IndexError, ValueError, StopIteration) as error:
        raise FormatError(f"not a cubin, or a damaged one: {error}") from error
    shared = {section.name: section.size for section in sections if section.name.startswith(".nv.shared.")}
    kept = _RESERVED_BYTES if _RESERVED in shared else 0
    return {
        symbol: Kernel(registers, frame, max(shared.get(f".nv.shared.{symbol}", 0) - kept, 0))
        for symbol, (registers, frame) in found.items()
    }


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF header")
    (start,) = struct.unpack_from("<Q", cubin, 40)
    step, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + k * step) for k in range(count)]
    names = heads[names_at][4]
    found = []
    for head in heads:
        name, kind, _, _, offset, size, link = head[:7]
        found.append(_Section(_text(cubin, names + name), kind, cubin[offset : offset + size], size, link))
    return found


def _symbols(sections: list[_Section]) -> list[str]:
    table = next(section for section in sections if section.kind == _SYMBOL_TABLE)
    strings = sections[table.link].data
    return [_text(strings, struct.unpack_from("<I", table.data, at)[0]) for at in range(0, table.size, 24)]


def _attributes(sections: list[_Section], symbols: list[str]) -> dict[str, tuple[int, int]]:
    """Return (registers, frame) by symbol: only kernels have a register count of their own."""
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for section in sections:
        if section.name != ".nv.info":
            continue
        at = 0
        while at < section.size:
            form, attribute, value = struct.unpack_from("<BBH", section.data, at)
            at += 4
            if form != _SIZED:
                continue
            if attribute in (_REGISTERS, _FRAME_SIZE) and value >= 8:
                symbol, number = struct.unpack_from("<II", section.data, at)
                (registers if attribute == _REGISTERS else frames)[symbols[symbol]] = number
            at += value
    return {symbol: (count, frames.get(symbol, 0)) for symbol, count in registers.items()}


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
