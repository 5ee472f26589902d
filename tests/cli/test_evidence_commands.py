"""`kvairlock evidence verify` and `prune`: what they say, and what they answer a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from kvairlock.runtime.secrets import write_private
from kvairlock.sink.chain import verify
from kvairlock.sink.contract import BEAT
from kvairlock.sink.recorder import Recorder
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
    assert "decode-0: 2 seals, the chain holds" in ran.out
    assert ran.err == ""
    told = kvairlock("evidence", "verify", "--json").json
    assert (told["whole"], told["proven"]) == (True, True)
    assert [file["state"] for file in told["files"]] == ["sealed"] * 3


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
    seals.write_text(seals.read_text().splitlines(keepends=True)[0])
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


def test_nothing_is_pruned_without_the_key_that_says_so(kvairlock: Command, state: Path) -> None:
    (state / "cluster.key").unlink()
    ran = kvairlock("evidence", "prune", "--before", "2100-01-01")
    assert ran.status == 2
    assert len(list((state / "evidence").glob("*.parquet"))) == 3


def test_a_folder_that_is_not_there_is_a_wrong_argument(kvairlock: Command, home: Path) -> None:
    for command in ("verify", "prune"):
        ran = kvairlock("evidence", command, home / "nowhere")
        assert (ran.status, "nowhere" in ran.err) == (2, True)
