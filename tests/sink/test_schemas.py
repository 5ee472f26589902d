"""Evidence of this release and of 0.1.0 is read; what may mean anything is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvairlock.core.evidence import SCHEMA_VERSION, SCHEMAS_READ
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from kvairlock.drills.records import Records
from kvairlock.sink.contract import BEAT
from kvairlock.sink.reading import SchemaUnknown, read
from kvairlock.sink.recorder import Recorder
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms

RING = Keyring.parse("one " + "ab" * 32)
OLD = {
    "schema": 1,
    "event": "node_started",
    "node": "prefill-0",
    "role": "prefill",
    "incarnation": "1f0e",
    "sequence": 1,
    "at_unix_ns": 1,
    "at_boot_ns": 1,
    "guards_off": [],
    "landing": "",
    "pages": 48,
    "fingerprint": "aa",
}
"""A record as 0.1.0 writes it."""


def written(folder: Path, *records: object) -> Path:
    path = folder / "prefill-0-1f0e.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_evidence_of_both_schemas_is_read_side_by_side(tmp_path: Path) -> None:
    written(tmp_path, OLD)
    peer = Peer(NodeName("decode-0"), Role.DECODE, Incarnation("2"))
    sink = Recorder(tmp_path, peer, RING)
    sink.record("beat", None, BEAT)
    sink.close()
    records = Records(tmp_path, Pseudonyms.of_ring(RING))
    assert records.all("node_started") == [OLD]
    assert [record["schema"] for record in records.all("beat")] == [SCHEMA_VERSION]
    assert SCHEMAS_READ == (1, SCHEMA_VERSION)


@pytest.mark.parametrize("schema", [0, SCHEMA_VERSION + 1, "2", None, [2]], ids=str)
def test_evidence_of_a_schema_that_is_not_known_is_refused_and_named(
    tmp_path: Path, schema: object
) -> None:
    path = written(tmp_path, OLD, {**OLD, "sequence": 2, "schema": schema})
    with pytest.raises(SchemaUnknown) as caught:
        read(path)
    assert repr(schema) in str(caught.value)
    assert path.name in str(caught.value)


def test_a_torn_line_is_no_schema(tmp_path: Path) -> None:
    path = written(tmp_path, OLD)
    with path.open("a") as file:
        file.write('{"schema": 9, "event": "be')
    assert read(path) == [OLD]
