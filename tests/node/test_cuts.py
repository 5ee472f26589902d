"""Links that a drill cuts: what waits, what is lost, and what must come through all the same."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from kvairlock.core.ends import End
from kvairlock.core.messages import Beat, Cancel, Drill, Grant, Message, Released, Withdraw
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role, TransferId, WindowId
from kvairlock.node.cuts import Cuts
from kvairlock.node.links import Links
from kvairlock.runtime import link
from kvairlock.runtime.failpoints import Cut, FailpointError, Failpoints
from kvairlock.runtime.link import Identity, Link
from kvairlock.wire.keys import Keyring

RING = Keyring.parse("one " + "ab" * 32)
PREFILL = Peer(NodeName("p"), Role.PREFILL, Incarnation("p-1"))
DECODE = Peer(NodeName("d"), Role.DECODE, Incarnation("d-1"))
GATEWAY = Peer(NodeName("g"), Role.GATEWAY, Incarnation("g-1"))
BEAT_MS, LOST_MS = 10, 150
WITHDRAWN = tuple(Withdraw(TransferId(f"r{n}/1"), End.CANCELLED) for n in range(3))
RELEASED = tuple(Released(TransferId(f"r{n}/1"), WindowId("w"), n) for n in range(3))
RELEASE = Drill("release", Cut.GATEWAY_HELD, 0)


class News:
    """Wakes whoever waits whenever something has happened anywhere."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def tell(self, *_: object) -> None:
        self._event.set()
        self._event = anyio.Event()

    async def until(self, there: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not there():
                await self._event.wait()


class WatchedCuts(Cuts):
    """Counts how often it was asked whether a channel may be made."""

    def __init__(self, points: Failpoints, news: News) -> None:
        super().__init__(points)
        self.asked, self._news = 0, news

    def admits(self, peer: Role) -> bool:
        self.asked += 1
        self._news.tell()
        return super().admits(peer)


@dataclass
class Node:
    """The links of one node, and all that they told it."""

    me: Peer
    news: News
    heard: list[Message] = field(default_factory=list)
    moves: list[tuple[str, NodeName]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.points = Failpoints(enabled=True)
        self.cuts = WatchedCuts(self.points, self.news)
        self.links = Links(
            Identity(self.me, RING),
            BEAT_MS,
            LOST_MS,
            hears=self._hears,
            up=lambda peer: self._moved("up", peer),
            lost=lambda peer: self._moved("lost", peer),
            gone=lambda peer: self._moved("gone", peer),
            refused=lambda peer, reason: pytest.fail(f"{peer}: {reason}"),
            opened=self.news.tell,
            cuts=self.cuts,
        )

    def arm(self, cut: Cut) -> None:
        self.points.arm(cut)
        self.links.recut()

    def release(self, cut: Cut) -> None:
        self.points.release(cut)
        self.links.recut()

    def count(self, move: str, peer: Peer) -> int:
        return self.moves.count((move, peer.node))

    def send_all(self, to: Peer, messages: tuple[Message, ...]) -> None:
        for message in messages:
            self.links.send(to.node, message)

    def _hears(self, peer: Peer, message: Message, file: int | None) -> None:
        if file is not None:
            os.close(file)
        if not isinstance(message, Beat):
            self.heard.append(message)
        self.news.tell()

    def _moved(self, move: str, peer: Peer) -> None:
        self.moves.append((move, peer.node))
        self.news.tell()


@dataclass
class Pair:
    """A prefill node that listens and a decode node that dials it."""

    prefill: Node
    decode: Node
    path: Path
    news: News

    def both(self, move: str, count: int) -> bool:
        here = self.prefill.count(move, DECODE) >= count
        return here and self.decode.count(move, PREFILL) >= count

    @asynccontextmanager
    async def gateway(self) -> Any:
        channel = await link.dial(self.path, Identity(GATEWAY, RING), PREFILL.node)
        try:
            await self.news.until(lambda: self.prefill.count("up", GATEWAY) == 1)
            yield channel
        finally:
            await channel.close()


def run(folder: Path, story: Callable[[Pair], Awaitable[None]]) -> None:
    """Run a story on two nodes whose link is up."""

    async def main() -> None:
        news = News()
        path = folder / "p.sock"
        pair = Pair(Node(PREFILL, news), Node(DECODE, news), path, news)
        async with anyio.create_task_group() as tasks:
            await tasks.start(pair.prefill.links.listen, path)
            tasks.start_soon(pair.decode.links.dial, PREFILL.node, path)
            for node in (pair.prefill, pair.decode):
                tasks.start_soon(node.links.beat, lambda _: Beat())
            await news.until(lambda: pair.both("up", 1))
            await story(pair)
            tasks.cancel_scope.cancel()

    anyio.run(main)


at_each_end = pytest.mark.parametrize("end", ["prefill", "decode"])


@at_each_end
def test_a_held_link_is_silent_and_all_comes_in_order_once_it_is_released(
    tmp_path: Path, end: str
) -> None:
    async def story(pair: Pair) -> None:
        cut: Node = getattr(pair, end)
        cut.arm(Cut.HELD)
        pair.decode.send_all(PREFILL, WITHDRAWN)
        pair.prefill.send_all(DECODE, RELEASED)
        # Beats were sent all the time: that they lose each other shows that nothing passes.
        await pair.news.until(lambda: pair.both("lost", 1))
        assert (pair.prefill.heard, pair.decode.heard) == ([], [])
        cut.release(Cut.HELD)
        await pair.news.until(lambda: pair.both("up", 2))
        await pair.news.until(lambda: len(pair.prefill.heard) + len(pair.decode.heard) == 6)
        assert pair.prefill.heard == list(WITHDRAWN)
        assert pair.decode.heard == list(RELEASED)

    run(tmp_path, story)


def test_a_link_that_is_held_for_less_than_silence_is_not_lost(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        pair.prefill.arm(Cut.HELD)
        pair.decode.send_all(PREFILL, WITHDRAWN)
        pair.prefill.release(Cut.HELD)
        await pair.news.until(lambda: pair.prefill.heard == list(WITHDRAWN))
        assert not pair.both("lost", 1)

    run(tmp_path, story)


@at_each_end
def test_a_broken_link_loses_what_was_said_and_is_made_anew_once_released(
    tmp_path: Path, end: str
) -> None:
    async def story(pair: Pair) -> None:
        cut: Node = getattr(pair, end)
        cut.arm(Cut.BROKEN)
        await pair.news.until(lambda: pair.both("lost", 1))
        pair.decode.send_all(PREFILL, WITHDRAWN)
        pair.prefill.send_all(DECODE, RELEASED)
        asked = cut.cuts.asked
        await pair.news.until(lambda: cut.cuts.asked >= asked + 3)
        assert not pair.both("up", 2), "no channel is made while it is cut"
        assert (pair.prefill.count("up", DECODE), pair.decode.count("up", PREFILL)) == (1, 1)
        cut.release(Cut.BROKEN)
        await pair.news.until(lambda: pair.both("up", 2))
        pair.decode.send_all(PREFILL, WITHDRAWN[:1])
        await pair.news.until(lambda: bool(pair.prefill.heard))
        assert (pair.prefill.heard, pair.decode.heard) == ([WITHDRAWN[0]], [])

    run(tmp_path, story)


def test_no_channel_is_made_to_a_node_whose_links_are_held(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        pair.prefill.arm(Cut.HELD)
        other = Identity(Peer(NodeName("d2"), Role.DECODE, Incarnation("x")), RING)
        with pytest.raises(link.ChannelClosed):
            await link.dial(pair.path, other, PREFILL.node)

    run(tmp_path, story)


def test_a_gateway_is_held_but_for_what_steers_the_drill(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        node = pair.prefill
        async with pair.gateway() as channel:
            node.arm(Cut.GATEWAY_HELD)
            node.links.send(GATEWAY.node, RELEASED[0])
            await channel.send(Cancel(TransferId("r/1")))
            await channel.send(RELEASE)
            await pair.news.until(lambda: node.heard == [RELEASE])
            pair.decode.send_all(PREFILL, WITHDRAWN)
            await pair.news.until(lambda: node.heard == [RELEASE, *WITHDRAWN])
            node.release(Cut.GATEWAY_HELD)
            assert node.heard == [RELEASE, *WITHDRAWN, Cancel(TransferId("r/1"))]
            assert await next_but_beats(channel) == RELEASED[0]

    run(tmp_path, story)


async def next_but_beats(channel: Link) -> Message:
    while True:
        message, _ = await channel.receive()
        if not isinstance(message, Beat):
            return message


def test_a_new_gateway_may_come_while_gateways_are_held(tmp_path: Path) -> None:
    """By its channel comes what ends the cut."""

    async def story(pair: Pair) -> None:
        pair.prefill.arm(Cut.GATEWAY_HELD)
        async with pair.gateway() as channel:
            await channel.send(RELEASE)
            await pair.news.until(lambda: pair.prefill.heard == [RELEASE])

    run(tmp_path, story)


def test_files_that_a_broken_link_keeps_are_closed(tmp_path: Path) -> None:
    file = os.memfd_create("window")
    transfer, window = TransferId("r/1"), WindowId("w1")
    inode = os.fstat(file).st_ino
    grant = Grant(transfer, b"ticket", b"", window, inode, (0,), (1,), "layout", 1, 1000, "")

    async def story(pair: Pair) -> None:
        before = descriptors()
        pair.prefill.arm(Cut.HELD)
        pair.decode.links.send(PREFILL.node, grant, file)
        await pair.news.until(lambda: pair.both("lost", 1))
        assert descriptors() == before + 1, "it has come and is kept"
        pair.prefill.arm(Cut.BROKEN)
        # The file and both ends of the channel are closed; each try to make another is news.
        await pair.news.until(lambda: descriptors() == before - 2)
        assert pair.prefill.heard == []

    run(tmp_path, story)
    os.close(file)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - descriptors, not a folder's files


def test_outside_of_drill_mode_nothing_is_ever_cut() -> None:
    points = Failpoints(enabled=False)
    cuts = Cuts(points)
    for cut in Cut:
        with pytest.raises(FailpointError):
            points.arm(cut)
    for role in Role:
        assert not cuts.holds(role)
        assert not cuts.breaks(role)
        assert not cuts.keeps(role, Beat())
        assert cuts.admits(role)
