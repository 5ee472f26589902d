"""What `kvairlock audit` and `explain` do alike: open evidence, audit it, say how far it is."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from kvairlock.audit.auditing import audit
from kvairlock.audit.opening import open_case
from kvairlock.audit.page import write
from kvairlock.audit.report import Class, Report
from kvairlock.audit.spans import TO_THE_END
from kvairlock.audit.story import story_of
from kvairlock.audit.tables import Evidence, embedded, files_of, open_evidence
from kvairlock.cli.audit_view import show_report
from kvairlock.cli.evidence_places import evidence_in, ring_of, state_of
from kvairlock.cli.output import Status, document, fail, note
from kvairlock.wire.keys import Keyring

_SIZE = re.compile(r"[1-9][0-9]{0,5}(MB|GB)")


@dataclass(frozen=True, slots=True)
class Limits:
    """What an audit may take of the machine.

    Args:
        memory: How much may be in memory, `2200MB` or `4GB`.
        threads: How many threads compute.
    """

    memory: str
    threads: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked to be audited.

    Args:
        paths: Files and folders, None for the default.
        limits: What it may take.
        since_unix_ns: From when on requests are reported.
        until_unix_ns: Before when.
        state: The state folder, if it was named.
        cluster_key: The file with the cluster's keys, if it was named.
    """

    paths: Sequence[Path] | None
    limits: Limits
    since_unix_ns: int | None = None
    until_unix_ns: int | None = None
    state: Path | None = None
    cluster_key: Path | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """Evidence and what an audit says of it, while its tables are there.

    Args:
        evidence: What was opened.
        report: What the audit says.
        paths: Where the evidence is.
        state: The state folder that it lies in, if it is known.
        ring: The cluster's keys, if they are there.
    """

    evidence: Evidence
    report: Report
    paths: tuple[Path, ...]
    state: Path | None
    ring: Keyring | None


@contextmanager
def audited(asked: Asked) -> Iterator[Audited]:
    """Audit what was asked for; tables and temporary files go when the context ends."""
    paths = evidence_in(asked.paths)
    state = state_of(paths, asked.state)
    ring = ring_of(asked.cluster_key, state)
    if not _SIZE.fullmatch(asked.limits.memory):
        fail(f"{asked.limits.memory!r} is no size", "for example --memory 2200MB or --memory 4GB")
    with _readable(), tempfile.TemporaryDirectory(prefix="kvairlock-audit-") as working:
        engine = embedded(asked.limits.memory, asked.limits.threads, Path(working))
        note(f"reading {len(list(files_of(paths)))} files of evidence")
        opened = open_evidence(paths, Path(working), engine, ring)
        since, until = asked.since_unix_ns or 0, asked.until_unix_ns or TO_THE_END
        began_s = time.monotonic()
        report = audit(opened).within(since, until)
        found = report.classified.num_rows
        note(f"classified {found:,} requests in {time.monotonic() - began_s:.1f} s")
        yield Audited(opened, report, tuple(paths), state, ring)


@contextmanager
def _readable() -> Iterator[None]:
    """Say in one line that the engine can't read a file, or has no room."""
    try:
        yield
    except duckdb.Error as error:
        fail(str(error).splitlines()[0], "kvairlock evidence verify, or more --memory")


def audit_and_report(
    asked: Asked, *, json: bool, html: Path | None, case: Path | None, show: int
) -> Status:
    """Audit, and report in every form that was asked for; return the exit status.

    Args:
        asked: What to audit.
        json: Whether to print JSON rather than text.
        html: The page to write.
        case: The folder of the case to open.
        show: How many requests of a list to print as text.
    """
    with audited(asked) as done:
        if case is not None:
            _open_case(done, case)
        if html is not None:
            _write_page(done, html)
        if json:
            document(described(done.report))
        else:
            show_report(done.report, show)
        return status_of(done.report)


def _open_case(done: Audited, case: Path) -> None:
    if done.ring is None:
        fail(
            "a case can only be opened with the cluster's keys", "--state DIR or --cluster-key FILE"
        )
    open_case(case, done.report, done.paths, done.state, done.ring)
    note(f"the case is in {case}; names: kvairlock audit confirm {case}")


def described(report: Report) -> dict[str, Any]:
    """Return a report as one JSON document, with all three lists."""
    excluded = [asdict(verdict) for verdict in report.verdicts(Class.EXCLUDED)]
    return {**report.to_json(), "excluded": excluded}


def status_of(report: Report) -> Status:
    """Return the exit status that says the same as a report; of nobody it says nothing."""
    counts = report.counts()
    if counts[Class.AFFECTED]:
        return Status.NOT_OK
    return Status.UNTOLD if counts[Class.INSUFFICIENT] or not any(counts.values()) else Status.OK


def _write_page(done: Audited, path: Path) -> None:
    note(f"writing {path}")
    write(done.report, story_of(done.evidence, done.report), path)
