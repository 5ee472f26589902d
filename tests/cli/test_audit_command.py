"""`kvairlock audit` and `audit confirm`, from the command line to the exit status."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvairlock.cli import extras, main
from kvairlock.core.evidence import ENVELOPE
from tests.audit.sealed_made import as_lines

from .conftest import Command
from .made_evidence import Made, make_state, tenant_name

WHO = ("--authorised-by", "on call", "--reason", "incident 12")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_state(tmp_path_factory.mktemp("made") / "state")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_state(tmp_path_factory.mktemp("clean") / "state", incident=None)


@pytest.fixture(scope="module")
def opened(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opened") / "case"
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(made.evidence), "--json", "--case", str(folder)])
    assert ended.value.code == 1
    return folder


@pytest.fixture
def case(opened: Path, tmp_path: Path) -> Path:
    """A case that nobody has confirmed yet."""
    shutil.copytree(opened, tmp_path / "case")
    return tmp_path / "case"


def cut(made: Made, folder: Path, node: str, share: float) -> Path:
    """Copy evidence, of one node only a share of its records: it died, and nobody sealed them."""
    shutil.copytree(made.evidence, folder, ignore=shutil.ignore_patterns(f"{node}*"))
    own = [row for row in made.rows if row["node"] == node]
    if kept := own[: int(len(own) * share)]:
        as_lines(kept, folder / f"{node}-{kept[0]['incarnation']}.000001.jsonl")
    return folder


def acts(case: Path) -> list[str]:
    """What the log of a case says was done, line by line."""
    lines = (case / "log.jsonl").read_text().splitlines()
    return [json.loads(line)["act"] for line in lines]


def confirmed(case: Path) -> Any:
    (result,) = case.glob("result-*.json")
    return json.loads(result.read_text())


def test_exactly_the_planted_requests_are_affected_and_the_status_is_1(
    kvairlock: Command, made: Made
) -> None:
    ran = kvairlock("audit", made.evidence, "--json")
    assert ran.status == 1
    listed = {r["request"]: r["verdict"] for r in ran.json["requests"]}
    assert listed == dict.fromkeys(made.affected, "affected")
    assert {r["request"] for r in ran.json["excluded"]} == made.excluded
    assert {(r["verdict"], r["grade"]) for r in ran.json["excluded"]} == {("excluded", "observed")}
    assert {r["tenant"] for r in ran.json["excluded"]} <= {r.get("tenant") for r in made.rows}


def test_where_nobody_is_affected_and_nothing_is_missing_the_status_is_0(
    kvairlock: Command, clean: Made
) -> None:
    ran = kvairlock("audit", "run", clean.evidence)
    assert ran.status == 0
    assert f"excluded     {len(clean.excluded):>9}" in ran.out


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_where_evidence_of_a_node_is_missing_the_status_is_3(
    kvairlock: Command, clean: Made, tmp_path: Path, share: float
) -> None:
    ran = kvairlock("audit", cut(clean, tmp_path / "cut", "decode-0", share), "--json")
    assert ran.status == 3
    assert ran.json["counts"]["affected"] == 0
    assert ran.json["counts"]["insufficient"] > 0


def test_the_report_names_who_was_exposed_to_whom_and_what_was_not_covered(
    kvairlock: Command, made: Made
) -> None:
    ran = kvairlock("audit", made.evidence)
    (affected,) = made.affected
    exposed = ran.out.split("who was exposed to whom")[1]
    assert affected in exposed
    assert "pages" in exposed
    assert "not covered" in exposed
    assert "seals:" in exposed


def test_no_name_of_a_tenant_or_request_is_in_a_report_or_a_case(
    kvairlock: Command, made: Made, case: Path
) -> None:
    shown = kvairlock("audit", made.evidence).out + (case / "case.json").read_text()
    assert "tenant-" not in shown
    assert not [name for name in made.ids.values() if name in shown]


def test_without_paths_the_evidence_of_the_state_folder_is_audited(
    kvairlock: Command, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = made.state.parent / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    if not (home / "kvairlock").exists():
        (home / "kvairlock").symlink_to(made.state)
    assert len(kvairlock("audit", "--json").json["requests"]) == len(made.affected)


def test_only_requests_of_the_given_time_are_reported(kvairlock: Command, made: Made) -> None:
    ran = kvairlock("audit", made.evidence, "--since", "2100-01-01")
    assert ran.status == 3
    assert "no request is judged" in ran.out
    later = kvairlock("audit", made.evidence, "--since", "2100-01-01", "--json").json
    assert sum(later["counts"].values()) == 0
    assert later["coverage"]["records"] == len(made.rows)


def beat(node: str, schema: int) -> bytes:
    """A record that says nothing, as a line."""
    said = (schema, "beat", node, "decode", "1", 1, 1, 1)
    return json.dumps(dict(zip(ENVELOPE, said, strict=True))).encode() + b"\n"


JUNK = {
    "no JSON": b"nothing\n",
    "of a schema to come": beat("decode-0", 99),
    "deeper than anybody reads": b"[" * 200_000 + b"\n",
    "half a character": beat("\ud800", 2),
}


@pytest.mark.parametrize("junk", JUNK)
def test_evidence_in_which_nothing_can_be_read_excludes_nobody(
    kvairlock: Command, tmp_path: Path, junk: str
) -> None:
    (tmp_path / "decode-0-aa.jsonl").write_bytes(JUNK[junk])
    ran = kvairlock("audit", tmp_path, "--json")
    assert ran.status == 3
    assert sum(bad["records"] for bad in ran.json["coverage"]["unreadable"]) == 1
    assert "Traceback" not in ran.err


def test_a_failure_of_its_own_is_no_finding(
    kvairlock: Command, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise TypeError("a mistake in the audit")

    monkeypatch.setattr("kvairlock.cli.auditing.audit", fails)
    ran = kvairlock("audit", made.evidence)
    assert ran.status == 70
    assert "a mistake in the audit" in ran.err


def test_the_help_of_the_group_teaches_the_options_of_the_run(kvairlock: Command) -> None:
    ran = kvairlock("audit", "--help")
    assert ran.status == 0
    assert all(word in ran.out for word in ("PATH", "--html", "--case", "confirm", "foreign"))


def test_a_page_is_written_that_names_the_affected_request(
    kvairlock: Command, made: Made, tmp_path: Path
) -> None:
    kvairlock("audit", made.evidence, "--json", "--html", tmp_path / "page.html")
    (affected,) = made.affected
    assert affected in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    "words",
    [("nowhere",), (".", "--memory", "much"), (".", "--since", "then"), (".", "--threads", "0")],
)
def test_what_is_wrong_with_the_command_line_has_status_2(
    kvairlock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = kvairlock("audit", *words)
    assert (ran.status, ran.out) == (2, "")
    assert "Traceback" not in ran.err


def test_without_the_packages_that_it_needs_it_says_what_to_install(
    kvairlock: Command, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "AUDIT", ("no_such_package",))
    ran = kvairlock("audit", made.evidence)
    assert ran.status == 2
    assert "pip install 'kvairlock[audit]'" in ran.err


def test_confirming_names_affected_requests_only_in_a_file_of_their_owner(
    kvairlock: Command, made: Made, case: Path, tmp_path: Path
) -> None:
    log = tmp_path / "access.jsonl"
    log.write_text("".join(json.dumps({"id": name}) + "\n" for name in made.ids.values()))
    ran = kvairlock("audit", "confirm", case, *WHO, "--requests", log, "--json")
    assert ran.status == 0
    assert (ran.json["wanted"], ran.json["requests_named"]) == (1, 1)
    (row,) = confirmed(case)["requests"]
    (affected,) = made.affected
    assert row["request"] == affected
    assert row["request_id"] == made.ids[affected]
    assert row["tenant_name"].startswith(tenant_name(""))
    (result,) = case.glob("result-*.json")
    assert stat.S_IMODE(result.stat().st_mode) == 0o600
    assert row["tenant_name"] not in ran.out + ran.err
    assert row["tenant_name"] not in (case / "case.json").read_text()


def test_whose_pages_could_be_read_is_named_if_that_is_authorised(
    kvairlock: Command, made: Made, case: Path
) -> None:
    assert kvairlock("audit", "confirm", case, *WHO, "--also", "exposed").status == 0
    rows = confirmed(case)["requests"]
    assert {row["why"] for row in rows} == {"affected", "exposed"}
    exposed = [row for row in rows if row["why"] == "exposed"]
    assert all(row["tenant_name"] for row in exposed)
    assert {reader for row in exposed for reader in row["exposed_to"]} == made.affected


def test_ids_come_from_a_column_of_a_table_too(
    kvairlock: Command, made: Made, case: Path, tmp_path: Path
) -> None:
    table = tmp_path / "access.csv"
    table.write_text("when,req\n" + "".join(f"1,{name}\n" for name in made.ids.values()))
    words = ("--requests", table, "--id-field", "req", "--json")
    assert kvairlock("audit", "confirm", case, *WHO, *words).json["requests_named"] == 1


def test_a_case_whose_evidence_has_changed_is_refused_and_nothing_is_joined(
    kvairlock: Command, made: Made, tmp_path: Path
) -> None:
    copied = cut(made, tmp_path / "copied", "nobody", 1.0)
    opening = ("--state", made.state, "--case", tmp_path / "case")
    assert kvairlock("audit", copied, "--json", *opening).status == 1
    one = next(copied.glob("*.parquet"))
    one.write_bytes(one.read_bytes()[:-1])
    ran = kvairlock("audit", "confirm", tmp_path / "case", *WHO, "--state", made.state)
    assert ran.status == 1
    assert "expired" in ran.err
    assert not list((tmp_path / "case").glob("result-*"))


def test_evidence_that_has_only_grown_leaves_a_case_as_it_is(
    kvairlock: Command, made: Made, tmp_path: Path
) -> None:
    copied = cut(made, tmp_path / "copied", "decode-0", 0.5)
    kvairlock("audit", copied, "--json", "--state", made.state, "--case", tmp_path / "case")
    with next(copied.glob("*.jsonl")).open("ab") as file:
        file.write(b"{}\n")
    ran = kvairlock("audit", "confirm", tmp_path / "case", *WHO, "--state", made.state)
    assert ran.status == 0


def test_an_authorisation_that_cannot_be_written_joins_nothing(
    kvairlock: Command, case: Path
) -> None:
    (case / "log.jsonl").unlink()
    (case / "log.jsonl").mkdir()
    ran = kvairlock("audit", "confirm", case, *WHO)
    assert ran.status == 2
    assert not list(case.glob("result-*"))


@pytest.mark.parametrize("words", [("", "why"), ("who", " ")])
def test_nobody_and_nothing_authorise_no_names(
    kvairlock: Command, case: Path, words: tuple[str, str]
) -> None:
    ran = kvairlock("audit", "confirm", case, "--authorised-by", words[0], "--reason", words[1])
    assert ran.status == 2
    assert acts(case) == ["opened"]


def test_a_line_of_the_log_that_was_changed_closes_the_case(kvairlock: Command, case: Path) -> None:
    assert kvairlock("audit", "confirm", case, *WHO).status == 0
    log = case / "log.jsonl"
    assert acts(case) == ["opened", "authorised", "joined"]
    log.write_text(log.read_text().replace("on call", "nobody!"))
    ran = kvairlock("audit", "confirm", case, *WHO)
    assert ran.status == 2
    assert "line 2 was not written with the cluster's keys" in ran.err


def test_a_line_that_is_taken_out_of_the_log_closes_the_case(
    kvairlock: Command, case: Path
) -> None:
    assert kvairlock("audit", "confirm", case, *WHO).status == 0
    log = case / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[0] + lines[2])
    assert "does not follow" in kvairlock("audit", "confirm", case, *WHO).err


def test_a_second_case_in_the_same_folder_is_refused(
    kvairlock: Command, made: Made, case: Path
) -> None:
    before = (case / "case.json").read_bytes()
    assert kvairlock("audit", made.evidence, "--case", case).status == 2
    assert (case / "case.json").read_bytes() == before
    assert {path.name for path in case.iterdir()} == {"case.json", "log.jsonl"}


def test_a_candidate_that_no_audit_named_is_never_joined(kvairlock: Command, case: Path) -> None:
    said = json.loads((case / "case.json").read_text())
    said["candidates"].append(said["candidates"][0] | {"request": "f" * 24})
    (case / "case.json").write_text(json.dumps(said))
    ran = kvairlock("audit", "confirm", case, *WHO)
    assert ran.status == 2
    assert "is not of this case" in ran.err
    assert not list(case.glob("result-*"))


def test_a_case_without_its_log_or_opened_without_keys_is_none(
    kvairlock: Command, made: Made, case: Path, tmp_path: Path
) -> None:
    (case / "log.jsonl").unlink()
    assert "log.jsonl is gone" in kvairlock("audit", "confirm", case, *WHO).err
    copied = cut(made, tmp_path / "copied", "nobody", 1.0)
    ran = kvairlock("audit", copied, "--case", tmp_path / "keyless")
    assert ran.status == 2
    assert "only be opened with the cluster's keys" in ran.err
    assert not (tmp_path / "keyless").exists()


def test_an_authorisation_that_is_cut_off_the_log_closes_the_case(
    kvairlock: Command, case: Path
) -> None:
    assert kvairlock("audit", "confirm", case, *WHO).status == 0
    before = (case / "result-1.json").read_bytes()
    log = case / "log.jsonl"
    log.write_text(log.read_text().splitlines(keepends=True)[0])
    ran = kvairlock("audit", "confirm", case, *WHO)
    assert ran.status == 2
    assert "names result-1.json" in ran.err
    assert (case / "result-1.json").read_bytes() == before


def test_two_who_confirm_at_once_are_both_on_record(made: Made, case: Path) -> None:
    words = [sys.executable, "-m", "kvairlock", "audit", "confirm", str(case), *WHO]
    runs = [subprocess.Popen(words, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [run.wait() for run in runs] == [0, 0, 0]
    assert acts(case) == ["opened", *(["authorised", "joined"] * 3)]
    assert {path.name for path in case.glob("result-*")} == {f"result-{n}.json" for n in (1, 2, 3)}


def test_keys_are_found_where_each_of_them_lies(
    kvairlock: Command, made: Made, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    (kept / "stack-1").mkdir(parents=True)
    for name in ("cluster.key", "keys.toml"):
        shutil.copy(made.state / name, kept / name)
    shutil.copy(made.state / "evidence.key", kept / "stack-1" / "evidence.key")
    shutil.copytree(made.evidence, kept / "stack-1" / "evidence")
    (affected,) = made.affected
    ran = kvairlock("explain", made.ids[affected], kept)
    assert ran.status == 1
    assert affected in ran.out
    kvairlock("audit", kept, "--json", "--case", tmp_path / "case")
    assert kvairlock("audit", "confirm", tmp_path / "case", *WHO, "--json").json["tenants_named"]
    (kept / "stack-1" / "evidence.key").unlink()
    assert "no evidence.key" in kvairlock("explain", made.ids[affected], kept).err
