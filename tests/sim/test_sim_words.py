"""Transcripts: one line for each move in plain words, and what it led to."""

from __future__ import annotations

from kvairlock.core.guards import Guard
from kvairlock.sim.explore import explore
from kvairlock.sim.state import Budget, Kind, Move
from kvairlock.sim.words import Words
from kvairlock.sim.world import World
from tests.sim.stories import PREFILL, TO_PREFILL, TWO, one

FORGED = """\
  1  alice asks for a/1: 2 tokens
  2  somebody without the key tells decode: receipt of a/1: completed, tokens 0 to 2
  3  decode: landing a/1
  4  decode: step begins
       !! corruption: decode: a/1 did not find its tokens 0, 1"""


def test_a_schedule_is_told_move_by_move() -> None:
    world = World(one(guards_off=frozenset({Guard.FRAME})), Budget(forgeries=1))
    assert "\n".join(Words(world).transcript(explore(world).schedule)) == FORGED


def test_every_kind_of_move_has_words() -> None:
    world = World(TWO, Budget())
    state = world.start()
    state = world.step(state, Move(Kind.SUBMIT, 0)).state
    words = Words(world)
    lines = {
        kind: words.move(state, Move(kind, TO_PREFILL if kind in ON_WIRES else PREFILL * 0))
        for kind in Kind
        if kind is not Kind.FORGE
    }
    assert lines[Kind.DROP] == "lost, from decode to prefill: grant of a window for a/1, 1 pages"
    assert lines[Kind.CUT] == "the link between decode and prefill breaks"
    assert lines[Kind.NOTICE] == "decode notices that prefill is lost"
    assert lines[Kind.CRASH] == lines[Kind.RESTART] == "decode ends and starts again"
    assert all(lines.values())


ON_WIRES = {Kind.DELIVER, Kind.DROP, Kind.REPEAT, Kind.REORDER}
