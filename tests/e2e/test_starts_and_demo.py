"""What refuses to start, what ends by itself, and the demo."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from kvairlock.drills.stack import wait_for
from kvairlock.gateway.keys import ApiKeys
from kvairlock.runtime.secrets import new_key, write_private
from kvairlock.sink.reading import read

from .served import serving

GUARDS_OFF = '[drill]\nguards_off = ["integrity", "drain"]\n'
DIRECT = '[[decode]]\nname = "decode-0"\nlanding = "direct"\n'
WRONG = [
    (GUARDS_OFF, "guards are off outside drill mode: drain, integrity"),
    (DIRECT, "landing = 'direct' is for drills only"),
]
START_S = 20


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.key"
    write_private(path, new_key("test"))
    return path


@pytest.mark.parametrize(("settings", "words"), WRONG, ids=["guards-off", "direct"])
@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_a_node_refuses_to_start(
    tmp_path: Path, cluster: Path, name: str, settings: str, words: str
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(settings)
    where = ("--run", tmp_path, "--evidence", tmp_path / "evidence", "--cluster-key", cluster)
    done = run("kvairlock.node", "--settings", file, "--name", name, *where)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: ")
    assert words in line
    assert not (tmp_path / f"{name}.sock").exists()
    assert not (tmp_path / "evidence").exists()


@pytest.mark.parametrize(("settings", "words"), WRONG, ids=["guards-off", "direct"])
def test_serve_refuses_to_start(tmp_path: Path, settings: str, words: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(settings)
    done = run("kvairlock", "serve", "--config", file, "--port", "0", "--state", tmp_path / "state")
    assert done.returncode == 2
    assert words in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_gateway_ends_when_its_supervisor_is_gone(tmp_path: Path, cluster: Path) -> None:
    """As the nodes do: its stdin is a pipe that only the supervisor holds."""
    file, keys = tmp_path / "settings.toml", tmp_path / "keys.toml"
    file.write_text("[gateway]\nport = 0\n[limits]\nstart_ms = 100\n")
    ApiKeys(keys).issue("acme")
    where = ["--run", tmp_path, "--evidence", tmp_path / "evidence", "--cluster-key", cluster]
    where += ["--state", tmp_path]
    words = ["--settings", file, "--keys", keys, *where]
    with subprocess.Popen(
        [sys.executable, "-m", "kvairlock.gateway", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as gateway:
        assert gateway.stdin is not None
        assert gateway.stdout is not None
        try:
            assert b'"ready"' in gateway.stdout.readline()
            gateway.stdin.close()
            assert gateway.wait(5) == 0
        finally:
            gateway.kill()


def test_a_stack_ends_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, "", {"acme": "private"}) as stack:
        stack.serves("acme")
        pids, evidence = stack.facts["pids"], Path(stack.facts["evidence"])
        stack.process.kill()
        stack.process.wait()
        wait_for("all processes to end", lambda: none_lives(pids.values()))
        for name in pids:
            (file,) = evidence.glob(f"{name}-*.parquet")
            assert read(file)[-1]["event"] == "node_closed"


def none_lives(pids: Iterable[int]) -> bool | None:
    return None if any(Path(f"/proc/{pid}").exists() for pid in pids) else True


@pytest.mark.slow
def test_the_demo_comes_out_as_expected(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvairlock", "demo", "--json", "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    rows = document["rows"]
    assert all(row["ok"] for row in rows)
    keys = {"scenario", "guards", "leaked", "refusal", "http_status", "verdict"}
    assert all(keys <= set(row) for row in rows)
    off = {row["scenario"]: row for row in rows if row["guards"] == "off"}
    incidents = set(off) - {"tenants at once"}
    assert incidents == {
        "the incident",
        "a late write",
        "a write after success",
        "a ticket used twice",
        "a ticket for another input",
        "a stolen ticket",
    }
    assert {row["scenario"] for row in rows if row["leaked"]} == incidents
    assert {row["guards"] for row in rows if row["leaked"]} == {"off"}
    on = {row["scenario"]: row for row in rows if row["guards"] == "on"}
    incident = on["the incident"]
    assert (incident["http_status"], incident["refusal"]) == (400, "context_length_exceeded")
    assert incident["computed"] == "nothing"
    assert set(on) == set(off)
