"""Files as lines, whatever they are: packed or not, in any encoding, with lines of any length."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

LINE_BYTES_MAX = 32 * 1024
"""What of a longer line is read; the rest is passed over, and the line is counted as cut."""
GZIP = b"\x1f\x8b"


@dataclass(slots=True)
class Tally:
    """What reading a file has met.

    Args:
        lines: How many lines it has.
        cut: How many of them were longer than is read.
        undecodable: How many have bytes that are no UTF-8; each such byte is read as a mark.
        torn: Whether the file ended in the middle of its packing.
    """

    lines: int = 0
    cut: int = 0
    undecodable: int = 0
    torn: bool = False


def lines_of(file: Path, tally: Tally) -> Iterator[str]:
    """Yield the lines of a file, without their ends.

    Args:
        file: Text, or text packed by gzip: its first bytes tell.
        tally: What is counted into.
    """
    with file.open("rb") as raw:
        packed = raw.read(2) == GZIP
        raw.seek(0)
        yield from _lines(gzip.GzipFile(fileobj=raw) if packed else raw, tally)


def _lines(stream: BinaryIO | gzip.GzipFile, tally: Tally) -> Iterator[str]:
    while line := _next(stream, tally):
        tally.lines += 1
        if len(line) > LINE_BYTES_MAX:
            tally.cut += 1
            _skip(stream, line, tally)
        yield _text(line[:LINE_BYTES_MAX], tally)


def _next(stream: BinaryIO | gzip.GzipFile, tally: Tally) -> bytes:
    try:
        return stream.readline(LINE_BYTES_MAX + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        tally.torn = True
        return b""


def _skip(stream: BinaryIO | gzip.GzipFile, line: bytes, tally: Tally) -> None:
    while line and not line.endswith(b"\n"):
        line = _next(stream, tally)


def _text(line: bytes, tally: Tally) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        tally.undecodable += 1
        text = line.decode(errors="replace")
    return text.rstrip("\r\n")
