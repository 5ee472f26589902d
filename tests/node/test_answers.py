"""Answers: stop strings across chunks, the length, and nothing shown that could still be a stop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.terms import NodeName, TransferId
from kvairlock.engine.model import load_tokenizer
from kvairlock.node.answers import Answer, Answers

NAME = TransferId("r/1")
TABLE = np.array([3, 1], dtype=np.int32)


def answer(tokens: int, *stop: bytes) -> Answer:
    return Answer(TABLE, token=7, position=4, tokens_left=tokens, stop=stop)


def feed(one: Answer, text: bytes) -> list[bytes]:
    """Give a text byte by byte, until the answer is finished; return what was shown each time."""
    shown = []
    for byte in text:
        if not one.finish:
            shown.append(one.take(byte, bytes([byte])))
    return shown


def test_a_step_runs_the_last_token_at_its_position() -> None:
    one = answer(3)
    row = one.row()
    assert (row.tokens.tolist(), row.start, row.pages.tolist()) == ([7], 4, [3, 1])
    one.take(9, b"x")
    row = one.row()
    assert (row.tokens.tolist(), row.start) == ([9], 5)


def test_the_length_ends_an_answer_and_shows_what_was_held() -> None:
    one = answer(3, b"xyz!")
    assert feed(one, b"axy") == [b"a", b"", b"xy"]
    assert one.finish == "length"


def test_a_stop_is_never_shown_nor_is_what_follows() -> None:
    one = answer(10, b"END")
    assert feed(one, b"abENDcd") == [b"a", b"b", b"", b"", b""]
    assert (one.finish, one.tokens_left) == ("stop", 5)


def test_what_only_looked_like_a_stop_is_shown_later() -> None:
    one = answer(6, b"aab")
    assert feed(one, b"aaaabz") == [b"", b"", b"a", b"a", b""]
    assert one.finish == "stop"


@given(
    st.binary(min_size=1, max_size=30),
    st.lists(st.binary(min_size=1, max_size=4), max_size=3),
)
def test_shown_text_is_the_text_up_to_the_first_stop(text: bytes, stop: list[bytes]) -> None:
    """Against the plain definition, whatever the chunks are."""
    one = answer(len(text), *stop)
    shown = b"".join(feed(one, text))
    found = [
        (end, end - len(s))
        for end in range(1, len(text) + 1)
        for s in stop
        if text[:end].endswith(s)
    ]
    if not found:
        assert (shown, one.finish) == (text, "length")
        return
    first_end = min(end for end, _ in found)
    start = min(begin for end, begin in found if end == first_end)
    assert (shown, one.finish) == (text[:start], "stop")


@pytest.mark.parametrize("finished", [(), (0,), (0, 1)])
def test_open_choices_are_those_without_a_finish(finished: tuple[int, ...]) -> None:
    answers = Answers(NAME, NAME, NodeName("gateway"), [answer(5), answer(5)])
    for choice in finished:
        answers.choices[choice].finish = "stop"
    assert answers.open == [i for i in (0, 1) if i not in finished]
    if answers.open:
        shown = answers.take(answers.open[0], ord("k"), load_tokenizer("recall"))
        assert shown == b"k"
