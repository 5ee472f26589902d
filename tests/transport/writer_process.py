"""A prefill node in miniature: a Writer in a process of its own, driven over a unix socket.

Runs as a script: `writer_process.py FD PAGES PAGE_BYTES FILL HOLD_AFTER`. Each datagram with a
descriptor is a grant (its offsets as JSON); `release` lets a held write go on; every event that the
test waits for goes back as one JSON datagram.
"""

from __future__ import annotations

import json
import socket
import sys

import numpy as np

from kvairlock.runtime.failpoints import Failpoint, Failpoints
from kvairlock.transport.memory import PoolMemory
from kvairlock.transport.writer import Writer


def main(fd: int, pages: int, page_bytes: int, fill: int, hold_after: int) -> None:
    channel = socket.socket(fileno=fd)

    def tell(event: str, **facts: object) -> None:
        channel.send(json.dumps({"event": event, **facts}).encode())

    memory = PoolMemory(pages, page_bytes)
    memory.array[:] = fill
    points = Failpoints(True, on_reached=lambda at: tell("reached", detail=at.detail))
    writer = Writer(
        memory,
        lambda end: tell("end", status=end.status, bytes=end.bytes_written, reason=end.reason),
        points,
    )
    points.arm(Failpoint.WRITE_PIECE, after=hold_after)
    tell("ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 65536, 1)
        if not message:
            return
        if descriptors:
            offsets = json.loads(message)
            own = np.arange(len(offsets), dtype=np.int32)
            writer.submit("w", own, descriptors[0], offsets)
        else:
            points.release(Failpoint.WRITE_PIECE)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
