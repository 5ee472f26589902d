"""The queue's end: pages are reserved and a window is granted as soon as both fit."""

from __future__ import annotations

from functools import partial

from kvairlock.core.effects import OpenWindow, StartCompute
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import Verb
from kvairlock.core.memory.pool import Hold, Lease
from kvairlock.core.memory.windows import Window
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.decode.ending import fail_or_recover
from kvairlock.core.protocol.decode.reception import Reception, Reservation, Transfer
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.protocol.handoff import Expectation, HandoffStage, Signal
from kvairlock.core.terms import Instant, LandingPolicy, Pages, Peer, TransferId, after


def pump(node: DecodeState, now: Instant) -> None:
    """Grant to whoever is due, as long as that fits."""
    while (reception := _next(node)) is not None:
        node.note_share(reception)
        _grant(node, reception, now)


def _next(node: DecodeState) -> Reception | None:
    """Return who is due.

    A tenant over its share is passed, and so is a request too large for this node, which a guard
    that only observes let in. A request too large for now is not: the others wait for it.
    """
    for name in node.queue.heads(partial(_can_fit, node)):
        reception = node.receptions[name]
        if node.within_share(reception):
            if _fits(node, reception):
                return reception
            node.queue.wait_for(name)
            return None
    return None


def _can_fit(node: DecodeState, name: TransferId) -> bool:
    """Whether a request fits when all pages are free; where `capacity` is off, nobody looks."""
    pages, landing = node.books.report.pages, node.limits.landing_pages
    return not node.on(Guard.CAPACITY) or _fits_into(node, node.receptions[name], pages, landing)


def _fits(node: DecodeState, reception: Reception) -> bool:
    """Whether a request fits now."""
    room = node.limits.landing_pages - node.windows.pages()
    if not _fits_into(node, reception, node.books.pool.pages_free, room):
        return False
    return reception.lands_nothing or len(node.windows) < node.limits.windows_max


def _fits_into(node: DecodeState, reception: Reception, pages: int, landing_pages: int) -> bool:
    size, demand = node.books.report.page_tokens, reception.demand
    if demand.decode_pages(size) > pages:
        return False
    return reception.lands_nothing or demand.prompt_pages(size) <= landing_pages


def _grant(node: DecodeState, reception: Reception, now: Instant) -> None:
    if reception.stage is HandoffStage.RECOVERING:
        _compute_here(node, reception, now)
        return
    writer = node.peers.get(reception.asked.prefill)
    if writer is None:
        refusal = Refusal(Reason.PEER_LOST, Stage.TRANSFER, "the prefill node was lost")
        fail_or_recover(node, reception, refusal, now)
        return
    lease, prompt = _reserve(node, reception)
    transfer = _transfer(node, reception, writer, lease, prompt)
    reception.reserved = Reservation(lease, len(prompt), transfer)
    reception.stage = handoff.advance(reception.stage, Signal.GRANT)
    reception.deadline = after(now, node.limits.prefill_ms)
    node.windows.add(transfer.window)
    _record_window(node, reception, transfer.window, prompt)
    node.emit(
        OpenWindow(
            window=transfer.window.id,
            transfer=reception.name,
            to=writer.node,
            pages=prompt,
            generations=transfer.want.generations,
            seed=reception.asked.seed,
            patience_ms=node.limits.prefill_ms,
        )
    )


def _compute_here(node: DecodeState, reception: Reception, now: Instant) -> None:
    """Without evidence of prefill: fill pages of a new lease by computing the prompt again."""
    lease, prompt = _reserve(node, reception)
    reception.reserved = Reservation(lease, len(prompt), None)
    reception.deadline = after(now, node.limits.prefill_ms)
    node.books.pool.advance(lease, Verb.FILL, lease.pages)
    stop = reception.demand.prompt_tokens
    node.emit(StartCompute(reception.name, prompt, 0, stop))


def _reserve(node: DecodeState, reception: Reception) -> tuple[Lease, Pages]:
    """Give a request all its pages; return its lease and the pages of its prompt."""
    pool, demand = node.books.pool, reception.demand
    lease = pool.reserve(reception.owner, demand.decode_pages(pool.page_tokens))
    node.queue.grant(reception.name, len(lease.pages))
    node.books.record_allocated(lease)
    return lease, lease.pages[: demand.prompt_pages(pool.page_tokens)]


def _transfer(
    node: DecodeState, reception: Reception, writer: Peer, lease: Lease, prompt: Pages
) -> Transfer:
    if node.policy is LandingPolicy.DIRECT:
        _expose(node, lease, prompt)
    window = Window(reception.asked.window, reception.owner, writer, len(prompt), lease)
    want = Expectation(
        owner=reception.owner,
        window=window.id,
        input_digest=reception.asked.presented.input_digest,
        layout=node.layout,
        prompt_tokens=reception.demand.prompt_tokens,
        pages=len(prompt),
        generations=tuple(node.books.pool.generation[prompt].tolist()),
    )
    return Transfer(window, want)


def _expose(node: DecodeState, lease: Lease, prompt: Pages) -> None:
    """The window is the pool itself: a remote process can store into these very pages."""
    node.books.pool.advance(lease, Verb.GRANT, prompt)
    lease.hold(Hold.WINDOW)


def _record_window(node: DecodeState, reception: Reception, window: Window, prompt: Pages) -> None:
    node.books.record(
        "window_granted",
        reception.owner,
        window=window.id,
        peer=window.writer.node,
        pages=tuple(prompt.tolist()),
    )
