"""How any process of ours speaks HTTP: what is switched off and bounded in uvicorn, once for all.

Nothing in between is believed, nothing about this server is told, no signal is taken from the
process, and a connection holds a descriptor for a bounded time (`kvairlock.runtime.heads`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from kvairlock.runtime.heads import BoundedHead

BACKLOG = 2048
"""uvicorn's own: how many connections may wait to be accepted."""


class Server(uvicorn.Server):
    """uvicorn that leaves the signals to the process: it would raise them again when it is done."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield


def configured(
    app: ASGIApp,
    *,
    head_bytes_max: int,
    keep_alive_s: int,
    shutdown_s: int,
    connection: type[BoundedHead] = BoundedHead,
    backlog: int = BACKLOG,
) -> uvicorn.Config:
    """Return how an application is served.

    Args:
        app: The application.
        head_bytes_max: Bytes that a request's head may have.
        keep_alive_s: How long a connection may be silent between two requests.
        shutdown_s: How long open requests are waited for at the end.
        connection: What each connection is.
        backlog: How many connections may wait to be accepted.
    """
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        h11_max_incomplete_event_size=head_bytes_max,
        backlog=backlog,
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=shutdown_s,
    )
