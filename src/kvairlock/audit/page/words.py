"""How the page says things: pseudonyms short, times in UTC, reasons in words.

A pseudonym is as long as it has to be to be told from its neighbours; its whole text is one hover
or one fold away, and is what other commands take.
"""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from kvairlock.audit.report import Class
from kvairlock.audit.rule import Grade
from kvairlock.audit.rules import RULES
from kvairlock.pictures.markup import tag
from kvairlock.pictures.parts import folded

DIGITS = 10
NS_PER_S = 1_000_000_000

FINDS = {rule.name: rule.finds for rule in RULES}

GLYPHS: dict[Class, str] = {
    Class.AFFECTED: "✗",
    Class.INSUFFICIENT: "?",
    Class.EXCLUDED: "✓",
}
ABOUT: dict[Class, str] = {
    Class.AFFECTED: "Read, or could have read, what was not its own.",
    Class.INSUFFICIENT: "Nobody can tell: evidence is missing, uncovered, or contradicts itself.",
    Class.EXCLUDED: "Every link from admission to the end of the drain is on record and as it must "
    "be.",
}
GRADES: dict[Grade, str] = {
    Grade.REPRODUCED: "it was made to happen again; an audit alone never says so",
    Grade.OBSERVED: "a record states it",
    Grade.INFERRED: "it follows from records together, or from what one does not say",
}


def digest(name: str) -> Element:
    """Return a pseudonym, short, with its whole text for a pointer."""
    return tag("code", _short(name), title=name, class_="digest")


def digest_on_demand(name: str) -> Element:
    """Return a pseudonym that unfolds, for a keyboard or a finger."""
    made = folded([tag("code", _short(name))], tag("code", name, class_="whole"))
    made.set("class", "digest")
    return made


def _short(name: str) -> str:
    return name[:DIGITS] if name else "unknown"


def utc(at_unix_ns: int) -> str:
    """Return a time to the millisecond."""
    at = datetime.fromtimestamp(at_unix_ns / NS_PER_S, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


def lasted(from_unix_ns: int, to_unix_ns: int) -> str:
    """Return a duration in a unit that fits it."""
    seconds = (to_unix_ns - from_unix_ns) / NS_PER_S
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.3f} s" if seconds < 1 else f"{seconds:,.1f} s"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def spaced(name: str) -> str:
    """Return the name of a rule or gap as words."""
    return name.replace("_", " ")
