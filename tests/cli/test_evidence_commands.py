"""`kvairlock evidence verify` and `prune`: what they say, and what they answer a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from kvairlock.runtime.secrets import write_private
from kvairlock.sink.chain import verify
from kvairlock.sink.contract import BEAT
from kvairlock.sink.recorder import Recorder
from kvairlock.sink.retention import NS_PER_DAY
from kvairlock.sink.seal_lines import Act, Content
from kvairlock.sink.seals import Seals
from kvairlock.wire.keys import Keyring

from .conftest import Command

KEY = f"k1 {'6b' * 32}"
RING = Keyring.parse(KEY)


def lived(folder: Path, life: str, node: str = "decode-0") -> Path:
    """Let a node live and end in order; return its file."""
    sink = Recorder(folder, Peer(NodeName(node), Role.DECODE, Incarnation(life)), RING)
    sink.record("beat", None, BEAT)
    sink.close()
    return sink.path


@pytest.fixture
def state(home: Path) -> Path:
    """The state folder of a stack that has stopped."""
    folder = home / ".local/state/kvairlock"
    write_private(folder / "cluster.key", KEY)
    for life in ("a1", "b2"):
        lived(folder / "evidence", life)
    lived(folder / "evidence", "c3", "prefill-0")
    return folder


def test_evidence_that_nobody_touched_is_whole(kvairlock: Command, state: Path) -> None:
    ran = kvairlock("evidence", "verify")
    assert ran.status == 0
    assert ran.out.splitlines()[-2:] == ["3 sealed", "whole"]
    assert "decode-0: 6 lines, the chain holds" in ran.out
    assert ran.err == ""
    told = kvairlock("evidence", "verify", "--json").json
    assert (told["whole"], told["proven"]) == (True, True)
    assert [file["state"] for file in told["files"]] == ["sealed"] * 3
    assert [file["act"] for file in told["files"]] == ["sealed"] * 3


def test_what_was_done_to_it_is_named_and_the_status_is_1(kvairlock: Command, state: Path) -> None:
    taken, changed = sorted((state / "evidence").glob("decode-0-*.parquet"))
    taken.unlink()
    changed.write_bytes(b"x")
    ran = kvairlock("evidence", "verify", state / "evidence")
    assert ran.status == 1
    lines = {
        line.split()[0]: line.split()[1] for line in ran.out.splitlines() if ".parquet" in line
    }
    assert lines == {taken.name: "missing", changed.name: "altered"}
    assert ran.out.splitlines()[-1] == "NOT whole"


def test_without_the_key_it_says_what_that_does_not_prove(kvairlock: Command, state: Path) -> None:
    (state / "cluster.key").rename(state / "kept.key")
    ran = kvairlock("evidence", "verify")
    assert (ran.status, "hashes were compared and nothing else" in ran.err) == (0, True)
    assert kvairlock("evidence", "verify", "--json").json["proven"] is False
    ran = kvairlock("evidence", "verify", "--cluster-key", state / "kept.key")
    assert (ran.status, ran.err) == (0, "")


def test_a_cut_off_end_shows_against_what_was_printed_before(
    kvairlock: Command, state: Path
) -> None:
    kept = state / "before.json"
    kept.write_text(kvairlock("evidence", "verify", "--json").out)
    evidence = state / "evidence"
    (evidence / "decode-0-b2.000001.parquet").unlink()
    seals = evidence / "decode-0.seals"
    seals.write_text("".join(seals.read_text().splitlines(keepends=True)[:3]))
    assert kvairlock("evidence", "verify").status == 0
    ran = kvairlock("evidence", "verify", "--earlier", kept)
    assert ran.status == 1
    assert "their end was cut off" in ran.out


def test_what_is_to_be_compared_with_must_be_what_it_printed(
    kvairlock: Command, state: Path
) -> None:
    ran = kvairlock("evidence", "verify", "--earlier", state / "cluster.key")
    assert ran.status == 2
    assert "kvairlock evidence verify --json" in ran.err


def test_prune_deletes_what_is_over_and_the_chain_holds(kvairlock: Command, state: Path) -> None:
    evidence = state / "evidence"
    assert kvairlock("evidence", "prune", "--json").json == {"dry_run": False, "files": []}
    words = ("evidence", "prune", "--before", "2100-01-01")
    told = kvairlock(*words, "--dry-run", "--json").json
    assert (told["dry_run"], len(told["files"])) == (True, 3)
    assert len(list(evidence.glob("*.parquet"))) == 3
    ran = kvairlock(*words)
    assert ran.out.splitlines()[-1] == "3 files were deleted"
    assert list(evidence.glob("*.parquet")) == []
    assert verify(evidence, RING).whole
    assert kvairlock("evidence", "verify").out.splitlines()[-2:] == ["3 pruned", "whole"]


def test_what_a_later_life_sealed_is_counted_as_that(kvairlock: Command, state: Path) -> None:
    evidence = state / "evidence"
    seals = Seals(evidence, "decode-0", RING)
    seals.add(Act.BEGUN, Content(incarnation="d4"))
    (evidence / "decode-0-d4.000001.jsonl").write_text("{}\n")
    assert kvairlock("evidence", "verify").out.splitlines()[-2] == "1 open, 3 sealed"
    lived(evidence, "e5")
    assert kvairlock("evidence", "verify").out.splitlines()[-2] == "1 recovered, 4 sealed"
    acts = [file["act"] for file in kvairlock("evidence", "verify", "--json").json["files"]]
    assert sorted(acts) == ["recovered", *["sealed"] * 4]


def test_how_long_it_is_kept_is_in_the_settings(
    kvairlock: Command, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = state / "evidence"
    (file,) = evidence.glob("decode-0-a1.*")
    made_ns = Seals(evidence, "decode-0", RING).kept()[file.name].content.until_unix_ns
    monkeypatch.setattr("time.time_ns", lambda: made_ns + 3 * NS_PER_DAY)
    settings = state / "settings.toml"
    for days, files in ((4, 0), (2, 3)):
        settings.write_text(f"[evidence]\nretention_days = {days}\n")
        words = ("evidence", "prune", "--config", settings, "--dry-run", "--json")
        assert len(kvairlock(*words).json["files"]) == files


def test_with_a_key_that_did_not_seal_nothing_is_pruned(kvairlock: Command, state: Path) -> None:
    write_private(state / "wrong.key", f"k1 {'7a' * 32}")
    words = ("evidence", "prune", "--before", "2100-01-01", "--cluster-key", state / "wrong.key")
    ran = kvairlock(*words)
    assert (ran.status, "the chain does not hold" in ran.err) == (2, True)
    assert verify(state / "evidence", RING).whole
    assert len(list((state / "evidence").glob("*.parquet"))) == 3


def test_a_changed_file_is_named_when_it_is_pruned(kvairlock: Command, state: Path) -> None:
    changed, _ = sorted((state / "evidence").glob("decode-0-*.parquet"))
    changed.write_bytes(b"x")
    ran = kvairlock("evidence", "prune", "--before", "2100-01-01")
    assert changed.name in ran.err
    assert not changed.exists()
    ran = kvairlock("evidence", "verify")
    assert (ran.status, ran.out.splitlines()[-2]) == (1, "1 altered, 2 pruned")


def test_names_in_the_folder_do_nothing_to_the_terminal(kvairlock: Command, state: Path) -> None:
    (state / "evidence" / "x\x1b[31m.seals").write_text("")
    (state / "evidence" / "x\x1b[31m.jsonl").write_text("")
    assert "\x1b" not in kvairlock("evidence", "verify").out


def test_nothing_is_pruned_without_the_key_that_says_so(kvairlock: Command, state: Path) -> None:
    (state / "cluster.key").unlink()
    ran = kvairlock("evidence", "prune", "--before", "2100-01-01")
    assert ran.status == 2
    assert len(list((state / "evidence").glob("*.parquet"))) == 3


def test_a_folder_that_is_not_there_is_a_wrong_argument(kvairlock: Command, home: Path) -> None:
    for command in ("verify", "prune"):
        ran = kvairlock("evidence", command, home / "nowhere")
        assert (ran.status, "nowhere" in ran.err) == (2, True)
