"""The batch: who takes part in a step, what each draws, and that no row costs another anything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from kvairlock.core.messages import GREEDY, Sampling, Score
from kvairlock.core.terms import NodeName, TransferId
from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Row, load
from kvairlock.engine.recall import Recall
from kvairlock.node.answers import Answer, Answers, Drawn
from kvairlock.node.batch import Batch, Seat
from kvairlock.node.showing import Showing
from kvairlock.runtime.failpoints import Failpoints

MODEL = load("recall")
LAYOUT = MODEL.layout(16)
TOKENS_MAX = 12


class Fragile(Recall):
    """The real model, save that it raises for rows of one token."""

    def __init__(self, token: int) -> None:
        super().__init__()
        self.token = token
        self.batches: list[int] = []

    def forward(self, rows: Sequence[Row], cache: PagedCache) -> NDArray[np.float32]:
        self.batches.append(len(rows))
        if any(int(row.tokens[0]) == self.token for row in rows):
            raise MemoryError
        return super().forward(rows, cache)


class Dreaming(Recall):
    """A model whose logits are noise that depends on token and position only; NaN for one token."""

    def __init__(self, broken: int = -1) -> None:
        super().__init__()
        self.broken = broken

    def forward(self, rows: Sequence[Row], cache: PagedCache) -> NDArray[np.float32]:
        return np.stack([self._dream(int(row.tokens[-1]), row.start) for row in rows])

    def _dream(self, token: int, position: int) -> NDArray[np.float32]:
        if token == self.broken:
            return np.full(self.vocab_size, math.nan, np.float32)
        noise = np.random.default_rng((token, position)).normal(size=self.vocab_size)
        return noise.astype(np.float32)


def batch(seats_max: int, model: Recall | None = None) -> Batch:
    cache = PagedCache(np.zeros((8, LAYOUT.page_bytes), dtype=np.uint8), LAYOUT)
    return Batch(model or MODEL, cache, Failpoints(enabled=False), seats_max)


def request(
    name: str,
    tokens: Sequence[int],
    tenant: str = "acme",
    sampling: Sampling = GREEDY,
    alternatives: int | None = None,
) -> Answers:
    """A request with one choice for each of these tokens, at position 0."""
    transfer = TransferId(name)
    table = np.array([0], dtype=np.int32)
    choices = [Answer(table, t, 0, TOKENS_MAX, frozenset(), Showing(())) for t in tokens]
    gateway = NodeName("gateway")
    return Answers(transfer, transfer, gateway, tenant, sampling, alternatives, tuple(choices))


def places(seats: Sequence[Seat]) -> list[tuple[str, int]]:
    return [(seat.answers.transfer, seat.choice) for seat in seats]


def step(one: Batch) -> list[Seat]:
    """Step once and give each seat what it drew."""
    seats = one.seats()
    for seat, drawn in zip(seats, one.step(seats), strict=True):
        assert drawn is not None
        seat.answer.take(drawn)
    return seats


def answers_to(asked: Answers, *others: Answers, seats_max: int = 8) -> list[list[int]]:
    """All tokens of a request's choices, in a batch with others."""
    one = batch(seats_max, Dreaming())
    tokens: list[list[int]] = [[] for _ in asked.choices]
    for answers in (*others, asked):
        one.add(answers)
    while not asked.is_finished:
        for seat in step(one):
            if seat.answers is asked:
                tokens[seat.choice].append(seat.answer.token)
    return tokens


# Who takes part


def test_all_take_part_if_they_fit_and_finished_choices_do_not() -> None:
    one = batch(4)
    one.add(request("a", [1, 2]))
    one.add(request("b", [3]))
    assert places(one.seats()) == [("a", 0), ("a", 1), ("b", 0)]
    one.seats()[0].answer.finish = "stop"
    assert places(one.seats()) == [("a", 1), ("b", 0)]
    one.drop(TransferId("a"))
    assert one.names == ("b",)
    assert places(one.seats()) == [("b", 0)]


def test_whoever_was_left_out_comes_first_in_the_next_step() -> None:
    one = batch(2)
    for name in "abc":
        one.add(request(name, [1]))
    steps = [[seat.answers.transfer for seat in one.seats()] for _ in range(3)]
    assert steps == [["a", "b"], ["c", "a"], ["b", "c"]]


@pytest.mark.parametrize("quiet", [1, 3])
def test_a_flood_leaves_another_tenant_its_half_of_the_seats(quiet: int) -> None:
    one = batch(4)
    for number in range(30):
        one.add(request(f"f{number}", [1], tenant="flood"))
    one.add(request("q", [1] * quiet, tenant="quiet"))
    taken = Counter(seat.answers.tenant for _ in range(20) for seat in one.seats())
    mine = 20 * min(quiet, 2)
    assert taken == {"quiet": mine, "flood": 80 - mine}


def test_tenants_that_do_not_all_fit_take_turns() -> None:
    one = batch(2)
    for name, tenant in (("a0", "a"), ("a1", "a"), ("a2", "a"), ("b", "b"), ("c", "c")):
        one.add(request(name, [1], tenant=tenant))
    steps = [[seat.answers.transfer for seat in one.seats()] for _ in range(6)]
    assert Counter(name[0] for names in steps for name in names) == {"a": 4, "b": 4, "c": 4}
    assert steps[:3] == [["a0", "b"], ["c", "a1"], ["b", "c"]]


def test_a_later_request_of_the_same_name_is_another_one() -> None:
    one, first = batch(4), request("a", [1])
    one.add(first)
    one.drop(first.transfer)
    one.add(request("a", [1]))
    assert not one.has(first)
    assert len(one.seats()) == 1
    assert one.seats()[0].answers is not first


# What they draw


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_is_the_same_whatever_shares_its_batch(temperature: float) -> None:
    def asked() -> Answers:
        return request("a", [9, 9], sampling=Sampling(temperature, 0.9, 5))

    alone = answers_to(asked())
    others = [request(f"o{i}", [i, i], f"t{i}", Sampling(0.7, 1.0, i)) for i in range(5)]
    assert answers_to(asked(), *others) == alone
    assert answers_to(asked(), *others, seats_max=3) == alone
    assert all(len(tokens) == TOKENS_MAX for tokens in alone)


def test_choices_differ_by_their_number_and_answers_by_their_seed() -> None:
    first, second = answers_to(request("a", [9, 9], sampling=Sampling(1, 1, 5)))
    other, _ = answers_to(request("a", [9, 9], sampling=Sampling(1, 1, 6)))
    assert len({tuple(first), tuple(second), tuple(other)}) == 3
    greedy = answers_to(request("a", [9, 9]))
    assert greedy[0] == greedy[1]


def test_a_draw_carries_its_text_and_no_score_unless_asked() -> None:
    one = batch(4, Dreaming())
    one.add(request("a", [9]))
    (drawn,) = one.step(one.seats())
    assert drawn is not None
    assert drawn == Drawn(drawn.token, bytes([drawn.token]), None)


@pytest.mark.parametrize("count", [0, 3])
def test_a_score_states_the_likeliest_before_the_temperature(count: int) -> None:
    one = batch(4, Dreaming())
    one.add(request("a", [9], sampling=Sampling(0.01, 1, 5), alternatives=count))
    one.add(request("b", [9]))
    drawn, plain = one.step(one.seats())
    logits = Dreaming()._dream(9, 0).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum())
    order = np.argsort(-logprobs)[:count]
    assert drawn is not None
    assert drawn.score is not None
    assert isinstance(drawn.score, Score)
    assert drawn.score.text == drawn.text
    assert drawn.score.logprob == pytest.approx(logprobs[drawn.token])
    assert [one.text for one in drawn.score.alternatives] == [bytes([i]) for i in order]
    assert [one.logprob for one in drawn.score.alternatives] == pytest.approx(logprobs[order])
    assert plain is not None
    assert plain.score is None


# What fails


def test_a_row_that_fails_costs_no_other_its_token() -> None:
    model = Fragile(token=7)
    one, alone = batch(4, model), batch(4)
    for name, token in (("a", 65), ("b", 7), ("c", 66)):
        one.add(request(name, [token]))
    alone.add(request("a", [65]))
    tokens = one.step(one.seats())
    assert tokens[1] is None
    assert tokens[0] == alone.step(alone.seats())[0]
    assert tokens[2] is not None
    assert model.batches == [3, 1, 1, 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_the_engines_failure_of_that_row(
    temperature: float,
) -> None:
    one, alone = batch(4, Dreaming(broken=7)), batch(4, Dreaming())
    sampling = Sampling(temperature, 1.0, 3)
    one.add(request("a", [7], sampling=sampling))
    one.add(request("b", [8], sampling=sampling))
    alone.add(request("b", [8], sampling=sampling))
    assert one.step(one.seats()) == [None, *alone.step(alone.seats())]
