"""The soak's judgement: each figure that must not be makes it fail, and says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kvairlock.drills.canaries import Canaries
from kvairlock.drills.gauges import Descriptors, Memory
from kvairlock.drills.soak.evidence import Witness
from kvairlock.drills.soak.judge import Answers, Leftovers, Soaked
from kvairlock.drills.soak.load import Ending, Outcome
from kvairlock.drills.soak.plan import Ask, Endpoint

CANARIES = Canaries(4)
OWN, OTHER = (CANARIES.prompt(tenant, 120) for tenant in ("acme", "acme"))
ASK = Ask(OWN, 0, Endpoint.COMPLETIONS, False, {"n": 1}, None)
OVERLONG = replace(ASK, overlong=True)
GOOD = Soaked(
    asked=3,
    repeats=True,
    answers=Answers(requests=3, completed=2, own=2, cancelled=1),
    leftovers=Leftovers(0, 7, 0, 0),
    descriptors={"decode-0": Descriptors(9, 9)},
    memory={"decode-0": Memory([50.0, 60.0, 61.0])},
    witness=Witness(1, 100, 0, 0, 0, 0, 2, 30),
    seconds=1.0,
)


def counted(ask: Ask, ending: Ending, *texts: str, code: str = "") -> Answers:
    answers = Answers()
    outcome = Outcome(replace(ask, parameters={"n": max(1, len(texts))}), ending, code=code)
    outcome.texts = list(texts)
    answers.take(outcome, CANARIES)
    return answers


def test_a_completed_answer_is_own_if_every_choice_is() -> None:
    whole = counted(ASK, Ending.COMPLETED, OWN.canary, f"{OWN.canary}. and on", OWN.canary[:8])
    assert (whole.completed, whole.own, whole.stray, whole.foreign) == (1, 1, 0, 0)
    empty = counted(ASK, Ending.COMPLETED, OWN.canary, "")
    assert (empty.completed, empty.own, empty.stray) == (1, 0, 0)
    wrong = counted(ASK, Ending.COMPLETED, OWN.canary, "something else")
    assert (wrong.own, wrong.stray, wrong.foreign) == (0, 1, 0)


@pytest.mark.parametrize("ending", Ending)
def test_a_canary_of_another_request_counts_however_the_request_ended(ending: Ending) -> None:
    leak = counted(ASK, ending, f"xx{OTHER.canary}y", code="broken")
    assert (leak.foreign, leak.stray, leak.own) == (1, 1, 0)


def test_what_came_before_a_client_left_must_be_its_own() -> None:
    for text in ("", OWN.canary[:3], OWN.canary):
        assert counted(ASK, Ending.LEFT, text) == Answers(requests=1, cancelled=1)
    assert counted(ASK, Ending.LEFT, OTHER.canary[:3]).stray == 1


def test_over_long_requests_are_to_be_refused_for_their_length() -> None:
    code = "context_length_exceeded"
    assert counted(OVERLONG, Ending.REFUSED, "", code=code) == Answers(requests=1, too_long=1)
    assert counted(ASK, Ending.REFUSED, "", code=code).refused == Counter({code: 1})
    assert counted(OVERLONG, Ending.REFUSED, "", code="route_full").refused["route_full"] == 1
    assert counted(OVERLONG, Ending.COMPLETED, OWN.canary).too_long_answered == 1


def test_a_good_soak_has_no_problems() -> None:
    assert GOOD.problems() == ()
    busy = replace(GOOD.answers, refused=Counter({"route_full": 4, "tenant_share_exceeded": 1}))
    assert replace(GOOD, answers=busy).problems() == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"completed": 0, "own": 0, "cancelled": 3}, "no request completed"),
        ({"foreign": 1}, "canary of another"),
        ({"stray": 2}, "2 answers are not what"),
        ({"own": 1}, "1 completed answers lack"),
        ({"requests": 2}, "1 requests never ended"),
        ({"too_long_answered": 1}, "1 over-long"),
        ({"broken": Counter({"cut_short": 1})}, "1 answers broke: cut_short"),
        ({"refused": Counter({"timed_out": 1})}, "must not be: timed_out"),
        ({"refused": Counter({"engine_failed": 1})}, "must not be: engine_failed"),
        ({"refused": Counter({"context_length_exceeded": 1})}, "must not be: context_length"),
    ],
)
def test_what_clients_must_not_see_is_a_problem(changed: dict[str, Any], words: str) -> None:
    (problem,) = replace(GOOD, answers=replace(GOOD.answers, **changed)).problems()
    assert words in problem


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"leftovers": Leftovers(2, 7, 0, 0)}, "2 pages, 0 windows and 0 requests"),
        ({"leftovers": Leftovers(0, 7, 1, 0)}, "0 pages, 1 windows and 0 requests"),
        ({"leftovers": Leftovers(0, 7, 0, 3)}, "0 pages, 0 windows and 3 requests"),
        ({"descriptors": {"decode-0": Descriptors(9, 10)}}, "10 files open, 9 before"),
        ({"memory": {"decode-0": Memory([50.0, 60.0, 76.1])}}, "grown by 16.1 MiB"),
        ({"witness": Witness(0, 0, 0, 0, 0, 0, 0, 0)}, "1 processes left 0 files"),
        ({"witness": Witness(1, 100, 1, 0, 0, 0, 2, 30)}, "1 records lost"),
        ({"witness": Witness(1, 100, 0, 1, 0, 0, 2, 30)}, "1 files not closed"),
        ({"witness": Witness(1, 100, 0, 0, 1, 0, 2, 30)}, "1 ends missing"),
        ({"witness": Witness(1, 100, 0, 0, 0, 1, 2, 30)}, "1 repeated"),
    ],
)
def test_what_must_not_remain_is_a_problem(changed: dict[str, Any], words: str) -> None:
    (problem,) = replace(GOOD, **changed).problems()
    assert words in problem


def test_a_soak_in_which_nothing_happened_is_not_good() -> None:
    """All refused, as load explains, and no evidence: what was not there was not shown."""
    refused = Answers(requests=3, refused=Counter({"route_full": 3}))
    nothing = replace(GOOD, answers=refused, witness=Witness(0, 0, 0, 0, 0, 0, 0, 0))
    assert nothing.problems() == (
        "no request completed, so nothing was shown",
        "evidence: 1 processes left 0 files",
    )


def test_a_trained_model_need_not_repeat_its_canary() -> None:
    mute = replace(GOOD, repeats=False, answers=replace(GOOD.answers, own=0, stray=2))
    assert mute.problems() == ()
    assert replace(mute, answers=replace(mute.answers, foreign=1)).problems() != ()


def test_leftovers_are_read_from_the_status() -> None:
    def node(free: int, shared: int, windows: int, requests: int) -> dict[str, object]:
        pages = {"free": free, "shared": shared, "reserved": 64 - free - shared}
        figures = {"pages": pages, "report": {"pages": 64}, "windows": windows}
        return {"status": {**figures, "requests": {"granted": requests}}}

    nodes = {"a": node(60, 4, 0, 0), "b": node(50, 9, 2, 3), "c": {"status": None}}
    assert Leftovers.of({"nodes": nodes, "in_flight": 1}) == Leftovers(5, 13, 2, 4)
