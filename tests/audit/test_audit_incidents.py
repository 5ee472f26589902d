"""Every planted incident is found by its rule, with whom it met, and nobody else is accused."""

from __future__ import annotations

import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.histories import INCIDENTS, History, history
from kvairlock.audit.report import Class, Report
from kvairlock.audit.rules import AFFECTED, RULES
from kvairlock.core.terms import LandingPolicy
from tests.audit.auditing_made import audited

HISTORIES = {name: history(seed, INCIDENTS[name]) for seed, name in enumerate(INCIDENTS)}


@pytest.fixture(scope="module")
def report(engine: BaseBackend) -> Report:
    return audited(engine, [row for made in HISTORIES.values() for row in made.rows])


def of(report: Report, made: History, wanted: Class) -> set[str]:
    return {v.request for v in report.verdicts(wanted)} & made.requests


@pytest.mark.parametrize("name", INCIDENTS)
def test_exactly_the_planted_requests_are_affected(report: Report, name: str) -> None:
    assert of(report, HISTORIES[name], Class.AFFECTED) == HISTORIES[name].affected


@pytest.mark.parametrize("name", INCIDENTS)
def test_the_rule_of_an_incident_fires_and_at_no_neighbour(report: Report, name: str) -> None:
    made, rule = HISTORIES[name], INCIDENTS[name].rule
    fired = {v.request for v in report.verdicts() if rule in v.reasons} & made.requests
    assert fired
    assert fired <= made.affected


@pytest.mark.parametrize("name", INCIDENTS)
def test_whose_pages_an_affected_request_met_is_said(report: Report, name: str) -> None:
    said = {(exposure.request, exposure.other) for exposure in report.exposures}
    assert HISTORIES[name].met <= said


@pytest.mark.parametrize(
    "name", [name for name, i in INCIDENTS.items() if i.landing is LandingPolicy.COPY]
)
def test_neighbours_of_an_incident_are_excluded_where_evidence_is_complete(
    report: Report, name: str
) -> None:
    made = HISTORIES[name]
    assert of(report, made, Class.EXCLUDED) == made.requests - made.affected


@pytest.mark.parametrize(
    "name", [name for name, i in INCIDENTS.items() if i.landing is LandingPolicy.DIRECT]
)
def test_nobody_who_read_is_excluded_where_others_can_store_into_the_pool(
    report: Report, name: str
) -> None:
    made = HISTORIES[name]
    read = {r["request"] for r in made.rows if r["event"] == "read_started"}
    assert not of(report, made, Class.EXCLUDED) & read


def test_only_affected_requests_have_exposures(report: Report) -> None:
    affected = {verdict.request for verdict in report.verdicts(Class.AFFECTED)}
    assert {exposure.request for exposure in report.exposures} <= affected


def test_the_former_owner_of_the_incident_is_named_with_its_generation(report: Report) -> None:
    made = HISTORIES["the incident"]
    (affected,) = made.affected
    found = [e for e in report.exposures if e.request == affected]
    given = [r for r in made.rows if r["event"] == "pages_allocated" and r["role"] == "decode"]
    had = {
        (r["request"], page, generation)
        for r in given
        for page, generation in zip(r["pages"], r["generations"], strict=True)
    }
    assert found
    for exposure in found:
        for page, generation in zip(exposure.pages, exposure.generations, strict=True):
            assert (exposure.other, page, generation) in had


def test_every_rule_that_affects_has_an_incident() -> None:
    assert {incident.rule for incident in INCIDENTS.values()} == {rule.name for rule in AFFECTED}


def test_rules_have_names_of_their_own_and_fit_into_one_number() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) < 63
