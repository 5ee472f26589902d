"""What a soak draws: equal from equal seeds, and all of the kinds that it promises."""

from __future__ import annotations

from collections import Counter

import pytest

from kvairlock.drills.canaries import CANARY_CHARACTERS
from kvairlock.drills.soak.plan import (
    CONTEXT_TOKENS,
    REPEATING,
    TRAINED,
    AfterChunks,
    AfterEnds,
    Ask,
    Endpoint,
    Plan,
    Profile,
    profile_for,
)
from kvairlock.engine.tokenizer import ByteTokenizer, ChatMessage

TENANTS = ("acme", "bravo", "coral")
DRAWN = 1000


def drawn(seed: int, profile: Profile = REPEATING, count: int = DRAWN) -> list[Ask]:
    plan = Plan(seed, TENANTS, profile)
    return [plan.draw() for _ in range(count)]


def tokens(ask: Ask) -> int:
    """Prompt tokens of the canary model."""
    body = ask.body("recall")
    if ask.endpoint is Endpoint.COMPLETIONS:
        return len(body["prompt"])
    turns = [ChatMessage(m["role"], m["content"]) for m in body["messages"]]
    return len(ByteTokenizer().encode_chat(turns))


def test_a_seed_is_all_that_a_plan_depends_on() -> None:
    assert drawn(5, count=50) == drawn(5, count=50)
    assert drawn(5, count=50) != drawn(6, count=50)


def test_every_kind_is_drawn_as_often_as_it_should_be() -> None:
    asks = drawn(5)
    kinds = Counter(
        [ask.endpoint for ask in asks]
        + [type(ask.leave).__name__ for ask in asks]
        + [f"overlong {ask.overlong}" for ask in asks]
        + [f"n {ask.parameters['n']}" for ask in asks]
        + [f"stream {ask.parameters.get('stream', False)}" for ask in asks]
        + [ask.prompt.tenant for ask in asks]
    )
    for kind, share in {
        Endpoint.CHAT: 1 / 2,
        "AfterChunks": 1 / 12,
        "AfterEnds": 1 / 4,
        "NoneType": 2 / 3,
        "overlong True": 1 / 20,
        "n 1": 3 / 5,
        "n 3": 1 / 5,
        "stream True": 1 / 2,
        "acme": 1 / 3,
    }.items():
        assert kinds[kind] / DRAWN == pytest.approx(share, abs=0.05), kind


def test_only_over_long_requests_are_longer_than_the_context() -> None:
    asks = drawn(5)
    for ask in asks:
        fits = tokens(ask) + ask.parameters["max_tokens"] <= CONTEXT_TOKENS
        assert fits is not ask.overlong
    assert any(ask.overlong for ask in asks)


def test_prompts_have_one_canary_each_and_share_beginnings_within_a_tenant_only() -> None:
    asks = drawn(5)
    assert len({ask.prompt.canary for ask in asks}) == DRAWN
    assert all(ask.prompt.text.count(ask.prompt.canary) == 1 for ask in asks)
    owners: dict[str, set[str]] = {}
    for ask in asks:
        if ask.beginning:
            beginning = ask.prompt.text[: ask.beginning]
            owners.setdefault(beginning, set()).add(ask.prompt.tenant)
    assert len(owners) == len(TENANTS) * 2
    assert all(len(tenants) == 1 for tenants in owners.values())


def test_a_client_leaves_before_its_answer_can_be_whole() -> None:
    for ask in drawn(5):
        match ask.leave:
            case AfterChunks(count):
                assert ask.parameters["stream"]
                assert 1 <= count < min(ask.parameters["max_tokens"], CANARY_CHARACTERS)
            case AfterEnds(count):
                assert 0 <= count < 12


def test_a_chat_says_the_same_as_its_prompt_in_turns() -> None:
    chats = [ask for ask in drawn(5, TRAINED, 200) if ask.endpoint is Endpoint.CHAT]
    assert {len(ask.body("m")["messages"]) for ask in chats} == {1, 2}
    for ask in chats:
        body = ask.body("m")
        assert body["model"] == "m"
        assert "prompt" not in body
        assert "".join(m["content"] for m in body["messages"]) == ask.prompt.text
        assert body["messages"][-1]["role"] == "user"


def test_only_the_canary_model_must_repeat_its_canary() -> None:
    assert profile_for("recall").repeats
    assert not profile_for("smollm2").repeats
    assert (profile_for("recall").requests, profile_for("smollm2").requests) == (1000, 60)
