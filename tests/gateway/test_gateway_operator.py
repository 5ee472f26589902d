"""What operators see, what everybody sees, and what drills may do."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvairlock import __version__
from kvairlock.core.messages import Drill, Submit
from kvairlock.runtime.metrics_settings import MetricsSettings
from kvairlock.wire import tickets

from .fake_nodes import PREFILL_TOKENS
from .stacks import Stack, stack

DRILL = """
[gateway]
port = 0

[commitment]
context_tokens = 4096
[drill]
enabled = true
guards_off = ["strip", "contract"]
"""


@pytest.fixture(scope="module")
def drilled() -> Iterator[Stack]:
    with stack(DRILL) as running:
        yield running


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_health_names_nodes_and_breakers(gateway: Stack) -> None:
    response = gateway.http.get("/healthz")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "nodes": {"prefill-0": "up", "decode-0": "up"},
        "breakers": {"prefill-0/decode-0": "closed"},
    }


def total(text: str, name: str, labels: dict[str, str]) -> float:
    """The sum of all samples of a name that have these labels."""
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def test_metrics_tell_figures_and_never_tenants(gateway: Stack) -> None:
    for _ in range(MetricsSettings().group_requests_min):
        assert gateway.complete(prompt="x" * 20).status_code == 200
        assert gateway.complete(gateway.other_key, prompt="x" * 300).status_code == 400
        assert gateway.complete("kva-no").status_code == 401
    assert gateway.complete(kv_transfer_params={}).status_code == 200
    response = gateway.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = response.text.splitlines()
    for expected in (
        'kvairlock_pages{node="decode-0",role="decode",stage="readable"} 3.0',
        'kvairlock_pages{node="prefill-0",role="prefill",stage="free"} 13.0',
        'kvairlock_windows{node="decode-0",role="decode",state="open"} 1.0',
        'kvairlock_windows{node="decode-0",role="decode",state="draining"} 1.0',
        'kvairlock_fences_total{fence="acknowledged",memory="lease",node="decode-0",'
        'role="decode"} 4.0',
        'kvairlock_node_events_total{name="admitted",node="decode-0",role="decode"} 5.0',
        'kvairlock_node_up{node="decode-0",role="decode"} 1.0',
        f"kvairlock_context_tokens {PREFILL_TOKENS}.0",
        "kvairlock_routes_up 1.0",
        "kvairlock_requests_in_flight 0.0",
    ):
        assert expected in lines
    for name, labels in (
        ("requests_total", {"outcome": "completed", "model": "recall"}),
        ("requests_total", {"outcome": "rejected", "version": __version__}),
        ("requests_total", {"outcome": "invalid", "length": "other"}),
        ("refusals_total", {"reason": "context_length", "stage": "gateway"}),
        ("parameters_stripped_total", {}),
    ):
        assert total(response.text, f"kvairlock_{name}", labels) >= 1
    assert "secret-name" not in response.text


def test_operator_endpoints_refuse_normal_keys(gateway: Stack, drilled: Stack) -> None:
    refused = gateway.http.get("/status", headers=gateway.headers())
    assert code_of(refused) == (403, "operator_only")
    assert refused.json()["error"]["type"] == "permission_error"
    posted = drilled.http.post("/drill/points", json={}, headers=drilled.headers())
    assert code_of(posted) == (403, "operator_only")
    assert drilled.http.post("/drill/points", json={}).status_code == 401


def test_status_shows_the_whole_stack(gateway: Stack) -> None:
    headers = gateway.headers(gateway.operator_key)
    told = gateway.http.get("/status", headers=headers).json()
    assert told["promise_tokens"] == PREFILL_TOKENS
    assert told["configured_tokens"] == 0
    assert told["routes"] == {"prefill-0/decode-0": "up"}
    assert (told["guards_off"], told["in_flight"]) == ([], 0)
    decode = told["nodes"]["decode-0"]
    assert (decode["role"], decode["state"]) == ("decode", "up")
    assert decode["status"]["report"]["pages"] == 32
    assert decode["status"]["links"] == ["prefill-0"]
    assert 0 <= decode["report_ms"] < 400


def test_drill_headers_mean_nothing_outside_drill_mode(gateway: Stack) -> None:
    headers = gateway.headers(
        gateway.operator_key, x_kvairlock_route="no/such", x_kvairlock_show_ticket="1"
    )
    body = {"model": "recall", "prompt": "x"}
    response = gateway.http.post("/v1/completions", json=body, headers=headers)
    assert response.status_code == 200
    assert "x-kvairlock-ticket" not in response.headers


def test_points_are_forwarded_to_their_node(drilled: Stack) -> None:
    headers = drilled.headers(drilled.operator_key)
    for fields, expected in (
        ({"action": "arm", "after": 2}, Drill("arm", "write.piece", 2)),
        ({"action": "release"}, Drill("release", "write.piece", 0)),
    ):
        body = {"node": "prefill-0", "point": "write.piece", **fields}
        response = drilled.http.post("/drill/points", json=body, headers=headers)
        assert response.status_code == 200
        assert response.json()["sent"]["node"] == "prefill-0"
        assert drilled.nodes.nodes["prefill-0"].next(Drill) == expected


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"node": "prefill-9"}, "node"),
        ({"node": None}, "node"),
        ({"action": "explode"}, "action"),
        ({"point": "nowhere"}, "point"),
        ({"point": ["land"]}, "point"),
        ({"after": -1}, "after"),
        ({"after": True}, "after"),
    ],
)
def test_points_that_make_no_sense_are_400(
    drilled: Stack, change: dict[str, object], param: str
) -> None:
    body = {"node": "prefill-0", "action": "arm", "point": "land", **change}
    headers = drilled.headers(drilled.operator_key)
    response = drilled.http.post("/drill/points", json=body, headers=headers)
    assert code_of(response) == (400, "invalid_value")
    assert response.json()["error"]["param"] == param


def post(drilled: Stack, key: str, body: dict[str, object], **headers: str) -> httpx.Response:
    return drilled.http.post(
        "/v1/completions",
        json={"model": "recall", "prompt": "drilled", **body},
        headers=drilled.headers(key, **headers),
    )


def test_a_forced_route_needs_an_operator_and_exists(drilled: Stack) -> None:
    operator, normal = drilled.operator_key, drilled.tenant_key
    assert post(drilled, operator, {}, x_kvairlock_route="prefill-0/decode-0").is_success
    wrong = post(drilled, operator, {}, x_kvairlock_route="decode-0/prefill-0")
    assert code_of(wrong) == (400, "invalid_value")
    for header in ("x_kvairlock_route", "x_kvairlock_show_ticket"):
        refused = post(drilled, normal, {}, **{header: "1"})
        assert code_of(refused) == (403, "operator_only")


def submits(drilled: Stack, key: str, body: dict[str, object], **headers: str) -> Submit:
    while not drilled.decode.heard.empty():
        drilled.decode.heard.get()
    assert post(drilled, key, body, **headers).status_code == 200
    submit = drilled.decode.next(Submit)
    assert isinstance(submit, Submit)
    return submit


def test_without_strip_a_stolen_ticket_is_believed(drilled: Stack) -> None:
    shown = post(drilled, drilled.operator_key, {}, x_kvairlock_show_ticket="1")
    stolen = shown.headers["x-kvairlock-ticket"]
    body: dict[str, object] = {"kv_transfer_params": {"ticket": stolen}}
    submit = submits(drilled, drilled.tenant_key, body)
    assert submit.ticket == base64.urlsafe_b64decode(stolen)
    assert submit.tenant == "acme-secret-name"
    ticket = tickets.verify(drilled.decode.ring, submit.ticket)
    assert ticket.owner.tenant == "staff"
    assert submit.transfer != ticket.owner.transfer


def test_without_contract_the_configured_window_is_promised_and_nothing_judged(
    drilled: Stack,
) -> None:
    model = drilled.http.get("/v1/models/recall", headers=drilled.headers()).json()
    assert model["max_model_len"] == 4096
    submit = submits(drilled, drilled.tenant_key, {"prompt": "x" * 3000})
    assert len(submit.tokens) == 4 * 3000


def test_with_strip_a_stolen_ticket_is_worthless(gateway: Stack) -> None:
    fresh = gateway.complete(kv_transfer_params={"ticket": "c3RvbGVu"}, prompt="guarded")
    assert fresh.status_code == 200
    submit = gateway.decode.next(Submit)
    assert isinstance(submit, Submit)
    while len(submit.tokens) != 4 * len("guarded"):
        submit = gateway.decode.next(Submit)
        assert isinstance(submit, Submit)
    ticket = tickets.verify(gateway.decode.ring, submit.ticket)
    assert ticket.owner.tenant == "acme-secret-name"
