"""All drills on real processes, as `kvairlock drill` carries them out, and on a deployment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvairlock.core.guards import Guard
from kvairlock.drills.library.shipped import shipped
from kvairlock.drills.library.topology import Topology
from kvairlock.drills.stack import make_keys, running
from kvairlock.runtime.secrets import write_private

TENANTS = ("acme", "bravo", "coral")
FROM_OUTSIDE = {"promise", "tenants", "leavers"}
"""Drills that only ask, wait and leave."""

IN_DRILL_MODE = {
    "frame", "outcome", "identity", "input", "layout", "page_index", "range", "integrity",
    "mapping", "scrub", "claimant",
}  # fmt: skip
"""Drills that steer a gateway besides, and need nothing of its stack but the nodes' names."""

Document = dict[str, Any]


def drill(*words: str | Path, home: Path) -> tuple[int, Document, str]:
    """Run the command; return its exit status, its document, and what it said meanwhile."""
    done = subprocess.run(
        [sys.executable, "-m", "kvairlock", "drill", *map(str, words), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


# On stacks of their own


@pytest.fixture(scope="module")
def all_drills(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Document, str]:
    home = tmp_path_factory.mktemp("home")
    return drill("--all", home=home)


def rows_of(document: Document, name: str) -> list[Document]:
    return [row for row in document["rows"] if row["drill"] == name]


each_drill = pytest.mark.parametrize("name", [drill.name for drill in shipped()])


@pytest.mark.slow
@pytest.mark.timeout(600)
@each_drill
def test_a_drill_holds_with_its_guards_and_fails_without_them(
    name: str, all_drills: tuple[int, Document, str]
) -> None:
    rows = rows_of(all_drills[1], name)
    (known,) = [one for one in shipped() if one.name == name]
    assert [set(row["guards_off"]) for row in rows] == [set(map(str, r.off)) for r in known.runs()]
    for row in rows:
        without = known.about and set(known.about) <= set(map(Guard, row["guards_off"]))
        outcome = (row["held"], row["failed_as_expected"])
        assert outcome == ((False, True) if without else (True, None)), row
        assert row["message"] == ""
        assert (row["round"], row["level"]) == (known.round, known.level)


@pytest.mark.slow
def test_a_guard_that_refuses_does_so_on_the_receivers_own_record(
    all_drills: tuple[int, Document, str],
) -> None:
    alone = {
        name: [row for row in rows_of(all_drills[1], name) if row["held"]][-1]
        for name in ("integrity", "ticket", "capacity", "contract", "strip", "drain")
    }
    assert {name: row["recorded_by"] for name, row in alone.items()} == {
        "integrity": "decode-0: verdict of a, outcome integrity",
        "ticket": "decode-0: request_refused of m, reason tenant",
        "capacity": "decode-0: request_refused of long, reason context_length, "
        "stage decode_admission",
        "contract": "gateway: request_refused of long, reason context_length, stage gateway",
        "strip": "gateway: parameters_stripped of m, names kv_transfer_params",
        "drain": "decode-0: drain_ended of a, fence acknowledged",
    }
    assert {n: (alone[n]["http_status"], alone[n]["refusal"]) for n in ("integrity", "ticket")} == {
        "integrity": (502, "handoff_integrity_mismatch"),
        "ticket": (403, "ticket_of_another_tenant"),
    }


@pytest.mark.slow
def test_nothing_is_left_and_the_document_says_what_it_does_not_prove(
    all_drills: tuple[int, Document, str],
) -> None:
    status, document, said = all_drills
    assert (status, document["ok"], document["skipped"]) == (0, True, [])
    cleanup = document["cleanup"]
    assert (cleanup["verified"], cleanup["data"]) == (True, "deleted at the end")
    assert all(place["figures"]["processes_left"] == 0 for place in cleanup["places"])
    whole = [place["figures"] for place in cleanup["places"] if "pages_out" in place["figures"]]
    assert len(whole) > 5
    assert all(f["pages_out"] == 0 < f["pages_scrubbed"] == f["pages_drained"] for f in whole)
    kept = {p["place"] for p in cleanup["places"] if p["figures"].get("pages_kept")}
    assert len(kept) == 3, "stacks with prefixes keep them, and end"
    assert len(document["canaries_do_not_prove"]) >= 5
    runs = len(document["rows"])
    assert said.splitlines() == [line for line in said.splitlines() if line.startswith("[")]
    assert f"[{runs}/{runs}] " in said


@pytest.mark.slow
def test_a_drill_that_is_told_to_stop_leaves_nothing(tmp_path: Path) -> None:
    told = subprocess.Popen(
        [sys.executable, "-m", "kvairlock", "drill", "range"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
    )
    assert told.stderr is not None
    assert told.stderr.readline().startswith("[1/2] range")
    told.terminate()
    told.communicate(timeout=30)
    assert told.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.glob("kvairlock-*")) == []


# On a deployment


def deployed(folder: Path, settings: str, *, evidence: bool, scope: str = "none") -> Iterator[Path]:
    """A stack that somebody runs; yields the file by which drills reach it."""
    keys = make_keys(folder, TENANTS, scope)
    for name, key in keys.of.items():
        write_private(folder / f"{name}.key", key)
    with running(settings, keys, folder / "stack") as stack:
        file = folder / "deployment.toml"
        tenants = "".join(
            f'[[tenant]]\nname = "{name}"\nkey_file = "{name}.key"\n\n' for name in TENANTS
        )
        where = '[evidence]\nfolder = "stack/evidence"\nevidence_key_file = "stack/evidence.key"\n'
        file.write_text(
            f'[gateway]\nurl = "{stack.url}"\nkey_file = "acme.key"\n\n{tenants}'
            f"[limits]\n{LIMITS}\n{where if evidence else ''}"
        )
        yield file


LIMITS = """tenants_max = 3
requests_max = 24
prompt_tokens = [34, 4096]
seconds_max = 120
retention_h = 12
"""
PLAIN = """
[[prefill]]
name = "prefill-0"
pages = 64

[[decode]]
name = "decode-0"
pages = 128
tenant_share = 1.0

[limits]
beat_ms = 50
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Not in drill mode, and its evidence is not at hand."""
    yield from deployed(tmp_path_factory.mktemp("plain"), PLAIN, evidence=False)


@pytest.fixture(scope="module")
def in_drill_mode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In drill mode with all guards on, and its evidence is at hand."""
    settings = Topology().settings(frozenset())
    yield from deployed(tmp_path_factory.mktemp("drilled"), settings, evidence=True)


@pytest.mark.slow
def test_on_a_deployment_only_what_can_be_done_from_outside_is_done(
    plain: Path, tmp_path: Path
) -> None:
    status, document, _ = drill("--all", "--deployment", plain, home=tmp_path)
    assert (status, document["ok"]) == (0, True)
    assert {row["drill"] for row in document["rows"]} == FROM_OUTSIDE
    assert all(row["held"] and row["guards_off"] == [] for row in document["rows"])
    skipped = {each["drill"]: each["why"] for each in document["skipped"]}
    assert set(skipped) == {one.name for one in shipped()} - FROM_OUTSIDE
    assert skipped["integrity"] == "it needs drill mode, and tenants whose keys are operators'"
    assert skipped["contract"] == "it stops processes, or looks into them"
    assert skipped["scope"] == "it needs a stack of its own: other nodes, pages or shares"
    (over,) = rows_of(document, "promise")
    assert (over["refusal"], over["http_status"]) == ("context_length_exceeded", 400)
    assert over["recorded_by"] == "the evidence is not at hand"
    places = document["cleanup"]["places"]
    assert [p["figures"]["tokens_kept"] for p in places] == [0, 0, 0]
    assert [p["figures"]["asked_again"] for p in places] == [1, 3, 3]


@pytest.mark.slow
def test_in_drill_mode_faults_are_made_on_a_deployment_too_but_no_guard_is_off(
    in_drill_mode: Path, tmp_path: Path
) -> None:
    status, document, _ = drill("--all", "--deployment", in_drill_mode, home=tmp_path)
    assert (status, document["ok"]) == (0, True), document
    assert {row["drill"] for row in document["rows"]} == FROM_OUTSIDE | IN_DRILL_MODE
    assert all(row["held"] and row["guards_off"] == [] for row in document["rows"])
    (torn,) = rows_of(document, "integrity")
    assert torn["recorded_by"] == "decode-0: verdict of a, outcome integrity"


@pytest.mark.slow
def test_what_goes_beyond_the_deployments_limits_is_skipped(plain: Path, tmp_path: Path) -> None:
    narrow = LIMITS.replace("[34, 4096]", "[34, 300]")
    file = plain.with_name("narrow.toml")
    file.write_text(plain.read_text().replace(LIMITS, narrow))
    status, document, _ = drill("promise", "--deployment", file, home=tmp_path)
    assert (status, document["rows"]) == (1, []), "nothing was shown"
    assert document["skipped"] == [
        {"drill": "promise", "why": "it takes up to 2007 prompt tokens; agreed on are 300"}
    ]


@pytest.mark.slow
def test_a_deployment_that_keeps_the_prompts_of_drills_is_not_clean(tmp_path: Path) -> None:
    settings = PLAIN.replace("pages = 64", "pages = 64\nprefix_share = 1.0")
    for file in deployed(tmp_path, settings, evidence=False, scope="private"):
        status, document, _ = drill("promise", "--deployment", file, home=tmp_path)
        (row,), (place,) = document["rows"], document["cleanup"]["places"]
        assert (status, row["held"], place["verified"]) == (1, True, False)
        assert place["figures"]["tokens_kept"] > 0
