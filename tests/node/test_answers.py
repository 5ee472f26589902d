"""Answers: the row of the next step, and what finishes them: an end token, a stop, the length."""

from __future__ import annotations

import numpy as np
import pytest

from kvairlock.core.messages import GREEDY, Score, Submit
from kvairlock.core.terms import NodeName, TransferId
from kvairlock.node.answers import Answer, Answers, Drawn
from kvairlock.node.showing import Showing

NAME = TransferId("r/1")
TABLE = np.array([3, 1], dtype=np.int32)
END = 0


def answer(tokens: int, *stop: bytes) -> Answer:
    return Answer(
        table=TABLE,
        token=7,
        position=4,
        tokens_max=tokens,
        end_tokens=frozenset({END}),
        showing=Showing(stop),
    )


def drawn(token: int) -> Drawn:
    """A token of one byte."""
    return Drawn(token, bytes([token]), Score(bytes([token]), -0.5, ()))


def feed(one: Answer, tokens: bytes) -> list[bytes]:
    """Give tokens of one byte until the answer is finished; return what was shown each time."""
    shown = []
    for token in tokens:
        if not one.finish:
            shown.append(one.take(drawn(token)).text)
    return shown


def test_an_answer_begins_with_the_last_token_of_its_prompt() -> None:
    submit = Submit(
        ticket=b"",
        tenant="acme",
        transfer=NAME,
        tokens=b"",
        max_tokens=9,
        choices=1,
        stop=(b"x",),
        sampling=GREEDY,
        alternatives=None,
        prefill=NodeName("prefill-0"),
        nonce="n",
        trace="",
    )
    prompt = np.array([5, 6, 8], dtype=np.int32)
    one = Answer.behind(prompt, TABLE, submit, frozenset({END}))
    row = one.row()
    assert (row.tokens.tolist(), row.start, row.pages.tolist()) == ([8], 2, [3, 1])
    assert (one.tokens_max, one.place, one.showing.stop) == (9, 0, (b"x",))
    assert one.end_tokens == {END}


def test_a_step_runs_the_last_token_at_its_position() -> None:
    one = answer(3)
    row = one.row()
    assert (row.tokens.tolist(), row.start, row.pages.tolist()) == ([7], 4, [3, 1])
    one.take(drawn(9))
    row = one.row()
    assert (row.tokens.tolist(), row.start, one.place) == ([9], 5, 1)


def test_the_length_ends_an_answer_and_shows_what_was_held() -> None:
    one = answer(3, b"xyz!")
    assert feed(one, b"axy") == [b"a", b"", b"xy"]
    assert one.finish == "length"


def test_a_stop_is_never_shown_nor_is_what_follows() -> None:
    one = answer(10, b"END")
    assert feed(one, b"abENDcd") == [b"a", b"b", b"", b"", b""]
    assert (one.finish, one.place) == ("stop", 5)


def test_what_only_looked_like_a_stop_is_shown_later() -> None:
    one = answer(6, b"aab")
    assert feed(one, b"aaaabz") == [b"", b"", b"a", b"a", b""]
    assert one.finish == "stop"


def test_an_end_token_is_no_text_but_counts_and_shows_what_was_held() -> None:
    one = answer(10, b"xyz")
    assert feed(one, b"axy\0z") == [b"a", b"", b"", b"xy"]
    assert (one.finish, one.place) == ("stop", 4)


def test_an_end_token_has_no_score_but_those_that_were_held_have() -> None:
    one = answer(10, b"xyz")
    one.take(drawn(ord("x")))
    assert one.take(drawn(END)).scores == (Score(b"x", -0.5, ()),)


def test_the_last_token_that_may_be_is_a_stop_if_it_is_one() -> None:
    for last, stop in ((b"\0", b"q"), (b"q", b"q")):
        one = answer(2, stop)
        feed(one, b"a" + last)
        assert (one.finish, one.place) == ("stop", 2)


@pytest.mark.parametrize("finished", [(), (0,), (0, 1)])
def test_a_request_is_finished_with_its_last_choice(finished: tuple[int, ...]) -> None:
    choices = (answer(5), answer(5))
    for choice in finished:
        choices[choice].finish = "stop"
    answers = Answers(NAME, NAME, NodeName("gateway"), "acme", GREEDY, None, choices)
    assert answers.is_finished is (len(finished) == 2)
