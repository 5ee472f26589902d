"""The queue's end: pages are reserved and a window is granted as soon as both fit."""

from __future__ import annotations

from kvairlock.core import handoff
from kvairlock.core.decode.ending import finish
from kvairlock.core.decode.reception import Reception, Reservation
from kvairlock.core.decode.state import DecodeState
from kvairlock.core.effects import OpenWindow
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import Guard
from kvairlock.core.handoff import Expectation, Signal
from kvairlock.core.page import Verb
from kvairlock.core.pool import Hold, Lease
from kvairlock.core.terms import Instant, LandingPolicy, Pages, Peer, after
from kvairlock.core.windows import Window


def pump(node: DecodeState, now: Instant) -> None:
    """Grant in the order of arrival; a tenant over its share lets others pass, nobody else does."""
    for name in node.queue.copy():
        reception = node.receptions[name]
        if not _fits(node, reception):
            return
        if _within_share(node, reception):
            node.queue.remove(name)
            _grant(node, reception, now)


def _fits(node: DecodeState, reception: Reception) -> bool:
    size = node.books.report.page_tokens
    room = node.limits.landing_pages - node.windows.pages()
    enough = reception.demand.decode_pages(size) <= node.books.pool.pages_free
    return enough and reception.demand.prompt_pages(size) <= room


def _within_share(node: DecodeState, reception: Reception) -> bool:
    if not node.on(Guard.SHARE):
        return True
    landing = node.windows.pages(reception.owner.tenant)
    pages = reception.demand.prompt_pages(node.books.report.page_tokens)
    return landing + pages <= node.books.report.landing_pages


def _grant(node: DecodeState, reception: Reception, now: Instant) -> None:
    writer = node.peers.get(reception.asked.prefill)
    if writer is None:
        refusal = Refusal(Reason.PEER_LOST, Stage.TRANSFER, "the prefill node was lost")
        finish(node, reception, refusal, now)
        return
    reserved = reception.reserved = _reserve(node, reception, writer)
    reception.stage = handoff.advance(reception.stage, Signal.GRANT)
    reception.deadline = after(now, node.limits.prefill_ms)
    node.windows.add(reserved.window)
    _record(node, reception, reserved)
    node.emit(
        OpenWindow(
            window=reserved.window.id,
            transfer=reception.name,
            to=writer.node,
            pages=reserved.prompt,
            generations=reserved.want.generations,
            seed=reception.asked.seed,
            patience_ms=node.limits.prefill_ms,
        )
    )


def _reserve(node: DecodeState, reception: Reception, writer: Peer) -> Reservation:
    pool, demand = node.books.pool, reception.demand
    lease = pool.reserve(reception.owner, demand.decode_pages(pool.page_tokens))
    prompt = lease.pages[: demand.prompt_pages(pool.page_tokens)]
    if node.policy is LandingPolicy.DIRECT:
        _expose(node, lease, prompt)
    window = Window(reception.asked.window, reception.owner, writer, len(prompt), lease)
    want = Expectation(
        owner=reception.owner,
        window=window.id,
        input_digest=reception.asked.presented.input_digest,
        layout=node.layout,
        prompt_tokens=demand.prompt_tokens,
        pages=len(prompt),
        generations=tuple(pool.generation[prompt].tolist()),
    )
    return Reservation(lease, window, want)


def _expose(node: DecodeState, lease: Lease, prompt: Pages) -> None:
    """The window is the pool itself: a remote process can store into these very pages."""
    node.books.pool.advance(lease, Verb.GRANT, prompt)
    lease.hold(Hold.WINDOW)


def _record(node: DecodeState, reception: Reception, reserved: Reservation) -> None:
    node.books.record(
        "pages_allocated",
        reception.owner,
        lease=reserved.lease.id,
        pages=tuple(reserved.lease.pages.tolist()),
        generations=tuple(reserved.lease.generations.tolist()),
    )
    node.books.record(
        "window_granted",
        reception.owner,
        window=reserved.window.id,
        peer=reserved.window.writer.node,
        pages=tuple(reserved.prompt.tolist()),
    )
