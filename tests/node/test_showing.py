"""What a client may see: nothing that could become a stop, and the scores of what it sees."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.messages import Score
from kvairlock.node.showing import Showing, Shown


def score(text: bytes) -> Score:
    return Score(text, -1.0, ())


def show(stop: Sequence[bytes], tokens: Sequence[bytes]) -> tuple[list[Shown], bool]:
    """Show tokens until a stop string, or all; return what was shown and whether it was a stop."""
    showing = Showing(tuple(stop))
    shown: list[Shown] = []
    for token in tokens:
        showing.add(token, score(token))
        cut = showing.find_stop()
        if cut is not None:
            return [*shown, showing.show(cut)], True
        shown.append(showing.show_safe())
    return [*shown, showing.show_all()], False


def texts(shown: Sequence[Shown]) -> list[bytes]:
    return [one.text for one in shown]


def scored(shown: Sequence[Shown]) -> list[list[bytes]]:
    return [[one.text for one in piece.scores] for piece in shown]


def test_text_that_may_become_a_stop_holds_its_scores_back() -> None:
    shown, stopped = show([b"xyz"], [b"a", b"x", b"y", b"!", b"b"])
    assert texts(shown) == [b"a", b"", b"", b"xy!", b"b", b""]
    assert scored(shown) == [[b"a"], [], [], [b"x", b"y", b"!"], [b"b"], []]
    assert not stopped


def test_a_stop_cuts_the_scores_of_tokens_behind_its_beginning() -> None:
    shown, stopped = show([b"END"], [b"ab", b"E", b"ND", b"cd"])
    assert (texts(shown), stopped) == ([b"ab", b"", b""], True)
    assert scored(shown) == [[b"ab"], [], []]


def test_a_token_that_is_partly_cut_has_a_score() -> None:
    shown, _ = show([b"\n\n"], [b"one", b".\n", b"\ntwo"])
    assert texts(shown) == [b"one", b".", b""]
    assert scored(shown) == [[b"one"], [b".\n"], []]


def test_a_token_that_is_partly_held_back_has_its_score_once() -> None:
    shown, _ = show([b"\n\n"], [b"a\n", b"b", b"c"])
    assert texts(shown) == [b"a", b"\nb", b"c", b""]
    assert scored(shown) == [[b"a\n"], [b"b"], [b"c"], []]


def test_a_token_without_bytes_is_not_seen() -> None:
    shown, _ = show([], [b"a", b"", b"b"])
    assert scored(shown) == [[b"a"], [], [b"b"], []]


def test_a_token_without_a_score_has_none() -> None:
    showing = Showing(())
    showing.add(b"a", None)
    assert showing.show_safe() == Shown(b"a", ())


@pytest.mark.parametrize("tokens", [[b"abcd"], [b"a", b"b", b"c", b"d"], [b"abc", b"d"]])
@pytest.mark.parametrize(
    ("stop", "seen"), [([b"abcd", b"bc"], b"a"), ([b"bcd", b"d"], b"a"), ([b"c", b"b"], b"a")]
)
def test_of_several_stops_the_one_that_is_complete_first_counts(
    stop: list[bytes], seen: bytes, tokens: list[bytes]
) -> None:
    shown, stopped = show(stop, tokens)
    assert (b"".join(texts(shown)), stopped) == (seen, True)


def test_a_character_in_several_tokens_is_shown_byte_by_byte() -> None:
    shown, _ = show(["é!".encode()], [b"\xc3", b"\xa9", b"?"])
    assert texts(shown) == [b"", b"", b"\xc3\xa9?", b""]


letters = st.binary(max_size=5).map(lambda b: bytes(97 + byte % 3 for byte in b))


@given(
    st.lists(letters, max_size=25),
    st.lists(letters.filter(bool), max_size=3),
)
def test_shown_text_is_the_text_up_to_the_first_stop(
    tokens: list[bytes], stop: list[bytes]
) -> None:
    """Against the plain definition, however the text is cut into tokens."""
    shown, stopped = show(stop, tokens)
    text = b"".join(tokens)
    found = [
        (end, end - len(s))
        for end in range(1, len(text) + 1)
        for s in stop
        if text[:end].endswith(s)
    ]
    seen = text[: min(found)[1]] if found else text
    assert (b"".join(texts(shown)), stopped) == (seen, bool(found))
    wanted, begin = [], 0
    for token in tokens:
        if token and begin < len(seen):
            wanted.append(token)
        begin += len(token)
    assert [one for piece in scored(shown) for one in piece] == wanted
    assert_scores_go_with_their_first_byte(shown)


def assert_scores_go_with_their_first_byte(shown: Sequence[Shown]) -> None:
    """In each piece: the first score begins in it, and no score before was still to come."""
    seen, begin = 0, 0
    for piece in shown:
        for one in piece.scores:
            assert seen <= begin < seen + len(piece.text)
            begin += len(one.text)
        seen += len(piece.text)
        assert begin >= seen
