"""Real nodes in the middle of a transfer that are told what is almost right.

Each state is that of a simulated site which an ordinary schedule has led there; every input meets
a fresh copy of it. Whatever is said, by whomever: no error gets out of a turn, no invariant breaks,
and decode lands, reads or believes, a lender lends or lets go, exactly if all of it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest

from kvairlock.core.effects import Effect, Land, Record, Send, StartRead
from kvairlock.core.errors import PeerMisbehaved, Reason, Refusal, Stage
from kvairlock.core.events import Claimed, Event, Presented, Told
from kvairlock.core.messages import (
    Claim,
    Lent,
    Message,
    Receipt,
    Release,
    Released,
    RequestTicket,
    Returned,
    Ruling,
    TransferTicket,
    Validate,
    Validated,
    Withdraw,
)
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.pull.lender.state import LenderState
from kvairlock.core.terms import Incarnation, NodeName, Peer, Reader, Role, TransferId, WindowId
from kvairlock.sim.setup import UNIX_S, Ask, Direction, Setup
from kvairlock.sim.site import Site
from kvairlock.sim.state import Budget, Kind, State
from kvairlock.sim.stimuli import ClaimParcel
from kvairlock.sim.world import World
from kvairlock.wire import codec
from tests.fuzz import valid
from tests.fuzz.campaign import Make, fuzz, inputs, reached
from tests.fuzz.odd import almost, changed, encode, fields_as_bytes

DECODE, PREFILL = 0, 1
ALICE = Ask("alice", "a", 5)


@dataclass(frozen=True, slots=True)
class Scene:
    """A site that waits for an answer.

    Args:
        site: Returns a fresh copy of it.
        sender: Who has to answer.
        right: What is on its way.
        others: What else the same peer could say now.
    """

    site: Callable[[], Site]
    sender: Peer
    right: Any
    others: tuple[Message, ...]


def scene(direction: Direction, place: int, kind: type[Any], *others: Message) -> Scene:
    """Let one request take its course until a message of a kind is next at a place."""
    world = World(Setup((ALICE,), direction=direction, decode_pages=4, tenant_pages=4), Budget())
    state = world.start()
    while (said := _next_at(world, state, place, kind)) is None:
        state = world.step(state, world.moves(state)[0]).state
    held = state.sites[place]
    sender = world.topology.peer(1 - place, 1)
    return Scene(lambda: world.turns.site(held), sender, said, others)


def _next_at(world: World, state: State, place: int, kind: type[Any]) -> Any:
    for move in world.moves(state):
        if move.kind is Kind.DELIVER and world.topology.wires[move.at][1] == place:
            content = world.turns.numbers.contents[world.parcels[state.wires[move.at][0]][3]]
            if isinstance(content, kind):
                return content
    return None


PEERS: tuple[Callable[[Peer], Peer], ...] = (
    lambda peer: peer,
    lambda peer: peer,
    lambda peer: peer,
    lambda peer: replace(peer, incarnation=Incarnation("another")),
    lambda peer: replace(peer, node=NodeName("another")),
    lambda peer: replace(peer, role=Role.GATEWAY),
)
"""Who says it; the first byte of an input."""


def sayings(here: Scene) -> Make:
    """Return what draws inputs: a number of who speaks, and a message something was done to."""
    said = (here.right, *here.others)
    return lambda rng: _odd_saying(rng, said)


def _odd_saying(rng: Random, said: tuple[Message, ...]) -> bytes:
    message = said[0] if rng.random() < 0.4 else rng.choice(said)
    speaker = bytes([rng.randrange(len(PEERS))])
    body = codec.encode(message, valid.NEWEST)
    tree = valid.plain(message)
    head = body[: len(body) - len(encode(tree))]
    match rng.randrange(8):
        case 0:
            return speaker + changed(rng, body)
        case 1:
            return speaker + head + fields_as_bytes(rng, tree)
        case 2:
            return b"\0" + body
    name = rng.choice(list(tree))
    tree[name] = _refusal(rng) if name == "refusal" else almost(rng, tree[name])
    return speaker + head + encode(tree)


def _refusal(rng: Random) -> object:
    reason = rng.choice((Reason.ENGINE, Reason.GENERATION, Reason.TIMEOUT))
    return rng.choice((None, valid.plain(Refusal(reason, Stage.TRANSFER, "why"))))


def read(data: bytes, right: Peer) -> tuple[Peer, Message] | None:
    """Return who says what in an input, if it is a message at all."""
    try:
        return PEERS[data[0]](right), codec.decode(data[1:], valid.NEWEST)
    except PeerMisbehaved:
        return None


def taken(site: Site, event: Event) -> list[Effect]:
    """Let a node take an event; nothing may break."""
    effects = site.node.handle(event, site.now)
    broken = [e for e in effects if isinstance(e, Record) and e.event == "invariant_broken"]
    assert not broken, broken
    return effects


def kinds(effects: list[Effect]) -> Iterator[type[Any]]:
    """The kinds of effects, and of the messages that are sent."""
    for effect in effects:
        yield type(effect)
        if isinstance(effect, Send):
            yield type(effect.message)


def is_same(one: Message, other: Message, **relaxed: Any) -> bool:
    """Whether two messages are the same on the wire, up to some fields."""
    if type(one) is not type(other):
        return False
    pair: list[Any] = [one, other]
    return len({codec.encode(replace(message, **relaxed), valid.NEWEST) for message in pair}) == 1


# Push: decode waits for the receipt


@cache
def waits_for_receipt() -> Scene:
    found = scene(Direction.PUSH, DECODE, Receipt)
    receipt: Receipt = found.right
    return replace(found, others=(Released(receipt.transfer, receipt.window, 6),))


def judge_receipt(data: bytes) -> str:
    here = waits_for_receipt()
    said = read(data, here.sender)
    if said is None:
        return "nothing to take"
    peer, message = said
    if not isinstance(message, Receipt | Released):
        return "nothing to take"
    effects = taken(here.site(), Told(peer, message))
    lands = Land in kinds(effects)
    # Digests are compared with what landed, and the bytes are still to come.
    right = (
        peer == here.sender
        and isinstance(message, Receipt)
        and is_same(message, here.right, reused=0, digests=())
        and 0 <= message.reused <= message.stop
    )
    assert lands == right
    return "lands" if lands else "refused" if Send in kinds(effects) else "ignored"


@inputs(20_000, few=600)
def test_a_receipt_is_landed_only_if_it_is_the_one_that_is_waited_for(count: int) -> None:
    outcomes = fuzz("told decode", count, sayings(waits_for_receipt()), judge_receipt)
    assert reached(outcomes, "lands", "refused", "ignored")


# Pull: the borrower waits for coordinates, then for the word that they stood


@cache
def waits_for_coordinates() -> Scene:
    found = scene(Direction.PULL, DECODE, Lent)
    lent: Lent = found.right
    return replace(
        found,
        others=(
            Validated(lent.transfer, lent.nonce, None),
            Returned(lent.transfer, lent.nonce),
            lent.receipt,
        ),
    )


def judge_coordinates(data: bytes) -> str:
    here = waits_for_coordinates()
    said = read(data, here.sender)
    if said is None:
        return "nothing to take"
    peer, message = said
    if not isinstance(message, Lent | Validated | Returned | Receipt):
        return "nothing to take"
    effects = taken(here.site(), Told(peer, message))
    reads = StartRead in kinds(effects)
    right = peer == here.sender and isinstance(message, Lent) and fits(message, here.right)
    assert reads == right
    return "reads" if reads else "refused" if Send in kinds(effects) else "ignored"


def fits(lent: Lent, right: Lent) -> bool:
    """Whether coordinates are such that they can be read: whose they are only bytes will show."""
    receipt, count = lent.receipt, len(right.pages)
    coordinates = (
        len(lent.pages) == len(set(lent.pages)) == len(lent.generations) == count
        and all(0 <= page < 2**31 for page in lent.pages)
        and all(0 <= generation < 2**63 for generation in lent.generations)
    )
    named = (lent.transfer, lent.nonce) == (right.transfer, right.nonce)
    stated = is_same(receipt, right.receipt, reused=0, digests=(), transfer=TransferId(""))
    return named and coordinates and stated and 0 <= receipt.reused <= receipt.stop


@inputs(20_000, few=600)
def test_coordinates_are_read_only_if_the_receipt_is_the_one_that_is_waited_for(
    count: int,
) -> None:
    outcomes = fuzz("told borrower", count, sayings(waits_for_coordinates()), judge_coordinates)
    assert reached(outcomes, "reads", "refused", "ignored")


@cache
def waits_for_word() -> Scene:
    found = scene(Direction.PULL, DECODE, Validated)
    word: Validated = found.right
    lent: Lent = waits_for_coordinates().right
    return replace(found, others=(lent, Returned(word.transfer, word.nonce)))


def judge_word(data: bytes) -> str:
    here = waits_for_word()
    said = read(data, here.sender)
    if said is None:
        return "nothing to take"
    peer, message = said
    if not isinstance(message, Lent | Validated | Returned):
        return "nothing to take"
    effects = taken(here.site(), Told(peer, message))
    believed = any(isinstance(e, Record) and e.event == "read_started" for e in effects)
    assert believed == (peer == here.sender and is_same(message, here.right))
    return "believed" if believed else "refused" if Send in kinds(effects) else "ignored"


@inputs(20_000, few=600)
def test_pages_are_believed_only_if_their_lender_says_that_they_stood(count: int) -> None:
    outcomes = fuzz("told reader", count, sayings(waits_for_word()), judge_word)
    assert reached(outcomes, "believed", "refused", "ignored")


# Pull: the lender waits for a claim, then for what its claimant says


def claim_on_the_wire(parcel: ClaimParcel) -> Claim:
    """The claim with its tickets as msgpack: what is left of them once signatures are checked."""
    presented, offer = parcel.claimed.presented, parcel.claimed.offer
    return replace(parcel.claimed.claim, ticket=encode(presented.ticket), offer=encode(offer))


def claimed(peer: Peer, claim: Claim) -> Claimed:
    """What a host makes of a claim."""
    presented = Presented(
        unsigned(claim.ticket, RequestTicket),
        claim.tenant,
        claim.input_digest,
        claim.prompt_tokens,
        UNIX_S,
    )
    return Claimed(peer, claim, presented, unsigned(claim.offer, TransferTicket))


def unsigned(data: bytes, kind: type[Any]) -> Any:
    """Return a ticket, or why there is none."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return Refusal(Reason.MALFORMED, Stage.PREFILL_ADMISSION, "no ticket")


@cache
def waits_for_claim() -> Scene:
    found = scene(Direction.PULL, PREFILL, ClaimParcel)
    claim = claim_on_the_wire(found.right)
    name, nonce = claim.transfer, claim.nonce
    return replace(found, right=claim, others=(Validate(name, nonce), Release(name, nonce)))


def is_right_claim(claim: Claim, right: Claim) -> bool:
    """Whether a claim may be answered with pages; nonce, generations, trace are the claimant's."""
    tickets = all(
        unsigned(got, kind) == unsigned(want, kind)
        for got, want, kind in (
            (claim.ticket, right.ticket, RequestTicket),
            (claim.offer, right.offer, TransferTicket),
        )
    )
    own: dict[str, Any] = {"ticket": b"", "offer": b"", "nonce": "", "generations": ()}
    return tickets and is_same(claim, right, **own, trace="", reader=Reader.VALIDATING)


def lends(effects: list[Effect]) -> bool:
    """Whether a claim is answered with pages."""
    sent = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Lent)]
    return any(lent.pages for lent in sent)


def judge_claim(data: bytes) -> str:
    here = waits_for_claim()
    said = read(data, here.sender)
    if said is None:
        return "nothing to take"
    peer, message = said
    if isinstance(message, Claim):
        effects = taken(here.site(), claimed(peer, message))
        lent = lends(effects)
        assert lent == (peer == here.sender and is_right_claim(message, here.right))
        return "lends" if lent else "refuses"
    if isinstance(message, Validate | Release | Ruling | Withdraw):
        effects = taken(here.site(), Told(peer, message))
        stood = [e.message for e in effects if isinstance(e, Send)]
        assert not any(isinstance(m, Validated) and m.refusal is None for m in stood)
        return "answers" if stood else "ignores"
    return "nothing to take"


@inputs(20_000, few=600)
def test_pages_are_lent_only_to_the_claim_that_they_were_offered_for(count: int) -> None:
    outcomes = fuzz("told lender", count, sayings(waits_for_claim()), judge_claim)
    assert reached(outcomes, "lends", "refuses", "answers")


@cache
def waits_for_question() -> Scene:
    found = scene(Direction.PULL, PREFILL, Validate)
    asked: Validate = found.right
    claim: Claim = waits_for_claim().right
    name = asked.transfer
    others = (Release(name, asked.nonce), Ruling(name, True, None), claim)
    return replace(found, others=others)


def judge_question(data: bytes) -> str:
    """The word that pages stand, and the end of the loan, are for the claimant alone."""
    here = waits_for_question()
    said = read(data, here.sender)
    if said is None:
        return "nothing to take"
    peer, message = said
    site = here.site()
    if isinstance(message, Claim):
        effects = taken(site, claimed(peer, message))
        repeated = is_right_claim(message, claim_of(here)) and message.nonce == here.right.nonce
        assert lends(effects) == (peer == here.sender and repeated)
        return "lends" if lends(effects) else "refuses"
    if not isinstance(message, Validate | Release | Ruling | Withdraw):
        return "nothing to take"
    effects = taken(site, Told(peer, message))
    # A life of a process has one role: who holds a claim is known by the life alone.
    by_claimant = replace(peer, role=here.sender.role) == here.sender
    stood = any(
        isinstance(e, Send) and isinstance(e.message, Validated) and e.message.refusal is None
        for e in effects
    )
    assert stood == (by_claimant and is_same(message, here.right))
    returned = any(isinstance(e, Record) and e.event == "pages_returned" for e in effects)
    right_release = Release(here.right.transfer, here.right.nonce)
    assert returned == (by_claimant and is_same(message, right_release))
    return "stood" if stood else "returned" if returned else "neither"


def claim_of(here: Scene) -> Claim:
    """The claim that is held."""
    return next(message for message in here.others if isinstance(message, Claim))


@inputs(20_000, few=600)
def test_a_loan_is_answered_and_ended_for_its_claimant_alone(count: int) -> None:
    outcomes = fuzz("told holder", count, sayings(waits_for_question()), judge_question)
    assert reached(outcomes, "stood", "returned", "neither", "lends", "refuses")


@pytest.mark.parametrize(
    ("find", "kind"),
    [
        (waits_for_receipt, Receipt),
        (waits_for_coordinates, Lent),
        (waits_for_word, Validated),
        (waits_for_claim, Claim),
        (waits_for_question, Validate),
    ],
)
def test_scenes_are_what_they_are_said_to_be(find: Callable[[], Scene], kind: type[Any]) -> None:
    here = find()
    assert isinstance(here.right, kind)
    assert here.right.transfer == ALICE.transfer
    assert here.site() is not here.site()


def test_a_window_of_another_name_is_no_answer() -> None:
    """The campaign's oracle can say no."""
    here = waits_for_receipt()
    other = replace(here.right, window=WindowId("another"))
    assert judge_receipt(b"\0" + codec.encode(other, valid.NEWEST)) == "refused"
    assert judge_receipt(b"\0" + codec.encode(here.right, valid.NEWEST)) == "lands"
    assert judge_receipt(b"\3" + codec.encode(here.right, valid.NEWEST)) == "ignored"


def test_a_lender_that_answers_anybody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign can fail: a real lender that does not look at who asks."""
    monkeypatch.setattr(LenderState, "is_held_by", lambda *_: True)
    with pytest.raises(AssertionError, match="told holder"):
        fuzz("told holder", 600, sayings(waits_for_question()), judge_question)


def test_a_decode_node_that_takes_any_statement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoff, "judge_statement", lambda *_: handoff.Verdict(None, ()))
    with pytest.raises(AssertionError, match="told decode"):
        fuzz("told decode", 600, sayings(waits_for_receipt()), judge_receipt)
    with pytest.raises(AssertionError, match="told borrower"):
        fuzz("told borrower", 600, sayings(waits_for_coordinates()), judge_coordinates)
