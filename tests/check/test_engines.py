"""vLLM and SGLang as they answer: what each advertises, what it holds, and what is no answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvairlock.check import sglang, vllm
from kvairlock.check.deployment import EngineAddress, EngineKind, EngineRole
from kvairlock.check.reading import Reading, over_held
from kvairlock.core.promise.capacity import CapacityReport, KvGroup
from kvairlock.core.promise.violations import ViolationKind
from kvairlock.core.terms import Role
from kvairlock.runtime.asking import Asker, NoAnswer

from .answering import (
    RECORDED,
    SGLANG_DECODE,
    SGLANG_PREFILL,
    VLLM,
    Answer,
    Answers,
    answering,
    document,
    recorded,
)

PREFILL, DECODE = Role.PREFILL, Role.DECODE
READERS = {EngineKind.VLLM: vllm.read, EngineKind.SGLANG: sglang.read}
INFO = "/get_server_info"


def engine(kind: EngineKind, role: Role) -> EngineAddress:
    plays = EngineRole(role)
    return EngineAddress(name=f"{role}-a", kind=kind, role=plays, url="http://unused")


def reading(answers: Answers, kind: EngineKind, role: Role = PREFILL) -> Reading:
    """Read an engine that answers so."""
    with answering(answers) as server, Asker(server.url, None) as asker:
        return READERS[kind](engine(kind, role), asker)


def report_of(found: Reading) -> CapacityReport:
    assert isinstance(found.said, CapacityReport)
    return found.said


def over(found: Reading) -> list[tuple[ViolationKind, int | None, int | None, str | None]]:
    return [(v.kind, v.promised, v.holds, v.limit_name) for v in over_held(found)]


# vLLM


def with_cache(**labels: str | None) -> Answers:
    """The recorded vLLM with other labels of its cache; None takes one away."""
    text = (RECORDED / "vllm-metrics.txt").read_text()
    for name, value in labels.items():
        before, _, rest = text.partition(f',{name}="')
        _, _, after = rest.partition('"')
        assert rest, name
        text = before + ("" if value is None else f',{name}="{value}"') + after
    return {**recorded(VLLM), "/metrics": Answer.of(text)}


def with_length(answers: Answers, tokens: int) -> Answers:
    models = document(VLLM, "/v1/models")
    models["data"][0]["max_model_len"] = tokens
    return {**answers, "/v1/models": Answer.of(models)}


def test_vllm_holds_its_blocks_but_the_null_block() -> None:
    found = reading(recorded(VLLM), EngineKind.VLLM)
    report = report_of(found)
    assert (report.page_tokens, report.pages, report.tokens) == (32, 39, 1248)
    assert (report.context_tokens, report.longest_tokens) == (1024, 1024)
    assert (report.landing_pages, report.windows, report.groups, report.epoch) == (0, 0, (), 0)
    assert report.concurrency(512) == 2
    assert report.incarnation == "started-1796068713.52"
    assert report.basis is not None
    assert (report.basis.model, report.basis.dtype, report.basis.build) == (
        "tiny-llama",
        "auto",
        "0.32.0",
    )
    assert (found.advertised_tokens, found.admitted_tokens) == (1024, None)
    assert (found.warnings, over(found)) == ((), [])


def test_vllm_as_decode_lands_in_its_own_pool() -> None:
    report = report_of(reading(recorded(VLLM), EngineKind.VLLM, DECODE))
    assert (report.role, report.landing_pages, report.longest_tokens) == (DECODE, 39, 1024)


def test_vllm_that_advertises_its_null_block_too() -> None:
    found = reading(with_length(recorded(VLLM), 1280), EngineKind.VLLM)
    assert over(found) == [(ViolationKind.ADVERTISED_OVER_HELD, 1280, 1248, "prefill_pool_tokens")]


def test_vllm_with_several_kinds_of_layers_holds_what_it_says_of_full_requests() -> None:
    # A full request of 32,768 tokens takes 48 of 208 blocks, not the 42 of its length alone.
    cache = with_cache(block_size="784", num_gpu_blocks="208", kv_cache_size_tokens="141994")
    found = reading(with_length(cache, 32_768), EngineKind.VLLM)
    report = report_of(found)
    assert report.groups == (KvGroup("full_request", 32_768, 4, 0, 0),)
    assert [report.concurrency(tokens) for tokens in (100, 32_768)] == [4, 4]
    assert report.longest_tokens == 32_768
    assert [text for text in found.warnings if "several kinds of layers" in text]
    assert over(found) == []


def test_vllm_with_several_kinds_of_layers_may_not_hold_one_full_request() -> None:
    cache = with_cache(block_size="32", num_gpu_blocks="48", kv_cache_size_tokens="1024")
    found = reading(with_length(cache, 1024 + 512), EngineKind.VLLM)
    # A full request takes 72 blocks of the 48 that there are; 48 would do for its length alone.
    assert report_of(found).longest_tokens == 0
    assert over(found)[0][:3] == (ViolationKind.ADVERTISED_OVER_HELD, 1536, 0)


def test_vllm_that_does_not_state_what_its_pool_holds_is_warned_of() -> None:
    for cache in (with_cache(kv_cache_size_tokens=None), with_cache(kv_cache_size_tokens="None")):
        found = reading(cache, EngineKind.VLLM)
        assert found.warnings == (f"prefill-a {vllm.NO_SIZE}",)
        assert report_of(found).tokens == 1248


def test_vllm_that_does_not_say_which_life_it_is_in_is_warned_of() -> None:
    text = (RECORDED / "vllm-metrics.txt").read_text().replace("process_start_time", "other_time")
    answers = {**recorded(VLLM), "/metrics": Answer.of(text)}
    del answers["/version"]
    found = reading(answers, EngineKind.VLLM)
    assert found.warnings == (f"prefill-a {vllm.NO_VERSION}", f"prefill-a {vllm.NO_START}")
    assert report_of(found).incarnation == "unstated"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (
            with_cache(num_gpu_blocks=None),
            "/metrics: vllm:cache_config_info has no `num_gpu_blocks`",
        ),
        (with_cache(num_gpu_blocks="None"), "/metrics: vllm:cache_config_info has no `num_gpu_blo"),
        (
            with_cache(num_gpu_blocks="-1"),
            "/metrics: vllm:cache_config_info has no `num_gpu_blocks`",
        ),
        (with_cache(num_gpu_blocks="4e9"), "/metrics: vllm:cache_config_info has no `num_gpu_bloc"),
        (with_cache(block_size="0"), "/metrics: vllm:cache_config_info has no `block_size`"),
        (with_cache(block_size="9" * 99), "/metrics: vllm:cache_config_info has no `block_size`"),
        (with_cache(cache_dtype=None), "/metrics: vllm:cache_config_info has no `cache_dtype`"),
        (with_cache(kv_cache_size_tokens="x"), "/metrics: vllm:cache_config_info has no `kv_cache"),
        ({**recorded(VLLM), "/metrics": Answer.of("a{")}, "/metrics: these are no metrics"),
        # The parser raises IndexError for this one.
        (
            {**recorded(VLLM), "/metrics": Answer.of('a{, ="c"} 1\n')},
            "/metrics: these are no metrics",
        ),
        (
            {**recorded(VLLM), "/metrics": Answer.of("a 1\n")},
            "/metrics: there is no vllm:cache_config_info",
        ),
        (
            {
                **recorded(VLLM),
                "/v1/models": Answer.of(
                    {"data": [{"id": "a"}, {"id": "b", "max_model_len": None}]}
                ),
            },
            "/v1/models: no model has a `max_model_len`",
        ),
        (
            {**recorded(VLLM), "/v1/models": Answer.of({"data": [{"max_model_len": 8}]})},
            "/v1/models: Object missing required field `id`",
        ),
        (
            {
                **recorded(VLLM),
                "/v1/models": Answer.of({"data": [{"id": "a", "max_model_len": 0}]}),
            },
            "/v1/models: Expected `int` >= 1",
        ),
        ({}, "/v1/models: answered 404"),
    ],
)
def test_vllm_that_does_not_say_what_is_needed_does_not_report(answers: Answers, why: str) -> None:
    with pytest.raises(NoAnswer) as caught:
        reading(answers, EngineKind.VLLM)
    assert str(caught.value).startswith(why)


def test_several_engines_behind_one_address_do_not_report() -> None:
    text = (RECORDED / "vllm-metrics.txt").read_text()
    line = next(each for each in text.splitlines() if each.startswith("vllm:cache_config_info"))
    other = line.replace('engine="0"', 'engine="1"')
    answers = {**recorded(VLLM), "/metrics": Answer.of(text + other + "\n")}
    with pytest.raises(NoAnswer, match="2 engines have a vllm:cache_config_info; one engine"):
        reading(answers, EngineKind.VLLM)


# SGLang


def with_info(files: dict[str, str], **members: object) -> Answers:
    """A recorded SGLang with other members of its account; None takes one away."""
    info = document(files, INFO)
    for name, value in members.items():
        if value is None:
            del info[name]
        else:
            info[name] = value
    return {**recorded(files), INFO: Answer.of(info)}


def test_sglang_schedules_less_than_it_admits_and_admits_less_than_it_advertises() -> None:
    found = reading(recorded(SGLANG_PREFILL), EngineKind.SGLANG)
    report = report_of(found)
    assert (report.page_tokens, report.pages, report.tokens) == (16, 32, 512)
    assert report.groups == (KvGroup("scheduled", 1, 494, 18, 0),)
    assert report.longest_tokens == 494
    assert (found.advertised_tokens, found.admitted_tokens) == (2048, 505)
    assert over(found) == [
        (ViolationKind.ADVERTISED_OVER_HELD, 2048, 494, "scheduled_tokens"),
        (ViolationKind.ADMITTED_OVER_HELD, 505, 494, "scheduled_tokens"),
    ]
    (_, admitted) = over_held(found)
    assert admitted.message == (
        "prefill-a admits prompts of up to 505 tokens and never schedules any of more than 494"
    )


def test_sglang_as_decode_keeps_its_reserve_beside_every_prompt() -> None:
    report = report_of(reading(recorded(SGLANG_DECODE), EngineKind.SGLANG, DECODE))
    assert (report.tokens, report.landing_pages) == (1280, 79)
    assert report.longest_tokens == 1262  # the page and two tokens of the scheduler
    assert over(reading(recorded(SGLANG_DECODE), EngineKind.SGLANG, DECODE)) == [
        (ViolationKind.ADVERTISED_OVER_HELD, 2048, 1262, "scheduled_tokens"),
        (ViolationKind.ADMITTED_OVER_HELD, 1273, 1264, "scheduled_tokens"),
    ]
    usual = with_info(SGLANG_DECODE, num_reserved_decode_tokens=512)
    found = reading(usual, EngineKind.SGLANG, DECODE)
    assert report_of(found).longest_tokens == 768
    assert over(found)[1] == (ViolationKind.ADMITTED_OVER_HELD, 1273, 768, "scheduled_tokens")
    none = with_info(SGLANG_DECODE, num_reserved_decode_tokens=2000)
    assert report_of(reading(none, EngineKind.SGLANG, DECODE)).longest_tokens == 0


def test_sglang_with_a_pool_for_its_context_holds_what_it_advertises() -> None:
    roomy = with_info(SGLANG_PREFILL, max_total_num_tokens=4096, max_req_input_len=2042)
    found = reading(roomy, EngineKind.SGLANG)
    assert (report_of(found).longest_tokens, over(found)) == (2048, [])


def test_sglang_says_what_its_figures_rest_on() -> None:
    report = report_of(reading(recorded(SGLANG_PREFILL), EngineKind.SGLANG))
    assert report.basis is not None
    assert (report.basis.model, report.basis.dtype) == ("tiny-llama", "auto")
    assert (report.basis.parallelism, report.basis.build) == ("tp1-pp1-dp1", "0.5.23")


@pytest.mark.parametrize("mode", ["null", "decode", "a-new-one"])
def test_sglang_in_another_role_is_named(mode: str) -> None:
    found = reading(with_info(SGLANG_PREFILL, disaggregation_mode=mode), EngineKind.SGLANG)
    (violation,) = found.violations
    assert (violation.kind, violation.node) == (ViolationKind.ROLE_DIFFERS, "prefill-a")
    assert ("another mode" if mode == "a-new-one" else mode) in violation.message
    assert reading(recorded(SGLANG_PREFILL), EngineKind.SGLANG).violations == ()


def test_sglang_states_its_start_only_with_metrics() -> None:
    found = reading(recorded(SGLANG_PREFILL), EngineKind.SGLANG)
    assert found.warnings == (f"prefill-a {sglang.NO_START}",)
    metrics = Answer.of("process_start_time_seconds 1796071200.25\n")
    found = reading({**recorded(SGLANG_PREFILL), "/metrics": metrics}, EngineKind.SGLANG)
    assert (found.warnings, report_of(found).incarnation) == ((), "started-1796071200.25")


def test_sglang_that_does_not_say_what_it_admits_is_warned_of() -> None:
    found = reading(with_info(SGLANG_PREFILL, max_req_input_len=None), EngineKind.SGLANG)
    assert f"prefill-a {sglang.NO_ADMISSION}" in found.warnings
    assert [kind for kind, *_ in over(found)] == [ViolationKind.ADVERTISED_OVER_HELD]


def test_sglang_is_asked_under_the_later_name_only_where_the_former_is_gone() -> None:
    answers = recorded(SGLANG_PREFILL)
    answers["/server_info"] = answers.pop(INFO)
    assert report_of(reading(answers, EngineKind.SGLANG)).tokens == 512
    answers[INFO] = Answer((b"",), 500)
    with pytest.raises(NoAnswer, match=r"^/get_server_info: answered 500$"):
        reading(answers, EngineKind.SGLANG)


REQUIRED = (
    "version",
    "max_total_num_tokens",
    "page_size",
    "disaggregation_mode",
    "kv_cache_dtype",
    "tp_size",
    "pp_size",
    "dp_size",
    "num_reserved_decode_tokens",
)


@pytest.mark.parametrize("name", REQUIRED)
def test_sglang_that_does_not_say_what_is_needed_does_not_report(name: str) -> None:
    with pytest.raises(NoAnswer, match=f"missing required field `{name}`"):
        reading(with_info(SGLANG_DECODE, **{name: None}), EngineKind.SGLANG, DECODE)


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [[], {}, 1.5, "", -1, True])
def test_sglang_is_not_believed_where_a_member_has_another_type(name: str, value: Any) -> None:
    right = document(SGLANG_DECODE, INFO)[name]
    if type(value) is type(right) and value not in ("", -1):
        pytest.fail("this is the right type")
    with pytest.raises(NoAnswer, match=r"^/get_server_info: Expected ") as caught:
        reading(with_info(SGLANG_DECODE, **{name: value}), EngineKind.SGLANG, DECODE)
    assert name in str(caught.value)


def test_what_else_a_server_says_of_itself_is_never_shown() -> None:
    secret = document(SGLANG_PREFILL, INFO)["api_key"]
    broken = with_info(SGLANG_PREFILL, max_total_num_tokens=secret)
    with pytest.raises(NoAnswer) as caught:
        reading(broken, EngineKind.SGLANG)
    assert secret not in str(caught.value)
    assert secret not in repr(reading(recorded(SGLANG_PREFILL), EngineKind.SGLANG))


# Both


def fingerprint(answers: Answers, kind: EngineKind, role: Role = PREFILL) -> str:
    return report_of(reading(answers, kind, role)).fingerprint


def changed(files: dict[str, str], path: str, change: Callable[[dict[str, Any]], None]) -> Answers:
    told = json.loads((RECORDED / files[path]).read_text())
    change(told)
    return {**recorded(files), path: Answer.of(told)}


def test_a_fingerprint_changes_with_what_the_figures_rest_on() -> None:
    vllms = [
        recorded(VLLM),
        with_cache(num_gpu_blocks="41"),
        with_cache(block_size="16"),
        with_cache(cache_dtype="fp8"),
        with_cache(kv_cache_size_tokens="1281"),
        with_length(recorded(VLLM), 1000),
        changed(VLLM, "/version", lambda told: told.update(version="0.32.1")),
    ]
    sglangs = [
        recorded(SGLANG_PREFILL),
        with_info(SGLANG_PREFILL, max_total_num_tokens=513),
        with_info(SGLANG_PREFILL, page_size=32),
        with_info(SGLANG_PREFILL, kv_cache_dtype="fp8_e4m3"),
        with_info(SGLANG_PREFILL, tp_size=2),
        with_info(SGLANG_PREFILL, version="0.5.24"),
        changed(SGLANG_PREFILL, "/v1/models", lambda told: told["data"][0].update(id="other")),
    ]
    digests = [fingerprint(answers, EngineKind.VLLM) for answers in vllms]
    digests += [fingerprint(answers, EngineKind.SGLANG) for answers in sglangs]
    digests.append(fingerprint(recorded(VLLM), EngineKind.VLLM, DECODE))
    assert len(set(digests)) == len(digests)
    assert fingerprint(recorded(VLLM), EngineKind.VLLM) == digests[0]


def test_a_fingerprint_does_not_change_with_a_new_life() -> None:
    text = (RECORDED / "vllm-metrics.txt").read_text().replace("1.79606871352e+09", "1.8e+09")
    later = {**recorded(VLLM), "/metrics": Answer.of(text)}
    assert fingerprint(later, EngineKind.VLLM) == fingerprint(recorded(VLLM), EngineKind.VLLM)
    assert report_of(reading(later, EngineKind.VLLM)).incarnation == "started-1800000000.00"
