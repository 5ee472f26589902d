"""Drills are marked by operators only, and only while one is on do requests count as its own."""

from __future__ import annotations

import pytest

from .stacks import Stack, until
from .test_gateway_operator import code_of


def mark(gateway: Stack, drill: object, phase: object, key: str = "") -> int:
    body = {"drill": drill, "phase": phase}
    headers = gateway.headers(key or gateway.operator_key)
    return gateway.http.post("/drill/marks", json=body, headers=headers).status_code


def ask(gateway: Stack, drill: str) -> None:
    body = {"model": "recall", "prompt": "of a drill"}
    headers = gateway.headers(x_kvairlock_drill=drill)
    assert gateway.http.post("/v1/completions", json=body, headers=headers).status_code == 200


def test_requests_between_the_marks_that_name_the_drill_are_labelled(gateway: Stack) -> None:
    ask(gateway, "page_index")
    assert mark(gateway, "page_index", "began") == 200
    ask(gateway, "page_index")
    ask(gateway, "another")
    assert gateway.complete().status_code == 200
    assert mark(gateway, "page_index", "ended") == 200
    ask(gateway, "page_index")
    until(lambda: len(gateway.evidence("drill_marked")) == 2)
    marks = [(r["drill"], r["phase"]) for r in gateway.evidence("drill_marked")]
    assert marks == [("page_index", "began"), ("page_index", "ended")]
    (labelled,) = gateway.evidence("drill_requested")
    assert labelled["drill"] == "page_index"
    admitted = [r["request"] for r in gateway.evidence("request_admitted")]
    assert labelled["request"] == admitted[-4]


def test_only_operators_mark_drills(gateway: Stack) -> None:
    assert mark(gateway, "range", "began", gateway.tenant_key) == 403
    assert gateway.http.post("/drill/marks", json={}).status_code == 401


@pytest.mark.parametrize(
    ("drill", "phase", "param"),
    [
        ("range", "paused", "phase"),
        ("range", None, "phase"),
        ("Range", "began", "drill"),
        ("", "began", "drill"),
        ("a" * 65, "began", "drill"),
        (7, "began", "drill"),
    ],
)
def test_marks_that_make_no_sense_are_400(
    gateway: Stack, drill: object, phase: object, param: str
) -> None:
    headers = gateway.headers(gateway.operator_key)
    body = {"drill": drill, "phase": phase}
    response = gateway.http.post("/drill/marks", json=body, headers=headers)
    assert code_of(response) == (400, "invalid_value")
    assert response.json()["error"]["param"] == param
