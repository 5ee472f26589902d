"""A case: what an audit found, held still until somebody authorises that names are joined to it.

    CASE/case.json        candidates: digests, reasons, and the digest of each file they come from
    CASE/log.jsonl        opened by whom has the keys, then who authorised what, when and why
    CASE/result-1.json    names, for their owner's eyes only

Candidates come from metadata alone (`kvairlock.audit.opening`). A case speaks of the evidence that
it was made from: each file must still begin with the same bytes when names are joined, or hold the
same records if it was sealed since (`kvairlock.audit.held_still`), else the case has expired.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kvairlock.core.errors import KvairlockError

CASE_FILE = "case.json"
Format = Literal[1]
FORMAT: Format = 1
CASE_BYTES_MAX = 256 * 2**20

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
        records: How many records that were, if it is a segment that may be sealed later; else 0.
        content: The digest of these records, whatever form they are in; empty if there are none.
    """

    path: str
    size_bytes: Count
    sha256: Digest
    records: Count
    content: Annotated[str, Meta(pattern=r"\A([0-9a-f]{64})?\Z")]


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
