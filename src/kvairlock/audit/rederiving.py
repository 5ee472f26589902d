"""Comes to a verdict again from the records of a bundle alone, by the same rules.

What can't be found in a part of the evidence is whether all of it is complete: lives and spans are
taken as they are stated. Everything else is done as in an audit of all records.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa

from kvairlock.audit.auditing import audit
from kvairlock.audit.bundle import Attempt, BundleBroken
from kvairlock.audit.completeness import Completeness
from kvairlock.audit.report import Verdict
from kvairlock.audit.spans import Gap, Life, Span
from kvairlock.audit.tables import embedded, evidence_of
from kvairlock.sink.columns import WIDE

TABLE = "bundle"
MEMORY_MAX = "500MB"


def rederive(attempt: Attempt) -> Verdict:
    """Return what the rules make of one attempt, from its records in a bundle.

    Args:
        attempt: The attempt.

    Raises:
        BundleBroken: The records can't be read, or say nothing of the request.
    """
    try:
        table = pa.Table.from_pylist(list(attempt.records), schema=WIDE)
        covered = Completeness(_lives(attempt), _spans(attempt), ())
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
        raise BundleBroken(f"records of the bundle can't be read: {error}") from None
    with TemporaryDirectory(prefix="kvairlock-bundle-") as spill:
        engine = embedded(MEMORY_MAX, threads=1, spill=Path(spill))
        records = engine.create_table(TABLE, table)
        verdict = audit(evidence_of(records), covered).of(attempt.request)
        engine.disconnect()
    if verdict is None:
        raise BundleBroken("no record of the bundle is about its request")
    return verdict


def agrees(attempt: Attempt, verdict: Verdict) -> bool:
    """Whether a verdict is the one that is stated, for the same reasons."""
    stated = (attempt.verdict, attempt.grade, attempt.reasons)
    return stated == (str(verdict.verdict), str(verdict.grade), verdict.reasons)


def _lives(attempt: Attempt) -> tuple[Life, ...]:
    """Return the lives as an audit numbers them: by their place."""
    if [life.number for life in attempt.lives] != list(range(len(attempt.lives))):
        raise ValueError("lives are not numbered in order")
    return tuple(Life(**_plain(life)) for life in attempt.lives)


def _spans(attempt: Attempt) -> tuple[Span, ...]:
    spans = (_plain(span) for span in attempt.spans)
    return tuple(Span(**{**span, "gap": Gap(span["gap"])}) for span in spans)


def _plain(struct: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(struct)
