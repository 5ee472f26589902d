"""How rows of the fault matrix are judged: each thing that is not as it must be is named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import Reply
from kvairlock.drills.faults import judge
from kvairlock.drills.faults.judge import Seen, complaints, expected, got
from kvairlock.drills.faults.outcomes import When
from kvairlock.drills.faults.table import shipped
from kvairlock.drills.journal import Journal
from kvairlock.sink.contract import BEAT
from kvairlock.sink.recorder import Recorder
from kvairlock.wire.keys import Keyring

(ROW,) = shipped().chosen({"prefill-crash-computing"})
(QUEUED,) = shipped().chosen({"decode-crash-queued"})
GOOD = Seen(
    client="503 node_lost, meanwhile",
    reply=Reply(503, error={"code": "node_lost"}),
    decode="failed (peer_lost)",
    prefill="nothing",
    fence="process_gone",
    client_ms=120,
    next_ms=1500,
    wrong=(),
)
PROMPT = Canaries(3).prompt("acme", 120)
REQUEST = "r1"


def test_a_row_that_is_as_it_says_holds() -> None:
    assert complaints(ROW, GOOD) == ()
    assert str(GOOD) == (
        "client: 503 node_lost, meanwhile after 120 ms; decode: failed (peer_lost); "
        "prefill: nothing; window fenced: process_gone; next answered after 1500 ms"
    )
    assert expected(ROW) == (
        "client: 503 node_lost, meanwhile within 5000 ms; decode: failed (peer_lost); "
        "prefill: nothing; window fenced: process_gone; next answered within 15000 ms"
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"client": "503 node_lost, afterwards"}, "the client got something else"),
        ({"client": "own answer, meanwhile"}, "the client got something else"),
        ({"decode": "cancelled"}, "decode recorded another end"),
        ({"decode": "failed (peer_lost), then cancelled"}, "decode recorded another end"),
        ({"prefill": "completed"}, "prefill recorded another end"),
        ({"fence": "acknowledged"}, "the window was not fenced on that evidence"),
        ({"fence": None}, "the window was not fenced on that evidence"),
        ({"client_ms": 5001}, "the client was told too late"),
        ({"next_ms": 15001}, "the next request was answered too late"),
        ({"wrong": ("acme read a canary of bravo",)}, "acme read a canary of bravo"),
    ],
)
def test_whatever_is_not_as_it_says_is_named(change: dict[str, Any], complaint: str) -> None:
    assert complaints(ROW, replace(GOOD, **change)) == (complaint,)


def test_a_window_where_none_may_be_is_named() -> None:
    seen = replace(GOOD, decode="nothing", fence=None)
    assert complaints(QUEUED, seen) == ()
    fenced = replace(seen, fence="acknowledged")
    assert complaints(QUEUED, fenced) == ("the window was not fenced on that evidence",)
    assert "window fenced: nothing" in str(seen)
    assert "window fenced: nothing" in expected(QUEUED)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(200, PROMPT.canary), "own answer, meanwhile"),
        (Reply(499, "", {"code": "connection"}), "connection lost, meanwhile"),
        (
            Reply(503, "", {"code": "node_lost", "reason": "peer_lost"}),
            "503 node_lost, meanwhile",
        ),
        (
            Reply(200, PROMPT.canary[:4], {"code": "node_lost", "reason": "peer_lost"}),
            "first tokens, then error event node_lost, meanwhile",
        ),
    ],
)
def test_what_a_client_got_is_said_in_the_words_of_the_table(reply: Reply, words: str) -> None:
    assert got(PROMPT, reply, When.MEANWHILE) == words


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, PROMPT.canary[:-1]),
        Reply(200, ""),
        Reply(200, "another", {"code": "node_lost", "reason": "peer_lost"}),
        Reply(200, "", {"code": "node_lost", "reason": "peer_lost"}),
        Reply(503, "", {"code": "node_lost"}),
        Reply(500, "", {"code": "internal_error", "reason": "tired"}),
    ],
)
def test_what_the_table_has_no_words_for_is_never_taken_for_something_else(reply: Reply) -> None:
    said = got(PROMPT, reply, When.MEANWHILE)
    assert said not in {str(row.rule.client) for row in shipped().rows}
    assert said.startswith(str(reply.status))


# Records


class Evidence:
    """Files as nodes write them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._at = folder, 0

    def record(self, node: str, event: str, **fields: object) -> None:
        self._at += 1
        who = {"node": node, "incarnation": "1", "sequence": self._at}
        record = {**who, "event": event, "at_boot_ns": self._at, **fields}
        with (self._folder / f"{node}-1.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def test_all_ends_that_a_node_recorded_are_said(evidence: Evidence, journal: Journal) -> None:
    assert judge.ending(journal, REQUEST, "decode-0") == "nothing"
    end: Mapping[str, str] = {"request": REQUEST, "end": "failed", "reason": "peer_lost"}
    evidence.record("prefill-0", "request_ended", **end)
    evidence.record("decode-0", "request_ended", **{**end, "request": "r2"})
    assert judge.ending(journal, REQUEST, "decode-0") == "nothing"
    evidence.record("decode-0", "request_ended", **end)
    assert judge.ending(journal, REQUEST, "decode-0") == "failed (peer_lost)"
    evidence.record("decode-0", "request_ended", **{**end, "end": "completed", "reason": ""})
    assert judge.ending(journal, REQUEST, "decode-0") == "failed (peer_lost), then completed"


def held(evidence: Evidence, action: str, incarnation: str = "first") -> None:
    where = {"point": "write.piece", "incarnation": incarnation}
    evidence.record("prefill-0", "failpoint", action=action, **where)


def test_a_window_that_is_fenced_while_its_writer_is_held_is_a_violation(
    evidence: Evidence, journal: Journal
) -> None:
    assert judge.fence(journal, REQUEST) is None
    held(evidence, "arm")
    evidence.record("decode-0", "window_fenced", request=REQUEST, fence="acknowledged")
    assert judge.fence(journal, REQUEST) == "acknowledged"
    held(evidence, "release")
    assert judge.violations(journal, REQUEST) == (
        "the window was fenced while its writer was held",
    )


def test_a_window_may_be_fenced_once_its_writer_goes_on_or_is_gone(
    evidence: Evidence, journal: Journal
) -> None:
    held(evidence, "arm")
    held(evidence, "release")
    evidence.record("decode-0", "window_fenced", request=REQUEST, fence="sealed")
    assert judge.violations(journal, REQUEST) == ()
    journal.mark()
    held(evidence, "arm")
    evidence.record("decode-0", "window_fenced", request=REQUEST, fence="process_gone")
    held(evidence, "release", incarnation="second")
    assert judge.violations(journal, REQUEST) == ()


def test_pages_that_came_back_without_evidence_are_a_violation_and_so_is_their_reuse(
    evidence: Evidence, journal: Journal
) -> None:
    evidence.record("decode-0", "drain_ended", fence="local", pages=[7])
    assert judge.violations(journal, REQUEST) == ()
    evidence.record("decode-0", "drain_ended", fence="unproven", pages=[1, 2])
    evidence.record("decode-1", "pages_allocated", pages=[1, 2])
    evidence.record("prefill-0", "write_ended", request=REQUEST)
    unproven = "2 pages of decode-0 came back without evidence"
    assert judge.violations(journal, REQUEST) == (unproven,)
    evidence.record("decode-0", "pages_allocated", pages=[2, 3])
    evidence.record("prefill-0", "write_ended", request=REQUEST)
    assert judge.violations(journal, REQUEST) == (
        unproven,
        "2 pages of decode-0 were another request's before their writer was done",
    )


def test_an_invariant_that_broke_is_a_violation(evidence: Evidence, journal: Journal) -> None:
    evidence.record("prefill-0", "invariant_broken", invariant="holds")
    assert judge.violations(journal, REQUEST) == ("prefill-0 broke the invariant holds",)


def test_a_journal_follows_files_and_forgets_what_was_before_its_mark(
    evidence: Evidence, journal: Journal, tmp_path: Path
) -> None:
    evidence.record("decode-0", "beat", records=1)
    assert [entry["records"] for entry in journal.all("beat")] == [1]
    journal.mark()
    assert journal.all("beat") == []
    half = '{"node": "decode-0", "incarnation": "1", "event": "beat", "at_boot_ns"'
    rest = ': 9, "sequence": 9, "records": 2}\n'
    with (tmp_path / "decode-0-1.jsonl").open("a") as file:
        file.write(half)
        file.flush()
        assert journal.all("beat") == []
        file.write(rest)
    evidence.record("prefill-0", "beat", records=3)
    assert [entry["records"] for entry in journal.all("beat")] == [3, 2]
    assert [entry["records"] for entry in journal.all("beat", node="decode-0")] == [2]
    assert journal.last("beat", node="prefill-0")["records"] == 3


def test_a_journal_goes_on_where_a_segment_is_sealed(journal: Journal, tmp_path: Path) -> None:
    peer = Peer(NodeName("decode-0"), Role.DECODE, Incarnation("1"))
    sink = Recorder(tmp_path, peer, Keyring({"k": bytes(32)}))
    sink.record("beat", None, BEAT)
    assert journal.last("beat")["sequence"] == 1
    sink.record("beat", None, BEAT)
    sink.close()
    assert not list(tmp_path.glob("*.jsonl"))
    assert [entry["sequence"] for entry in journal.all("beat")] == [1, 2]
    assert [entry["records"] for entry in journal.all("node_closed")] == [2]
    assert len(journal.all("beat")) == 2, "a sealed file is read once"
