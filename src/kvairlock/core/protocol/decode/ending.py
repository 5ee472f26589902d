"""Ends: the first wins and is written once, everybody concerned is told, the drain begins."""

from __future__ import annotations

from kvairlock.core.effects import Send, StopCompute, StopDecode
from kvairlock.core.ends import ENDS, End, end_for
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Ended, Ruling, Withdraw
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.protocol.handoff import HandoffStage, Signal
from kvairlock.core.protocol.ledger import cause_of, verb_for
from kvairlock.core.terms import Instant, Owner, Peer, TransferId, after

RECOVERABLE = frozenset({Reason.PEER_LOST, Reason.TIMEOUT, Reason.MISSING_EVIDENCE})
"""Reasons that say nothing against the request: evidence did not come. A violation is none."""


def finish(node: DecodeState, reception: Reception, refusal: Refusal | None, now: Instant) -> None:
    """End a request, completed if there is no refusal.

    It is the first end, since an ended reception is no longer in the table.
    """
    end = end_for(refusal.reason) if refusal else End.COMPLETED
    del node.receptions[reception.name]
    node.queue.give_up(reception.name, reception.demand.decode_pages(node.books.report.page_tokens))
    if reception.stage is HandoffStage.CONFIRMED:
        _stop_reading(node, reception)
    else:
        _stop_filling(node, reception, end, refusal)
    reception.stage = handoff.advance(reception.stage, Signal.CLOSE)
    _tell(node, reception, end, refusal)
    if ENDS[end].drains:
        _give_back(node, reception, refusal, now)


def fail_or_recover(
    node: DecodeState, reception: Reception, refusal: Refusal, now: Instant
) -> None:
    """End a request without evidence, or start over here, within the budget.

    What was reserved before is given back as after an end: nothing of it is used. A node that has
    been made too small for the request since it was admitted cannot start it over.
    """
    stage, tokens = reception.stage, reception.demand.prompt_tokens
    may = refusal.reason in RECOVERABLE and Signal.RECOVER in handoff.HANDOFF[stage]
    if not may or node.judge_size(reception) or not node.budget.spend(tokens, now):
        finish(node, reception, refusal, now)
        return
    _stop_filling(node, reception, End.FAILED, refusal)
    _give_back(node, reception, refusal, now)
    reception.reserved = reception.receipt = reception.reland_at = None
    reception.checks, reception.observed = (), ()
    reception.policy, reception.lands, reception.verified = None, 0, ()
    reception.recovered_from = refusal
    reception.stage = handoff.advance(stage, Signal.RECOVER)
    reception.deadline = after(now, node.limits.queue_ms)
    if reception.name not in node.queue:
        node.queue.join_first(reception.owner.tenant, reception.name)
    node.books.counters["recomputed"] += 1
    node.books.record("request_recomputed", reception.owner, reason=refusal.reason, tokens=tokens)


def finish_named(
    node: DecodeState, name: TransferId, refusal: Refusal | None, now: Instant
) -> None:
    """End a request by name; if it has ended, the later end is recorded and changes nothing."""
    reception = node.receptions.get(name)
    if reception is None:
        end = end_for(refusal.reason) if refusal else End.COMPLETED
        node.books.record_late(Owner.named("", name), end)
        return
    finish(node, reception, refusal, now)


def cancelled(node: DecodeState, gateway: Peer, name: TransferId, now: Instant) -> None:
    """End a request whose client has left; only the gateway that asked for it may say so."""
    reception = node.receptions.get(name)
    if reception is not None and reception.asked.gateway != gateway:
        node.books.record_ignored(reception.owner, "cancel", "from another gateway")
        return
    refusal = Refusal(Reason.CANCELLED, Stage.GATEWAY, "the client left")
    finish_named(node, name, refusal, now)


def completed(node: DecodeState, name: TransferId, now: Instant) -> None:
    """End a request whose choices all have their last token; only what was read can complete."""
    reception = node.receptions.get(name)
    if reception is not None and reception.stage is not HandoffStage.CONFIRMED:
        node.books.record_ignored(reception.owner, "decode finished", "it was never read")
        return
    finish_named(node, name, None, now)


def expire(node: DecodeState, reception: Reception, now: Instant) -> None:
    """End a request whose stage has taken too long."""
    fail_or_recover(node, reception, node.refusal_for_wait(reception), now)


def window_failed(node: DecodeState, name: TransferId, message: str, now: Instant) -> None:
    """End a request whose window could not be made, if it still waits for one."""
    reception = node.receptions.get(name)
    if reception is not None and reception.stage is HandoffStage.GRANTED:
        finish(node, reception, Refusal(Reason.CAPACITY, Stage.TRANSFER, message), now)
    node.windows.never_granted(name, now)


def peer_lost(node: DecodeState, peer: Peer, now: Instant) -> None:
    """End what a lost gateway asked for, and what waits for a lost prefill node."""
    node.books.record_peer("peer_lost", peer)
    abandon(node, peer, now)


def abandon(node: DecodeState, peer: Peer, now: Instant) -> None:
    """End what depends on a peer that is lost or whose process has ended."""
    if node.peers.get(peer.node) == peer:
        del node.peers[peer.node]
    for reception in list(node.receptions.values()):
        if reception.asked.gateway == peer:
            refusal = Refusal(Reason.CANCELLED, Stage.GATEWAY, "the gateway left")
            finish(node, reception, refusal, now)
        elif _waits_for(reception, peer):
            message = f"{peer.node} was lost before it confirmed the transfer"
            refusal = Refusal(Reason.PEER_LOST, Stage.TRANSFER, message)
            fail_or_recover(node, reception, refusal, now)


def _waits_for(reception: Reception, peer: Peer) -> bool:
    window = reception.window
    granted = reception.stage is HandoffStage.GRANTED
    return granted and window is not None and window.writer == peer


def _stop_filling(
    node: DecodeState, reception: Reception, end: End, refusal: Refusal | None
) -> None:
    """Tell whoever fills the pages that nobody waits for them any more."""
    if reception.window is not None and ENDS[end].tells_peer:
        told = _last_word(reception, end, refusal)
        node.emit(Send(reception.window.writer.node, told))
    elif reception.stage is HandoffStage.RECOVERING:
        node.emit(StopCompute(reception.name))


def _give_back(
    node: DecodeState, reception: Reception, refusal: Refusal | None, now: Instant
) -> None:
    if reception.window is not None and reception.window.wanted:
        node.windows.unwant(reception.window, now)
    if reception.lease is not None:
        verb, cause = verb_for(refusal), cause_of(refusal)
        node.books.drain.begin(reception.lease, verb, cause, now)


def _last_word(reception: Reception, end: End, refusal: Refusal | None) -> Ruling | Withdraw:
    """What prefill is told of an end before the pages were read: it answers its receipt."""
    if reception.receipt is not None:
        return Ruling(reception.name, False, refusal)
    return Withdraw(reception.name, end)


def _stop_reading(node: DecodeState, reception: Reception) -> None:
    node.emit(StopDecode(reception.name))
    if reception.span is not None:
        node.record_reading("read_ended", reception, reception.span)


def _tell(node: DecodeState, reception: Reception, end: End, refusal: Refusal | None) -> None:
    if refusal is not None:
        node.books.record_refusal(reception.owner, refusal)
    node.books.counters[f"ended.{end}"] += 1
    generated, computed = reception.generated_tokens, reception.computed_tokens
    reused = reception.reused_tokens
    node.books.record(
        "request_ended",
        reception.owner,
        end=end,
        reason=refusal.reason if refusal else "",
        computed_tokens=computed,
        generated_tokens=generated,
        reused_tokens=reused,
    )
    name, lack = reception.asked.transfer, reception.recovered_from
    ended = Ended(name, end, refusal, computed, generated, reused, lack)
    node.emit(Send(reception.asked.gateway.node, ended))
