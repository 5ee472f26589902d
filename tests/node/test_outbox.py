"""What waits to be sent to a peer: in order, and of signs of life only the newest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import anyio
import pytest

from kvairlock.core.ends import End
from kvairlock.core.messages import Beat, Message, Withdraw
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role, TransferId
from kvairlock.node.cuts import Cuts
from kvairlock.node.links import Outbox
from kvairlock.runtime.failpoints import Failpoints
from kvairlock.runtime.link import ChannelClosed, Link
from tests.gateway.fake_nodes import report, status

SENT_ALL = 6


@dataclass
class Slow:
    """A channel that sends one message whenever it is let."""

    peer: Peer = field(
        default_factory=lambda: Peer(NodeName("g"), Role.GATEWAY, Incarnation("g-1"))
    )
    sent: list[Message] = field(default_factory=list)
    let: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(0))

    async def send(self, message: Message, file: int | None = None) -> None:
        self.sent.append(message)
        if len(self.sent) == SENT_ALL:
            raise ChannelClosed
        await self.let.acquire()


def message(number: int) -> Withdraw:
    return Withdraw(TransferId(f"r{number}/1"), End.CANCELLED)


async def send_all(channel: Slow, box: Outbox) -> None:
    with pytest.raises(ChannelClosed):
        await box.run()


def test_the_newest_report_overtakes_what_waits_and_no_older_one_is_ever_sent() -> None:
    anyio.run(put_and_send)


async def put_and_send() -> None:
    channel = Slow()
    box = Outbox(cast(Link, channel), Cuts(Failpoints(False)))
    old, new, last = (status(report("d", Role.DECODE, 16 * pages)) for pages in (4, 5, 6))
    box.put(message(0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send_all, channel, box)
        await anyio.wait_all_tasks_blocked()
        for number in (1, 2):
            box.put(message(number))
        box.put(old)
        box.put(new)
        channel.let.release()
        await anyio.wait_all_tasks_blocked()
        assert channel.sent == [message(0), new]
        box.put(Beat())
        box.put(last)
        for _ in range(SENT_ALL):
            channel.let.release()
        await anyio.wait_all_tasks_blocked()
        assert channel.sent == [message(0), new, last, message(1), message(2)]
        box.put(Beat())
    assert channel.sent[-1] == Beat()
