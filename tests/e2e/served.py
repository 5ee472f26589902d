"""A stack under test: `kvairlock serve` as a process, with what tests ask of it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from kvairlock.drills.canaries import END, Canaries, Marked
from kvairlock.drills.client import Call, Client
from kvairlock.drills.records import Entry, Records
from kvairlock.drills.stack import DrillFailed, Keys, Running, wait_for
from kvairlock.gateway.keys import ApiKeys
from kvairlock.runtime.evidence_settings import EvidenceSettings
from kvairlock.runtime.failpoints import Failpoint
from kvairlock.runtime.secrets import load_keyring, new_key, write_private
from kvairlock.wire.pseudonyms import Pseudonyms

SEED = 20261130
TIMEOUT_S = 60.0
STOP_S = 20.0
CANARY_TOKENS = 17
"""A canary and its end: what a marked prompt is answered with."""

OPERATOR = "operator"
Json = dict[str, Any]


def issue_keys(folder: Path, scopes: Mapping[str, str], *, operators: bool) -> Keys:
    """Make API keys, the first for an operator, and a cluster key.

    Args:
        folder: Where the files go.
        scopes: Scope of each tenant's key.
        operators: Whether the tenants may steer drills too.
    """
    cluster = folder / "cluster.key"
    write_private(cluster, new_key("test"))
    keys = ApiKeys(folder / "keys.toml")
    made = {OPERATOR: keys.issue(OPERATOR, "none", operator=True)}
    for tenant, scope in scopes.items():
        made[tenant] = keys.issue(tenant, scope, operator=operators)
    pseudonyms = Pseudonyms.fresh(int(time.time()), EvidenceSettings().retention_days)
    write_private(folder / "evidence.key", pseudonyms.text())
    return Keys(folder / "keys.toml", cluster, load_keyring(cluster), pseudonyms, made)


@dataclass(frozen=True)
class Served:
    """A stack that serves.

    Args:
        process: `kvairlock serve`.
        ready_file: What it says of itself, anew after each restart of a process.
        keys: The keys of its tenants.
        client: A drill's way into it.
        records: Its evidence.
        canaries: Makes prompts.
        http: A plain HTTP client.
    """

    process: subprocess.Popen[bytes]
    ready_file: Path
    keys: Keys
    client: Client
    records: Records
    canaries: Canaries
    http: httpx.Client

    @property
    def facts(self) -> Json:
        """What the ready file says now."""
        facts: Json = json.loads(self.ready_file.read_text())
        return facts

    @property
    def url(self) -> str:
        return self.client.stack.url

    @property
    def log(self) -> Path:
        return self.client.stack.log

    def pid(self, name: str) -> int:
        """The process id of the current life of a process."""
        pid: int = self.facts["pids"][name]
        return pid

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid(name), number)

    def auth(self, tenant: str, route: str | None = None) -> dict[str, str]:
        """Headers of a tenant's request."""
        headers = {"authorization": f"Bearer {self.keys.of[tenant]}"}
        return headers if route is None else {**headers, "x-kvairlock-route": route}

    def post(self, prompt: Marked, route: str | None = None, **more: object) -> httpx.Response:
        """Ask, not streaming, and wait for the answer."""
        body = {**question(prompt), **more}
        return self.http.post("/v1/completions", headers=self.auth(prompt.tenant, route), json=body)

    def start(self, prompt: Marked, route: str | None = None, **more: object) -> Call:
        """Ask, streaming, in a thread of its own."""
        body = {**question(prompt), "stream": True, **more}
        return Call(self.url, self.auth(prompt.tenant, route), body)

    def serves(self, tenant: str, route: str | None = None, characters: int = 120) -> None:
        """Assert that a tenant is answered with its own canary."""
        prompt = self.canaries.prompt(tenant, characters)
        response = self.post(prompt, route)
        assert response.status_code == 200, response.text
        assert text_of(response) == prompt.canary

    def baseline(self) -> Json:
        """Wait until every node has said, after this call, that it has nothing open."""
        asked_at = time.monotonic()

        def look() -> Json | None:
            looked_at = time.monotonic()
            status = self.client.status()
            report_ms = [node["report_ms"] for node in status["nodes"].values()]
            fresh_ms = (looked_at - asked_at) * 1000
            if any(ms is None or ms >= fresh_ms for ms in report_ms):
                return None
            return status if is_idle(status) else None

        return wait_for("all pages to be free and nothing to be open", look)

    def release_all(self) -> None:
        """Release every failpoint of every node that is connected; waits for a gateway."""
        wait_for("the gateway", self._is_reached)
        for node in self.client.status()["nodes"]:
            for point in Failpoint:
                body = {"node": node, "action": "release", "point": point}
                self.http.post("/drill/points", headers=self.auth(OPERATOR), json=body)

    def _is_reached(self) -> bool | None:
        try:
            self.http.get("/healthz")
        except httpx.TransportError:
            return None
        return True

    def status_of(self, node: str) -> Json:
        """The newest figures of one node."""
        status: Json = self.client.node(node)["status"]
        return status

    def one(self, event: str, **wanted: str) -> Entry:
        """The one record of its kind; asserts that there is exactly one."""
        self.records.last(event, **wanted)
        found = self.records.all(event, **wanted)
        assert len(found) == 1, found
        return found[0]

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.terminate()
        return self.process.wait(STOP_S)


def is_idle(status: Json) -> bool:
    """Whether nothing is open in a stack that keeps no prefixes."""
    figures = [node["status"] for node in status["nodes"].values()]
    busy = any(f["requests"] or f["windows"] or f["points"] for f in figures)
    full = any(f["pages"]["free"] != f["report"]["pages"] for f in figures)
    return not (busy or full or status["in_flight"])


def question(prompt: Marked) -> Json:
    """The body of a request for a prompt's canary."""
    return {
        "model": "recall",
        "prompt": prompt.text,
        "max_tokens": CANARY_TOKENS,
        "stop": END,
    }


def text_of(response: httpx.Response) -> str:
    """The text of the one choice."""
    (choice,) = response.json()["choices"]
    text: str = choice["text"]
    return text


def error_of(response: httpx.Response) -> Json:
    """The error object."""
    error: Json = response.json()["error"]
    return error


@contextmanager
def serving(
    folder: Path,
    settings: str,
    scopes: Mapping[str, str],
    *,
    operators: bool = False,
    seed: int = SEED,
) -> Iterator[Served]:
    """Start a stack, and stop it at the end whatever happened.

    Args:
        folder: Where settings, keys, log and evidence go.
        settings: TOML of the stack.
        scopes: Tenants, and the scope of each.
        operators: Whether the tenants may steer drills too.
        seed: Of the prompts.
    """
    keys = issue_keys(folder, scopes, operators=operators)
    config, ready, log = folder / "stack.toml", folder / "ready.json", folder / "stack.log"
    config.write_text(settings)
    words = ["serve", "--config", config, "--port", "0", "--keys", keys.file]
    words += ["--cluster-key", keys.cluster, "--state", folder, "--ready-file", ready]
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "kvairlock", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for("the stack to start", lambda: _is_up(process, ready, log))
        facts = json.loads(ready.read_text())
        running = Running(facts["url"], Path(facts["evidence"]), facts["pids"], log, ready)
        with httpx.Client(base_url=running.url, timeout=TIMEOUT_S) as http:
            yield Served(
                process=process,
                ready_file=ready,
                keys=keys,
                client=Client(running, keys),
                records=Records(running.evidence, keys.pseudonyms),
                canaries=Canaries(seed),
                http=http,
            )
    finally:
        _end(process, ready)


def _is_up(process: subprocess.Popen[bytes], ready: Path, log: Path) -> bool | None:
    if process.poll() is not None:
        raise DrillFailed(f"the stack did not start:\n{log.read_text()[-2000:]}")
    return True if ready.exists() else None


def _end(process: subprocess.Popen[bytes], ready: Path) -> None:
    """Stop all, also a node that a failed test has left stopped."""
    if process.poll() is not None:
        return
    if ready.exists():
        for pid in json.loads(ready.read_text())["pids"].values():
            with suppress(ProcessLookupError):  # killed, and not started again yet
                os.kill(pid, signal.SIGCONT)
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
