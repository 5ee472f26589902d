"""What a drill asks of a running stack over HTTP: completions, status, failpoints."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import httpx

from kvairlock.drills.canaries import END, Marked
from kvairlock.drills.stack import DrillFailed, Keys, Running, wait_for

TIMEOUT_S = 60.0
CONNECTION_LOST = "connection"
"""The code of an error that no gateway sent: the connection ended before the answer did."""

JSON_BODY = {"content-type": "application/json"}


@dataclass(slots=True)
class Reply:
    """What a client got.

    Args:
        status: The HTTP status; 0 while there is none, 499 if the drill left.
        text: The answer's text so far.
        error: The error object, if there was one.
        headers: The response's headers.
        usage: The engine's figures, once the answer is complete.
    """

    status: int = 0
    text: str = ""
    error: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def refusal(self) -> str | None:
        """The typed code of the refusal, if it was one."""
        code = self.error.get("code")
        return str(code) if code else None


class Call:
    """One streaming completion in a thread of its own, so that a drill can act meanwhile.

    Over a plain connection, since a drill must be able to cut it while the answer is awaited.
    """

    def __init__(self, url: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        self.reply = Reply()
        self._left = self._done = False
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
        self._connection.connect()
        self._socket = self._connection.sock
        self._thread = threading.Thread(target=self._run, args=(headers, body), daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Cut the connection, as a client does that goes away."""
        self._left = True
        with suppress(OSError):  # the answer may have ended by now
            self._socket.shutdown(socket.SHUT_RDWR)

    def ends_within(self, wait_s: float) -> bool:
        """Wait for the end at most so long; return whether it has come."""
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def result(self) -> Reply:
        """Wait for the end and return what came."""
        self._thread.join(TIMEOUT_S)
        if self._thread.is_alive():
            raise DrillFailed("a request did not end")
        return self.reply

    def _run(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        try:
            self._connection.request(
                "POST", "/v1/completions", json.dumps(body), {**headers, **JSON_BODY}
            )
            self._read(self._connection.getresponse())
        except (HTTPException, OSError, ValueError) as error:
            if not self._left:
                self.reply.error = {"code": CONNECTION_LOST, "message": str(error)}
            self.reply.status = 499
        finally:
            self._connection.close()

    def _read(self, response: HTTPResponse) -> None:
        self.reply.headers = {name.lower(): value for name, value in response.getheaders()}
        self.reply.status = response.status
        if response.status != HTTPStatus.OK:
            self.reply.error = json.loads(response.read())["error"]
            return
        for line in response:
            self._take(line.decode().strip())
        if not (self._done or self.reply.error):
            raise HTTPException("the stream ended before the answer did")

    def _take(self, line: str) -> None:
        data = line.removeprefix("data: ")
        self._done = self._done or data == "[DONE]"
        if data == line or self._done:
            return
        event = json.loads(data)
        if "error" in event:
            self.reply.error = event["error"]
        self.reply.usage = event.get("usage") or self.reply.usage
        for choice in event.get("choices", ()):
            self.reply.text += choice["text"]


class GatewayClient:
    """A drill's way into a gateway.

    Args:
        url: The gateway.
        keys: Key of each tenant.
        operator: The key that opens the operator's endpoints.
    """

    def __init__(self, url: str, keys: Mapping[str, str], operator: str) -> None:
        self.url, self._keys, self._operator = url, keys, operator
        self._drill = ""
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)

    def ask(
        self,
        prompt: Marked,
        route: str | None = None,
        max_tokens: int = 17,
        ticket: str | None = None,
        show_ticket: bool = False,
    ) -> Call:
        """Start a streaming completion.

        Args:
            prompt: The marked prompt; its tenant's key is used.
            route: `PREFILL/DECODE` to take, or None for the gateway's choice.
            max_tokens: Tokens to generate; the default is a canary and its end.
            ticket: A ticket to present, as a client must not.
            show_ticket: Ask for the ticket in the response's headers.
        """
        headers = {"authorization": f"Bearer {self._keys[prompt.tenant]}"}
        if route is not None:
            headers["x-kvairlock-route"] = route
        if show_ticket:
            headers["x-kvairlock-show-ticket"] = "1"
        if self._drill:
            headers["x-kvairlock-drill"] = self._drill
        body: dict[str, Any] = {
            "model": "recall",
            "prompt": prompt.text,
            "max_tokens": max_tokens,
            "stop": END,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if ticket is not None:
            body["kv_transfer_params"] = {"ticket": ticket}
        return Call(self.url, headers, body)

    def answer(self, prompt: Marked, route: str | None = None) -> Reply:
        """Ask and wait for the answer."""
        return self.ask(prompt, route).result()

    def status(self) -> dict[str, Any]:
        """Return the operator's view of the stack."""
        headers = {"authorization": f"Bearer {self._operator}"}
        answer: dict[str, Any] = (
            self._http.get("/status", headers=headers).raise_for_status().json()
        )
        return answer

    def model(self) -> dict[str, Any]:
        """Return what the gateway publishes of its model."""
        headers = {"authorization": f"Bearer {self._operator}"}
        models = self._http.get("/v1/models", headers=headers).raise_for_status().json()
        model: dict[str, Any] = models["data"][0]
        return model

    def context_tokens(self) -> int:
        """Return the context window that the gateway advertises, in tokens."""
        return int(self.model()["max_model_len"])

    def may_steer(self, tenant: str) -> bool:
        """Return whether a tenant's key is an operator's, so that it may name a route."""
        headers = {"authorization": f"Bearer {self._keys[tenant]}"}
        return self._http.get("/status", headers=headers).status_code == HTTPStatus.OK

    def node(self, name: str) -> dict[str, Any]:
        """Return the newest figures of one node."""
        node: dict[str, Any] = self.status()["nodes"][name]
        return node

    def point(self, node: str, action: str, point: str, after: int = 0) -> None:
        """Arm or release a failpoint."""
        headers = {"authorization": f"Bearer {self._operator}"}
        body = {"node": node, "action": action, "point": point, "after": after}
        self._http.post("/drill/points", headers=headers, json=body).raise_for_status()

    @contextmanager
    def drilling(self, drill: str) -> Iterator[None]:
        """Have all requests that are made meanwhile known as a drill's, in the evidence.

        Args:
            drill: Its name.
        """
        self._mark(drill, "began")
        self._drill = drill
        try:
            yield
        finally:
            self._drill = ""
            self._mark(drill, "ended")

    def _mark(self, drill: str, phase: str) -> None:
        headers = {"authorization": f"Bearer {self._operator}"}
        body = {"drill": drill, "phase": phase}
        self._http.post("/drill/marks", headers=headers, json=body).raise_for_status()

    def held(self, node: str, point: str) -> str:
        """Wait until a thread is held at a failpoint; return what it was about to do."""

        def look() -> str | None:
            points = self.node(node)["status"]["points"]
            return next((p.split(" ", 1)[1] for p in points if p.startswith(f"{point} ")), None)

        return wait_for(f"{node} to reach {point}", look)

    def idle(self) -> dict[str, Any]:
        """Wait until no request is open anywhere and all pages are free, or kept as prefixes.

        Only what the nodes have reported since the call counts.

        Returns:
            The status.

        Raises:
            DrillFailed: It did not come to that.
        """
        since = time.monotonic()
        return wait_for("all pages to come back", lambda: self._idle(since))

    def _idle(self, since: float) -> dict[str, Any] | None:
        status = self.status()
        nodes = [node for node in status["nodes"].values() if node["status"]]
        age_ms = (time.monotonic() - since) * 1000
        if any(report_ms(node) >= age_ms for node in nodes):
            return None
        figures = [node["status"] for node in nodes]
        busy = status["in_flight"] or any(f["requests"] or f["windows"] for f in figures)
        return None if busy or any(map(pages_out, figures)) else status


class Client(GatewayClient):
    """A drill's way into a stack that it started.

    Args:
        stack: The running stack.
        keys: The drill's keys; the first one opens the operator's endpoints.
    """

    def __init__(self, stack: Running, keys: Keys) -> None:
        super().__init__(stack.url, keys.of, next(iter(keys.of.values())))
        self.stack = stack

    def wait_until_all_up(self) -> None:
        """Wait until every process is in the life that it was last ready in, and every route up.

        Raises:
            DrillFailed: It does not come to that.
        """
        wait_for("all routes to be up", self._all_up)

    def _all_up(self) -> bool | None:
        try:
            status = self.status()
        except httpx.HTTPError:
            return None  # its gateway is being started again
        if set(status["routes"].values()) != {"up"}:
            return None
        lives = self.stack.lives()
        nodes = status["nodes"].items()
        present = all(n["status"]["report"]["incarnation"] == lives[name] for name, n in nodes)
        return True if present else None


def report_ms(node: Mapping[str, Any]) -> float:
    """Return how old the last report of a node is; a gateway of 0.1.0 has another name for it."""
    return float(node["report_ms"] if "report_ms" in node else node["heard_ms"])


def pages_out(figures: Mapping[str, Any]) -> int:
    """Return how many pages of a node are neither free nor kept as prefixes."""
    pages = figures["pages"]
    return int(figures["report"]["pages"] - pages["free"] - pages["shared"])
