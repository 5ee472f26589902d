"""Whatever happens to evidence, nobody is excluded by it, and by a loss nobody is accused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ibis.backends import BaseBackend

from kvairlock.audit.histories import INCIDENTS, History, history
from kvairlock.audit.report import Class, Report
from kvairlock.audit.synthetic import Row
from tests.audit.auditing_made import audited
from tests.audit.test_audit_losses import Loss, but_node, of_node


@st.composite
def harms(draw: st.DrawFn) -> Loss:
    """Something that happens to evidence by itself: records go, files are cut, fields are empty."""
    kind = draw(st.sampled_from(("drop", "cut", "node", "null", "event", "schema", "number")))
    share, length, which = draw(st.floats(0, 1)), draw(st.integers(1, 6)), draw(st.integers(0, 12))
    node = draw(st.sampled_from(("gateway", "decode-0", "decode-0", "prefill-0", "prefill-1")))

    def harm(rows: list[Row]) -> list[Row]:
        of, others = of_node(rows, node), but_node(rows, node)
        at = min(int(share * len(of)), len(of) - 1)
        hurt = of[at : at + length]
        if kind == "drop":
            return others + of[:at] + of[at + length :]
        if kind == "cut":
            return others + of[:at]
        if kind == "node":
            return others
        if kind == "null":
            # One field each, of those that are not in the envelope.
            names = [list(row)[8:] for row in hurt]
            hurt = [
                row | {name[which % len(name)]: None} if name else row
                for row, name in zip(hurt, names, strict=True)
            ]
        elif kind == "event":
            hurt = [row | {"event": "not_known"} for row in hurt]
        elif kind == "schema":
            hurt = [row | {"schema": 99} for row in hurt]
        else:
            hurt = [row | {"sequence": row["sequence"] + length} for row in hurt]
        return others + of[:at] + hurt + of[at + length :]

    return harm


PLANTED = {
    seed: history(seed, INCIDENTS[name], quiet=6) for seed, name in enumerate(INCIDENTS, 200)
}


def classes(report: Report) -> dict[str, Class]:
    return {verdict.request: verdict.verdict for verdict in report.verdicts()}


@pytest.fixture(scope="module")
def before(engine: BaseBackend) -> dict[str, Class]:
    return classes(audited(engine, [row for made in PLANTED.values() for row in made.rows]))


@pytest.mark.slow
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(drawn=st.lists(harms(), min_size=len(PLANTED), max_size=len(PLANTED)))
def test_harm_to_evidence_never_makes_anybody_excluded(
    engine: BaseBackend, before: dict[str, Class], drawn: list[Loss]
) -> None:
    made: list[tuple[History, Loss]] = list(zip(PLANTED.values(), drawn, strict=True))
    after = classes(audited(engine, [r for one, harm in made for r in harm(list(one.rows))]))
    wrongly = {
        request
        for request, verdict in after.items()
        if verdict is Class.EXCLUDED and before[request] is not Class.EXCLUDED
    }
    assert not wrongly


EITHER = "a generation that did not turn"
"""Two have one page in one generation: if one of the two records is lost, it is not known whose."""
Played = Callable[[int], History]


def less_one(played: Played, seed: int) -> Iterator[tuple[History, list[Row]]]:
    """Play a history as often as it has records, under other names; lose another record each time.

    The histories share nothing, so one audit can have all of them.
    """
    for lost in range(len(played(seed).rows)):
        made = played(seed + lost)
        yield made, [row for place, row in enumerate(made.rows) if place != lost]


def of_incident(name: str) -> Played:
    return lambda seed: history(seed, INCIDENTS[name], quiet=0)


@pytest.fixture(scope="module")
def lost_each(engine: BaseBackend) -> tuple[list[tuple[str, History]], dict[str, Class]]:
    """Each record of each incident lost once: which histories there are, and what is concluded."""
    made: list[tuple[str, History]] = []
    rows: list[Row] = []
    for number, name in enumerate(INCIDENTS):
        for one, left in less_one(of_incident(name), 1_000 * (number + 10)):
            made.append((name, one))
            rows += left
    return made, classes(audited(engine, rows))


def test_no_record_that_is_lost_makes_who_is_affected_excluded(
    lost_each: tuple[list[tuple[str, History]], dict[str, Class]],
) -> None:
    made, found = lost_each
    wrongly = [name for name, one in made for r in one.affected if found.get(r) is Class.EXCLUDED]
    assert len(made) > 1_000
    assert not wrongly


def test_no_record_that_is_lost_makes_anybody_affected_who_was_not(
    lost_each: tuple[list[tuple[str, History]], dict[str, Class]],
) -> None:
    made, found = lost_each
    wrongly = [
        name
        for name, one in made
        for request in one.requests - one.affected
        if name != EITHER and found.get(request) is Class.AFFECTED
    ]
    assert not wrongly


def test_no_record_that_is_lost_makes_anybody_affected_where_nobody_was(
    engine: BaseBackend,
) -> None:
    made = list(less_one(lambda seed: history(seed, quiet=6), 90_000))
    found = classes(audited(engine, [row for _, left in made for row in left]))
    assert len(made) > 100
    assert Class.AFFECTED not in found.values()
