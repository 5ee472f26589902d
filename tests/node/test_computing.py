"""Prompts computed chunk by chunk: same bytes as at once, in turn, and stopped between chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from kvairlock.core.events import ComputeBegan, Computed, EngineFailed, Event
from kvairlock.core.terms import Pages, TransferId
from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Row, load
from kvairlock.engine.recall import Recall
from kvairlock.node.computing import Computing, Prompt

SEED = 20261130
PAGE_TOKENS = 16
MODEL = load("recall")
LAYOUT = MODEL.layout(PAGE_TOKENS)
A, B, C = (TransferId(f"{name}/1") for name in "abc")
NOT_WRITTEN = 0xFF
"""Every byte of a fresh pool: NaN as floats, so what is read unwritten shows."""


class Hooked(Recall):
    """The canary model; something happens in the engine's thread when it comes to a position."""

    def __init__(self, at: int, happens: Callable[[], None]) -> None:
        super().__init__()
        self._at, self._happens = at, happens

    def forward(self, rows: Sequence[Row], cache: PagedCache) -> NDArray[np.float32]:
        if any(row.start == self._at for row in rows):
            self._happens()
        return super().forward(rows, cache)


def once(happens: Callable[[], None]) -> Callable[[], None]:
    """Let something happen the first time only."""
    left = [happens]
    return lambda: left.pop()() if left else None


def no_memory() -> None:
    raise MemoryError("no memory for this chunk")


class Bench:
    """A `Computing` over a pool of its own, and what it told."""

    def __init__(self, chunk_tokens: int, model: Recall | None = None, pages: int = 48) -> None:
        self.memory = np.full((pages, LAYOUT.page_bytes), NOT_WRITTEN, dtype=np.uint8)
        cache = PagedCache(self.memory, LAYOUT)
        self.told: list[Event] = []
        self.answers: dict[Event, Callable[[], None]] = {}
        """What the core would want done when it is told something."""
        self.computing = Computing(model or MODEL, cache, chunk_tokens, self._tell)

    def _tell(self, event: Event) -> None:
        self.told.append(event)
        if event in self.answers:
            self.answers[event]()

    def start(
        self,
        name: TransferId,
        count: int,
        first_page: int = 0,
        position: int = 0,
        tenant: str = "acme",
    ) -> Prompt:
        prompt = Prompt(tenant, tokens(name, count), table(first_page, count), position, count)
        self.computing.start(name, prompt)
        return prompt

    def step(self, steps: int = 1) -> None:
        async def run() -> None:
            for _ in range(steps):
                await self.computing.step()

        anyio.run(run)

    def run(self) -> None:
        """Compute until nothing waits."""
        for _ in range(1_000):
            if not self.computing.has_work:
                return
            self.step()
        raise AssertionError("it never ends")

    def is_untouched(self, pages: Pages) -> bool:
        return bool((self.memory[pages] == NOT_WRITTEN).all())

    def assert_nothing_left(self) -> None:
        """No turn, no prompt, and no word in further steps."""
        assert not self.computing.has_work
        assert not self.computing._prompts
        told = len(self.told)
        self.step(3)
        assert len(self.told) == told


def tokens(name: TransferId, count: int) -> NDArray[np.int32]:
    seed = (SEED, *name.encode())
    drawn = np.random.default_rng(seed).integers(0, MODEL.vocab_size, count)
    return drawn.astype(np.int32)


def table(first_page: int, count: int) -> Pages:
    """Pages that go down instead of up: their order in the pool says nothing."""
    pages = LAYOUT.pages_for(count)
    return np.arange(first_page + pages, first_page, -1, dtype=np.int32) - 1


def chunks(name: TransferId, *stops: int) -> list[Event]:
    return [event for stop in stops for event in (ComputeBegan(name), Computed(name, stop))]


def of(name: TransferId, bench: Bench) -> list[Event]:
    """What was told of one prompt."""
    told = [e for e in bench.told if isinstance(e, ComputeBegan | Computed | EngineFailed)]
    return [event for event in told if event.transfer == name]


@pytest.mark.parametrize("chunk_tokens", [1, 7, 16, 64, 199, 200, 1_000])
def test_chunks_fill_the_pages_as_the_whole_prompt_does(chunk_tokens: int) -> None:
    bench, whole = Bench(chunk_tokens), Bench(1_000)
    bench.start(A, 200)
    bench.run()
    row = Row(tokens(A, 200), 0, table(0, 200))
    MODEL.forward([row], PagedCache(whole.memory, LAYOUT))
    assert np.array_equal(bench.memory, whole.memory)
    assert bench.told == chunks(A, *range(chunk_tokens, 200, chunk_tokens), 200)
    bench.assert_nothing_left()


def test_what_is_before_the_position_is_left_as_it_is() -> None:
    """A shared prefix is there already."""
    bench, whole = Bench(30), Bench(1_000)
    prompt = whole.start(A, 200)
    whole.run()
    bench.memory[prompt.table[:4]] = whole.memory[prompt.table[:4]]
    bench.start(A, 200, position=64)
    bench.run()
    assert bench.told == chunks(A, 94, 124, 154, 184, 200)
    assert np.array_equal(bench.memory, whole.memory)


def test_prompts_take_turns_and_do_not_mix() -> None:
    bench = Bench(50)
    for number, (name, count) in enumerate(((A, 120), (B, 60), (C, 130))):
        bench.start(name, count, first_page=16 * number)
    bench.run()
    order = [(e.transfer, e.stop) for e in bench.told if isinstance(e, Computed)]
    assert order == [(A, 50), (B, 50), (C, 50), (A, 100), (B, 60), (C, 100), (A, 120), (C, 130)]
    alone = Bench(1_000)
    for number, (name, count) in enumerate(((A, 120), (B, 60), (C, 130))):
        alone.start(name, count, first_page=16 * number)
    alone.run()
    assert np.array_equal(bench.memory, alone.memory)
    bench.assert_nothing_left()


def test_who_comes_later_waits_for_one_chunk_of_each_before() -> None:
    bench = Bench(10)
    bench.start(A, 40)
    bench.step(2)
    bench.start(B, 10, first_page=16)
    bench.run()
    order = [(e.transfer, e.stop) for e in bench.told if isinstance(e, Computed)]
    assert order == [(A, 10), (A, 20), (A, 30), (B, 10), (A, 40)]


def test_a_flood_of_prompts_delays_another_tenant_by_one_chunk() -> None:
    bench = Bench(10)
    for number in range(10):
        bench.start(TransferId(f"f{number}/1"), 40, first_page=3 * number, tenant="flood")
    bench.step(7)
    bench.told.clear()
    bench.start(B, 50, first_page=40, tenant="quiet")
    bench.step(10)
    turns = [event.transfer == B for event in bench.told if isinstance(event, Computed)]
    assert turns == [True, False] * 5


def test_a_long_prompt_delays_another_tenant_by_the_chunk_under_way() -> None:
    bench = Bench(10, Hooked(20, lambda: late()))

    def late() -> None:
        bench.start(B, 10, first_page=40, tenant="quiet")

    bench.start(A, 500, tenant="long")
    bench.run()
    stops = [(e.transfer, e.stop) for e in bench.told if isinstance(e, Computed)]
    assert stops[:5] == [(A, 10), (A, 20), (A, 30), (B, 10), (A, 40)]


def test_a_prompt_of_which_nothing_is_left_to_compute_is_not_begun() -> None:
    bench = Bench(10)
    bench.start(A, 32, position=32)
    bench.assert_nothing_left()
    assert bench.told == []


@pytest.mark.parametrize("steps", [0, 1])
def test_a_stop_while_it_waits_ends_it_without_a_word(steps: int) -> None:
    bench = Bench(16)
    prompt = bench.start(A, 64)
    bench.step(steps)
    bench.computing.stop(A)
    bench.start(B, 16, first_page=16)
    bench.run()
    assert bench.told == chunks(A, 16)[: 2 * steps] + chunks(B, 16)
    assert bench.is_untouched(prompt.table[steps:])
    bench.assert_nothing_left()


@pytest.mark.parametrize("chunks_done", [0, 1, 2])
def test_a_stop_as_an_answer_to_the_beginning_of_a_chunk_computes_none_of_it(
    chunks_done: int,
) -> None:
    """The chunk's end is told all the same, at the old position: a hold may wait for it."""
    bench = Bench(16)
    prompt = bench.start(A, 64)
    bench.step(chunks_done)
    bench.answers[ComputeBegan(A)] = lambda: bench.computing.stop(A)
    bench.run()
    done = [16 * chunk for chunk in range(1, chunks_done + 1)]
    assert bench.told == chunks(A, *done, 16 * chunks_done)
    assert bench.is_untouched(prompt.table[chunks_done:])
    bench.assert_nothing_left()


@pytest.mark.parametrize("at", [0, 16, 48])
def test_a_stop_while_a_chunk_is_computed_tells_that_chunk_and_no_more(at: int) -> None:
    bench = Bench(16, Hooked(at, lambda: bench.computing.stop(A)))
    bench.start(A, 64)
    bench.start(B, 16, first_page=16, position=8)
    bench.run()
    assert of(A, bench) == chunks(A, *range(16, at + 17, 16))
    assert of(B, bench) == chunks(B, 16)
    bench.assert_nothing_left()


def test_a_stop_of_what_is_not_there_changes_nothing() -> None:
    bench = Bench(16)
    bench.computing.stop(B)
    bench.start(A, 16)
    bench.computing.stop(B)
    bench.run()
    bench.computing.stop(A)
    assert bench.told == chunks(A, 16)
    bench.assert_nothing_left()


@pytest.mark.parametrize("at", [0, 16, 48])
def test_an_engine_that_raises_is_told_once_and_the_others_go_on(at: int) -> None:
    bench = Bench(16, Hooked(at, no_memory))
    failed = EngineFailed(A, "the engine failed: MemoryError")
    bench.answers[failed] = lambda: bench.computing.stop(A)
    prompt = bench.start(A, 64)
    bench.start(B, 32, first_page=16, position=5)
    bench.run()
    assert of(A, bench) == [*chunks(A, *range(16, at + 1, 16)), ComputeBegan(A), failed]
    assert of(B, bench) == chunks(B, 21, 32)
    assert bench.is_untouched(prompt.table[at // 16 :])
    bench.assert_nothing_left()


def test_a_page_table_that_is_too_short_fails_before_anything_is_written() -> None:
    bench = Bench(64)
    prompt = Prompt("acme", tokens(A, 64), table(0, 48), 0, 64)
    bench.computing.start(A, prompt)
    bench.run()
    assert bench.told == [ComputeBegan(A), EngineFailed(A, "the engine failed: RowMismatch")]
    assert bench.is_untouched(prompt.table)


def test_a_prompt_that_was_stopped_can_be_started_again() -> None:
    bench, whole = Bench(16), Bench(1_000)
    bench.start(A, 64)
    bench.step()
    bench.computing.stop(A)
    bench.start(A, 64)
    bench.run()
    whole.start(A, 64)
    whole.run()
    assert np.array_equal(bench.memory, whole.memory)
    assert [e for e in bench.told if isinstance(e, Computed)] == [
        Computed(A, stop) for stop in (16, 16, 32, 48, 64)
    ]
    bench.assert_nothing_left()


def test_a_prompt_that_is_started_again_while_a_chunk_is_computed_is_computed_whole() -> None:
    def again() -> None:
        bench.computing.stop(A)
        bench.start(A, 32, first_page=16)

    bench, whole = Bench(16, Hooked(16, once(again))), Bench(1_000)
    bench.start(A, 64)
    bench.run()
    prompt = whole.start(A, 32, first_page=16)
    whole.run()
    assert [e.stop for e in bench.told if isinstance(e, Computed)] == [16, 32, 16, 32]
    assert np.array_equal(bench.memory[prompt.table], whole.memory[prompt.table])
    bench.assert_nothing_left()
