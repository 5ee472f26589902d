"""What is believed of an answer, and where a key goes."""

from __future__ import annotations

import gzip
from typing import Any

import msgspec
import pytest

from kvairlock.core.promise.commitment import RouteState
from kvairlock.runtime import asking
from kvairlock.runtime.asking import Asker, NoAnswer

from .answering import Answer, Answers, answering

KEY = "kva-secret"
FIGURES = {"/figures": Answer.of({"tokens": 512, "api_key": "sk-theirs"})}


class Figures(msgspec.Struct):
    tokens: int


class Known(msgspec.Struct):
    state: RouteState


def why_not(answers: Answers, path: str = "/figures", shape: type[Any] = Figures) -> str:
    """Ask for something that cannot be had, and return why."""
    with (
        answering(answers) as server,
        Asker(server.url, KEY) as asker,
        pytest.raises(NoAnswer) as caught,
    ):
        asker.shaped(path, shape)
    return str(caught.value)


def test_what_is_needed_is_taken_and_the_rest_is_not_looked_at() -> None:
    with answering(FIGURES) as server, Asker(server.url, None) as asker:
        assert asker.shaped("/figures", Figures) == Figures(512)
        assert asker.text("/figures") == '{"tokens": 512, "api_key": "sk-theirs"}'


def test_a_key_goes_to_its_own_server_and_only_if_there_is_one() -> None:
    with answering(FIGURES) as server:
        for key in (KEY, None):
            with Asker(server.url, key) as asker:
                asker.shaped("/figures", Figures)
        sent = [headers.get("authorization") for _, headers in server.asked]
    assert sent == [f"Bearer {KEY}", None]


def test_no_redirect_is_followed_so_that_no_key_goes_elsewhere() -> None:
    with answering(FIGURES) as other:
        elsewhere = {"/figures": Answer((b"",), 302, {"location": f"{other.url}/figures"})}
        assert why_not(elsewhere) == "/figures: answered 302"
        assert other.asked == []


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(FIGURES) as proxy, answering(FIGURES) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with Asker(server.url, KEY) as asker:
            asker.shaped("/figures", Figures)
        assert (len(proxy.asked), len(server.asked)) == (0, 1)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b"<html>", "the answer is no JSON"),
        (b"\xff{}", "the answer is no JSON"),
        (b'{"deep": ' + b"[" * 100_000, "the answer is no JSON"),
        (b"{}", "Object missing required field `tokens`"),
        (b'{"tokens": "sk-theirs"}', "Expected `int`, got `str` - at `$.tokens`"),
        (b'{"tokens": true}', "Expected `int`, got `bool` - at `$.tokens`"),
    ],
)
def test_another_shape_is_no_answer_and_its_values_are_not_shown(body: bytes, why: str) -> None:
    assert why_not({"/figures": Answer.of(body)}) == f"/figures: {why}"


def test_a_word_that_is_not_known_is_not_shown_either() -> None:
    message = why_not({"/figures": Answer.of({"state": "sk-theirs"})}, shape=Known)
    assert message == "/figures: a word that is not known, at `$.state`"


@pytest.mark.parametrize("status", [204, 301, 401, 404, 500])
def test_another_status_is_no_answer(status: int) -> None:
    assert why_not({"/figures": Answer((b"",), status)}) == f"/figures: answered {status}"


def test_an_answer_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_BYTES_MAX", 1000)
    endless = {"/figures": Answer((b" " * 400,) * 50)}
    assert why_not(endless) == "/figures: an answer of over 1000 bytes"


def test_an_answer_that_takes_its_time_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "WAITS_MAX", 0)
    assert why_not(FIGURES) == "/figures: the answer took over 0 s"


def test_a_packed_answer_is_not_unpacked() -> None:
    packed = Answer((gzip.compress(b" " * 1000),), headers={"content-encoding": "gzip"})
    assert why_not({"/figures": packed}) == (
        "/figures: the answer is packed, which was not asked for"
    )


def test_nobody_there_is_no_answer() -> None:
    with answering({}) as server:
        url = server.url
    with Asker(url, KEY) as asker, pytest.raises(NoAnswer, match=r"^/figures: no answer: "):
        asker.text("/figures")


def test_a_host_that_can_be_no_name_is_no_answer() -> None:
    with Asker(f"http://{'a' * 300}", KEY) as asker, pytest.raises(NoAnswer, match="no answer"):
        asker.text("/metrics")


def test_bytes_that_are_no_text_are_no_answer() -> None:
    with (
        answering({"/metrics": Answer.of(b"\xff\xfe")}) as server,
        Asker(server.url, None) as asker,
        pytest.raises(NoAnswer, match=r"^/metrics: the answer is no text$"),
    ):
        asker.text("/metrics")
