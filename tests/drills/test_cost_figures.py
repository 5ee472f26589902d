"""The figures of a cost run on outcomes and records that were made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kvairlock.core.terms import Incarnation, Instant, NodeName, Owner, Peer, Role
from kvairlock.drills.canaries import Canaries
from kvairlock.drills.cost.account import Account, Costed, document
from kvairlock.drills.cost.evidence import Cause, Heard, hear, read_all
from kvairlock.drills.cost.figures import Spread, figures, percentile
from kvairlock.drills.cost.loads import LOADS, NORMAL, draw
from kvairlock.drills.cost.play import Played
from kvairlock.drills.cost.samples import Sample
from kvairlock.drills.cost.table import show
from kvairlock.drills.soak.judge import Leftovers
from kvairlock.drills.soak.load import Advice, Ending, Outcome
from kvairlock.drills.stack import DrillFailed
from kvairlock.runtime.evidence_settings import EvidenceSettings, Format
from kvairlock.runtime.recording import Value
from kvairlock.sink.recorder import Recorder
from kvairlock.wire.keys import Keyring

CANARIES = Canaries(4)
MINE, OTHER = draw(NORMAL, 2, "4", CANARIES)
SETTING = {"requests": 1, "rounds": 1, "concurrency": 2, "seed": 4}
LOCAL = Cause("pages", "local")


def answered(first_ms: float, total_ms: float, text: str = MINE.prompt.canary) -> Outcome:
    outcome = Outcome(MINE, Ending.COMPLETED, sent=1, first_ms=first_ms, total_ms=total_ms)
    outcome.texts = [text]
    return outcome


def refused(*codes: str, advice: Advice = Advice.NONE) -> Outcome:
    return Outcome(
        MINE,
        Ending.REFUSED,
        code=codes[-1],
        sent=len(codes),
        refusals=list(codes),
        advice=advice,
        total_ms=9_999.0,
    )


def played(*outcomes: Outcome, seconds: float = 2.0, samples: Sequence[Sample] = ()) -> Played:
    made = Played(NORMAL, Instant(0), Instant(10), seconds, list(outcomes), samples=list(samples))
    for outcome in outcomes:
        made.answers.take(outcome, CANARIES)
    return made


def costed(*plays: Played, heard: Heard | None = None) -> Costed:
    return Costed(NORMAL, plays, [heard or Heard() for _ in plays])


GOOD = costed(played(answered(1, 2)))


# Percentiles and spreads


def test_a_percentile_is_a_value_that_occurred() -> None:
    hundred = [float(number) for number in range(100, 0, -1)]
    assert (percentile(hundred, 50), percentile(hundred, 99)) == (50.0, 99.0)
    assert (percentile([7.0], 1), percentile([7.0], 99)) == (7.0, 7.0)
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    assert percentile([], 50) is None


def test_a_spread_passes_over_rounds_that_have_no_such_figure() -> None:
    assert Spread.of([3.0, None, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0)
    assert Spread.of([None]) is None


# One load, once


def test_latency_is_that_of_answers_and_throughput_counts_nothing_else() -> None:
    answers = [answered(float(ms), 10.0 * ms) for ms in (30, 10, 20)]
    told = figures(played(*answers, refused("route_full"), seconds=1.5), Heard())
    assert (told.requests, told.answered, told.answered_share) == (4, 3, 0.75)
    assert told.answers_per_s == 2.0
    assert (told.first_ms_p50, told.first_ms_p99) == (20.0, 30.0)
    assert (told.total_ms_p50, told.total_ms_p99) == (200.0, 300.0)


def test_without_an_answer_there_is_no_latency() -> None:
    told = figures(played(refused("route_full")), Heard())
    assert (told.answered_share, told.answers_per_s) == (0.0, 0.0)
    assert (told.first_ms_p50, told.total_ms_p99) == (None, None)


def test_amplification_is_told_for_clients_for_the_gateway_and_for_both() -> None:
    outcomes = [answered(1, 2), refused("route_full", "route_full", "route_full")]
    told = figures(played(*outcomes), Heard(submits=6, second_attempts=2))
    assert (told.sent, told.sent_per_request) == (4, 2.0)
    assert (told.submits_per_sent, told.submits_per_request) == (1.5, 3.0)


# What nodes hold back


def node(role: str, draining: int, state: str = "up", windows: int = 0) -> dict[str, object]:
    pages = {"free": 10 - draining - 1, "shared": 1, "draining": draining}
    stages = dict.fromkeys(("quarantined", "fenced", "scrubbed"), 0)
    status = {"pages": {**stages, **pages}, "windows_draining": windows}
    return {"role": role, "state": state, "status": status}


def test_a_sample_is_the_share_of_the_pools_that_are_heard() -> None:
    nodes = {
        "prefill-0": node("prefill", 0),
        "prefill-1": node("prefill", 9, state="lost", windows=7),
        "decode-0": node("decode", 5, windows=2),
        "decode-1": node("decode", 1, windows=1),
    }
    sample = Sample.of({"nodes": nodes})
    assert sample.shares == {Role.PREFILL: 0.0, Role.DECODE: 0.3}
    assert sample.windows_draining == 3


def test_a_role_that_nobody_heard_of_has_no_share() -> None:
    sample = Sample.of({"nodes": {"decode-0": node("decode", 5, state="stale")}})
    assert (sample.shares, sample.windows_draining) == ({}, 0)
    (told,) = document(Account(GOOD, [costed(played(answered(1, 2), samples=[sample]))]), {})[
        "loads"
    ]
    assert told["held_back"]["decode"] == {"mean": None, "max": None}


# What the evidence says


def test_records_count_for_the_load_during_which_they_were_made() -> None:
    def at(ns: int, event: str, **fields: object) -> dict[str, object]:
        return {"at_boot_ns": ns, "event": event, **fields}

    records = [
        at(5, "request_admitted", stage="gateway"),
        at(6, "request_admitted", stage="decode_admission"),
        at(12, "request_admitted", stage="gateway"),
        at(13, "request_retried"),
        at(14, "request_admitted", stage="gateway"),
        at(15, "drain_ended", fence="local", wait_ms=20, pages=[1, 2]),
        at(16, "window_fenced", fence="sealed", wait_ms=7),
        at(20, "request_admitted", stage="gateway"),
    ]
    first, second = hear(records, [(Instant(0), Instant(10)), (Instant(10), Instant(20))])
    assert (first.submits, first.second_attempts, dict(first.waits_ms)) == (1, 0, {})
    assert (second.submits, second.second_attempts) == (2, 1)
    assert second.waits_ms == {LOCAL: [20], Cause("window", "sealed"): [7]}
    assert second.page_ms_drained == 40


def sink(folder: Path, role: Role) -> Recorder:
    peer = Peer(NodeName(role), role, Incarnation("1"))
    lines = EvidenceSettings(format=Format.JSONL)
    return Recorder(folder, peer, Keyring({"k": bytes(32)}), settings=lines)


def test_without_the_whole_evidence_of_the_gateway_nothing_is_told(tmp_path: Path) -> None:
    decode = sink(tmp_path, Role.DECODE)
    decode.close()
    with pytest.raises(DrillFailed, match="not whole"):
        read_all(tmp_path)
    gateway = sink(tmp_path, Role.GATEWAY)
    for request in ("a", "b", "c"):
        fields: dict[str, Value] = {"before": "x", "attempt": 2, "reason": "capacity"}
        gateway.record("request_retried", Owner("acme", request, 2), fields)
    gateway.close()
    assert sum(record["event"] == "request_retried" for record in read_all(tmp_path)) == 3
    (file,) = tmp_path.glob("gateway*.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:1] + lines[2:]))
    with pytest.raises(DrillFailed, match="not whole"):
        read_all(tmp_path)


# All rounds


def test_the_document_has_median_and_extremes_of_the_rounds_and_sums_of_counts() -> None:
    rounds = [played(answered(ms, 2 * ms), refused("route_full")) for ms in (10.0, 30.0, 20.0)]
    waits = Heard(submits=2, waits_ms={LOCAL: [0, 4]})
    told = document(Account(GOOD, [costed(*rounds, heard=waits)]), SETTING)
    (load,) = told["loads"]
    assert (told["ok"], told["problems"], told["seed"]) == (True, [], 4)
    assert load["first_ms_p50"] == {"median": 20.0, "least": 10.0, "most": 30.0}
    assert (load["requests"], load["answered"], load["submits"]) == (6, 3, 6)
    assert load["refused"] == {"route_full": 3}
    assert load["waits"] == [
        {"memory": "pages", "fence": "local", "count": 6, "median_ms": 2.0, "max_ms": 4}
    ]


def test_the_requests_that_were_told_to_stop_are_counted() -> None:
    outcomes = [answered(1, 2), refused("route_full", "draining", advice=Advice.STOP)]
    (load,) = document(Account(GOOD, [costed(played(*outcomes))]), {})["loads"]
    assert load["advised_to_stop"] == 1
    assert load["refused"] == {"route_full": 1, "draining": 1}


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (answered(1, 2, OTHER.prompt.canary), "1 answers show the canary of another request"),
        (answered(1, 2, "anything"), "1 answers are not what their own prompt says"),
        (Outcome(MINE, Ending.BROKEN, code="cut_short", sent=1), "1 answers broke"),
        (refused("route_full"), "no request completed, so nothing was shown"),
    ],
)
def test_what_no_load_may_do_makes_the_run_fail(outcome: Outcome, problem: str) -> None:
    bad = costed(played(outcome))
    for account in (Account(GOOD, [bad]), Account(bad, [GOOD])):
        told = document(account, SETTING)
        assert not told["ok"]
        assert f"normal: {problem}" in told["problems"]


def test_pages_that_do_not_come_back_make_the_run_fail() -> None:
    kept = played(answered(1, 2))
    kept.leftovers = Leftovers(pages_lost=3, pages_kept=9, windows_left=1, requests_left=0)
    told = document(Account(GOOD, [costed(kept)]), SETTING)
    assert (told["ok"], told["loads"][0]["left_over"]) == (False, 4)


def test_the_table_has_a_column_for_each_load_and_a_row_for_each_refusal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plays = [played(answered(ms, 20.0), refused("route_full", "draining")) for ms in (10, 30)]
    all_loads = [Costed(load, plays, [Heard(submits=3)] * 2) for load in LOADS]
    show(document(Account(GOOD, all_loads), SETTING))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    (head,) = [line for line in lines if line.startswith("figure")]
    assert all(load.name in head for load in LOADS)
    rows = {line.split("  ")[0]: line.split()[-1] for line in lines if line}
    assert (rows["refused: draining"], rows["refused: route_full"]) == ("2", "2")
    assert (rows["first token ms, p50"], rows["sent/request"]) == ("20", "1.50")
    assert "10-30" in "\n".join(lines)
    assert lines[-1] == "no foreign canary, every page back"
