"""The batch: who takes part in a step, and that one row's failure costs no other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvairlock.core.terms import NodeName, TransferId
from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Row, load
from kvairlock.engine.recall import Recall
from kvairlock.node.answers import Answer, Answers
from kvairlock.node.batch import Batch
from kvairlock.runtime.failpoints import Failpoints

MODEL = load("recall")
LAYOUT = MODEL.layout(16)


class Fragile(Recall):
    """The real model, save that it raises for rows of one token."""

    def __init__(self, token: int) -> None:
        super().__init__()
        self.token = token
        self.batches: list[int] = []

    def forward(self, rows: Sequence[Row], cache: PagedCache) -> np.ndarray:
        self.batches.append(len(rows))
        if any(int(row.tokens[0]) == self.token for row in rows):
            raise MemoryError
        return super().forward(rows, cache)


def batch(seats_max: int, model: Fragile | None = None) -> Batch:
    cache = PagedCache(np.zeros((8, LAYOUT.page_bytes), dtype=np.uint8), LAYOUT)
    return Batch(model or MODEL, cache, Failpoints(enabled=False), seats_max)


def request(name: str, tokens: Sequence[int]) -> Answers:
    transfer = TransferId(name)
    table = np.array([0], dtype=np.int32)
    choices = [Answer(table, token, 0, 5, ()) for token in tokens]
    return Answers(transfer, transfer, NodeName("gateway"), choices)


def test_all_take_part_if_they_fit_and_finished_choices_do_not() -> None:
    one = batch(4)
    one.add(request("a", [1, 2]))
    one.add(request("b", [3]))
    assert [(s.answers.transfer, s.choice) for s in one.seats()] == [("a", 0), ("a", 1), ("b", 0)]
    one.seats()[0].answers.choices[0].finish = "stop"
    assert [(s.answers.transfer, s.choice) for s in one.seats()] == [("a", 1), ("b", 0)]
    one.drop(TransferId("a"))
    assert one.names == ("b",)


def test_whoever_was_left_out_comes_first_in_the_next_step() -> None:
    one = batch(2)
    for name in "abc":
        one.add(request(name, [1]))
    steps = [[seat.answers.transfer for seat in one.seats()] for _ in range(3)]
    assert steps == [["a", "b"], ["c", "a"], ["b", "c"]]


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


def test_a_later_request_of_the_same_name_is_another_one() -> None:
    one, first = batch(4), request("a", [1])
    one.add(first)
    one.drop(first.transfer)
    one.add(request("a", [1]))
    assert not one.has(first)
