"""Each phrase does what its row says: here are stories for those that no shipped case has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvairlock.sim.cases.expectations import EXPECTATIONS
from kvairlock.sim.cases.public import FOLDER, SUFFIX
from kvairlock.sim.cases.reader import COMMENT, ONE, read
from kvairlock.sim.cases.run import run
from kvairlock.sim.cases.steps import STEPS, UNSAID, WORDS, Control, Happens
from kvairlock.sim.cases.words import Vocabulary
from kvairlock.sim.cases.worlds import WORLD
from kvairlock.sim.setup import Flaw
from kvairlock.sim.state import Kind

STORIES = {
    "a client names another's transfer": """
        case X-1: a client names another tenant's transfer in its body
        world:
          prefill pushes
          alice asks a: 2 tokens
          alice asks s: 2 tokens
          mallory asks m: 2 tokens
          a has prompt p
          s has prompt p
          m has prompt p
          a is shared in alice
          s is shared in alice
          the body of m names the transfer of s
        steps:
          alice sends a
          ...
          mallory sends m
          ...
          alice sends s
        with guards:
          m ends completed
          m reuses nothing
        without strip, ticket:
          m reads bytes of a
    """,
    "somebody forges a receipt": """
        case X-2: somebody without the key states success
        world:
          alice asks a: 2 tokens
          bob asks b: 2 tokens
        steps:
          not yet: prefill begins to compute a
          alice sends a
          ...
          somebody forges a receipt of a
          ...
          bob sends b
        with guards:
          a ends completed
          a is read
          nobody reads what is another's
        without frame:
          a misses tokens
    """,
    "pages in another order": """
        case X-3: prefill writes pages in another order
        world:
          alice asks a: 4 tokens
          bob asks b: 4 tokens
          prefill writes the pages of a in another order
        steps:
          alice sends a
          bob sends b
        with guards:
          a ends refused page_index
          b ends completed
        without page_index:
          a misses tokens
    """,
    "a foreign byte": """
        case X-4: a foreign byte lands
        world:
          alice asks a: 4 tokens
          bob asks b: 4 tokens
          a foreign byte lands with the last page of a
        steps:
          alice sends a
          bob sends b
        with guards:
          a ends refused integrity
          b ends completed
        without integrity:
          a reads bytes of b
    """,
    "a neighbour's slots": """
        case X-5: the rest of a page holds a neighbour's slots
        world:
          alice asks a: 1 tokens
          bob asks b: 1 tokens
          prefill fills the last page of a with a neighbour's slots
        steps:
          alice sends a
          bob sends b
        with guards:
          a ends completed
          b ends completed
        without tail:
          a reads bytes of b
    """,
    "a deaf engine": """
        case X-7: an engine goes on with a request that has ended
        world:
          decode's engine drops requests late
          mallory asks m: 4 tokens
          bob asks b: 4 tokens
        steps:
          not yet: decode begins a step
          mallory sends m
          ...
          m's client leaves
          bob sends b
          ...
        with guards:
          m ends cancelled
          b ends completed
        without mapping:
          m reads bytes of b
    """,
    "steps one by one": """
        case X-8: all steps of a transfer, one by one
        world:
          pages are zeroed late
          alice asks a: 4 tokens
        steps:
          alice sends a
          the grant of a arrives
          prefill begins to compute a
          prefill ends to compute a
          prefill digests a
          page 1 of a lands
          page 2 of a lands
          the write of a ends
          the sign-off of a arrives
          the receipt of a arrives
          decode lands a
          the ruling of a arrives
          prefill zeroes pages
          decode begins a step
          decode ends its step
          decode zeroes pages
        with guards:
          a ends completed
          prefill has computed a
          the evidence has verdict of a
        built in:
          nothing goes wrong in it
    """,
    "a loan, step by step": """
        case X-9: all steps of a loan, and one message that overtakes another
        world:
          decode pulls
          alice asks a: 4 tokens
        steps:
          alice sends a
          prefill computes a
          prefill digests a
          the gateway refers a
          the claim of a arrives
          the loan of a arrives
          page 1 of a is read
          page 2 of a is read
          the read of a ends
          the question of a arrives
          the answer of a arrives
          the ruling of a is overtaken
          the return of a arrives
          the ruling of a arrives
          the return slip of a arrives
          decode makes a step
        with guards:
          a ends completed
        built in:
          nothing goes wrong in it
    """,
    "a copy of an ended write": """
        case X-10: the transport writes a page once more, after its transfer was admitted
        world:
          the transport keeps copies
          there are 2 decode nodes
          1 requests may wait
          alice asks a: 4 tokens
          bob asks b: 4 tokens
          b is routed to decode-2
        steps:
          not yet: decode begins a step
          alice sends a
          ...
          a copy of a page of a lands
          bob sends b
          ...
        with guards:
          a ends completed
          b ends completed
        built in:
          what lands in a window that was copied reaches nobody
    """,
}


@pytest.mark.parametrize("text", STORIES.values(), ids=list(STORIES))
def test_a_story_comes_out_as_it_says(text: str) -> None:
    judged = run(read(text, "a.case"))
    assert list(judged.rows[0].wrong) == []


def lines() -> Iterator[str]:
    """All lines of all cases, shipped and above."""
    texts = [entry.read_text() for entry in FOLDER.iterdir() if entry.name.endswith(SUFFIX)]
    for text in (*texts, *STORIES.values()):
        yield from (ONE.sub(r"1 \1s", COMMENT.sub("", line)).strip() for line in text.splitlines())


def test_every_phrase_is_used_somewhere() -> None:
    vocabularies = (WORLD, STEPS, EXPECTATIONS)
    used = {found[0].words for line in lines() for v in vocabularies if (found := v.read(line))}
    everything = {row.words for vocabulary in vocabularies for row in vocabulary.rows}
    assert everything - used == set()


def test_every_move_of_a_world_has_a_phrase() -> None:
    said = {happens.kind for happens in WORDS} | set(UNSAID)
    assert said == set(Kind)


def test_every_flaw_has_a_phrase_but_the_one_that_no_guard_can_put_right() -> None:
    flaws = {getattr(row.means, "keywords", {}).get("flaw") for row in WORLD.rows}
    assert flaws - {None} == set(Flaw) - {Flaw.NONE, Flaw.IDLE}


@pytest.mark.parametrize(
    "vocabulary", [WORLD, STEPS, EXPECTATIONS], ids=["world", "steps", "expectations"]
)
def test_no_line_fits_two_phrases(vocabulary: Vocabulary[Any]) -> None:
    alone = [Vocabulary((row,)) for row in vocabulary.rows]
    for line in lines():
        assert sum(each.read(line) is not None for each in alone) <= 1, line


def test_no_line_is_a_step_and_an_expectation() -> None:
    assert [line for line in lines() if STEPS.read(line) and EXPECTATIONS.read(line)] == []


def test_a_phrase_says_what_its_row_means() -> None:
    found = STEPS.read("the receipt of a arrives")
    assert found is not None
    assert found[0].means == Happens(Kind.DELIVER)
    assert found[1] == {"MESSAGE": "receipt", "REQUEST": "a"}
    assert STEPS.read("the telegram of a arrives") is None
    assert STEPS.read("page * of a lands") is None
    pattern = STEPS.read("page * of a lands", pattern=True)
    assert pattern is not None
    assert pattern[1] == {"NUMBER": "*", "REQUEST": "a"}
    settle = STEPS.read("...")
    assert settle is not None
    assert settle[0].means is Control.SETTLE
