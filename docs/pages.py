"""What the code says, as Markdown: one function for each page or block that is generated.

Tables of the core are looked up by their name, so that a module may move without a change here.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import typer

import kvairlock
import kvairlock.core
from kvairlock.check.deployment import schema as deployment_schema
from kvairlock.cli import app
from kvairlock.core.ends import ENDS, end_for
from kvairlock.core.errors import REASONS, Reason
from kvairlock.core.evidence import ENVELOPE, EVENTS, SCHEMA_VERSION, SCHEMAS_READ, Field
from kvairlock.core.guards import GUARDS
from kvairlock.core.promise.violations import VIOLATION_KINDS
from kvairlock.drills.faults import table as fault_table
from kvairlock.drills.versions import table as mixed
from kvairlock.gateway.errors import ApiError
from kvairlock.runtime.settings import schema
from kvairlock.sim import family
from kvairlock.sim.cases import public
from kvairlock.wire.versions import VERSIONS, common

PACKAGE = Path(kvairlock.__file__).parent
RINGS = (
    "core",
    "wire",
    "runtime",
    "engine",
    "transport",
    "sink",
    "metrics",
    "pictures",
    "sim",
    "node",
    "gateway",
    "audit",
    "drills",
    "check",
    "cli",
)

Row = Sequence[object]


def locate(name: str) -> Any:
    """Return the one object of the core that is called `name`, wherever its module is.

    Raises:
        LookupError: There is none, or two different ones.
    """
    found: dict[int, Any] = {}
    for module in pkgutil.walk_packages(kvairlock.core.__path__, "kvairlock.core."):
        value = getattr(importlib.import_module(module.name), name, None)
        if value is not None:
            found[id(value)] = value
    if len(found) != 1:
        raise LookupError(f"{len(found)} objects of the core are called {name}")
    return found.popitem()[1]


# Markdown


def table(titles: Sequence[str], rows: Iterable[Row]) -> str:
    """Return a Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def cell(value: object) -> str:
    """Return a value as the text of one cell."""
    text = "" if value is None else str(value)
    return " ".join(text.split()).replace("|", "\\|")


def code(value: object) -> str:
    """Return a value as code, or nothing for nothing."""
    return f"`{value}`" if str(value) else ""


def yes(value: bool) -> str:
    """Return a truth as a word."""
    return "yes" if value else "no"


def word(member: Enum) -> str:
    """Return an enum member as people write it."""
    return str(member.value) if isinstance(member.value, str) else member.name.lower()


# Commands


def cli() -> str:
    """Return the page of all commands with their arguments and options."""
    root = typer.main.get_command(app)
    return "# Commands\n\n" + "\n".join(_commands("kvairlock", root))


def _commands(path: str, command: Any) -> Iterable[str]:
    yield f"## `{path}`\n\n{_paragraphs(command.help)}" + _parameters(command)
    if command.epilog:
        yield f"{_paragraphs(command.epilog)}"
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(f"{path} {name}", below)


def _paragraphs(text: str | None) -> str:
    """Return the text of a docstring with each of its paragraphs on one line."""
    return "".join(f"{cell(part)}\n\n" for part in re.split(r"\n\s*\n", text or "") if part.strip())


def _parameters(command: Any) -> str:
    shown = [p for p in command.params if p.name != "help" and not p.hidden]
    rows = [(_usage(p), p.help, _default(p)) for p in shown]
    return table(("argument or option", "what it is", "default"), rows) if rows else ""


def _usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return code(parameter.metavar or parameter.name.upper())
    flags = ", ".join((*parameter.opts, *parameter.secondary_opts))
    kind = parameter.metavar or _kind(parameter)
    return code(f"{flags} {kind}".strip())


def _kind(parameter: Any) -> str:
    kind = getattr(parameter.type_descriptor.annotation, "__name__", "")
    return {"bool": "", "int": "NUMBER", "str": "TEXT"}.get(kind, kind.upper())


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    return "" if parameter.default in (None, False, ()) else code(parameter.default)


# Settings


def settings() -> str:
    """Return the page of all settings, one table for each table of the TOML file."""
    known = schema()["$defs"]
    parts = [_settings("top level", known["Settings"], known)]
    parts += _tables("", known["Settings"], known)
    intro = (
        "# Settings\n\nOne TOML file describes a stack. What is left out keeps its default; an "
        "unknown name is an error. `[[...]]` may be there more than once, one for each node. "
        "The same as JSON Schema: [settings.schema.json](settings.schema.json). "
        "How to use them: [serve.md](../serve.md).\n"
    )
    return "\n".join([intro, *parts])


def deployment() -> str:
    """Return the page of a deployment file."""
    known = deployment_schema()["$defs"]
    intro = (
        "# Deployment files\n\nOne TOML file says what `kvairlock check` compares. An unknown name "
        "is an error. `[commitment]` is [that of the settings](settings.md#commitment), and must "
        "be there. How to use it: [capacity.md](../capacity.md).\n"
    )
    fields = known["Deployment"]["properties"].items()
    own = {"properties": {name: field for name, field in fields if name != "commitment"}}
    return "\n".join([intro, *_tables("", own, known)])


def _tables(path: str, struct: Mapping[str, Any], known: Mapping[str, Any]) -> Iterable[str]:
    """Yield a section for each table below a table, and for those below these."""
    for name, field in struct["properties"].items():
        below = _referred(field, known)
        if "properties" in below:
            title = f"[[{path}{name}]]" if field.get("type") == "array" else f"[{path}{name}]"
            yield _settings(f"`{title}`", below, known)
            yield from _tables(f"{path}{name}.", below, known)


def _settings(title: str, struct: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    rows = []
    for name, field in struct["properties"].items():
        if "properties" in _referred(field, known) and "description" not in field:
            continue  # a table of its own, below
        default = json.dumps(field["default"]) if "default" in field else "required"
        kind, allowed = _type(field, known)
        rows.append((code(name), kind, code(default), allowed, field.get("description")))
    titles = ("setting", "type", "default", "allowed", "what it is")
    return f"## {title}\n\n{struct['description']}\n\n" + table(titles, rows)


def _type(field: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[str, str]:
    """Return the type of a setting, and what it allows."""
    if "properties" in _referred(field, known):
        return "tables", "see below"
    values = _referred(field, known).get("enum")
    if values is not None:
        kind = "list of words" if field.get("type") == "array" else "word"
        return kind, ", ".join(map(code, values))
    bounds = {"minimum": "from", "exclusiveMinimum": "over", "maximum": "to"}
    stated = [f"{words} {field[name]}" for name, words in bounds.items() if name in field]
    pattern = [code(field["pattern"])] if "pattern" in field else []
    return field["type"], " ".join(stated + pattern)


def _referred(field: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition that a field, or an item of it, refers to; empty if none."""
    for part in (field, *field.get("allOf", ()), field.get("items", {})):
        if "$ref" in part:
            found: Mapping[str, Any] = known[part["$ref"].rpartition("/")[2]]
            return found
    return {}


# Tables of the core


def guards() -> str:
    """Return the page of the guards."""
    rows = [
        (
            code(guard),
            ", ".join(row.roles),
            row.does,
            row.without,
            row.observing if row.can_observe else f"can't: {row.observing}",
        )
        for guard, row in GUARDS.items()
    ]
    return (
        "# Guards\n\nIn the order in which a request meets them. What a guard is, and how one is "
        "tried: [guards.md](../guards.md).\n\n"
    ) + table(("guard", "where", "what it does", "without it", "while it observes"), rows)


def reasons() -> str:
    """Return the page of the reasons for refusals, and what follows from them."""
    violations = locate("VIOLATIONS")
    rows = [
        (
            code(reason),
            row.fault,
            row.http_status,
            code(row.code),
            "" if row.retry_after_s is None else f"{row.retry_after_s} s",
            end_for(reason),
            "quarantined" if reason in violations else "",
        )
        for reason, row in REASONS.items()
    ]
    titles = ("reason", "whose fault", "HTTP", "code", "Retry-After", "end", "its pages")
    return (
        "# Reasons\n\nWhy something is refused: a closed list, in which an unknown value is itself "
        "refused. `peer` is another process of the stack, `load` passes by itself, `ours` is a "
        "defect of kvairlock. All pages go through the drain; *quarantined* ones had content that "
        "nobody could vouch for, and that is on record.\n\n"
    ) + table(titles, rows)


def evidence() -> str:
    """Return the page of all records and their fields."""
    titles = ("field", "type", "unit", "purpose", "retention", "sensitivity")
    parts = [
        f"# Evidence\n\nSchema version {SCHEMA_VERSION}; schemas "
        f"{' and '.join(map(str, SCHEMAS_READ))} are read ([versions.md](../versions.md)). One "
        "line of JSON for each record; no prompt, no token and no output is ever a field. A "
        "*pseudonym* is a keyed digest. The "
        "retention is what each field is meant to be kept for; nothing deletes files by itself.\n",
        "## In every record\n\n" + table(titles, map(_field, ENVELOPE.items())),
    ]
    for event, fields in EVENTS.items():
        parts.append(f"## `{event}`\n\n" + table(titles, map(_field, fields.items())))
    return "\n".join(parts)


def _field(item: tuple[str, Field]) -> Row:
    name, field = item
    kept = f"{field.retention_days} days"
    return code(name), field.kind, field.unit, field.purpose, kept, field.sensitivity


def states() -> str:
    """Return the page of the state tables: pages, hand-over, loans, ends."""
    pages, handoff = locate("TABLE"), locate("HANDOFF")
    verbs, signals, loans = locate("Verb"), locate("Signal"), locate("LOAN")
    breaker = locate("BREAKER")
    ends = [
        (code(end), yes(row.may_hand_over), yes(row.tells_peer), yes(row.drains), row.client)
        for end, row in ENDS.items()
    ]
    return "\n".join(
        (
            "# States\n\nFive tables of the core. An empty cell is refused: it breaks an "
            "invariant, whoever asks.\n",
            "## A page\n\nOne row for each stage of a page, one column for each thing that can be "
            "done to it.\n",
            diagram(pages, verbs.RETIRE, "owned"),
            grid(pages, verbs, "stage"),
            "## A hand-over\n\nBoth ends keep the same table: decode grants and confirms, prefill "
            "reports.\n",
            diagram(handoff, signals.CLOSE, "open"),
            grid(handoff, signals, "stage"),
            "## A loan\n\nIn pull, where decode reads what prefill lends. The request follows the "
            "table above; the loan outlives it. The lender sees claims, returns and its own "
            "revocations, what happens between is the borrower's.\n",
            diagram(loans, locate("LoanSignal").RETURN, "open"),
            grid(loans, locate("LoanSignal"), "stage"),
            "## The breaker of a route\n\nA gateway keeps one for each route: "
            "[breaker.md](../breaker.md).\n",
            machine(breaker),
            grid(breaker, locate("BreakerSignal"), "state"),
            "## The ends of a request\n\nThe first end wins; a later one is recorded and changes "
            "nothing. Which reason is which end: [reasons.md](reasons.md).\n",
            table(("end", "may hand over", "tells the peer", "drains", "the client gets"), ends),
        )
    )


def mutants(path: Path) -> str:
    """Return the page of what breaks without each guard, as `docs/mutants.json` has it."""
    rows = json.loads(path.read_text())["rows"]
    parts = [
        "# Mutants\n\nFor each guard a small world, what breaks in it when the guard is off, and "
        "the shortest schedule that shows it. With the guard on the same world was explored to its "
        "end, and nothing breaks. *Also off* are guards that would stop the same fault before or "
        "behind. How it is found: [explore.md](../explore.md).\n",
        table(family.TITLES, family.table_of(rows)),
    ]
    for row in rows:
        schedule = "\n".join(row["schedule"])
        parts.append(f"## `{row['guard']}`\n\n{row['story']}\n\n```text\n{schedule}\n```\n")
    return "\n".join(parts)


def faults() -> str:
    """Return the page of the fault matrix: a table for each phase of a request."""
    matrix = fault_table.shipped()
    parts = [
        "# The fault matrix\n\nWhat happens to what in which phase of a request, and what must "
        "follow. `kvairlock drill --faults` carries out every row. How to read it, and what must "
        "hold in every row besides: [faults.md](../faults.md).\n",
        "## Mishaps\n\n" + _mishaps(matrix),
    ]
    for phase, about in matrix.phases.items():
        rows = [row for row in matrix.rows if row.cell.phase is phase]
        parts.append(f"## `{phase}`\n\n{about.capitalize()}.\n\n" + _fault_rows(rows))
    return "\n".join(parts)


def _mishaps(matrix: fault_table.FaultTable) -> str:
    stack = matrix.stack
    about = (
        f"On a stack with `beat_ms = {stack.beat_ms}` and `lost_ms = {stack.lost_ms}`; a short "
        f"mishap lasts {stack.short_ms} ms. The client has to know in time after the mishap has "
        "begun (*meanwhile*) or ended (*afterwards*). A crash has ended as soon as it is there.\n\n"
    )
    titles = ("mishap", "what it is", "the client knows within", "next request answered within")
    rows = [
        (code(mishap), bounds.does, f"{bounds.client_ms} ms", f"{bounds.next_ms} ms")
        for mishap, bounds in matrix.mishaps.items()
    ]
    return about + table(titles, rows)


def _fault_rows(rows: Sequence[fault_table.Row]) -> str:
    titles = (
        "struck",
        "mishap",
        "let go",
        "the client gets",
        "decode records",
        "prefill records",
        "window fenced",
        "why",
    )
    return table(titles, map(_fault_row, rows))


def _fault_row(row: fault_table.Row) -> Row:
    rule = row.rule
    return (
        code(row.cell.struck),
        code(row.cell.mishap),
        rule.let_go,
        rule.client,
        " or ".join(end.words for end in rule.decode),
        " or ".join(end.words for end in rule.prefill),
        " or ".join(rule.fence) or "nothing",
        rule.why,
    )


def diagram(edges: Mapping[Any, Mapping[Any, Any]], shared: Enum, group: str) -> str:
    """Return a state diagram; what all stages with the verb `shared` have in common is drawn once.

    Args:
        edges: Stage to verb to next stage.
        shared: The verb by which stages are grouped.
        group: What the group is called.
    """
    members = [stage for stage, row in edges.items() if shared in row]
    common = [
        (verb, after)
        for verb, after in edges[members[0]].items()
        if all(edges[member].get(verb) == after for member in members)
    ]
    inside: list[str] = []
    outside = [f"    {group} --> {word(t)}: {word(v)}" for v, t in common]
    for stage, row in edges.items():
        for verb, after in row.items():
            if stage in members and (verb, after) in common:
                continue
            lines = inside if stage in members and after in members else outside
            lines.append(f"    {word(stage)} --> {word(after)}: {word(verb)}")
    nested = [f"    state {group} {{", *(f"    {line}" for line in inside), "    }"]
    return "\n".join(("```mermaid", "stateDiagram-v2", *nested, *outside, "```\n"))


def machine(edges: Mapping[Any, Mapping[Any, Any]]) -> str:
    """Return a state diagram in which every edge is drawn."""
    lines = [
        f"    {word(state)} --> {word(after)}: {word(signal)}"
        for state, row in edges.items()
        for signal, after in row.items()
    ]
    return "\n".join(("```mermaid", "stateDiagram-v2", *lines, "```\n"))


def grid(edges: Mapping[Any, Mapping[Any, Any]], verbs: Iterable[Enum], title: str) -> str:
    """Return the whole table, empty cells included."""
    verbs = list(verbs)
    rows = [
        (f"**{word(stage)}**", *(word(row[v]) if v in row else "" for v in verbs))
        for stage, row in edges.items()
    ]
    return table((title, *map(word, verbs)), rows)


# Blocks in pages that are otherwise written by hand


def cases() -> str:
    """Return all public failures that are replayed, one row for each file."""
    titles = ("id", "what goes wrong", "with guards", "without", "shows then; or why nothing can")
    return table((*titles[:-1], titles[-1] + " be off"), public.rows())


def cases_not_replayed() -> str:
    """Return the public failures that can't be said in a world, with the reason."""
    return table(("id", "why"), public.reasons())


def case_phrases(kind: str) -> str:
    """Return the phrases of one part of the language of cases."""
    rows = [(code(phrase), meaning) for phrase, meaning in public.language()[kind]]
    return table(("phrase", "what it says"), rows)


def modules() -> str:
    """Return one line for each module of the package: the first sentence of its docstring."""
    rooms: dict[str, list[Row]] = {}
    for path in sorted(PACKAGE.rglob("*.py"), key=_reading_order):
        room = ".".join(("kvairlock", *path.relative_to(PACKAGE).parent.parts))
        name = room if path.stem == "__init__" else f"{room}.{path.stem}"
        rooms.setdefault(room, []).append((code(name), _first_sentence(path)))
    return "\n".join(
        f"### {room.removeprefix('kvairlock.')}\n\n" + table(("module", "what it is"), rows)
        for room, rows in rooms.items()
    )


def _reading_order(path: Path) -> tuple[int, tuple[str, ...], str]:
    """Order as in the rings, inner ones first; in a package its head first."""
    folder = path.relative_to(PACKAGE).parent.parts
    ring = -1 if not folder else RINGS.index(folder[0]) if folder[0] in RINGS else len(RINGS)
    return ring, folder, "" if path.stem == "__init__" else path.stem


def _first_sentence(path: Path) -> str:
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
    if not text:
        raise LookupError(f"{path} has no docstring")
    return re.split(r"(?<=\.) ", " ".join(text.split()))[0]


def message_versions() -> str:
    """Return the table of the versions of the messages."""
    return table(("messages", "what they brought"), VERSIONS.items())


def combinations() -> str:
    """Return the table of the combinations of two releases that serve together."""
    titles = (
        "gateway",
        "prefill",
        "decode",
        "gateway to prefill",
        "gateway to decode",
        "decode to prefill",
    )
    return table(titles, map(_combination, mixed.COMBINATIONS))


def _combination(row: mixed.Combination) -> Row:
    pairs = (
        (row.gateway, row.prefill),
        (row.gateway, row.decode),
        (row.decode, row.prefill),
    )
    seats = (row.gateway, row.prefill, row.decode)
    spoken = (common(one.speaks, other.speaks) for one, other in pairs)
    return (*(seat.words for seat in seats), *(f"messages {version}" for version in spoken))


def replacements() -> str:
    """Return the table of the nodes that give way to one of the earlier release, and come back."""
    titles = ("row", "which node", "what happens, and must")
    about = (
        "a request is in flight there when it gives way to 0.1.0: it ends typed, the next one is "
        "answered; the same on the way back"
    )
    return table(titles, ((code(r.name), code(r.process), about) for r in mixed.REPLACEMENTS))


def incompatible() -> str:
    """Return the table of what must be refused at the entry."""
    titles = ("row", "what there is", "closed", "goes on", "who records the refusal")
    rows = (
        (code(row.name), row.what, code(row.closed), code(row.serves), code(row.refuser))
        for row in mixed.INCOMPATIBLE
    )
    return table(titles, rows)


def violations() -> str:
    """Return the kinds of violations of a commitment."""
    return table(
        ("kind", "what it means"), [(code(k), text) for k, text in VIOLATION_KINDS.items()]
    )


def breaker_conditions() -> str:
    """Return when a breaker opens."""
    rows = [(code(condition), text) for condition, text in locate("CONDITIONS").items()]
    return table(("condition", "it opens when"), rows)


def breaker_records() -> str:
    """Return what must be on record before a breaker is closed."""
    rows = [(code(kind), text) for kind, text in locate("RECORDS").items()]
    return table(("record", "what it says"), rows)


def refusals() -> str:
    """Return the errors that clients see for a refusal, by status."""
    by_status = sorted(REASONS.items(), key=lambda item: item[1].http_status)
    rows = [
        (
            row.http_status,
            code(row.code),
            code(ApiError(row.http_status, row.code, "").type),
            "" if row.retry_after_s is None else f"{row.retry_after_s} s",
            code(reason),
        )
        for reason, row in by_status
        if reason is not Reason.CANCELLED  # its client has left: nobody is there to be answered
    ]
    return table(("status", "`code`", "`type`", "Retry-After", "`reason`"), rows)
