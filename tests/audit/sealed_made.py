"""Made-up records in files as nodes leave them: a segment for each life, sealed with a key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from kvairlock.audit.synthetic import Row
from kvairlock.core.evidence import ENVELOPE, EVENTS
from kvairlock.runtime.evidence_settings import Format
from kvairlock.sink.naming import Segment
from kvairlock.sink.seal_lines import Act, Content
from kvairlock.sink.sealing import seal
from kvairlock.sink.seals import Seals
from kvairlock.wire.keys import KEY_BYTES, Keyring

RING = Keyring({"k1": b"k" * KEY_BYTES})


def as_lines(rows: Iterable[Row], path: Path) -> Path:
    """Write records as JSON lines, each with the fields of its event."""
    named = ({n: row.get(n) for n in (*ENVELOPE, *EVENTS.get(row["event"], row))} for row in rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in named))
    return path


def sealed(rows: Iterable[Row], folder: Path, ring: Keyring = RING) -> Path:
    """Write records as the lives that they are of have left them, and return the folder."""
    folder.mkdir(mode=0o700, exist_ok=True)
    lives: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lives.setdefault((row["node"], row["incarnation"]), []).append(row)
    for (node, incarnation), own in lives.items():
        seals, life = Seals(folder, node, ring), Content(incarnation=incarnation)
        seals.add(Act.BEGUN, life)
        lines = as_lines(own, folder / Segment(node, incarnation, 1).name(Format.JSONL))
        seal(lines, seals, Format.PARQUET)
        seals.add(Act.ENDED, life)
    return folder
