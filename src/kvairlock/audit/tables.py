"""Evidence files as one wide table: a row per record, a column per field of the schema.

    *.jsonl   ---> Parquet in a working folder --+
    *.parquet -----------------------------------+--> one Ibis table, whatever engine holds it

A line that is no record, a record without its envelope, of an unknown schema or an unknown event,
or one that does not say whom and which pages it is about, can't be judged by anybody. Such records
are counted and left out; what is left out shows as a gap in the numbers of its writer, and so the
time around it counts as not covered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
from ibis import Table
from ibis.backends import BaseBackend

from kvairlock.audit.broken import NO_SEALS, SUFFIXES, Seals, sealings, seals_of
from kvairlock.audit.inside import Lives, lives_in, only, together
from kvairlock.audit.lines import Unreadable, convert
from kvairlock.core.errors import KvairlockError
from kvairlock.core.evidence import ENVELOPE, EVENTS, SCHEMAS_READ
from kvairlock.sink import reading
from kvairlock.sink.chain import FileState
from kvairlock.sink.columns import WIDE
from kvairlock.sink.naming import Segment
from kvairlock.sink.seal_lines import sha256_of
from kvairlock.wire.keys import Keyring

BEARING = ("tenant", "request", "lease", "pages", "generations")
"""Fields without which a record could say anything about anybody: it counts as lost.

Any other field that is missing leaves a hole in the chain of its own request, and in no other.
"""

MEMORY_MAX = "2200MB"
THREADS = 2


class EvidenceUnusable(KvairlockError):
    """Something that was named is no evidence; the message says what."""

    code = "evidence_unusable"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was opened.

    Args:
        records: The wide table, everything that can be judged.
        files: How many files it comes from.
        unreadable: What was left out.
        seals: What the seals of the files say.
    """

    records: Table
    files: int
    unreadable: tuple[Unreadable, ...]
    seals: Seals = NO_SEALS


def embedded(
    memory_max: str = MEMORY_MAX, threads: int = THREADS, spill: Path | None = None
) -> BaseBackend:
    """Return the engine that is used where no other is given: DuckDB, in this process.

    Args:
        memory_max: How much memory it may take before it writes to disk.
        threads: How many threads it may use.
        spill: Where it writes what does not fit; `.tmp` of the current folder if left out.
    """
    where = {} if spill is None else {"temp_directory": str(spill / "spill")}
    engine = ibis.duckdb.connect(memory_limit=memory_max, threads=threads, **where)
    # Ibis writes lambdas with an arrow, which DuckDB since 1.3 has to be asked to understand.
    engine.raw_sql("SET lambda_syntax = 'ENABLE_SINGLE_ARROW'")
    engine.raw_sql("SET preserve_insertion_order = false")
    return engine


def open_evidence(
    paths: Iterable[Path], working: Path, engine: BaseBackend, ring: Keyring | None = None
) -> Evidence:
    """Open files and folders of evidence as one table.

    Args:
        paths: Parquet files, JSON lines, or folders that hold them, in any mixture.
        working: A folder for what has to be converted; it must outlive the table.
        engine: What holds the table and will compute on it.
        ring: The cluster's keys, without which only hashes of files are compared.

    Raises:
        EvidenceUnusable: A path does not exist, or there is no evidence in any of them.
    """
    named = list(dict.fromkeys(path.resolve() for path in paths))
    files = files_of(named)
    if not files:
        raise EvidenceUnusable("there is no evidence in what was named: no .parquet, no .jsonl")
    rows = sealings(named, ring)
    altered = {row.file for row in rows if row.state is FileState.ALTERED}
    others = {row.file for row in rows if row.state is not FileState.SEALED}
    vouched = {row.file for row in rows if ring is not None} - others
    believed = [file for file in files if file.name not in altered]
    if not believed:
        raise EvidenceUnusable("every file that was named is altered: none of them can be believed")
    unreadable = [
        Unreadable(name, 0, "the file is not what was sealed") for name in sorted(altered)
    ]
    parts, inside = [], dict[str, Lives]()
    for number, file in enumerate(believed):
        part, bad = _part(file, working / f"{number}-{file.stem}.parquet")
        if file.name not in vouched:
            held = _inside(part)
            inside[file.name] = together(inside.get(file.name, {}), held)
            part, foreign = _own(file, part, held, working / f"{number}-own.parquet")
            bad += foreign
        parts.append(part)
        unreadable += bad
    opened = evidence_of(_widen(parts, engine), len(files), unreadable)
    return replace(opened, seals=seals_of(rows, inside, keyed=ring is not None))


def _part(file: Path, into: Path) -> tuple[Path, list[Unreadable]]:
    """Return a file as Parquet, and what of it is no record."""
    if file.suffix == reading.PARQUET:
        return file, []
    try:
        return into, convert(file, into)
    except FileNotFoundError:  # it was sealed since it was listed
        return file.with_suffix(reading.PARQUET), []


def _inside(part: Path) -> Lives:
    try:
        return lives_in(part)
    except (pa.ArrowInvalid, OSError) as error:
        raise EvidenceUnusable(f"{part.name} can't be read: {error}") from error


def _own(file: Path, part: Path, held: Lives, into: Path) -> tuple[Path, list[Unreadable]]:
    """Leave out what a file holds of other lives than the one that it is named after."""
    segment = Segment.of(file.name)
    own = (segment.node, segment.incarnation) if segment and segment.number else None
    others = sum(inside.records for life, inside in held.items() if own not in (None, life))
    if own is None or not others:
        return part, []
    reason = "records of another life than the one that the file is named after"
    return only(part, own, into), [Unreadable(file.name, others, reason)]


def evidence_of(wide: Table, files: int = 1, unreadable: Iterable[Unreadable] = ()) -> Evidence:
    """Leave out of a wide table what can't be judged, and say what that is.

    Args:
        wide: Records with the columns of `WIDE`, in whatever engine.
        files: How many files they come from.
        unreadable: What could not even be brought into the table.
    """
    unknown = _unknown(_kinds(wide))
    # A filter over everything costs as much as the audit's own passes: only if it finds something.
    records = wide.filter(_is_known(wide)) if unknown else wide
    return Evidence(records, files, (*unreadable, *unknown))


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return the files of evidence in what was named, each once, copies of it left out.

    Raises:
        EvidenceUnusable: A path does not exist.
    """
    named: dict[str, list[Path]] = {}
    for file in dict.fromkeys(file.resolve() for path in paths for file in _files_in(path)):
        named.setdefault(file.name, []).append(file)
    return [file for alike in named.values() for file in _different(alike)]


def _files_in(path: Path) -> Iterator[Path]:
    if path.is_dir():
        inside = {found.parent for found in path.rglob("*") if found.suffix in SUFFIXES}
        for folder in sorted(inside):
            yield from reading.files(folder)
    elif path.is_file():
        yield path
    else:
        raise EvidenceUnusable(f"{path} does not exist")


def _different(alike: list[Path]) -> Iterable[Path]:
    """Leave out copies among files of one name."""
    return alike if len(alike) == 1 else {sha256_of(file): file for file in alike}.values()


def _widen(parts: Sequence[Path], engine: BaseBackend) -> Table:
    """Read all parts as the wide table; a file of an earlier schema lacks columns, not rows."""
    tables = [_cast(engine.read_parquet(group), group) for group in _alike(parts)]
    return ibis.union(tables[0], *tables[1:]) if len(tables) > 1 else tables[0]


def _alike(parts: Sequence[Path]) -> list[list[Path]]:
    """Group files that have the same columns: each group is read at once."""
    groups: dict[tuple[str, ...], list[Path]] = {}
    for part in parts:
        try:
            columns = tuple(pq.read_schema(part).names)
        except (pa.ArrowInvalid, OSError) as error:
            raise EvidenceUnusable(f"{part.name} can't be read: {error}") from error
        groups.setdefault(columns, []).append(part)
    return list(groups.values())


def _cast(table: Table, group: Sequence[Path]) -> Table:
    missing = set(ENVELOPE) - set(table.columns)
    if missing:
        names = ", ".join(sorted(missing))
        raise EvidenceUnusable(f"{group[0].name} is no evidence: it has no {names}")
    wanted = ibis.schema(dict(ibis.Schema.from_pyarrow(WIDE)))
    given = table.schema()
    return table.select(
        **{
            name: _column(table, name, kind) if name in given else ibis.null(kind)
            for name, kind in wanted.items()
        }
    )


def _column(table: Table, name: str, kind: Any) -> Any:
    column = table[name]
    return column if column.type() == kind else column.cast(kind)


def _is_known(table: Table) -> Any:
    """Whether a record can be judged: known schema and event, whole envelope, what it is about."""
    known = table["schema"].isin(SCHEMAS_READ) & table["event"].isin(tuple(EVENTS))
    for name in ENVELOPE:
        known &= table[name].notnull()
    for name in BEARING:
        without = tuple(event for event, row in EVENTS.items() if name not in row)
        known &= table[name].notnull() | table["event"].isin(without)
    return known.fill_null(False)


def _kinds(table: Table) -> list[dict[str, Any]]:
    """Count the fields of each kind of event, in one pass that only counts."""
    given = {f"{name}_given": table[name].count() for name in (*ENVELOPE, *BEARING)}
    kinds = table.group_by("event", "schema").aggregate(rows=table.count(), **given)
    found: list[dict[str, Any]] = kinds.to_pyarrow().to_pylist()
    return sorted(found, key=lambda kind: (str(kind["event"]), str(kind["schema"])))


def _unknown(kinds: Iterable[dict[str, Any]]) -> list[Unreadable]:
    return [
        Unreadable("", odd, f"{kind['event']} of schema {kind['schema']}")
        for kind in kinds
        if (odd := _odd(kind))
    ]


def _odd(kind: dict[str, Any]) -> int:
    """How many of the records of one kind can't be judged: all, or the incomplete."""
    if kind["schema"] not in SCHEMAS_READ or kind["event"] not in EVENTS:
        return int(kind["rows"])
    needed = (*ENVELOPE, *(name for name in BEARING if name in EVENTS[kind["event"]]))
    return max(int(kind["rows"] - kind[f"{name}_given"]) for name in needed)
