"""The operator's client: which key it takes, what it trusts of an answer, how commands end."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import msgspec
import pytest
import typer

from kvairlock.cli import operator as module
from kvairlock.cli.operator import (
    GatewayDiffers,
    GatewayRefused,
    GatewayUnreachable,
    Operator,
    OptionWrong,
    operator,
    operator_key,
    shaped,
)
from kvairlock.runtime.asking import ANSWER_BYTES_MAX

KEY = "kva-abc-secret"


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def asking(answer: httpx.Response) -> tuple[Operator, list[httpx.Request]]:
    """A client whose gateway answers everything alike, and what was asked."""
    asked: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answer

    return Operator("http://gateway:1", KEY, httpx.MockTransport(reply)), asked


def test_a_key_comes_from_its_file_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVAIRLOCK_API_KEY", "kva-of-the-environment")
    assert operator_key(private(tmp_path / "key", f"{KEY}\n")) == KEY
    assert operator_key(None) == "kva-of-the-environment"


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (KEY, 0o644, "others can read it"),
        ("", 0o600, "must hold one API key"),
        (f"{KEY}\nkva-second", 0o600, "must hold one API key"),
        (f"{KEY} # mine", 0o600, "must hold one API key"),
        ("kva-\N{LATIN SMALL LETTER U WITH DIAERESIS}", 0o600, "must hold one API key"),
    ],
)
def test_a_file_that_is_no_key_is_refused_and_never_shown(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    path = private(tmp_path / "key", text)
    path.chmod(mode)
    with pytest.raises(OptionWrong, match=said) as refused:
        operator_key(path)
    assert "kva-" not in str(refused.value)


def test_no_key_at_all_says_where_one_may_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVAIRLOCK_API_KEY", raising=False)
    with pytest.raises(OptionWrong, match=r"--key-file.*KVAIRLOCK_API_KEY"):
        operator_key(None)
    with pytest.raises(OptionWrong, match="there is no such file"):
        operator_key(tmp_path / "absent")


def test_the_key_is_presented_and_the_object_returned() -> None:
    gateway, asked = asking(httpx.Response(200, json={"nodes": {}}))
    with gateway:
        assert gateway.status() == {"nodes": {}}
        assert gateway.post("/x", {"pages": 3}) == {"nodes": {}}
    assert [(r.method, r.url.path) for r in asked] == [("GET", "/status"), ("POST", "/x")]
    assert {r.headers["authorization"] for r in asked} == {f"Bearer {KEY}"}
    assert asked[1].content == b'{"pages":3}'


def test_an_error_keeps_its_status_and_its_figures() -> None:
    error = {"code": "too_many_pages", "message": "9 pages asked, 8 mapped", "limit": 8}
    gateway, _ = asking(httpx.Response(400, json={"error": error}))
    with pytest.raises(GatewayRefused, match="400: 9 pages asked") as refused:
        gateway.get("/x")
    assert (refused.value.status, refused.value.error["limit"]) == (400, 8)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>a proxy</html>"),
        httpx.Response(200, json=["no", "object"]),
        httpx.Response(200, content=b"\xff\xfe"),
        httpx.Response(200, content=b" " * (ANSWER_BYTES_MAX + 1)),
        httpx.Response(302, headers={"location": "http://elsewhere/"}),
        httpx.Response(200, content=gzip.compress(b"{}"), headers={"content-encoding": "gzip"}),
    ],
    ids=["text", "list", "bytes", "too large", "redirect", "packed"],
)
def test_what_is_no_answer_of_a_gateway_is_never_taken_for_one(answer: httpx.Response) -> None:
    gateway, asked = asking(answer)
    with pytest.raises(GatewayUnreachable):
        gateway.get("/status")
    assert len(asked) == 1, "the key goes to the host that was named, and nowhere else"


def test_a_gateway_that_is_not_there_is_status_1_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = private(tmp_path / "key", KEY)
    with pytest.raises(typer.Exit) as ended, operator("http://127.0.0.1:1", key) as gateway:
        gateway.status()
    assert ended.value.exit_code == 1
    said = capsys.readouterr().err
    assert said.startswith("kvairlock: http://127.0.0.1:1/status: no answer")
    assert KEY not in said


@pytest.mark.parametrize("url", ["http://:80", "gateway:8000", "file:///etc/hosts", ""])
def test_an_address_that_is_none_is_a_wrong_option(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = private(tmp_path / "key", KEY)
    with pytest.raises(typer.Exit) as ended, operator(url, key):
        raise AssertionError("there is nothing to ask")
    assert ended.value.exit_code == 2
    assert "is no address" in capsys.readouterr().err


class Needed(msgspec.Struct):
    routes: dict[str, str]


def test_what_a_command_needs_is_taken_or_named() -> None:
    assert shaped({"routes": {"p/d": "up"}, "other": 1}, Needed) == Needed({"p/d": "up"})
    with pytest.raises(GatewayDiffers, match="missing required field `routes`"):
        shaped({"nodes": {}}, Needed)


@pytest.mark.parametrize(
    ("answered", "status"),
    [(400, 2), (401, 2), (403, 2), (404, 2), (409, 1), (501, 1), (503, 1)],
)
def test_a_wrong_option_is_status_2_and_another_refusal_is_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: int, status: int
) -> None:
    gateway, _ = asking(httpx.Response(answered, json={"error": {"message": "no"}}))
    monkeypatch.setattr(module, "Operator", lambda url, key: gateway)
    key = private(tmp_path / "key", KEY)
    with pytest.raises(typer.Exit) as ended, operator("http://gateway:1", key) as opened:
        opened.status()
    assert ended.value.exit_code == status
