"""From what gateways and engines say to findings: each kind that only a look from outside finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvairlock.check.checking import check
from kvairlock.check.deployment import DeploymentWrong, parse
from kvairlock.check.findings import Findings
from kvairlock.core.promise.capacity import Basis, CapacityReport
from kvairlock.core.promise.violations import ViolationKind
from kvairlock.core.terms import Incarnation, NodeName, Role

from .answering import (
    SGLANG_DECODE,
    SGLANG_PREFILL,
    VLLM,
    Answer,
    Answers,
    answering,
    engines,
    recorded,
)

K = ViolationKind
FOLDER = Path("/nonexistent")
PROMISED = "[commitment]\ncontext_tokens = {tokens}\n"
GATEWAY = '[[gateway]]\nurl = "{url}"\nname = "{name}"\n'
ENGINE = '[[engine]]\nname = "{name}"\nkind = "{kind}"\nrole = "{role}"\nurl = "{url}"\n'

Json = dict[str, Any]


def report(name: str, pages: int) -> CapacityReport:
    role = Role.PREFILL if name.startswith("prefill") else Role.DECODE
    return CapacityReport(
        node=NodeName(name),
        role=role,
        incarnation=Incarnation("life-1"),
        epoch=0,
        fingerprint=f"of-{name}",
        basis=Basis("recall", "float32", "tp1", 1, "0.2.0", "2"),
        page_tokens=16,
        pages=pages,
        landing_pages=pages if role is Role.DECODE else 0,
        windows=9,
        context_tokens=8192,
        groups=(),
    )


def node(name: str, pages: int, state: str = "up") -> Json:
    said = report(name, pages)
    shown = {"report": msgspec.to_builtins(said), "relaxed": [], "pages": {"free": pages}}
    return {"role": said.role, "state": state, "status": shown, "report_ms": 3}


def status() -> Json:
    """What a gateway shows of two prefill nodes, which hold 1,024 and 256 tokens."""
    return {
        "nodes": {
            "prefill-0": node("prefill-0", 64),
            "prefill-1": node("prefill-1", 16),
            "decode-0": node("decode-0", 64),
        },
        "routes": {"prefill-0/decode-0": "up", "prefill-1/decode-0": "up"},
        "drill_mode": "off",
        "guards_off": [],
        "in_flight": 0,
    }


def front(told: Json, published: int = 1024, **more: int) -> Answers:
    card = {"id": "recall", "object": "model", "max_model_len": published, **more}
    models = {"object": "list", "data": [card]}
    return {"/status": Answer.of(told), "/v1/models": Answer.of(models)}


def found(answers: Answers, commitment: str = PROMISED.format(tokens=1024)) -> Findings:
    """Check a deployment of one gateway that answers so."""
    with answering(answers) as server:
        return check(parse(commitment + GATEWAY.format(url=server.url, name="")), FOLDER)


def kinds(findings: Findings) -> list[ViolationKind]:
    return [violation.kind for violation in findings.violations]


# Gateways


def test_a_stack_that_holds_what_is_promised() -> None:
    findings = found(front(status()))
    assert (findings.kept, findings.violations, findings.warnings) == (True, (), ())
    assert findings.published_tokens == 1024
    told = findings.document()
    assert told["ok"] is True
    assert [(n["node"], n["kind"], n["longest_tokens"]) for n in told["nodes"]] == [
        ("prefill-0", "kvairlock", 1024),
        ("prefill-1", "kvairlock", 256),
        ("decode-0", "kvairlock", 1024),
    ]
    assert told["nodes"][0]["report"]["fingerprint"] == "of-prefill-0"
    routes = {r["route"]: (r["longest_tokens"], r["serves"], r["node"]) for r in told["routes"]}
    assert routes == {
        "prefill-0/decode-0": (1024, True, "prefill-0"),
        "prefill-1/decode-0": (256, True, "prefill-1"),
    }


def test_a_gateway_that_advertises_more_than_its_routes_hold() -> None:
    (violation,) = found(front(status(), 4096)).violations
    told = (violation.kind, violation.node, violation.promised, violation.holds)
    assert told == (K.ADVERTISED_OVER_HELD, "gateway", 4096, 1024)
    every = PROMISED.format(tokens=256) + 'reach = "every"\n'
    (violation,) = found(front(status(), 1024), every).violations
    assert (violation.kind, violation.promised, violation.holds) == (
        K.ADVERTISED_OVER_HELD,
        1024,
        256,
    )


def test_a_gateway_that_publishes_less_than_is_promised_and_held() -> None:
    (violation,) = found(front(status(), 512)).violations
    told = (violation.kind, violation.promised, violation.holds, violation.limit_name)
    assert told == (K.PUBLISHED_UNDER_PROMISED, 1024, 512, "context_window")
    promised = PROMISED.format(tokens=1024) + "output_tokens = 100\n"
    assert kinds(found(front(status(), max_output_tokens=100), promised)) == []
    (violation,) = found(front(status(), max_output_tokens=99), promised).violations
    told = (violation.kind, violation.promised, violation.holds, violation.limit_name)
    assert told == (K.PUBLISHED_UNDER_PROMISED, 100, 99, "output_tokens")


def test_drill_mode_and_guards_that_do_not_enforce() -> None:
    told = status()
    told["drill_mode"], told["guards_off"] = "on", ["drain"]
    route = {"prefill": "prefill-0", "decode": "decode-0"}
    full, sampled = {"policy": "full", "share": 1.0}, {"policy": "sampled", "share": 0.25}
    waived = {"route": route, "guard": "integrity", "mode": "observing", "waiver": "pilot"}
    told["nodes"]["decode-0"]["status"]["relaxed"] = [
        {**waived, "checks": full},
        {**waived, "checks": sampled, "mode": "enforcing", "waiver": "sampling"},
    ]
    told["nodes"]["prefill-1"]["status"]["relaxed"] = None
    violations = found(front(told)).violations
    assert [(v.kind, v.node, v.route) for v in violations] == [
        (K.DRILL_MODE, "gateway", None),
        (K.GUARD_NOT_ENFORCING, "gateway", None),
        (K.GUARD_NOT_ENFORCING, "prefill-1", None),
        (K.GUARD_NOT_ENFORCING, "decode-0", "prefill-0/decode-0"),
        (K.GUARD_NOT_ENFORCING, "decode-0", "prefill-0/decode-0"),
    ]
    assert violations[1].message == "guard drain is switched off in the stack of gateway"
    where = "on decode-0 for prefill-0/decode-0, by waiver"
    assert [v.message for v in violations[3:]] == [
        f"guard integrity is observing {where} pilot",
        f"guard integrity is enforcing, with checks sampled 0.25, {where} sampling",
    ]


@pytest.mark.parametrize("state", ["lost", "unseen", "incompatible", "a-new-one"])
def test_only_what_is_up_is_believed(state: str) -> None:
    told = status()
    told["nodes"]["prefill-0"] = node("prefill-0", 64, state)
    findings = found(front(told, 256))
    assert [(v.kind, v.node) for v in findings.violations] == [
        (K.UNREPORTED, "prefill-0"),
        (K.CONTEXT_OVER_ROUTE, "prefill-1"),
    ]
    assert findings.published_tokens == 256


def test_what_is_stale_is_called_so() -> None:
    told = status()
    told["nodes"]["prefill-0"] = node("prefill-0", 64, "stale")
    assert kinds(found(front(told, 256))) == [K.STALE, K.CONTEXT_OVER_ROUTE]


def test_a_route_that_is_closed_holds_nothing_and_is_warned_of() -> None:
    told = status()
    told["routes"]["prefill-0/decode-0"] = "half_open"
    findings = found(front(told, 256))
    assert kinds(findings) == [K.CONTEXT_OVER_ROUTE]
    assert findings.warnings == ("prefill-0/decode-0 is closed",)


def without(told: Json, *place: str) -> Json:
    *path, last = place
    inner = told
    for name in path:
        inner = inner[name]
    del inner[last]
    return told


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (without(status(), "drill_mode"), "missing required field `drill_mode`"),
        (without(status(), "nodes", "decode-0", "state"), "missing required field `state`"),
        (
            without(status(), "nodes", "decode-0", "status", "relaxed"),
            "missing required field `relaxed`",
        ),
        (
            without(status(), "nodes", "decode-0", "status", "report", "epoch"),
            "missing required field `epoch`",
        ),
        (
            {**status(), "routes": {"prefill-9/decode-0": "up"}},
            "a node that is not among the nodes",
        ),
        ({**status(), "drill_mode": "perhaps"}, "a word that is not known, at `$.drill_mode`"),
        (
            {**status(), "nodes": {"prefill-0": node("prefill-1", 16)}, "routes": {}},
            "the report of prefill-0 is about another node",
        ),
    ],
)
def test_a_gateway_that_does_not_say_what_is_needed_does_not_report(told: Json, why: str) -> None:
    violations = found(front(told)).violations
    assert [v.kind for v in violations] == [K.UNREPORTED, K.NO_ROUTE]
    assert violations[0].node == "gateway"
    assert why in violations[0].message


@pytest.mark.parametrize(("answered", "hint"), [(401, True), (403, True), (500, False)])
def test_a_gateway_that_does_not_take_the_key_says_whose_it_wants(
    answered: int, hint: bool
) -> None:
    refused = {**front(status()), "/status": Answer((b"",), answered)}
    violation = found(refused).violations[0]
    assert violation.message.startswith(f"gateway: /status: answered {answered}")
    assert violation.message.endswith("`kvairlock keys add NAME --operator` makes one") is hint


def test_two_stacks_are_kept_apart_by_the_names_of_their_gateways() -> None:
    smaller = status()
    del smaller["nodes"]["prefill-0"], smaller["routes"]["prefill-0/decode-0"]
    with answering(front(status())) as one, answering(front(smaller, 256)) as two:
        text = PROMISED.format(tokens=256) + 'reach = "every"\n'
        text += GATEWAY.format(url=one.url, name="a") + GATEWAY.format(url=two.url, name="b")
        findings = check(parse(text), FOLDER)
    assert [str(route.route) for route in findings.routes] == [
        "a:prefill-0/a:decode-0",
        "a:prefill-1/a:decode-0",
        "b:prefill-1/b:decode-0",
    ]
    (violation,) = findings.violations
    assert (violation.kind, violation.node) == (K.ADVERTISED_OVER_HELD, "a")


@pytest.mark.parametrize("reach", ["every", "tiered"])
def test_a_gateway_that_serves_nothing_is_named_whatever_others_hold(reach: str) -> None:
    closed = status()
    closed["routes"] = dict.fromkeys(closed["routes"], "closed")
    with answering(front(status(), 256)) as one, answering(front(closed, 0)) as two:
        text = PROMISED.format(tokens=256) + f'reach = "{reach}"\n'
        text += GATEWAY.format(url=one.url, name="a") + GATEWAY.format(url=two.url, name="b")
        (violation,) = check(parse(text), FOLDER).violations
    told = (violation.kind, violation.node, violation.promised, violation.holds)
    assert told == (K.NO_ROUTE, "b", 256, 0)
    assert violation.message == "none of the 2 routes of b serves"
    (alone,) = found(front(closed, 0)).violations
    assert (alone.kind, alone.node) == (K.NO_ROUTE, "gateway"), "and it is said once"


def test_the_operators_key_is_sent_to_its_gateway_only(tmp_path: Path) -> None:
    key = tmp_path / "operator.key"
    key.write_text("kva-operator")
    key.chmod(0o600)
    with answering(front(status())) as stack, answering(recorded(VLLM)) as engine:
        text = PROMISED.format(tokens=1024)
        text += GATEWAY.format(url=stack.url, name="").replace(
            'name = ""', 'key_file = "operator.key"'
        )
        text += ENGINE.format(name="p", kind="vllm", role="prefill", url=engine.url)
        findings = check(parse(text), tmp_path)
    sent = {headers.get("authorization") for _, headers in stack.asked}
    assert sent == {"Bearer kva-operator"}
    assert {headers.get("authorization") for _, headers in engine.asked} == {None}
    assert findings.warnings == ("p is in no route",)


def test_nobody_is_asked_where_a_key_cannot_be_used(tmp_path: Path) -> None:
    with answering(front(status())) as stack:
        text = PROMISED.format(tokens=1024) + GATEWAY.format(url=stack.url, name="")
        other = text.replace('name = ""', 'name = "b"\nkey_file = "gone.key"')
        with pytest.raises(DeploymentWrong, match=r"gone\.key: there is no such file"):
            check(parse(other), tmp_path)
        assert stack.asked == []


# Engines


def pair(kind: str, prefill: Answers, decode: Answers, tokens: int = 1024) -> Findings:
    """Check a prefill and a decode engine of one kind."""
    with engines(p=prefill, d=decode) as urls:
        text = PROMISED.format(tokens=tokens)
        text += ENGINE.format(name="prefill-a", kind=kind, role="prefill", url=urls["p"])
        text += ENGINE.format(name="decode-a", kind=kind, role="decode", url=urls["d"])
        return check(parse(text), FOLDER)


def test_a_vllm_pair_that_holds_what_it_advertises() -> None:
    findings = pair("vllm", recorded(VLLM), recorded(VLLM))
    assert (findings.kept, findings.published_tokens) == (True, 1024)
    (route,) = findings.document()["routes"]
    assert (route["route"], route["longest_tokens"]) == ("prefill-a/decode-a", 1024)


def test_the_sglang_of_the_incident_is_found_before_a_request_is() -> None:
    findings = pair("sglang", recorded(SGLANG_PREFILL), recorded(SGLANG_DECODE), 2048)
    told = [(v.kind, v.node, v.promised, v.holds) for v in findings.violations]
    assert told == [
        (K.ADVERTISED_OVER_HELD, "prefill-a", 2048, 494),
        (K.ADMITTED_OVER_HELD, "prefill-a", 505, 494),
        (K.ADVERTISED_OVER_HELD, "decode-a", 2048, 1262),
        (K.ADMITTED_OVER_HELD, "decode-a", 1273, 1264),
        (K.CONTEXT_OVER_ROUTE, "prefill-a", 2048, 494),
    ]
    assert findings.published_tokens == 494


def test_engines_that_lay_out_pages_differently_are_no_route() -> None:
    text = (Path(__file__).parent / "recorded" / "vllm-metrics.txt").read_text()
    fp8 = {**recorded(VLLM), "/metrics": Answer.of(text.replace('"auto",eff', '"fp8",eff'))}
    assert kinds(pair("vllm", recorded(VLLM), fp8)) == [K.LAYOUTS_DIFFER, K.NO_ROUTE]


def test_an_engine_that_is_not_there_does_not_end_the_check() -> None:
    with engines(p=recorded(VLLM), gone={}) as urls:
        missing = urls["gone"]
    with engines(p=recorded(VLLM)) as urls:
        text = PROMISED.format(tokens=1024)
        text += ENGINE.format(name="prefill-a", kind="vllm", role="prefill", url=urls["p"])
        text += ENGINE.format(name="decode-a", kind="vllm", role="decode", url=missing)
        findings = check(parse(text), FOLDER)
    assert [(v.kind, v.node) for v in findings.violations] == [
        (K.UNREPORTED, "decode-a"),
        (K.NO_ROUTE, None),
    ]
    assert findings.violations[0].message.startswith("decode-a: /v1/models: no answer: ")
    silent = next(n for n in findings.document()["nodes"] if n["node"] == "decode-a")
    assert (silent["silence"], silent["report"], silent["longest_tokens"]) == (
        "unreported",
        None,
        None,
    )


def test_a_changed_engine_is_named_by_its_fingerprint() -> None:
    first = pair("vllm", recorded(VLLM), recorded(VLLM))
    pinned = next(n["report"]["fingerprint"] for n in first.document()["nodes"])
    upgraded = {**recorded(VLLM), "/version": Answer.of({"version": "0.33.0"})}
    for answers, expected in (
        (recorded(VLLM), []),
        (upgraded, [K.FINGERPRINT_CHANGED, K.NO_ROUTE]),
    ):
        with engines(p=answers, d=recorded(VLLM)) as urls:
            text = f'[commitment]\nfingerprints = {{ prefill-a = "{pinned}" }}\n'
            text += ENGINE.format(name="prefill-a", kind="vllm", role="prefill", url=urls["p"])
            text += ENGINE.format(name="decode-a", kind="vllm", role="decode", url=urls["d"])
            assert kinds(check(parse(text), FOLDER)) == expected


def test_a_report_is_the_nodes_own_and_keeps_all_its_figures() -> None:
    findings = found(front(status()))
    assert [reading.said for reading in findings.readings] == [
        report("prefill-0", 64),
        report("prefill-1", 16),
        report("decode-0", 64),
    ]
