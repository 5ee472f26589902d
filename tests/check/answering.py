"""Servers that answer as a test says, over real sockets, and remember what they were asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"

VLLM = {
    "/v1/models": "vllm-models.json",
    "/version": "vllm-version.json",
    "/metrics": "vllm-metrics.txt",
}
SGLANG_PREFILL = {"/v1/models": "sglang-models.json", "/get_server_info": "sglang-prefill.json"}
SGLANG_DECODE = {"/v1/models": "sglang-models.json", "/get_server_info": "sglang-decode.json"}


@dataclass(frozen=True)
class Answer:
    """One answer: its body, in pieces that are sent one after another."""

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: str | bytes | dict[str, Any]) -> Answer:
        """Return an answer with this body; an object is sent as JSON."""
        text = json.dumps(body) if isinstance(body, dict) else body
        return cls((text.encode() if isinstance(text, str) else text,))


Answers = dict[str, Answer]


def recorded(files: Mapping[str, str]) -> Answers:
    """Return what a recorded engine answers, by path."""
    return {path: Answer.of((RECORDED / name).read_text()) for path, name in files.items()}


def document(files: Mapping[str, str], path: str) -> dict[str, Any]:
    """Return one recorded answer as JSON, to be changed."""
    told: dict[str, Any] = json.loads((RECORDED / files[path]).read_text())
    return told


@dataclass
class Server:
    """A server that runs: where, and which requests came, as path and headers."""

    url: str
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@contextmanager
def answering(answers: Answers) -> Iterator[Server]:
    """Serve answers by path; anything else is not found."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            answer = answers.get(self.path, Answer((b'{"detail":"Not Found"}',), 404))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in answer.pieces:
                self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        server = Server(f"http://127.0.0.1:{listener.server_address[1]}")
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()


@contextmanager
def engines(**named: Answers) -> Iterator[dict[str, str]]:
    """Serve several engines at one time; yields their addresses by name."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(answering(a)).url for name, a in named.items()}
