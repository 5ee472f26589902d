"""What a drill may do is what was agreed on: the gateway and the nodes are made up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.client import GatewayClient, Reply
from kvairlock.drills.library.drill import Drill
from kvairlock.drills.library.shipped import drill, parse
from kvairlock.drills.library.sights import Sight, Vouched
from kvairlock.drills.runs.player import BeyondLimits, Player, Site
from kvairlock.drills.stack import DrillFailed

from .drills_made import TEXT


class Call:
    """A request that is answered at once."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    def result(self) -> Reply:
        return self.reply

    def leave(self) -> None:
        self.reply.status, self.reply.text = 499, ""


class Gateway:
    """Answers each prompt with its own canary, and refuses what is over its promise.

    Args:
        promise_tokens: What it promises.
    """

    def __init__(self, promise_tokens: int = 1024) -> None:
        self.promise_tokens = promise_tokens
        self.asked: list[tuple[Marked, str | None, int]] = []
        self.points: list[tuple[str, str, str]] = []
        self.marks: list[str] = []

    def ask(
        self,
        prompt: Marked,
        route: str | None = None,
        max_tokens: int = 17,
        ticket: str | None = None,
        show_ticket: bool = False,
    ) -> Call:
        self.asked.append((prompt, route, max_tokens))
        tokens = len(prompt.text)
        if tokens + max_tokens > self.promise_tokens:
            figures = {"asked": tokens + max_tokens, "limit": self.promise_tokens}
            error = {"code": "context_length_exceeded", "stage": "gateway", **figures}
            return Call(Reply(400, error=error))
        return Call(Reply(200, prompt.canary, usage={"prompt_tokens": tokens}))

    def point(self, node: str, action: str, point: str, after: int = 0) -> None:
        self.points.append((node, action, point))

    @contextmanager
    def drilling(self, drill: str) -> Iterator[None]:
        self.marks.append(f"{drill} began")
        yield
        self.marks.append(f"{drill} ended")

    def context_tokens(self) -> int:
        return self.promise_tokens

    def node(self, name: str) -> dict[str, Any]:
        pages = {"prefill-0": 32, "prefill-1": 64, "decode-0": 24, "decode-1": 128}[name]
        return {"status": {"report": {"pages": pages, "page_tokens": 16}}}


def player(known: Drill, gateway: Gateway) -> Player:
    site = Site(cast(GatewayClient, gateway), None, None)
    return Player(known, site, Canaries(1))


def test_prompts_fill_what_is_promised_to_the_last_token() -> None:
    gateway = Gateway(1024)
    seen = player(drill("promise"), gateway).play()
    assert [len(prompt.text) + most for prompt, _, most in gateway.asked] == [1024, 1025, 2024]
    assert gateway.marks == ["promise began", "promise ended"]
    assert {name: one.sight for name, one in seen.items()} == {
        "at": Sight.OWN, "over": Sight.REFUSED, "far": Sight.REFUSED,
    }  # fmt: skip
    at = seen["at"]
    assert (at.asked_tokens, at.limit_tokens, at.sent_tokens, at.prompt_tokens) == (
        1024, 1024, 1007, 1007,
    )  # fmt: skip
    assert at.vouched is Vouched.UNSEEN, "there is no evidence at hand"


def test_prompts_fill_a_nodes_pool_with_their_answer_where_it_has_to_hold_it() -> None:
    gateway = Gateway(10_000)
    player(drill("nodes"), gateway).play()
    assert [(len(prompt.text), route) for prompt, route, _ in gateway.asked] == [
        (512, "prefill-0/decode-1"),
        (513, "prefill-0/decode-1"),
        (384 - 17, "prefill-1/decode-0"),
        (385 - 17, "prefill-1/decode-0"),
    ]


def test_a_prompt_beyond_what_was_agreed_on_is_not_asked() -> None:
    gateway = Gateway(100_000)
    with pytest.raises(BeyondLimits, match=r"at would be a prompt of 99983 tokens; .* 34 to 20000"):
        player(drill("promise"), gateway).play()
    assert gateway.asked == []


def test_a_drill_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.monotonic()
    gateway = Gateway()
    playing = player(drill("promise"), gateway)
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 121)
    with pytest.raises(BeyondLimits, match=r"longer than limits.seconds_max, 120 s"):
        playing.play()
    assert gateway.asked == []


def test_a_crowd_asks_in_turns_and_all_of_it_leaves_or_ends() -> None:
    gateway = Gateway()
    seen = player(drill("leavers"), gateway).play()
    assert [prompt.tenant for prompt, _, _ in gateway.asked[:6]] == ["alice", "bob", "mallory"] * 2
    assert {name for name, one in seen.items() if one.sight is Sight.LEFT} == {
        f"{crowd}-{number}" for crowd in ("early", "late") for number in range(1, 7)
    }
    assert len({prompt.canary for prompt, _, _ in gateway.asked}) == len(gateway.asked) == 24


def test_prompts_begin_alike_as_far_as_the_drill_says() -> None:
    text = TEXT.replace('tenant = "bob" }', 'tenant = "bob", alike = 50 }')
    text = text.replace('route = "prefill-0/decode-0" }', "alike = 50 }")
    gateway = Gateway()
    player(parse(text, "made"), gateway).play()
    (one, _, _), (other, _, _) = gateway.asked
    assert one.text[:50] == other.text[:50]
    assert one.text != other.text


def test_points_are_armed_and_released_where_the_drill_says() -> None:
    gateway = Gateway()
    player(parse(TEXT, "made"), gateway).play()
    assert gateway.points == [
        ("prefill-0", "arm", "prefill.short"),
        ("prefill-0", "release", "prefill.short"),
    ]


@pytest.mark.parametrize("step", ['"stop", node = "decode-0"', '"recorded", events = ["verdict"]'])
def test_what_is_not_at_hand_is_not_passed_over(step: str) -> None:
    resume = '{ do = "resume", node = "decode-0" },\n' if "stop" in step else ""
    text = TEXT.replace('{ do = "answered", request = "a" },', f"{{ do = {step} }},\n{resume}")
    with pytest.raises(DrillFailed, match=r"not this drill's to touch|not at hand"):
        player(parse(text, "made"), Gateway()).play()
