"""The gateway as a process: it starts, says so, refuses to start, and ends in order."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvairlock.gateway.keys import ApiKeys
from kvairlock.runtime.secrets import new_key, write_private
from kvairlock.sink.reading import files, read
from tests.engine.tiny_llama import STRANGE, STRANGE_REASONS

from .fake_nodes import stay_silent
from .stacks import Stack, stack, until


def test_it_says_once_that_it_is_ready_and_ends_with_closed_evidence() -> None:
    with stack() as running:
        assert running.ready["ready"] == running.ready["role"] == "gateway"
        assert running.ready["pid"] == running.process.pid
        assert running.url.startswith("http://127.0.0.1:")
        assert running.http.get("/healthz").status_code == 200
        assert running.stop() == 0
        assert running.process.stdout is not None
        assert running.process.stdout.read() == ""
        (path,) = files(running.root / "evidence")
        assert path.name == f"gateway-{running.ready['incarnation']}.000001.parquet"
        records = read(path)
        assert records[0]["event"] == "node_started"
        assert (records[0]["pool_pages"], records[0]["guards_off"]) == (0, [])
        assert records[-1]["event"] == "node_closed"
        assert [r["sequence"] for r in records] == list(range(1, len(records) + 1))


def test_sigterm_with_a_request_in_flight_ends_in_order() -> None:
    with stack() as running:
        running.decode.script = stay_silent
        host, port = running.url.removeprefix("http://").split(":")
        body = b'{"model": "recall", "prompt": "x"}'
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
            f"authorization: Bearer {running.tenant_key}\r\n\r\n"
        )
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(head.encode() + body)
            until(lambda: not running.decode.heard.empty())
            assert running.stop() == 0


def test_a_revoked_key_is_refused_from_the_next_request_on(gateway: Stack) -> None:
    key = gateway.keys.issue("short-lived")
    assert gateway.complete(key).status_code == 200
    gateway.keys.revoke(key.split("-")[1])
    assert gateway.complete(key).status_code == 401


def test_a_broken_key_file_authenticates_nobody(gateway: Stack) -> None:
    path = gateway.root / "keys.toml"
    good = path.read_text()
    try:
        path.write_text("[[key")
        response = gateway.complete()
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "keys_unusable"
        assert gateway.http.get("/healthz").status_code == 200
    finally:
        path.write_text(good)
    assert gateway.complete().status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "model", "prompt", "messages", "n", "max_tokens", "stop", "stream", "kv_transfer_params",
        "echo", "seed", "temperature", "logprobs", "top_logprobs",
    ]
)  # fmt: skip
VALID: dict[str, dict[str, object]] = {
    "/v1/completions": {"model": "recall", "prompt": "x"},
    "/v1/chat/completions": {"model": "recall", "messages": [{"role": "user", "content": "x"}]},
}


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.dictionaries(NAMES | st.text(max_size=6), JSON, max_size=5),
    st.booleans(),
    st.sampled_from(sorted(VALID)),
)
def test_no_body_ever_makes_a_500(
    gateway: Stack, fields: dict[str, object], plausible: bool, path: str
) -> None:
    body = json.dumps({**(VALID[path] if plausible else {}), **fields})
    response = gateway.http.post(path, content=body, headers=gateway.headers())
    assert response.status_code in {200, 400, 404}
    assert gateway.process.poll() is None


def run_gateway(root: Path, **changed: str) -> subprocess.CompletedProcess[str]:
    names = {
        "settings": "settings.toml", "run": "run", "evidence": "evidence", "keys": "keys.toml",
        "cluster-key": "cluster.key", "state": "", **changed,
    }  # fmt: skip
    options = [word for name, path in names.items() for word in (f"--{name}", str(root / path))]
    clean = {k: v for k, v in os.environ.items() if k != "KVAIRLOCK_CLUSTER_KEY"}
    return subprocess.run(
        [sys.executable, "-m", "kvairlock.gateway", *options],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**clean, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "settings.toml").write_text("[gateway]\nport = 0\n")
    write_private(tmp_path / "cluster.key", new_key("k1"))
    ApiKeys(tmp_path / "keys.toml").issue("acme")
    return tmp_path


def refuses(done: subprocess.CompletedProcess[str], says: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("kvairlock.gateway: cannot start: ")
    assert says in line


def test_without_settings_keys_or_cluster_key_it_does_not_start(root: Path) -> None:
    refuses(run_gateway(root, settings="none.toml"), "none.toml")
    refuses(run_gateway(root, keys="none.toml"), "none.toml")
    refuses(run_gateway(root, **{"cluster-key": "none.key"}), "none.key")


def test_guards_off_outside_drill_mode_and_unknown_models_do_not_start(root: Path) -> None:
    settings_file = root / "settings.toml"
    settings_file.write_text('[drill]\nguards_off = ["strip"]\n')
    refuses(run_gateway(root), "drill mode")
    settings_file.write_text('model = "gpt-4"\n')
    refuses(run_gateway(root), "unknown model")


@pytest.mark.parametrize("kind", STRANGE)
def test_a_model_file_that_there_is_no_room_for_is_one_line(root: Path, kind: str) -> None:
    STRANGE[kind].write(root / "own.gguf")
    (root / "settings.toml").write_text('model = "own.gguf"\n')
    refuses(run_gateway(root), f"own.gguf can't be served: {STRANGE_REASONS[kind]}")


def test_a_port_that_is_taken_does_not_start(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (root / "settings.toml").write_text(f"[gateway]\nport = {port}\n")
        refuses(run_gateway(root), "in use")


def test_sigint_ends_it_in_order_too() -> None:
    with stack() as running:
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(10) == 0
