import subprocess
import sys
from pathlib import Path

import pytest

from kvairlock import __version__
from kvairlock.cli import demo
from kvairlock.core.evidence import ENVELOPE, EVENTS
from kvairlock.core.guards import GUARDS
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from kvairlock.sink.reading import read
from kvairlock.sink.recorder import Recorder
from kvairlock.wire.keys import Keyring

from .conftest import Command


def test_version(kvairlock: Command) -> None:
    assert kvairlock("--version").out == f"kvairlock {__version__}\n"


def test_the_module_is_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "kvairlock", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"kvairlock {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [(), ("serve",), ("demo",), ("guards",), ("config",), ("keys",), ("evidence",)],
)
def test_every_command_explains_itself(kvairlock: Command, words: tuple[str, ...]) -> None:
    ran = kvairlock(*words, "--help")
    assert ran.status == 0
    assert "Usage: kvairlock" in ran.out


@pytest.mark.parametrize("words", [("nope",), ("serve", "--port", "x"), ("config", "check")])
def test_a_wrong_command_line_has_status_2(kvairlock: Command, words: tuple[str, ...]) -> None:
    ran = kvairlock(*words)
    assert (ran.status, ran.out) == (2, "")
    assert "Traceback" not in ran.err


def test_guards_are_the_table(kvairlock: Command) -> None:
    listed = kvairlock("guards", "--json").json
    assert [row["guard"] for row in listed] == list(GUARDS)
    assert listed[-1] == {
        "guard": "scrub",
        "roles": ["prefill", "decode"],
        "does": "zeroes pages after the fence, before they are free",
        "without": "the next owner finds the former content",
        "nature": "action",
        "can_observe": False,
        "observing": "it zeroes bytes, and compares none",
    }
    text = kvairlock("guards").out
    assert all(guard in text for guard in GUARDS)


def test_the_evidence_table_has_every_field(kvairlock: Command) -> None:
    ran = kvairlock("evidence", "schema")
    rows = [line.split()[:2] for line in ran.out.splitlines() if " days " in line]
    wanted = [["(every", "event)"]] * len(ENVELOPE)
    wanted += [[event, name] for event, fields in EVENTS.items() for name in fields]
    assert rows == wanted


def test_the_evidence_schema_fits_what_is_written(kvairlock: Command, tmp_path: Path) -> None:
    schema = kvairlock("evidence", "schema", "--json").json
    rows = {row["title"]: row for row in schema["oneOf"]}
    assert list(rows) == list(EVENTS)
    peer = Peer(NodeName("decode-0"), Role.DECODE, Incarnation("i"))
    sink = Recorder(tmp_path / "evidence", peer, Keyring({"a": b"\0" * 32}))
    sink.record("peer_up", None, {"peer": "gateway", "peer_incarnation": "i"})
    sink.close()
    written = read(sink.path)
    assert [record["event"] for record in written] == ["peer_up", "node_closed"]
    for record in written:
        row = rows[str(record["event"])]
        assert set(row["required"]) == set(row["properties"]) == set(record)
        assert row["properties"]["event"]["const"] == record["event"]
    assert rows["verdict"]["properties"]["tenant"]["x-sensitivity"] == "pseudonym"
    assert rows["verdict"]["properties"]["pages"]["items"] == {"type": "integer"}


def test_demo_passes_its_options_on_and_its_status_back(
    kvairlock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []

    def run(**options: object) -> int:
        asked.append(options)
        return 1

    monkeypatch.setattr(demo, "run", run)
    ran = kvairlock("demo", "--json", "--keep", "/k", "--scenario", "a", "--scenario", "b", "-v")
    assert ran.status == 1
    assert asked == [{"json": True, "keep": Path("/k"), "only": ["a", "b"], "verbose": True}]
