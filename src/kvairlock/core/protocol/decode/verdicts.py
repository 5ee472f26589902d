"""From receipt to verdict: what is stated, then what landed, each against decode's own figures."""

from __future__ import annotations

from kvairlock.core.effects import CopyPages, Land, Send, StartDecode, ZeroTail
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Computed, Landed
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import Verb
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import Receipt, Ruling
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.decode.ending import fail_or_recover
from kvairlock.core.protocol.decode.reception import Reception, choice_tables
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.protocol.handoff import HandoffStage, Signal
from kvairlock.core.terms import NS_PER_MS, Instant, Peer, after

RELAND_NS = 10 * NS_PER_MS


def receipt_came(node: DecodeState, peer: Peer, receipt: Receipt, now: Instant) -> None:
    """Judge what a receipt states; land the window if it stands."""
    reception = node.receptions.get(receipt.transfer)
    if reception is None or reception.stage is not HandoffStage.GRANTED:
        owner = reception.owner if reception else None
        node.books.record_ignored(owner, "receipt", "no expectation is open for it")
        return
    if node.on(Guard.IDENTITY) and reception.transfer.window.writer != peer:
        node.books.record_ignored(reception.owner, "receipt", "from another than was granted")
        return
    reception.receipt = receipt
    verdict = handoff.judge_statement(reception.transfer.want, receipt, node.books.guards)
    reception.checks = verdict.checks
    refusal = verdict.refusal or _refuse_writable(node, reception)
    if refusal is not None:
        reject(node, reception, refusal, now)
        return
    reception.stage = handoff.advance(reception.stage, Signal.REPORT)
    reception.deadline = after(now, node.limits.landing_ms)
    land(node, reception)


def _refuse_writable(node: DecodeState, reception: Reception) -> Refusal | None:
    """Refuse pages into which a remote process may still store."""
    if Hold.WINDOW not in reception.granted.lease.holds or not node.on(Guard.DRAIN):
        return None
    message = "the writer has not released the window"
    return Refusal(Reason.MISSING_EVIDENCE, Stage.VERDICT, message)


def land(node: DecodeState, reception: Reception) -> None:
    """Bring the window's bytes out of every other process's reach."""
    reserved, window = reception.granted, reception.transfer.window
    reception.reland_at = None
    reception.landings += 1
    window.landing = True
    node.hold(reception.name, reserved.lease, Hold.LANDING)
    node.emit(Land(reception.name, window.id, reserved.prompt, reception.asked.seed))


def landed(node: DecodeState, event: Landed, now: Instant) -> None:
    """Judge the bytes that landed; the pages become readable, or are quarantined."""
    node.let_go(event.transfer, Hold.LANDING)
    node.windows.landed(event.transfer, now)
    reception = node.receptions.get(event.transfer)
    if reception is None or reception.stage is not HandoffStage.REPORTED:
        return
    if event.digests is None:
        reception.reland_at = Instant(now + RELAND_NS)
        return
    verdict = handoff.judge_bytes(reception.stated.digests, event.digests, node.books.guards)
    reception.checks += verdict.checks
    if verdict.refusal is not None:
        reject(node, reception, verdict.refusal, now)
    else:
        _confirm(node, reception, now)


def reject(node: DecodeState, reception: Reception, refusal: Refusal, now: Instant) -> None:
    """Refuse what was stated or landed, and note which checks ran before."""
    _record(node, reception, refusal.reason)
    fail_or_recover(node, reception, refusal, now)


def _confirm(node: DecodeState, reception: Reception, now: Instant) -> None:
    reserved, window = reception.granted, reception.transfer.window
    lease, pool = reserved.lease, node.books.pool
    pool.advance(lease, Verb.ADMIT, reserved.prompt)
    pool.advance(lease, Verb.FILL, lease.pages[len(reserved.prompt) :])
    reception.computed_tokens = reception.stated.stop - reception.stated.start
    reception.reused_tokens = reception.stated.reused
    _record(node, reception, "admitted")
    node.emit(Send(window.writer.node, Ruling(reception.name, True, None)))
    node.windows.unwant(window, now)
    _read(node, reception, now)


def computed(node: DecodeState, event: Computed, now: Instant) -> None:
    """A chunk of a prompt that decode computes itself is done; the last makes it readable."""
    node.let_go(event.transfer, Hold.FILL)
    reception = node.receptions.get(event.transfer)
    if reception is None or event.stop != reception.demand.prompt_tokens:
        return
    pages, pool = reception.granted.prompt, node.books.pool
    reception.computed_tokens = event.stop
    node.books.record(
        "range_computed",
        reception.owner,
        start=0,
        stop=event.stop,
        pages=tuple(pages.tolist()),
        generations=tuple(pool.generation[pages].tolist()),
    )
    _read(node, reception, now)


def _read(node: DecodeState, reception: Reception, now: Instant) -> None:
    """The pages hold what they must: let the engine read them."""
    _prepare(node, reception)
    reception.span = node.books.pool.span(reception.granted.lease.pages)
    reception.stage = handoff.advance(reception.stage, Signal.CONFIRM)
    reception.deadline = after(now, node.limits.decode_ms)
    node.record_reading("read_started", reception, reception.span)
    node.emit(StartDecode(reception.name, reception.tables, reception.name))


def _prepare(node: DecodeState, reception: Reception) -> None:
    """Zero the tail of the last prompt page, and give each choice a table and a last page."""
    size, demand, reserved = node.books.pool.page_tokens, reception.demand, reception.granted
    used = demand.prompt_tokens % size
    if used and node.on(Guard.TAIL):
        node.emit(ZeroTail(int(reserved.prompt[-1]), used))
    reception.tables = choice_tables(reserved.lease.pages, demand, size)
    own = slice(demand.shared_pages(size), len(reserved.prompt))
    for table in reception.tables[1:]:
        node.emit(CopyPages(reserved.prompt[own], table[own]))


def _record(node: DecodeState, reception: Reception, outcome: str) -> None:
    want, receipt = reception.transfer.want, reception.stated
    node.books.counters[f"verdict.{outcome}"] += 1
    node.books.record(
        "verdict",
        reception.owner,
        outcome=outcome,
        checks=tuple(str(check) for check in reception.checks),
        start=receipt.start,
        stop=receipt.stop,
        expected_tokens=want.prompt_tokens,
        pages=tuple(reception.granted.prompt.tolist()),
        generations=want.generations,
    )
