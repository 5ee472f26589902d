"""One file read through: which of its lines are signs of something, and of which requests.

A sighting keeps ids, a line number and a time. The line itself may hold a prompt or an answer, so
nothing else of it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvairlock.audit.foreign.counters import Reading, reading_of
from kvairlock.audit.foreign.heads import Head, head_of
from kvairlock.audit.foreign.lines import Tally, lines_of
from kvairlock.audit.foreign.patterns import DECODE_SAID, PATTERNS, PREFILL_SAID, Pattern
from kvairlock.audit.foreign.signs import Engine, Side, Sign

SIGHTINGS_MAX = 1_000_000
"""More sightings of one file are counted, and not looked into."""
IDS_MAX = 200
_ID = re.compile(r"[\w.:-]{1,256}")
_CONTEXT = re.compile(r"'(remote_request_id|request_id)': '([^']{1,256})'")
_ROOM = re.compile(r"\bbootstrap_room=(\d{1,20})\b")


@dataclass(frozen=True, slots=True)
class Sighting:
    """One line that is a sign of something.

    Args:
        file: Number of its file.
        line: Its line there, from 1.
        at_s: When, by the clock of its writer; None if it does not say.
        sign: What it is a sign of.
        engine: Whose line it is.
        side: Which half wrote it.
        keys: Ids of the request that it is about; all mean the same request.
    """

    file: int
    line: int
    at_s: float | None
    sign: Sign
    engine: Engine
    side: Side
    keys: tuple[str, ...]


@dataclass(slots=True)
class FileRead:
    """What one file has come to.

    Args:
        name: Its name.
        tally: What reading it has met.
        side: Which half it is of, if anything tells.
        headed: How many lines have a head that is known.
        recognised: How many are a sign of something, or a counter that is known.
        overflow: How many signs were too many to look into.
        from_s: The first time that a line states.
        to_s: The last one.
        engines: Whose lines there are.
        sightings: The signs, in order.
        readings: What counters said, in order.
    """

    name: str
    tally: Tally = field(default_factory=Tally)
    side: Side = Side.UNKNOWN
    headed: int = 0
    recognised: int = 0
    overflow: int = 0
    from_s: float | None = None
    to_s: float | None = None
    engines: set[Engine] = field(default_factory=set)
    sightings: list[Sighting] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)


def read_file(file: Path, number: int, engines: frozenset[Engine]) -> FileRead:
    """Read one file through.

    Args:
        file: A log, or expositions of metrics, or both; packed by gzip or not.
        number: Which of all files it is.
        engines: Whose lines are looked for.
    """
    read = FileRead(file.name, side=_side_of(file.name))
    before = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    for text in lines_of(file, read.tally):
        _take(read, number, text, before, engines)
    return read


def _side_of(name: str) -> Side:
    """Return which half a file is of by its name, if that tells."""
    named = [side for side in (Side.PREFILL, Side.DECODE) if side in name.lower()]
    return named[0] if len(named) == 1 else Side.UNKNOWN


def _take(
    read: FileRead, number: int, text: str, before: datetime, engines: frozenset[Engine]
) -> None:
    counted = reading_of(text)
    if counted is not None:
        _count(read, counted, engines)
        return
    head = head_of(text, before)
    if head is None:
        return
    read.headed += 1
    if head.engine is not None:
        read.engines.add(head.engine)
    if head.at_s is not None:
        read.from_s = min(head.at_s, head.at_s if read.from_s is None else read.from_s)
        read.to_s = max(head.at_s, head.at_s if read.to_s is None else read.to_s)
    _note_side(read, head.message)
    found = list(_signs(head, engines))
    read.recognised += bool(found)
    for sign, pattern, keys in found:
        _add(read, number, head, sign, pattern, keys)


def _count(read: FileRead, counted: Reading, engines: frozenset[Engine]) -> None:
    read.headed += 1
    if counted.counter.engine in engines:
        read.recognised += 1
        read.engines.add(counted.counter.engine)
        read.readings.append(counted)


def _note_side(read: FileRead, message: str) -> None:
    """Take over what an engine says at its start of which half it is."""
    if read.side is Side.UNKNOWN and ("server_args=" in message or "engine" in message):
        for side, said in ((Side.PREFILL, PREFILL_SAID), (Side.DECODE, DECODE_SAID)):
            if any(text in message for text in said):
                read.side = side


def _add(
    read: FileRead,
    number: int,
    head: Head,
    sign: Sign,
    pattern: Pattern | None,
    keys: tuple[str, ...],
) -> None:
    engine = Engine.SGLANG if pattern is None else pattern.engine
    side = Side.UNKNOWN if pattern is None else pattern.side
    read.engines.add(engine)
    if len(read.sightings) >= SIGHTINGS_MAX:
        read.overflow += 1
        return
    read.sightings.append(Sighting(number, read.tally.lines, head.at_s, sign, engine, side, keys))


def _signs(
    head: Head, engines: frozenset[Engine]
) -> Iterator[tuple[Sign, Pattern | None, tuple[str, ...]]]:
    """Yield what a message is a sign of; one that names several requests is one for each."""
    if head.fields.get("event") == "request.finished" and Engine.SGLANG in engines:
        yield from _finished(head.fields)
        return
    for pattern in PATTERNS:
        if pattern.engine not in engines:
            continue
        found = pattern.regex.match(head.message)
        if found is None:
            continue
        if not (pattern.unless and pattern.unless in head.message):
            for keys in _keys(pattern, found, head.message):
                yield pattern.sign, pattern, keys
        return


def _keys(pattern: Pattern, found: re.Match[str], message: str) -> Iterator[tuple[str, ...]]:
    named = found.groupdict()
    if "several" in named:
        ids = _ID.findall(named["several"])[:IDS_MAX]
        yield from ((name,) for name in ids)
        return
    keys = [value for name, value in named.items() if name == "request"]
    keys += [_room(value) for name, value in named.items() if name == "room"]
    if message.startswith("NIXL transfer failure"):
        keys += [value for _, value in _CONTEXT.findall(message)]
    if pattern.sign is Sign.ANSWERED and pattern.engine is Engine.SGLANG:
        keys += [_room(value) for value in _ROOM.findall(message)[:1]]
    yield tuple(dict.fromkeys(keys))


def _finished(fields: dict[str, Any]) -> Iterator[tuple[Sign, None, tuple[str, ...]]]:
    """Read a line of SGLang's log of requests as JSON."""
    asked, out = _within(fields, "obj"), _within(fields, "out")
    ended = _within(_within(out, "meta_info"), "finish_reason").get("type")
    rid, room = fields.get("rid"), asked.get("bootstrap_room")
    keys = [rid] if isinstance(rid, str) else []
    keys += [_room(str(room))] if isinstance(room, int) else []
    if ended is not None:
        yield Sign.ABORTED if ended == "abort" else Sign.ANSWERED, None, tuple(keys)


def _within(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _room(number: str) -> str:
    return f"room {int(number)}"
