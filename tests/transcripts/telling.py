"""Stories told by the simulator: a schedule from a few hints, and what it leads to in plain words.

A world takes its usual course: of all that can happen next, the first that is no fault. A story's
hints say where it departs from that:

    hold WORDS     what is said in these words does not happen for now
    free WORDS     it may happen again
    WORDS          the course goes on until what is said in these words can happen, and it does

Beneath each step stand the records that the real core emitted for it, in words.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvairlock.core.effects import Record
from kvairlock.sim.decode import LANDING
from kvairlock.sim.gateway import refusal_by_contract
from kvairlock.sim.setup import Direction, Setup
from kvairlock.sim.state import SPENDS, Budget, Kind, Move, State, Step
from kvairlock.sim.words import Words
from kvairlock.sim.world import World

FOLDER = Path(__file__).parent
WIDTH = 100
NO_FAULTS = Budget()


@dataclass(frozen=True, slots=True)
class Story:
    """A conversation worth reading.

    Args:
        name: Of its file.
        title: What it is about, in a few words.
        text: What to look for.
        setup: The world.
        budget: The faults that its hints name.
        hints: Where it departs from the usual course.
    """

    name: str
    title: str
    text: str
    setup: Setup
    budget: Budget = NO_FAULTS
    hints: tuple[str, ...] = ()


class Stuck(Exception):
    """A hint that never comes true; the message lists what could happen instead."""


def schedule_of(story: Story) -> tuple[World, list[Move]]:
    """Return a story's world and its schedule, to the end.

    Raises:
        Stuck: A hint does not fit.
    """
    world = World(story.setup, story.budget)
    moves: list[Move] = []
    state, held = world.start(), set[str]()
    for hint in (*story.hints, ""):
        verb, _, words = hint.partition(" ")
        if verb == "hold":
            held.add(words)
        elif verb == "free":
            held.remove(words)
        else:
            state = _go_on(world, state, moves, held, hint)
    return world, moves


def _go_on(world: World, state: State, moves: list[Move], held: set[str], hint: str) -> State:
    """Take the usual course until a move that is said in the words of the hint, or to the end."""
    while possible := world.moves(state):
        menu = {move: said(world, state, move) for move in possible}
        sought = next((move for move, words in menu.items() if hint and hint in words), None)
        move = sought or _usual(menu, held)
        if move is None:
            raise Stuck(f"{hint!r} does not happen; what could: {list(menu.values())}")
        moves.append(move)
        state = world.step(state, move).state
        if sought:
            return state
    if hint:
        raise Stuck(f"{hint!r} did not happen before the end")
    return state


def _usual(menu: dict[Move, str], held: set[str]) -> Move | None:
    for move, words in menu.items():
        if move.kind not in SPENDS and not any(part in words for part in held):
            return move
    return None


# In words


def told(story: Story) -> str:
    """Return a story as its file has it."""
    world, moves = schedule_of(story)
    parts = [
        story.title,
        textwrap.fill(" ".join(story.text.split()), WIDTH),
        textwrap.fill(_world(story.setup), WIDTH),
        "\n".join(_steps(world, moves)),
    ]
    return "\n\n".join(parts) + "\n"


def _world(setup: Setup) -> str:
    asks = ", ".join(f"{ask.transfer} of {ask.tenant} ({ask.tokens} tokens)" for ask in setup.asks)
    push = setup.direction is Direction.PUSH
    how = f"landing policy {setup.policy}" if push else f"a {setup.reader} reader"
    off = ", ".join(sorted(setup.guards_off))
    return (
        f"World: {setup.direction}, {how}. Pages of {setup.page_tokens} tokens: "
        f"{setup.prefill_pages} at prefill, {setup.decode_pages} at decode. Requests: {asks}."
        + (f" Guards off: {off}." if off else "")
    )


def _steps(world: World, moves: list[Move]) -> Iterator[str]:
    state = world.start()
    for number, move in enumerate(moves, 1):
        step = world.step(state, move)
        yield f"{number:3}  {said(world, state, move)}"
        led_to = [*_led_to(world, step), *_unheard(world, state, move, step)]
        if move.work is not None and move.work.kind == LANDING and not led_to:
            led_to.append(("decode", "can't yet: somebody may still write into it"))
        for name, what in led_to:
            yield _wrapped(name, what)
        state = step.state


def _wrapped(name: str, what: str) -> str:
    first = f"       {name:8} "
    return textwrap.fill(what, WIDTH, initial_indent=first, subsequent_indent=" " * len(first))


def _led_to(world: World, step: Step) -> Iterator[tuple[str, str]]:
    push = world.setup.direction is Direction.PUSH
    for place, turn in step.turns:
        name = world.topology.peer(place, 1).node
        for number in turn.records:
            yield name, in_words(world.turns.numbers.record(number), push)
        for ending in turn.endings:
            why = f", {ending.reason}" if ending.reason not in ("", ending.end) else ""
            yield "gateway", f"is told that {ending.transfer} ended: {ending.end}{why}"
    for violation in step.violations:
        yield "!!", str(violation)


def _unheard(world: World, state: State, move: Move, step: Step) -> Iterator[tuple[str, str]]:
    """What was refused before any core heard of it: by the gateway, or by a channel's key."""
    if step.turns:
        return
    if move.kind is Kind.SUBMIT:
        ask = world.setup.asks[move.at]
        refusal = refusal_by_contract(world.setup, ask)
        if refusal is not None:
            figures = f"{refusal.asked} asked, {refusal.limit_name} {refusal.limit}"
            yield "gateway", f"refuses {ask.transfer}: {refusal.reason}, {figures}"
    elif move.kind in (Kind.DELIVER, Kind.FORGE):
        place = move.at if move.kind is Kind.FORGE else world.topology.wires[move.at][1]
        name = world.topology.peer(place, 1).node
        yield name, "does not read it: it was not sealed with the key of this channel"


WORK: dict[str, str] = {
    "chunk begins": "{site} begins to compute {subject}",
    "chunk ends": "{site} has computed {subject}",
    "digest": "{site} digests the sealed pages of {subject}",
    "page lands": "{site} stores a page in the {subject}",
    "write ends": "{site} has ended its write and lets go of the {subject}",
    "copy lands": "the transport repeats a page that {site} wrote into the {subject}",
    "landing": "{site} brings the window of {subject} out of everybody's reach, and digests it",
    "page is read": "{site} reads a page of {subject} from prefill's memory",
    "read ends": "{site}'s read for {subject} has ended: nothing more of it can land",
    "step begins": "{site} begins a step: it reads the pages of all that are in its batch",
    "step ends": "{site} ends the step: each has one more token",
    "scrub": "{site} zeroes pages {subject}",
}
"""Work of a site, by its kind."""


def said(world: World, state: State, move: Move) -> str:
    """Return a move in words."""
    if move.kind is Kind.EXPIRE:
        site = world.topology.peer(move.at, 1).node
        return f"{site}: a deadline passes before what is waited for has come"
    if move.work is None or move.work.kind not in WORK:
        return Words(world).move(state, move)
    site = world.topology.peer(move.at, 1).node
    return WORK[move.work.kind].format(site=site, subject=move.work.subject)


SAYS: dict[str, str] = {
    "request_admitted": "admits {who}: {prompt_tokens} tokens of prompt",
    "request_refused": "refuses {who}: {reason}{figures}",
    "would_refuse": "would refuse {who}, if {guard} did not only observe: {reason}{figures}",
    "request_recomputed": "will compute the {tokens} tokens of {who} itself: {reason}",
    "pages_allocated": "gives {who} {pages} (lease {lease}, generations {generations})",
    "window_granted": "grants {peer} a {window}, for {pages}",
    "window_fenced": "has the {window} back: {fence}",
    "prefix_kept": "keeps {pages} of {who} for its scope (lease {lease})",
    "prefix_reused": "takes {tokens} tokens of {who} from {pages}, kept for its scope",
    "range_computed": "has tokens {start} to {stop} of {who} in {pages}",
    "write_ended": "has written {pages} into the {window}: {status}",
    "pages_offered": "offers {pages} of {who} to {peer}",
    "pages_claimed": "holds {pages} for {peer} under the {claim}; it {reader}",
    "remote_read_started": "starts to read {source_pages} of {peer} into its {pages}",
    "remote_read_ended": "has read into {pages}: {status}",
    "pages_validated": "looks at {pages}, generations {generations}: {outcome}",
    "pages_returned": "gives up the {claim} on {pages}",
    "pages_revoked": "takes {pages} back: {reason}",
    "receipt_sent": "states for {who}: {outcome}, tokens {start} to {stop}",
    "verdict": "judges {who}: {outcome}{passed}",
    "read_started": "may read {pages} for {who}, generations {generations}",
    "read_ended": "reads {pages} for {who} no longer",
    "mapping_refused": "does not let {who} read {pages}: they are not its own any more",
    "request_ended": "ends {who}: {end}{why}",
    "end_came_later": "hears of another end of {who}, {end}; the first one stands",
    "drain_began": "frees {pages} (lease {lease}) as soon as nobody can reach them",
    "drain_ended": "zeroes and frees {pages} (lease {lease}): {fence}",
    "message_ignored": "ignores the {message}: {reason}",
    "peer_up": "has a link to {peer}, life {peer_incarnation}",
    "peer_lost": "has lost {peer}, life {peer_incarnation}",
}
"""What each record says, with its fields."""

SAYS_IN_PULL: dict[str, str] = SAYS | {
    "window_granted": "will read from {peer} into {pages}, under the {window}",
    "window_fenced": "reads nothing more under the {window}",
}
"""The same where decode reads: the window is the claim, and its writer is decode's own read."""

TERMS: dict[str, str] = {
    "acknowledged": "whoever had access says that it is done",
    "sealed": "the kernel lets nobody write any more",
    "process_gone": "the process that had access has ended",
    "local": "nobody else ever had access",
    "revoked": "its reader asks before it believes, and will be told no",
    "unproven": "without any evidence that nobody has access",
    "validating": "will ask afterwards whether they stood",
    "trusting": "will not ask afterwards",
}
"""Values that are words of the protocol, in plain ones."""


def in_words(record: Record, push: bool) -> str:
    """Return a record in words."""
    return (SAYS if push else SAYS_IN_PULL)[record.event].format(**_fields(record))


def _fields(record: Record) -> dict[str, str]:
    given = record.fields
    fields = {name: _value(name, value) for name, value in given.items()}
    fields["who"] = record.owner.transfer if record.owner else ""
    reason = given.get("reason")
    fields["why"] = f", {reason}" if reason and reason != given.get("end") else ""
    fields["passed"] = f"; passed: {fields['checks']}" if given.get("checks") else ""
    fields["figures"] = ""
    if given.get("asked") is not None:
        fields["figures"] = f", {given['asked']} asked, {given['limit_name']} {given['limit']}"
    return fields


def _value(name: str, value: object) -> str:
    if not isinstance(value, tuple):
        return TERMS.get(str(value), str(value))
    listed = ", ".join(map(str, value))
    if "pages" in name:
        return f"pages {listed}" if value else "no pages"
    return listed or "none"
