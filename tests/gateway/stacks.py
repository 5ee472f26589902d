"""A real gateway process in front of fake nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from kvairlock.gateway.keys import ApiKeys
from kvairlock.runtime.secrets import new_key, write_private
from kvairlock.sink.reading import read_folder
from kvairlock.wire.keys import Keyring

from .fake_nodes import DECODE_TOKENS, PREFILL_TOKENS, WAIT_S, FakeNode, FakeNodes, fake_nodes

TIMES = """
[limits]
beat_ms = 30
lost_ms = 400
start_ms = 8000
"""

LIMITS = f"""
[breaker]
failures = 1000  # nodes fail on purpose here, and their route is to go on
violations = 1000
{TIMES}"""


def until(condition: Callable[[], bool]) -> None:
    """Return as soon as the condition holds; fail if it does not in time."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


class Stack:
    """A running gateway, its nodes, its keys and its evidence."""

    def __init__(self, root: Path, settings: str, limits: str, nodes: FakeNodes) -> None:
        self.root, self.nodes = root, nodes
        self.keys = ApiKeys(root / "keys.toml")
        self.tenant_key = self.keys.issue("acme-secret-name")
        self.other_key = self.keys.issue("rival-secret-name", "group:shared")
        self.operator_key = self.keys.issue("staff", "none", operator=True)
        (root / "settings.toml").write_text(settings + limits)
        self.begin()

    def begin(self) -> None:
        """Start a gateway process, the first one or another one over the same state."""
        self.process = self._start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the gateway did not start"
        self.ready: dict[str, Any] = json.loads(line)
        self.url: str = self.ready["url"]
        self.http = httpx.Client(base_url=self.url, timeout=WAIT_S, trust_env=False)

    @property
    def decode(self) -> FakeNode:
        return self.nodes.nodes["decode-0"]

    def _start(self) -> subprocess.Popen[str]:
        paths = (
            ("settings", "settings.toml"),
            ("run", "run"),
            ("evidence", "evidence"),
            ("state", ""),
        )
        more = ("keys", "keys.toml"), ("cluster-key", "cluster.key")
        options = [word for n, p in paths + more for word in (f"--{n}", str(self.root / p))]
        command = [sys.executable, "-m", "kvairlock.gateway", *options]
        clean = {k: v for k, v in os.environ.items() if k != "KVAIRLOCK_CLUSTER_KEY"}
        # The package that is tested is the one that the tests import, installed or not.
        environment = {**clean, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )

    def headers(self, key: str | None = None, **more: str) -> dict[str, str]:
        """Return headers with a key; underscores in names become dashes."""
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return {"authorization": f"Bearer {key or self.tenant_key}", **named}

    def complete(self, key: str | None = None, **fields: object) -> httpx.Response:
        """Ask for a completion of "hello", or of what the fields say."""
        body = {"model": "recall", "prompt": "hello", **fields}
        return self.http.post("/v1/completions", json=body, headers=self.headers(key))

    def chat(self, key: str | None = None, **fields: object) -> httpx.Response:
        """Ask for an answer to "hello", or to what the fields say."""
        turn = {"role": "user", "content": "hello"}
        body = {"model": "recall", "messages": [turn], **fields}
        return self.http.post("/v1/chat/completions", json=body, headers=self.headers(key))

    def stop(self) -> int:
        """End the process in order and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def evidence(self, event: str) -> list[dict[str, object]]:
        """Return the gateway's records of one event, as written so far."""
        return [r for r in read_folder(self.root / "evidence") if r["event"] == event]

    def close(self) -> None:
        """End it, one way or the other."""
        self.http.close()
        try:
            self.stop()
        finally:
            self.process.kill()
            if self.process.stdout is not None:
                self.process.stdout.close()


@contextmanager
def stack(
    settings: str = "[gateway]\nport = 0\n",
    start: Callable[[FakeNodes], None] | None = None,
    limits: str = LIMITS,
) -> Iterator[Stack]:
    """A gateway and its nodes; by default one of each role."""
    with tempfile.TemporaryDirectory(prefix="kv") as folder:
        root = Path(folder)
        (root / "run").mkdir(mode=0o700)
        write_private(root / "cluster.key", new_key("k1"))
        ring = Keyring.parse((root / "cluster.key").read_text())
        with fake_nodes(root / "run", ring) as nodes:
            (start or start_pair)(nodes)
            running = Stack(root, settings, limits, nodes)
            try:
                yield running
            finally:
                running.close()


def start_pair(nodes: FakeNodes) -> None:
    """Start prefill-0 and decode-0, who hear each other."""
    nodes.start("prefill-0", PREFILL_TOKENS)
    nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"])
