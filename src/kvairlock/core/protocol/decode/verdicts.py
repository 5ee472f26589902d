"""From receipt to verdict: what is stated, then what landed, each against decode's own figures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kvairlock.core.effects import CopyPages, Land, Send, StartDecode, ZeroTail
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Computed, Landed
from kvairlock.core.guards import Guard, GuardMode
from kvairlock.core.memory.page import Verb
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import Receipt, Ruling
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.decode.covering import weaken
from kvairlock.core.protocol.decode.ending import fail_or_recover
from kvairlock.core.protocol.decode.reception import Reception, choice_tables
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.protocol.handoff import HandoffStage, Signal, Verdict
from kvairlock.core.terms import NS_PER_MS, Instant, Pages, Peer, after

RELAND_NS = 10 * NS_PER_MS


def receipt_came(node: DecodeState, peer: Peer, receipt: Receipt, now: Instant) -> None:
    """Judge what a receipt states; land the window if it stands."""
    reception = node.receptions.get(receipt.transfer)
    if reception is None or reception.stage is not HandoffStage.GRANTED:
        owner = reception.owner if reception else None
        node.books.record_ignored(owner, "receipt", "no expectation is open for it")
        return
    route, writer = node.route_of(reception), partial(_judge_writer, reception, peer)
    if node.books.judge(Guard.IDENTITY, route, reception.owner, writer) is not None:
        node.books.record_ignored(reception.owner, "receipt", "from another than was granted")
        return
    reception.receipt = receipt
    want, guards = reception.transfer.want, node.books.guards
    refusal = take(node, reception, handoff.judge_statement(want, receipt, guards, route))
    refusal = refusal or _refuse_writable(node, reception)
    if refusal is not None:
        reject(node, reception, refusal, now)
        return
    reception.stage = handoff.advance(reception.stage, Signal.REPORT)
    reception.deadline = after(now, node.limits.landing_ms)
    land(node, reception)


def _judge_writer(reception: Reception, peer: Peer) -> Refusal | None:
    if reception.transfer.window.writer == peer:
        return None
    message = f"the receipt is from {peer.node}, which was not granted the window"
    return Refusal(Reason.IDENTITY, Stage.VERDICT, message)


def take(node: DecodeState, reception: Reception, verdict: Verdict) -> Refusal | None:
    """Take what checks have found: note what only observes, and return what is refused."""
    reception.checks = tuple(dict.fromkeys(reception.checks + verdict.checks))
    reception.observed += verdict.observed
    for seen in verdict.observed:
        route = node.route_of(reception)
        node.books.record_observed(seen.guard, route, reception.owner, seen.refusal)
    return verdict.refusal


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
    digested = choose_sample(node, reception, reserved.prompt)
    seed = reception.asked.seed
    node.emit(Land(reception.name, window.id, reserved.prompt, digested, seed))


def choose_sample(node: DecodeState, reception: Reception, landing: Pages) -> Pages:
    """Choose which of the pages that are about to land will be digested, and return those.

    The policy that is in force now counts to the end of the landing.
    """
    reception.policy = node.books.guards.checks(node.route_of(reception))
    reception.lands = len(landing)
    return landing[list(reception.sample.digested)]


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
    refusal = _judge_landed(node, reception, event.digests)
    if refusal is not None:
        reject(node, reception, refusal, now)
    else:
        _confirm(node, reception, now)


def _judge_landed(
    node: DecodeState, reception: Reception, digests: tuple[int, ...]
) -> Refusal | None:
    sample, route = reception.sample, node.route_of(reception)
    stated, guards = reception.stated.digests, node.books.guards
    verdict = handoff.judge_bytes(stated, digests, sample, guards, route)
    if Guard.INTEGRITY in verdict.checks:
        digested = reception.granted.prompt[list(sample.digested)]
        reception.verified = tuple(digested.tolist())
    # A check that ran on a part of the pages is none of those that passed: `verified` says which.
    refusal = take(node, reception, verdict if sample.is_whole else replace(verdict, checks=()))
    return refusal or _refuse_observed(node, reception)


def _refuse_observed(node: DecodeState, reception: Reception) -> Refusal | None:
    """Refuse what was let pass if its guard enforces by now: the waiver has ended meanwhile."""
    route, guards = node.route_of(reception), node.books.guards
    for seen in reception.observed:
        if guards.mode(seen.guard, route) is GuardMode.ENFORCING:
            return seen.refusal
    return None


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
    weaken(node, reception)
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
        observed=tuple(str(seen.guard) for seen in reception.observed),
        policy=str(reception.policy or ""),
        verified=reception.verified,
        start=receipt.start,
        stop=receipt.stop,
        expected_tokens=want.prompt_tokens,
        pages=tuple(reception.granted.prompt.tolist()),
        generations=want.generations,
    )
