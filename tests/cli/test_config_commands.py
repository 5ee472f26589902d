import json
import tomllib
from pathlib import Path

import msgspec
import pytest

from kvairlock.cli.settings_text import toml
from kvairlock.runtime.settings import Settings, parse

from .conftest import Command

MANY = """
model = "recall"
[gateway]
host = "\\u007f\\"\\\\ \\U0001F512"
[commitment]
fingerprints = { p0 = "f00d", d0 = "\\"" }
[[commitment.classes]]
name = "short"
context_tokens = 256
[[commitment.classes]]
name = "long"
context_tokens = 4096
[[prefill]]
name = "p0"
prefix_share = 1e-05
[[prefill]]
name = "p1"
[[decode]]
name = "d0"
landing = "direct"
[drill]
enabled = true
guards_off = ["drain", "tail"]
"""


@pytest.mark.parametrize("comments", [True, False])
@pytest.mark.parametrize("text", ["", MANY])
def test_settings_survive_being_written(text: str, comments: bool) -> None:
    settings = parse(text)
    assert parse(toml(settings, comments)) == settings


def test_the_example_is_the_defaults_with_every_description(kvairlock: Command) -> None:
    ran = kvairlock("config", "example")
    assert ran.status == 0
    assert parse(ran.out) == Settings()
    assert "# Port; 0 takes a free one. (at least 0, at most 65535)\nport = 8000\n" in ran.out
    assert "(copy | seal | direct)\nlanding" in ran.out
    undescribed = [
        line
        for before, line in zip(ran.out.splitlines(), ran.out.splitlines()[1:], strict=False)
        if " = " in line and not line.startswith("#") and not before.startswith("#")
    ]
    assert undescribed == []


def test_show_prints_what_takes_effect(kvairlock: Command, home: Path) -> None:
    path = home / "s.toml"
    path.write_text('[[prefill]]\nname = "p0"\npages = 7\n')
    shown = tomllib.loads(kvairlock("config", "show", path).out)
    assert shown == kvairlock("config", "show", path, "--json").json
    assert shown["prefill"] == [
        {
            "name": "p0",
            "pages": 7,
            "chunk_tokens": 256,
            "prefix_share": 0.5,
            "threads": 0,
            "metrics_port": 0,
        }
    ]
    defaults = json.loads(msgspec.json.encode(Settings()))
    assert kvairlock("config", "show", "--json").json == defaults


def test_the_schema_is_printed(kvairlock: Command) -> None:
    schema = kvairlock("config", "schema").json
    assert set(schema["$defs"]["Settings"]["properties"]) == set(Settings.__struct_fields__)


def test_a_good_file_checks(kvairlock: Command, home: Path) -> None:
    path = home / "s.toml"
    path.write_text(MANY)
    ran = kvairlock("config", "check", path)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == f"{path}: ok: model recall, 2 prefill, 1 decode\n"
    assert kvairlock("config", "check", path, "--json").json == {
        "ok": True,
        "file": str(path),
        "model": "recall",
        "prefill": 2,
        "decode": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gateway]\nprt = 1\n", "Object contains unknown field `prt` - at `$.gateway`"),
        ('[gateway]\nport = "x"\n', "Expected `int`, got `str` - at `$.gateway.port`"),
        ("prefill = []\n", "a stack needs at least one [[prefill]] and one [[decode]]"),
        ("model =\n", "not TOML: Invalid value (at line 1, column 8)"),
        (
            'model = "nosuch"\n',
            "unknown model 'nosuch'; known models: recall, smollm2, or the path of a .gguf file",
        ),
    ],
)
def test_a_bad_file_does_not(kvairlock: Command, home: Path, text: str, message: str) -> None:
    path = home / "s.toml"
    path.write_text(text)
    ran = kvairlock("config", "check", path)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        f"kvairlock: {path}: {message}",
        "  next: `kvairlock config example` prints every setting with what it means",
    ]
    as_json = kvairlock("config", "check", path, "--json")
    assert (as_json.status, as_json.err) == (2, "")
    assert as_json.json == {"ok": False, "file": str(path), "error": f"{path}: {message}"}


def test_a_missing_file_is_named_once(kvairlock: Command) -> None:
    ran = kvairlock("config", "check", "/nowhere/s.toml")
    assert ran.status == 2
    assert ran.err.splitlines()[0] == "kvairlock: /nowhere/s.toml: No such file or directory"


def test_what_a_file_says_moves_no_cursor(kvairlock: Command, home: Path) -> None:
    path = home / "s.toml"
    path.write_text('"\\u001b[2J" = 1\n')
    ran = kvairlock("config", "check", path)
    assert ran.status == 2
    assert "\x1b" not in ran.err
    assert "[2J" in ran.err


def test_a_model_file_is_shown_where_it_is(
    kvairlock: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "s.toml"
    path.write_text('model = "models/own.gguf"\n')
    monkeypatch.chdir("/")
    assert kvairlock("config", "show", path, "--json").json["model"] == f"{home}/models/own.gguf"
