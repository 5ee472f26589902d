"""Where rules must not fire, and what is concluded from a record that says less."""

from __future__ import annotations

import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.conversations import Conversation
from kvairlock.audit.histories import history
from kvairlock.audit.plants import put
from kvairlock.audit.report import Class, Verdict
from kvairlock.audit.stories import answered, recomputed, shared, too_long
from kvairlock.audit.synthetic import Row, Stack, Story
from tests.audit.auditing_made import audited
from tests.audit.test_audit_losses import started

SEED = 400


class Played:
    """A stack on which stories are played one after the other, from its start to its close."""

    def __init__(self, seed: int = SEED) -> None:
        self.stack = Stack(seed)
        self.stack.start()

    def rows(self, *stories: Story) -> list[Row]:
        self.stack.play(stories, at_once=1)
        self.stack.beat()
        self.stack.close()
        return self.stack.rows()


@pytest.fixture
def played() -> Played:
    return Played()


def verdict(engine: BaseBackend, rows: list[Row], it: Conversation) -> Verdict:
    found = audited(engine, rows).of(it.request)
    assert found is not None
    return found


def test_usage_with_a_prefix_in_it_is_explained_by_its_reuse(
    engine: BaseBackend, played: Played
) -> None:
    first = Conversation(played.stack, 90)
    it = Conversation(played.stack, 120).of(first)
    rows = played.rows(shared(first, it))
    told = next(r for r in rows if r["event"] == "response_sent" and r["request"] == it.request)
    computed = next(
        r
        for r in rows
        if r["event"] == "range_computed" and (r["request"], r["role"]) == (it.request, "prefill")
    )
    assert told["prompt_tokens"] > computed["stop"] - computed["start"]
    assert verdict(engine, rows, it).verdict is Class.EXCLUDED


def test_a_receipt_that_refuses_does_not_touch_who_computed_the_prompt_itself(
    engine: BaseBackend, played: Played
) -> None:
    it = Conversation(played.stack)
    story = recomputed(it)

    def late() -> Story:
        for turn, _ in enumerate(story):
            if turn == 1:
                it.say(it.prefill, "receipt_sent", outcome="failed", start=0, stop=0)
            yield

    rows = played.rows(late())
    assert any(row["event"] == "receipt_sent" for row in rows)
    assert verdict(engine, rows, it).verdict is Class.EXCLUDED


@pytest.mark.parametrize("name", ["scope", "creator_scope"])
def test_a_prefix_whose_scope_is_not_recorded_excludes_nobody_who_took_it(
    engine: BaseBackend, played: Played, name: str
) -> None:
    first = Conversation(played.stack, 90)
    it = Conversation(played.stack, 120).of(first)
    rows = [
        row | {name: None} if row["event"] == "prefix_reused" else row
        for row in played.rows(shared(first, it))
    ]
    found = verdict(engine, rows, it)
    assert (found.verdict, found.reasons) == (Class.INSUFFICIENT, ("prefix_unscoped",))
    assert verdict(engine, rows, first).verdict is Class.EXCLUDED


def test_an_answer_of_which_nobody_recorded_what_it_said_is_insufficient(
    engine: BaseBackend, played: Played
) -> None:
    it = Conversation(played.stack, unsaid=["response_sent"])
    found = verdict(engine, played.rows(answered(it)), it)
    assert (found.verdict, found.reasons) == (Class.INSUFFICIENT, ("no_response",))


@pytest.mark.parametrize("name", ["prompt_tokens", "generated_tokens"])
def test_a_response_without_its_figures_is_insufficient(
    engine: BaseBackend, played: Played, name: str
) -> None:
    it = Conversation(played.stack)
    rows = [
        row | {name: None} if row["event"] == "response_sent" else row
        for row in played.rows(answered(it))
    ]
    found = verdict(engine, rows, it)
    assert (found.verdict, found.reasons) == (Class.INSUFFICIENT, ("fields_missing",))


ROUTES = {
    "prefill-0/decode-0": ("guard_relaxed",),
    "prefill-0/decode-1": (),
    "prefill-1/decode-0": (),
}
"""What a waiver of each route makes of a request on the first."""


def test_a_waiver_touches_requests_of_its_whole_route_and_no_other(engine: BaseBackend) -> None:
    rows: list[Row] = []
    expected: dict[str, tuple[str, str, tuple[str, ...]]] = {}
    for node in ("gateway", "prefill-0", "decode-0"):
        for route, reasons in ROUTES.items():
            played = Played(SEED + 1 + len(expected))
            it = Conversation(played.stack, prefill=0)
            waived = [f"{route} range observing: pilot"]
            rows += started(played.rows(answered(it)), node, relaxed=waived)
            expected[it.request] = (node, route, reasons)
    found = {
        v.request: (*expected[v.request][:2], v.reasons) for v in audited(engine, rows).verdicts()
    }
    assert found == expected


def test_requests_of_a_drill_are_judged_like_others_and_named(
    engine: BaseBackend, played: Played
) -> None:
    it, other = Conversation(played.stack), Conversation(played.stack)

    def drilled() -> Story:
        played.stack.record(it.gateway, "drill_marked", drill="range", phase="began")
        it.say(it.gateway, "drill_requested", drill="range")
        yield from answered(it)
        played.stack.record(it.gateway, "drill_marked", drill="range", phase="ended")

    rows = played.rows(drilled(), answered(other))
    drill, plain = verdict(engine, rows, it), verdict(engine, rows, other)
    assert (drill.verdict, drill.drill) == (Class.EXCLUDED, "range")
    assert (plain.verdict, plain.drill) == (Class.EXCLUDED, "")


@pytest.fixture
def refused_then_recomputed(played: Played) -> tuple[Conversation, list[Row]]:
    """Prefill states that it failed, and decode computes the prompt itself."""
    it = Conversation(played.stack)

    def failed() -> Story:
        for turn, _ in enumerate(recomputed(it)):
            if turn == 1:
                it.say(it.prefill, "receipt_sent", outcome="failed", start=0, stop=0)
            yield

    return it, played.rows(failed())


def without(rows: list[Row], it: Conversation, role: str, event: str) -> list[Row]:
    asked = (it.request, role, event)
    return [r for r in rows if (r.get("request"), r["role"], r["event"]) != asked]


@pytest.mark.parametrize("event", ["range_computed", "request_recomputed"])
def test_who_computed_the_prompt_itself_is_not_accused_if_the_record_of_it_is_lost(
    engine: BaseBackend, refused_then_recomputed: tuple[Conversation, list[Row]], event: str
) -> None:
    it, rows = refused_then_recomputed
    found = verdict(engine, without(rows, it, "decode", event), it)
    assert found.verdict is Class.INSUFFICIENT
    assert "events_lost" in found.reasons


@pytest.mark.parametrize("name", ["stop", "start"])
def test_who_computed_the_prompt_itself_is_not_accused_if_a_figure_of_it_is_missing(
    engine: BaseBackend, refused_then_recomputed: tuple[Conversation, list[Row]], name: str
) -> None:
    it, rows = refused_then_recomputed
    less = [
        r | {name: None} if (r["role"], r["event"]) == ("decode", "range_computed") else r
        for r in rows
    ]
    assert verdict(engine, less, it).verdict is not Class.AFFECTED


def test_who_computed_the_prompt_itself_is_not_accused_if_decode_has_no_evidence(
    engine: BaseBackend, refused_then_recomputed: tuple[Conversation, list[Row]]
) -> None:
    it, rows = refused_then_recomputed
    found = verdict(engine, [r for r in rows if r["role"] != "decode"], it)
    assert found.verdict is Class.INSUFFICIENT


def test_a_ruling_that_does_not_say_how_it_ended_accuses_nobody(
    engine: BaseBackend, played: Played
) -> None:
    it = Conversation(played.stack)
    rows = [
        row | {"outcome": None} if row["event"] == "verdict" else row
        for row in played.rows(answered(it))
    ]
    assert verdict(engine, rows, it).verdict is Class.INSUFFICIENT


def test_evidence_that_is_there_twice_accuses_nobody(engine: BaseBackend) -> None:
    rows = list(history(SEED).rows)
    report = audited(engine, [*rows, *rows])
    assert report.counts()[Class.AFFECTED] == 0
    assert report.counts()[Class.EXCLUDED] == 0
    assert report.by_reason()["numbers_repeated"] == report.classified.num_rows


@pytest.mark.parametrize("fence", ["unproven", "guessed", ""])
def test_a_fence_that_nobody_knows_proves_as_little_as_none(
    engine: BaseBackend, played: Played, fence: str
) -> None:
    first, after = Conversation(played.stack), Conversation(played.stack)

    def given_on() -> Story:
        yield from answered(first)
        played.stack.decode.free.rotate(len(first.lease.pages))
        yield from answered(after)

    ended = ("decode", "drain_ended", first.request)
    rows = [
        row | {"fence": fence} if (row["role"], row["event"], row.get("request")) == ended else row
        for row in played.rows(given_on())
    ]
    report = audited(engine, rows)
    reasons = {v.request: v.reasons for v in report.verdicts(Class.INSUFFICIENT)}
    assert reasons[first.request] == ("no_fence", "chain_broken")
    assert reasons[after.request] == ("former_unaccounted",)


@pytest.mark.parametrize("generated", [0, 17])
def test_who_was_told_anything_is_not_excluded_as_one_that_was_never_read(
    engine: BaseBackend, played: Played, generated: int
) -> None:
    it = Conversation(
        played.stack,
        odd={"response_sent": put(http_status=200, finish=["stop"], generated_tokens=generated)},
    )
    rows = played.rows(too_long(it))
    expected = Class.AFFECTED if generated else Class.INSUFFICIENT
    assert verdict(engine, rows, it).verdict is expected
