"""A way to a gateway that can freeze: connections stay open, and nothing moves on them any more."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE = 65_536


class Freezing:
    """A proxy.

    Args:
        port: Where the gateway is, on loopback.
    """

    def __init__(self, port: int) -> None:
        self._port, self._frozen = port, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def freeze(self) -> None:
        """Move nothing any more on the connections that are open; new ones are as before."""
        self._frozen.set()
        self._frozen = threading.Event()

    def run(self) -> None:
        """Take connections until closed."""
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += [near, far]
                pair = near, far, self._frozen
                threading.Thread(target=self._move, args=pair, daemon=True).start()

    def close(self) -> None:
        """Close everything."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._open):
            each.close()

    def _move(self, near: socket.socket, far: socket.socket, frozen: threading.Event) -> None:
        other = {near: far, far: near}
        with selectors.DefaultSelector() as both, suppress(OSError, ValueError):
            for each in other:
                both.register(each, selectors.EVENT_READ, other[each])
            while True:
                for key, _ in both.select():
                    piece = key.fileobj.recv(PIECE)  # type: ignore[union-attr]
                    if frozen.is_set():
                        return
                    if not piece:
                        near.close()
                        far.close()
                    key.data.sendall(piece)


@contextmanager
def freezing(port: int) -> Iterator[Freezing]:
    """A proxy before a gateway, closed at the end."""
    proxy = Freezing(port)
    threading.Thread(target=proxy.run, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
