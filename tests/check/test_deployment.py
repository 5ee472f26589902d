"""The file that says what to check: what is refused, and with which key whom is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvairlock.check.deployment import DeploymentWrong, load, parse, schema

COMMITMENT = "[commitment]\ncontext_tokens = 1024\n"
ENGINES = """
[[engine]]
name = "prefill-a"
kind = "vllm"
role = "prefill"
url = "http://10.0.0.1:8000"

[[engine]]
name = "decode-a"
kind = "vllm"
role = "decode"
url = "http://10.0.0.2:8000"

[[engine]]
name = "decode-b"
kind = "sglang"
role = "decode"
url = "http://10.0.0.3:30000"
"""
GATEWAY = '[[gateway]]\nurl = "http://127.0.0.1:8000"\n'


def test_engines_of_one_kind_serve_together_unless_routes_are_listed() -> None:
    deployment = parse(COMMITMENT + ENGINES)
    assert [str(route) for route in deployment.engine_routes] == ["prefill-a/decode-a"]
    sglang = ENGINES.replace("vllm", "sglang")
    listed = '[[route]]\nprefill = "prefill-a"\ndecode = "decode-b"\n'
    both = [str(route) for route in parse(COMMITMENT + sglang).engine_routes]
    assert both == ["prefill-a/decode-a", "prefill-a/decode-b"]
    one = [str(route) for route in parse(COMMITMENT + sglang + listed).engine_routes]
    assert one == ["prefill-a/decode-b"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("commitment = 3", "Expected `object`"),
        ("[commitment", "not TOML"),
        (GATEWAY, "missing required field `commitment`"),
        (COMMITMENT, "there is no [[gateway]] and no [[engine]] to check"),
        (COMMITMENT + "context = 1\n" + GATEWAY, "unknown field `context`"),
        (COMMITMENT + GATEWAY + 'operator_key = "kva-x"\n', "unknown field `operator_key`"),
        (COMMITMENT + GATEWAY.replace("http", "ftp"), "is no address"),
        (COMMITMENT + GATEWAY.replace("//", "//me:secret@"), "a url has a password in it"),
        (COMMITMENT + GATEWAY.replace("8000", "99999"), "is no address"),
        (COMMITMENT + GATEWAY.replace("http://127.0.0.1:8000", "127.0.0.1"), "is no address"),
        (COMMITMENT + GATEWAY + GATEWAY, "several [[gateway]] need a name each"),
        (COMMITMENT + (GATEWAY + 'name = "a"\n') * 2, "the name a is there twice"),
        (COMMITMENT + GATEWAY + 'name = "decode-a"\n' + ENGINES, "decode-a is there twice"),
        (COMMITMENT + GATEWAY + 'name = "a/b"\n', "'a/b' is no name"),
        (COMMITMENT + ENGINES.replace("decode-b", "decode-a"), "decode-a is there twice"),
        (COMMITMENT + ENGINES.replace('"sglang"', '"other"'), "Invalid enum value 'other'"),
        (COMMITMENT + ENGINES.replace('"prefill"', '"gateway"'), "Invalid enum value 'gateway'"),
        (
            COMMITMENT + ENGINES + '[[route]]\nprefill = "nobody"\ndecode = "decode-a"\n',
            "nobody is no prefill engine",
        ),
        (
            COMMITMENT + ENGINES + '[[route]]\nprefill = "prefill-a"\ndecode = "prefill-a"\n',
            "prefill-a is no decode engine",
        ),
        (
            COMMITMENT + ENGINES + '[[route]]\nprefill = "prefill-a"\ndecode = "decode-b"\n',
            "vllm and sglang are no pair",
        ),
        (
            COMMITMENT + "[[commitment.classes]]\nname = 'a'\ncontext_tokens = 1\n" * 2 + GATEWAY,
            "needs a name of its own",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(DeploymentWrong) as caught:
        parse(text)
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(DeploymentWrong, match=r"gone\.toml: No such file"):
        load(tmp_path / "gone.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff")
    with pytest.raises(DeploymentWrong, match=r"binary\.toml: not UTF-8 text"):
        load(tmp_path / "binary.toml")
    (tmp_path / "wrong.toml").write_text("x = 1")
    with pytest.raises(DeploymentWrong, match=r"wrong\.toml: Object contains unknown field"):
        load(tmp_path / "wrong.toml")


def address(more: str) -> str:
    return COMMITMENT + GATEWAY + more


def test_a_key_is_in_a_file_beside_the_deployment_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "operator.key"
    key.write_text("kva-of-a-file\n")
    key.chmod(0o600)
    monkeypatch.setenv("THE_KEY", "kva-of-a-variable")
    monkeypatch.chdir("/")
    in_file = parse(address('key_file = "operator.key"\n')).gateway[0]
    in_variable = parse(address('key_variable = "THE_KEY"\n')).gateway[0]
    assert in_file.key(tmp_path) == "kva-of-a-file"
    assert in_variable.key(tmp_path) == "kva-of-a-variable"
    assert parse(address("")).gateway[0].key(tmp_path) is None


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('key_file = "gone.key"\n', r"gone\.key: there is no such file"),
        ('key_file = "open.key"\n', r"open\.key: others can read it"),
        ('key_file = "two.key"\n', r"two\.key: must hold one API key"),
        ('key_variable = "NOT_SET"\n', "NOT_SET: must hold one API key"),
        ('key_file = "a"\nkey_variable = "B"\n', "key_file or key_variable, not both"),
    ],
)
def test_a_key_that_cannot_be_used_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, why: str
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    for name, text, mode in (("open", "kva-secret", 0o644), ("two", "kva-secret kva-b", 0o600)):
        (tmp_path / f"{name}.key").write_text(text)
        (tmp_path / f"{name}.key").chmod(mode)
    with pytest.raises(DeploymentWrong, match=why) as caught:
        parse(address(more)).gateway[0].key(tmp_path)
    assert "kva-secret" not in str(caught.value)


def test_the_schema_describes_every_member() -> None:
    told = schema()
    for name in ("GatewayAddress", "EngineAddress", "RouteSettings"):
        for field, about in told["$defs"][name]["properties"].items():
            assert about.get("description"), f"{name}.{field}"
