"""Audits of made-up histories: many at once, since they share nothing but an engine."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from ibis.backends import BaseBackend

from kvairlock.audit.auditing import audit
from kvairlock.audit.report import Report
from kvairlock.audit.synthetic import Row
from kvairlock.audit.tables import evidence_of
from kvairlock.sink.columns import WIDE


def audited(engine: BaseBackend, rows: Iterable[Row]) -> Report:
    """Audit records that were never in a file."""
    table = pa.Table.from_pylist(list(rows), schema=WIDE)
    records = engine.create_table("made", table, overwrite=True)
    return audit(evidence_of(records))
