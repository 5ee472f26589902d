"""The beginning of a log line: who wrote it and when, and where the message begins.

    (EngineCore pid=7) WARNING 09-24 16:35:21 [base_worker.py:3032] Releasing expired ...    vLLM
    [2026-09-24 16:35:21 TP0] Prefill transfer failed for ...                                SGLang
    {"asctime": "...", "message": "Releasing expired ..."}                                   JSON

Whatever a log shipper has put in front is skipped. vLLM writes no year: the last one is taken in
which the line is not younger than its file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kvairlock.audit.foreign.signs import Engine

HEAD_CHARS = 400
"""How far into a line its head is looked for."""

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_VLLM = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<when>\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d{1,6})? "
    r"\[[^\]\s]{1,160}:\d{1,6}\] "
)
_SGLANG = re.compile(
    r"\[(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d{1,6})?(?: [A-Z]{2,4}\d{1,4}){0,6}\] "
)
_TIMES = ("asctime", "timestamp", "time")


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in front of a message.

    Args:
        engine: Whose format it is; None if the format does not tell.
        at_s: When, in seconds of the writer's own clock and zone; None if it does not say.
        message: All that follows.
        fields: Of a line of JSON: everything that it has.
    """

    engine: Engine | None
    at_s: float | None
    message: str
    fields: dict[str, Any] = field(default_factory=dict)


def head_of(line: str, before: datetime) -> Head | None:
    """Return the head of a line, or None if it has none that is known.

    Args:
        line: One line, without its end.
        before: When the file was last written: no line of it is younger.
    """
    text = _COLOUR.sub("", line) if "\x1b" in line else line
    for engine, regex in ((Engine.VLLM, _VLLM), (Engine.SGLANG, _SGLANG)):
        found = regex.search(text, 0, HEAD_CHARS)
        if found:
            rest = text[found.end() :]
            at = _seconds(found["when"], before)
            return _of_json(rest, at, before) or Head(engine, at, rest)
    return _of_json(text, None, before)


def _of_json(text: str, at: float | None, before: datetime) -> Head | None:
    if not text.startswith("{"):
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not ({"message", "event"} & set(fields)):
        return None
    said = next((fields[name] for name in _TIMES if isinstance(fields.get(name), str)), "")
    message = fields.get("message")
    when = _seconds(said, before) if at is None else at
    return Head(None, when, message if isinstance(message, str) else "", fields)


def _seconds(said: str, before: datetime) -> float | None:
    """Return a time that was written down as seconds, as if the writer's zone were UTC."""
    text = said.replace(",", ".")
    if len(text) == len("09-24 16:35:21"):
        return _without_year(text, before)
    try:
        return _naive(datetime.fromisoformat(text))
    except ValueError:
        return None


def _without_year(text: str, before: datetime) -> float | None:
    for year in (before.year, before.year - 1):
        try:
            at = datetime.fromisoformat(f"{year}-{text}")
        except ValueError:
            continue
        # The writer's zone is not known: a day of leeway.
        if _naive(at) <= _naive(before) + 86_400:
            return _naive(at)
    return None


def _naive(at: datetime) -> float:
    return (at.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
