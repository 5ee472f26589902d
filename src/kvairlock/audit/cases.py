"""A case: what an audit found, held still until somebody authorises that names are joined to it.

    CASE/case.json        candidates: digests, reasons, and the digest of each file they come from
    CASE/log.jsonl        who authorised what, when and why (`kvairlock.audit.case_log`)
    CASE/result-1.json    names, for their owner's eyes only

Candidates come from metadata alone. A case speaks of the evidence that it was made from: each file
must still begin with the same bytes when names are joined (`unchanged`), else the case has expired.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kvairlock.audit.report import Class, Report, Verdict
from kvairlock.audit.tables import files_of
from kvairlock.core.errors import KvairlockError
from kvairlock.runtime.secrets import write_private

CASE_FILE = "case.json"
Format = Literal[1]
FORMAT: Format = 1
CASE_BYTES_MAX = 256 * 2**20
CHUNK_BYTES = 2**20

Count = Annotated[int, Meta(ge=0)]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Name = Annotated[str, Meta(max_length=256)]


class CaseWrong(KvairlockError):
    """A case can't be made or used; the message says why."""

    code = "case_unusable"


class CaseExpired(KvairlockError):
    """The evidence of a case is not what it was; the message says which file."""

    code = "case_expired"


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of evidence as it was.

    Args:
        path: Where it is.
        size_bytes: How much of it there was; one that is written to may have grown since.
        sha256: The digest of so much of it.
    """

    path: str
    size_bytes: Count
    sha256: Digest


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request that the audit does not exclude; tenant and request are digests."""

    request: Name
    tenant: Name
    verdict: Literal["affected", "insufficient"]
    grade: Name
    reasons: tuple[Name, ...]
    nodes: tuple[Name, ...]
    since_unix_ns: Count


class Met(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose pages an affected request could have read; all names are digests."""

    request: Name
    other: Name
    other_tenant: Name


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `case.json` holds.

    Args:
        format: How to read it.
        made_unix_ns: When it was made.
        state: The state folder that the evidence lies in, empty if it is not known.
        evidence: The files that it was made from.
        excluded: How many requests are excluded.
        candidates: All others.
        met: Whose pages affected requests could have read.
    """

    format: Format
    made_unix_ns: Count
    state: str
    evidence: tuple[File, ...]
    excluded: Count
    candidates: tuple[Candidate, ...]
    met: tuple[Met, ...]


def open_case(folder: Path, report: Report, paths: Sequence[Path], state: Path | None) -> Case:
    """Write what a report says of requests that are not excluded as a case.

    Args:
        folder: Where it goes; made for its owner only, and not if there is a case already.
        report: What the audit says.
        paths: The evidence that it says so of.
        state: The state folder that the evidence lies in.

    Raises:
        CaseWrong: There is a case already.
    """
    if (folder / CASE_FILE).exists():
        raise CaseWrong(f"{folder} holds a case already; name another folder")
    case = Case(
        format=FORMAT,
        made_unix_ns=time.time_ns(),
        state=str(state.absolute()) if state else "",
        evidence=tuple(_file(path) for path in files_of(paths)),
        excluded=report.counts()[Class.EXCLUDED],
        candidates=tuple(_candidates(report)),
        met=tuple(_met(report)),
    )
    written = msgspec.json.format(msgspec.json.encode(case), indent=1)
    write_private(folder / CASE_FILE, written.decode() + "\n")
    return case


def read_case(folder: Path) -> tuple[Case, str]:
    """Return a case, and the digest of the file that holds it.

    Raises:
        CaseWrong: There is none, or it can't be read.
    """
    path = folder / CASE_FILE
    try:
        if path.stat().st_size > CASE_BYTES_MAX:
            raise CaseWrong(f"{path} is larger than a case may be")
        data = path.read_bytes()
        return msgspec.json.decode(data, type=Case), hashlib.sha256(data).hexdigest()
    except FileNotFoundError:
        raise CaseWrong(f"{folder} holds no case; kvairlock audit --case {folder}") from None
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise CaseWrong(f"{path} is no case: {error}") from None


def unchanged(case: Case) -> None:
    """Make sure that the evidence of a case is still what it was made from.

    A file that has grown is unchanged if it begins as it was: its node runs on.

    Raises:
        CaseExpired: A file is gone, or is another one.
    """
    for file in case.evidence:
        try:
            now = _sha256(Path(file.path), file.size_bytes)
        except FileNotFoundError:
            raise CaseExpired(_expired(file, "is not there any more")) from None
        if now != file.sha256:
            raise CaseExpired(_expired(file, "is not what it was"))


def _expired(file: File, what: str) -> str:
    return f"the case has expired: {file.path} {what}; audit again and open another case"


def _file(path: Path) -> File:
    size_bytes = path.stat().st_size
    return File(str(path.absolute()), size_bytes, _sha256(path, size_bytes))


def _sha256(path: Path, size_bytes: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size_bytes and (data := file.read(min(size_bytes, CHUNK_BYTES))):
            digest.update(data)
            size_bytes -= len(data)
    return digest.hexdigest()


def _candidates(report: Report) -> Iterator[Candidate]:
    for verdict in report.verdicts(Class.AFFECTED, Class.INSUFFICIENT):
        yield msgspec.convert(_plain(verdict), Candidate)


def _plain(verdict: Verdict) -> object:
    return {name: getattr(verdict, name) for name in Candidate.__struct_fields__}


def _met(report: Report) -> Iterable[Met]:
    pairs = dict.fromkeys((exposure.request, exposure.other) for exposure in report.exposures)
    for request, other in pairs:
        whose = report.of(other)
        yield Met(request, other, whose.tenant if whose else "")
