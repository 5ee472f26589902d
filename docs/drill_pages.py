"""What docs/drills.md shows of the drills: printed from their files and their types."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, get_args

import msgspec
from pages import code, table

from kvairlock.core.guards import Guard
from kvairlock.drills.library.drill import LEVELS, ROUNDS, Drill, Limits
from kvairlock.drills.library.selection import Line, Table, risk
from kvairlock.drills.library.shipped import shipped, text_of
from kvairlock.drills.library.sights import SIGHTS, Sight
from kvairlock.drills.library.steps import AnyStep, Ask
from kvairlock.drills.library.topology import Topology
from kvairlock.drills.runs.rows import NOT_PROVEN

EXAMPLE = "drain"
TABLES = {Table.FAULTS: "fault matrix", Table.VERSIONS: "table of versions"}


def drills() -> str:
    """Return the table of all drills that are shipped."""
    titles = ("drill", "round", "level", "what is done", "with its guards", "without", "also off")
    return table(titles, (_drill(known) for known in shipped()))


def _drill(known: Drill) -> tuple[object, ...]:
    about = known.about
    without = "; ".join(f"{each.request}: {_sight(each.sight)}" for each in known.shows)
    if about == frozenset(Guard):
        without = f"without any: {without}"
    return (
        code(known.name),
        known.round,
        int(known.level),
        known.title,
        "; ".join(_held(wanted.request, wanted) for wanted in known.holds),
        without,
        ", ".join(map(code, known.shadows)),
    )


def _held(request: str, wanted: Any) -> str:
    reason = f" {code(wanted.reason)}" if wanted.reason else ""
    return f"{request}: {_sight(wanted.sight)}{reason}"


def _sight(sight: Sight) -> str:
    return f"*{sight}*"


def notes() -> str:
    """Return what else one should know about some drills."""
    noted = (known for known in shipped() if known.note)
    return "".join(f"- {code(known.name)}. {' '.join(known.note.split())}\n" for known in noted)


def example() -> str:
    """Return one drill, whole."""
    return f"```toml\n{text_of(EXAMPLE)}```\n"


def sights() -> str:
    """Return what can be seen of a request."""
    return table(("sight", "what the request gets"), ((_sight(s), w) for s, w in SIGHTS.items()))


def rounds() -> str:
    """Return the rounds and levels in words."""
    rows = [(f"round `{name}`", means) for name, means in ROUNDS.items()]
    rows += [(f"level {int(level)}", means) for level, means in LEVELS.items()]
    return table(("part", "what it is"), rows)


def steps() -> str:
    """Return all steps, what they need and what they do."""
    rows = []
    for step in get_args(AnyStep):
        config = msgspec.structs.fields(step)
        fields = ", ".join(map(_field, config))
        rows.append((code(step.__struct_config__.tag), fields, _first_sentence(step)))
    return table(("`do`", "fields", "what it does"), rows)


def _field(field: Any) -> str:
    if field.required:
        return code(field.name)
    default = field.default
    shown = f' = "{default}"' if isinstance(default, str) and default else ""
    shown = f" = {default}" if isinstance(default, int) and default else shown
    return f"[{code(f'{field.name}{shown}')}]"


def asking() -> str:
    """Return the fields of a request."""
    return table(("field of `ask`", "what it says"), _arguments(Ask))


def stack() -> str:
    """Return the fields of a stack, with their defaults."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Topology)}
    rows = ((name, _toml(defaults[name.strip("`")]), says) for name, says in _arguments(Topology))
    return table(("field of `stack`", "default", "what it says"), rows)


def limits() -> str:
    """Return the fields of limits."""
    return table(("field of `limits`", "what it says"), _arguments(Limits))


def changes() -> str:
    """Return which changes call for which drills."""
    rows = ((", ".join(map(code, line.paths)), _called(line), line.why) for line in risk().line)
    return table(("paths", "drills", "why"), rows)


def _called(line: Line) -> str:
    if isinstance(line.drills, str):
        others = line.rounds or line.levels or line.tables
        named = [] if line.drills == "none" and others else [line.drills]
    else:
        named = [code(name) for name in line.drills]
    rounds_ = [f"round {code(name)}" for name in line.rounds]
    levels_ = [f"level {int(level)}" for level in line.levels]
    return ", ".join([*rounds_, *levels_, *named, *(TABLES[table] for table in line.tables)])


def not_proven() -> str:
    """Return what drills do not prove, one line each."""
    return "".join(f"- {sentence}\n" for sentence in NOT_PROVEN)


def _arguments(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a type, and what its docstring says of each."""
    said = (inspect.getdoc(kind) or "").partition("Args:\n")[2]
    for entry in re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", said, re.MULTILINE):
        yield code(entry[0]), " ".join(entry[1].split())


def _first_sentence(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return code(list(value))
    return code(f'"{value}"' if isinstance(value, StrEnum) else value)
