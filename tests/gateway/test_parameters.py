"""What both endpoints read: what is taken, what is refused and by which name."""

from __future__ import annotations

import inspect
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai.resources.chat.completions import Completions as ChatClient
from openai.resources.completions import Completions as CompletionClient

from kvairlock.core.messages import Sampling
from kvairlock.gateway.asked import Asked
from kvairlock.gateway.bodies import read_object
from kvairlock.gateway.errors import ApiError, Refused
from kvairlock.gateway.parameters import Form, parse
from kvairlock.gateway.steering import strip
from kvairlock.gateway.unsupported import NEUTRAL, WITHOUT_EFFECT, header_names

from .asking import CHAT, COMPLETION, OFFER, asked, each_form, parsed, reads, refused, valid

NULLABLE = ("max_tokens", "n", "stop", "stream", "stream_options", "temperature", "top_p", "seed",
            "logprobs", "max_completion_tokens", "top_logprobs")  # fmt: skip


@each_form
def test_defaults(form: Form) -> None:
    request = parsed(form)
    assert (request.model, request.n, request.stop) == ("recall", 1, ())
    assert (request.sampling.temperature, request.sampling.top_p) == (0.0, 1.0)
    assert request.alternatives is None
    assert (request.stream, request.include_usage, request.ignored) == (False, False, ())


@each_form
def test_everything_that_is_read(form: Form) -> None:
    request = parsed(
        form,
        max_tokens=3,
        n=8,
        stop=["a", "é"],
        temperature=0.5,
        top_p=0.25,
        seed=7,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert (request.max_tokens, request.enough_tokens) == (3, 3)
    assert (request.n, request.stop) == (8, (b"a", "é".encode()))
    assert request.sampling == Sampling(0.5, 0.25, 7)
    assert (request.stream, request.include_usage, request.ignored) == (True, True, ())
    assert request.demand.max_tokens == 3


@each_form
def test_nulls_are_as_good_as_absent(form: Form) -> None:
    nulls = dict.fromkeys({*NULLABLE, *NEUTRAL} - valid(form).keys())
    request, plain = parsed(form, **nulls), parsed(form)
    assert (request.demand, request.stop, request.alternatives) == (plain.demand, (), None)
    assert request.ignored == ()


SEEDS = [
    (0, 0), (2**63 - 1, 2**63 - 1), (2**63, 0), (2**64 - 1, 2**63 - 1), (-1, 2**63 - 1),
    (-(2**63), 0), (2**63 + 5, 5),
]  # fmt: skip


@pytest.mark.parametrize(("given_seed", "used"), SEEDS)
@each_form
def test_any_seed_of_64_bits_is_taken(form: Form, given_seed: int, used: int) -> None:
    assert parsed(form, seed=given_seed).sampling.seed == used


@each_form
def test_without_a_seed_each_request_draws_its_own(form: Form) -> None:
    seeds = {parsed(form, temperature=1).sampling.seed for _ in range(8)}
    assert len(seeds) == 8


@each_form
def test_the_ends_of_ranges_are_in_them(form: Form) -> None:
    for name, value in (("temperature", 2), ("temperature", 0), ("top_p", 1), ("top_p", 1e-9)):
        assert getattr(parsed(form, **{name: value}).sampling, name) == value


WRONG: list[tuple[str, object]] = [
    ("model", 5), ("model", ""), ("model", None),
    ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", 1.5), ("max_tokens", "5"),
    ("max_tokens", True), ("max_tokens", 2**31),
    ("n", 0), ("n", 9), ("n", "1"), ("n", False),
    ("stop", 5), ("stop", ""), ("stop", [""]), ("stop", ["a"] * 5), ("stop", [1]),
    ("stop", {"a": 1}), ("stop", "x" * 257),
    ("temperature", -0.1), ("temperature", 2.1), ("temperature", "0"), ("temperature", False),
    ("top_p", 0), ("top_p", 1.1), ("top_p", -1), ("top_p", True), ("top_p", []),
    ("seed", 1.0), ("seed", "1"), ("seed", True), ("seed", 2**64), ("seed", -(2**63) - 1),
    ("stream", 1), ("stream", "true"), ("stream_options", {"include_usage": True}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG)
@each_form
def test_wrong_values_are_400_and_name_the_parameter(form: Form, name: str, value: object) -> None:
    error = refused(form, **{name: value})
    assert (error.status, error.param, error.code) == (400, name, "invalid_value")
    assert f"`{name}`" in error.message


@pytest.mark.parametrize("options", [5, [], {"include_usage": 1}, "x", True])
@each_form
def test_wrong_stream_options_are_400(form: Form, options: object) -> None:
    error = refused(form, stream=True, stream_options=options)
    assert (error.status, error.param) == (400, "stream_options")


@each_form
def test_a_missing_model_is_400_and_an_unknown_one_404(form: Form) -> None:
    fields = {name: value for name, value in valid(form).items() if name != "model"}
    with pytest.raises(Refused) as caught:
        parse(fields, OFFER, form)
    assert (caught.value.error.status, caught.value.error.param) == (400, "model")
    error = refused(form, model="other")
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


NEUTRALS = [(name, value) for name, values in NEUTRAL.items() for value in values]


@pytest.mark.parametrize(("name", "value"), NEUTRALS)
@each_form
def test_neutral_values_are_taken(form: Form, name: str, value: object) -> None:
    assert parsed(form, **{name: value}).ignored == ()


def test_whole_numbers_are_neutral_also_as_fractions() -> None:
    assert parsed(COMPLETION, presence_penalty=0.0, repetition_penalty=1.0).ignored == ()


UNSUPPORTED: list[tuple[str, object]] = [
    ("frequency_penalty", 0.1), ("frequency_penalty", False), ("presence_penalty", -1),
    ("repetition_penalty", 1.1), ("logit_bias", {"50256": -100}), ("logit_bias", []),
    ("best_of", 2), ("best_of", True), ("top_k", 40), ("min_p", 0.1), ("echo", True), ("echo", 0),
    ("suffix", "end"), ("min_tokens", 1), ("ignore_eos", True), ("stop_token_ids", [2]),
    ("response_format", {"type": "json_object"}), ("response_format", {"type": "text", "x": 1}),
    ("guided_json", {}), ("structured_outputs", {}), ("chat_template", "x"),
    ("add_generation_prompt", False), ("continue_final_message", True), ("documents", [{}]),
    ("tools", [{"type": "function"}]), ("tool_choice", "required"), ("tool_choice", {}),
    ("parallel_tool_calls", "no"), ("functions", [{}]), ("function_call", {"name": "f"}),
    ("modalities", ["text", "audio"]), ("modalities", "text"), ("audio", {}), ("prediction", {}),
    ("web_search_options", {}), ("reasoning_effort", "low"), ("verbosity", "high"),
    ("service_tier", "priority"), ("store", True), ("cache_salt", "x"), ("moderation", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED)
@each_form
def test_other_values_are_refused_by_name(form: Form, name: str, value: object) -> None:
    error = refused(form, **{name: value})
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert f"`{name}`" in error.message


def test_parameters_of_the_other_endpoint_are_refused() -> None:
    for form, name in ((COMPLETION, "messages"), (COMPLETION, "max_completion_tokens"),
                       (COMPLETION, "top_logprobs"), (CHAT, "prompt")):  # fmt: skip
        error = refused(form, **{name: 1})
        assert (error.code, error.param) == ("unsupported_parameter", name)


def test_all_unsupported_parameters_are_named_at_once() -> None:
    error = refused(CHAT, top_k=5, tools=[{}], echo=True)
    assert all(f"`{name}`" in error.message for name in ("top_k", "tools", "echo"))


@each_form
def test_what_has_no_effect_is_taken(form: Form) -> None:
    assert parsed(form, **dict.fromkeys(WITHOUT_EFFECT, "anything")).ignored == ()


@each_form
def test_what_nobody_knows_is_ignored_and_named(form: Form) -> None:
    options = {"include_obfuscation": True, "other": False}
    request = parsed(form, shiny=1, a_new_one=None, stream=True, stream_options=options)
    assert request.ignored == ("a_new_one", "shiny", "stream_options.include_obfuscation")


NO_PARAMETERS = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}


@pytest.mark.parametrize(("form", "client"), [(CHAT, ChatClient), (COMPLETION, CompletionClient)])
def test_every_parameter_of_the_official_client_is_known(form: Form, client: type) -> None:
    names = set(inspect.signature(client.create).parameters) - NO_PARAMETERS  # type: ignore[attr-defined]
    assert len(names) > 15
    assert names <= reads(form) | WITHOUT_EFFECT | set(NEUTRAL)


@pytest.mark.parametrize(
    ("max_tokens", "enough_tokens", "room", "cut_to"),
    [(16, 1, 100, 16), (16, 1, 16, 16), (16, 1, 15, 15), (16, 1, 0, 1), (16, 1, -9, 1),
     (16, 16, 15, 16), (16, 16, 0, 16)],
)  # fmt: skip
def test_only_a_default_length_is_cut(
    max_tokens: int, enough_tokens: int, room: int, cut_to: int
) -> None:
    request = asked(max_tokens=max_tokens, enough_tokens=enough_tokens)
    assert request.within(room).max_tokens == cut_to


def test_header_names_are_bounded_and_plain() -> None:
    assert header_names(["a", "b\r\nc", "é", "d-e_f.1"]) == "a, b??c, ?, d-e_f.1"
    long = header_names(["x" * 1000] * 100)
    assert long.endswith(", ...")
    assert len(long) == 16 * (64 + 2) + 3
    assert header_names(["x" * 64] * 16).count("x" * 64) == 16


WORDS = st.sampled_from([*valid(COMPLETION), *valid(CHAT), *NULLABLE, *NEUTRAL])
MEMBERS = st.sampled_from(["role", "content", "type", "text", "name", "tool_calls"])
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8) | st.sampled_from(["recall", "user", "assistant", "system", "text"])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(MEMBERS | st.text(max_size=8), inner)
    ),
    max_leaves=8,
)
BODIES = st.dictionaries(WORDS | st.text(max_size=8), VALUES, max_size=8)


@each_form
@settings(max_examples=150, deadline=None, derandomize=True)
@example(fields={"prompt": "x", "model": "recall", "n": 10**30})
@example(fields={"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]})
@given(fields=BODIES)
def test_any_object_is_a_request_or_a_4xx(form: Form, fields: dict[str, object]) -> None:
    body = {**valid(form), **fields}
    answer = outcome(json.dumps(body).encode(), form)
    if isinstance(answer, ApiError):
        assert 400 <= answer.status < 500
        assert answer.param is not None
        assert answer.param.partition("[")[0] in body
    else:
        assert answer.demand.prompt_tokens >= 1
        assert 1 <= answer.enough_tokens <= answer.max_tokens < 2**31
        assert 1 <= answer.n <= 8
        assert not set(answer.ignored) & (reads(form) | set(NEUTRAL))


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "x"])},
        optional={"content": VALUES, "name": VALUES, "tool_calls": VALUES, "refusal": VALUES},
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(messages=MESSAGES)
def test_any_conversation_is_a_request_or_a_400(messages: list[dict[str, object]]) -> None:
    answer = outcome(json.dumps({**valid(CHAT), "messages": messages}).encode(), CHAT)
    if isinstance(answer, ApiError):
        assert answer.status == 400
        assert answer.param is not None
        assert answer.param.startswith("messages")
    else:
        assert bytes(answer.prompt_tokens.tolist()).endswith(b"\nassistant:")


def outcome(body: bytes, form: Form) -> Asked | ApiError:
    try:
        fields = read_object(body)
        strip(fields)
        return parse(fields, OFFER, form)
    except Refused as error:
        return error.error


@each_form
@settings(max_examples=100, deadline=None, derandomize=True)
@given(body=st.binary(max_size=64))
def test_any_bytes_are_a_400(form: Form, body: bytes) -> None:
    answer = outcome(body, form)
    assert isinstance(answer, ApiError)
    assert answer.status == 400
