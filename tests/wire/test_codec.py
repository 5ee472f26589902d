"""Bodies: every message comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvairlock.core import messages
from kvairlock.core.checks import CheckPolicy, Checks, Coverage
from kvairlock.core.ends import End
from kvairlock.core.errors import PeerMisbehaved, Reason, Refusal, Stage
from kvairlock.core.guards import Guard, GuardMode, Relaxed
from kvairlock.core.lengths import GROUPS
from kvairlock.core.messages import Message
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.terms import (
    Fence,
    Incarnation,
    NodeName,
    Owner,
    Role,
    Route,
    TransferId,
    WindowId,
)
from kvairlock.core.waits import BOUNDS_MS, CAUSES, Wait, Waited
from kvairlock.wire import codec
from kvairlock.wire.texts import texts_in
from kvairlock.wire.versions import SPEAKS

KINDS: tuple[type[Any], ...] = get_args(Message)
NEWEST = SPEAKS[-1]
each_version = pytest.mark.parametrize("version", SPEAKS)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: INT64,
    float: st.floats(allow_nan=False),
    str: TEXT,
    bytes: st.binary(max_size=40),
    type(None): st.none(),
    messages.Sampling: st.builds(
        messages.Sampling, st.floats(0, 1e9), st.floats(1e-9, 1), st.integers(0, 2**63 - 1)
    ),
}


FIGURES = st.dictionaries(TEXT, st.integers(0, 2**63 - 1), max_size=3)
ODD: dict[Any, dict[str, st.SearchStrategy[Any]]] = {
    messages.NodeStatus: {
        **dict.fromkeys(("pages", "requests", "counters", "fences"), FIGURES),
        "window_fences": st.none() | FIGURES,
        "windows": st.integers(0, 2**63 - 1),
        "windows_draining": st.integers(0, 2**63 - 1),
    },
    Waited: {
        "length": st.sampled_from(GROUPS),
        "cause": st.sampled_from(sorted(map(str, CAUSES))),
        "count": st.integers(3, 2**63 - 1),
        "sum_ms": st.integers(0, 2**63 - 1),
        "within_ms": st.dictionaries(st.sampled_from(BOUNDS_MS), st.integers(0, 1), max_size=3),
    },
    messages.Submit: {
        "alternatives": st.none() | st.integers(0, messages.ALTERNATIVES_MAX),
    },
}
"""Fields that don't take every value of their type."""


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values that a field of this type can have on the wire: integers have 64 bits."""
    hint = getattr(hint, "__supertype__", hint)
    inner = [values_of(h) for h in get_args(hint) if h is not ...]
    if hint in PLAIN:
        return PLAIN[hint]
    if get_origin(hint) is tuple:
        return st.lists(*inner, max_size=3).map(tuple)
    if get_origin(hint) is dict:
        return st.dictionaries(*inner, max_size=3)
    if inner:
        return st.one_of(inner)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    fields = {name: values_of(h) for name, h in get_type_hints(hint).items()}
    return st.builds(hint, **fields | ODD.get(hint, {}))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_comes_back_as_it_was(kind: type[Any]) -> None:
    @settings(max_examples=30)
    @given(values_of(kind))
    def check(message: Message) -> None:
        again = codec.decode(codec.encode(message, NEWEST), NEWEST)
        assert again == message
        assert type(again) is kind

    check()


def test_every_message_has_one_name() -> None:
    assert set(codec.TYPES.values()) == set(KINDS)
    for forms in codec.FORMS.values():
        assert all(name == kind.__name__.lower() for name, kind in forms.types.items())


def parts_of(hint: Any) -> set[type[Any]]:
    """All dataclasses that a value of this type can hold."""
    hint = getattr(hint, "__supertype__", hint)
    found = set().union(*(parts_of(h) for h in get_args(hint) if h is not ...))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        found |= {hint}.union(*(parts_of(h) for h in get_type_hints(hint).values()))
    return found


def test_nothing_that_crosses_has_a_default() -> None:
    """What is missing is refused; only a refusal may come without figures."""
    kinds = {kind for forms in codec.FORMS.values() for kind in forms.types.values()}
    crossing = set().union(*map(parts_of, kinds)) - {Refusal}
    assert len(crossing) > len(kinds)
    optional = {
        f"{kind.__name__}.{field.name}"
        for kind in crossing
        for field in dataclasses.fields(kind)
        if field.default is not dataclasses.MISSING
        or field.default_factory is not dataclasses.MISSING
    }
    assert not optional


RECEIPT = messages.Receipt(
    transfer=TransferId("r/1"),
    owner=Owner("t", "r", 1),
    outcome=End.FAILED,
    refusal=Refusal(Reason.INVARIANT, Stage.PREFILL, "m", 1, 2, "n"),
    window=WindowId("w"),
    input_digest=b"d",
    layout="l",
    pages=(0, 1),
    start=0,
    stop=5,
    generations=(3, 4),
    digests=(5, 2**64 - 1),
    reused=4,
)
GRANT = messages.Grant(
    transfer=TransferId("r/1"),
    ticket=b"t",
    tokens=b"1234",
    window=WindowId("w"),
    file=77,
    offsets=(0, 4096),
    generations=(0, 0),
    layout="l",
    seed=2**64 - 1,
    patience_ms=10,
    trace="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
)
SUBMIT = messages.Submit(
    ticket=b"t",
    tenant="a",
    transfer=TransferId("r/1"),
    tokens=b"1234",
    max_tokens=1,
    choices=1,
    stop=(b"x",),
    sampling=messages.Sampling(0.5, 0.9, 2**63 - 1),
    alternatives=3,
    prefill=NodeName("p"),
    nonce="n",
    trace="",
)
ROUTE = Route(NodeName("p"), NodeName("d"))
RELAXED = Relaxed(
    ROUTE, Guard.INTEGRITY, GuardMode.ENFORCING, Checks(CheckPolicy.SAMPLED, 0.25), "pilot"
)
COVERAGE = Coverage(ROUTE, 5, 4, 3, 2, 1)
WAITED = Waited(Wait.DRAIN, "1024", "cancelled", Fence.ACKNOWLEDGED, 3, 40, {10: 1, 25: 1})
STATUS = messages.NodeStatus(
    report=CapacityReport(
        node=NodeName("p"),
        role=Role.PREFILL,
        incarnation=Incarnation("p-1"),
        epoch=3,
        fingerprint="f",
        basis=None,
        page_tokens=16,
        pages=8,
        landing_pages=0,
        windows=0,
        context_tokens=4096,
        groups=(),
    ),
    pages={"free": 8},
    windows=0,
    windows_draining=0,
    requests={},
    links=(NodeName("d"),),
    counters={"admitted": 1},
    fences={},
    window_fences={},
    points=(),
    relaxed=(RELAXED,),
    coverage=(COVERAGE,),
    waits=(WAITED,),
)
EXAMPLES: dict[str, Message] = {
    "receipt": RECEIPT,
    "grant": GRANT,
    "submit": SUBMIT,
    "nodestatus": STATUS,
}


def parts(message: Message, version: int = NEWEST) -> dict[str, Any]:
    """What a version says for a message, as plain values to be tampered with."""
    said = codec.FORMS[version].down(message)
    body: dict[str, Any] = msgspec.to_builtins(said, builtin_types=(bytes,))
    return body


FIELDS = [
    (version, name, field)
    for version in SPEAKS
    for name, message in EXAMPLES.items()
    for field in parts(message, version)
]
each_field = pytest.mark.parametrize(("version", "name", "field"), FIELDS)


def enveloped(name: Any, must: Any, body: Any) -> bytes:
    return msgspec.msgpack.encode([name, must, body])


def taken(data: bytes) -> Message | Reason:
    """The message, or why there is none; any other error is the test's failure."""
    try:
        return codec.decode(data, NEWEST)
    except PeerMisbehaved as error:
        return error.reason


def refused(data: bytes, version: int = NEWEST) -> PeerMisbehaved:
    with pytest.raises(PeerMisbehaved) as caught:
        codec.decode(data, version)
    return caught.value


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": float("nan")},
        {"seed": -1},
        {"seed": 2**63},
    ],
    ids=str,
)
def test_sampling_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    body = parts(SUBMIT)
    body["sampling"] |= wrong
    assert refused(enveloped("submit", [], body)).reason is Reason.MALFORMED


@pytest.mark.parametrize("alternatives", [-1, messages.ALTERNATIVES_MAX + 1])
def test_an_impossible_number_of_alternatives_is_refused(alternatives: int) -> None:
    body = parts(SUBMIT) | {"alternatives": alternatives}
    assert refused(enveloped("submit", [], body)).reason is Reason.MALFORMED


@each_version
@pytest.mark.parametrize(
    "wrong", [{"counters": {"admitted": -1}}, {"pages": {"free": -1}}, {"windows": -1}], ids=str
)
def test_a_figure_of_a_node_below_0_is_refused(wrong: dict[str, Any], version: int) -> None:
    body = parts(STATUS, version) | wrong
    assert refused(enveloped("nodestatus", [], body), version).reason is Reason.MALFORMED


@pytest.mark.parametrize("wrong", [{"length": "acme"}, {"cause": "acme"}, {"count": -1}], ids=str)
def test_a_wait_with_words_or_figures_that_none_has_is_refused(wrong: dict[str, Any]) -> None:
    body = parts(STATUS)
    body["waits"] = [body["waits"][0] | wrong]
    assert refused(enveloped("nodestatus", [], body)).reason is Reason.MALFORMED


def test_a_digest_uses_all_64_bits() -> None:
    again = codec.decode(codec.encode(RECEIPT, NEWEST), NEWEST)
    assert isinstance(again, messages.Receipt)
    assert again.digests[1] == 2**64 - 1


@each_version
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_tampered_bodies_start_from_one_that_is_taken(name: str, version: int) -> None:
    message, forms = EXAMPLES[name], codec.FORMS[version]
    read = codec.decode(enveloped(name, [], parts(message, version)), version)
    assert read == forms.up(forms.down(message))


@each_field
def test_a_missing_field_is_refused_and_named(version: int, name: str, field: str) -> None:
    body = parts(EXAMPLES[name], version)
    del body[field]
    error = refused(enveloped(name, [], body), version)
    assert error.reason is Reason.MALFORMED
    assert field in str(error)


@each_field
@pytest.mark.parametrize("value", [{"a": 1.5}, 1.5, True], ids=["map", "float", "bool"])
def test_a_field_of_a_wrong_type_is_refused(
    version: int, name: str, field: str, value: object
) -> None:
    body = {**parts(EXAMPLES[name], version), field: value}
    assert refused(enveloped(name, [], body), version).reason is Reason.MALFORMED


@each_field
def test_a_field_that_must_be_understood_and_is_not_is_refused(
    version: int, name: str, field: str
) -> None:
    body = parts(EXAMPLES[name], version)
    body[f"{field}_too"] = body[field]
    error = refused(enveloped(name, [field, f"{field}_too"], body), version)
    assert error.reason is Reason.VERSION
    assert name in str(error)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("receipt", ("outcome",), "finished"),
        ("receipt", ("outcome",), ""),
        ("receipt", ("outcome",), "COMPLETED"),
        ("receipt", ("refusal", "reason"), "because"),
        ("receipt", ("refusal", "stage"), "somewhere"),
    ],
)
def test_an_unknown_value_of_a_closed_set_is_refused(
    name: str, path: tuple[str, ...], value: str
) -> None:
    body = parts(EXAMPLES[name])
    target = body
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    assert refused(enveloped(name, [], body)).reason is Reason.MALFORMED


@each_version
@pytest.mark.parametrize("name", ["", "nothing", "Receipt", "receipt ", "hello", "requestticket"])
def test_an_unknown_type_is_refused_by_version(name: str, version: int) -> None:
    assert refused(enveloped(name, [], parts(RECEIPT)), version).reason is Reason.VERSION


@each_version
def test_an_unknown_field_is_ignored_unless_it_must_be_understood(version: int) -> None:
    body = {**parts(RECEIPT), "colour": "red"}
    assert codec.decode(enveloped("receipt", ["stop"], body), version) == RECEIPT
    error = refused(enveloped("receipt", ["stop", "colour"], body), version)
    assert error.reason is Reason.VERSION
    assert "receipt" in str(error)


def test_a_field_of_another_message_is_not_understood() -> None:
    error = refused(enveloped("cancel", ["digests"], {"transfer": "r/1"}))
    assert error.reason is Reason.VERSION


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(None),
        msgspec.msgpack.encode("receipt"),
        msgspec.msgpack.encode(["receipt", []]),
        msgspec.msgpack.encode(["receipt", [], {}, 1]),
        msgspec.msgpack.encode({"type": "receipt", "must": [], "body": {}}),
        enveloped(1, [], {}),
        enveloped("beat", {}, {}),
        enveloped("beat", [1], {}),
        enveloped("beat", [], []),
        enveloped("beat", [], None),
        codec.encode(messages.Beat(), NEWEST) + b"\0",
        enveloped("cancel", [], {"transfer": "r/1"})[:-1],
    ],
)
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    assert refused(data).reason is Reason.MALFORMED


def test_a_truncated_body_is_refused_at_every_length() -> None:
    data = codec.encode(RECEIPT, NEWEST)
    for length in range(len(data)):
        assert refused(data[:length]).reason in {Reason.MALFORMED, Reason.VERSION}


NESTED = b"\x91" * 50_000 + b"\xc0"
NAME = msgspec.msgpack.encode("cancel")
DEEP = {
    "body": b"\x93" + NAME + b"\x90" + NESTED,
    "unknown field": b"\x93" + NAME + b"\x90\x82\xa8transfer\xa1x\xa1z" + NESTED,
    "known field": b"\x93" + NAME + b"\x90\x81\xa8transfer" + NESTED,
    "field name": b"\x93" + NAME + b"\x90\x81" + NESTED + b"\xc0",
    "must": b"\x93" + NAME + NESTED + b"\x80",
    "envelope": NESTED,
}


@pytest.mark.parametrize("where", DEEP)
def test_what_is_nested_without_end_is_refused(where: str) -> None:
    assert refused(DEEP[where]).reason is Reason.MALFORMED


def test_an_error_never_repeats_what_a_field_held() -> None:
    """Bodies hold prompts: a refusal names fields and types."""
    body = {**parts(SUBMIT), "tokens": {"SECRET": "SECRET"}, "tenant": ["SECRET"]}
    assert "SECRET" not in str(refused(enveloped("submit", [], body)))


@settings(max_examples=1_500)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    found = taken(data)
    if isinstance(found, Reason):
        assert found in {Reason.MALFORMED, Reason.VERSION}
    else:
        assert codec.decode(codec.encode(found, NEWEST), NEWEST) == found


@settings(max_examples=500)
@given(
    st.sampled_from([codec.encode(m, NEWEST) for m in EXAMPLES.values()]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_bodies_with_changed_bytes_are_messages_or_refused(
    data: bytes, changes: list[tuple[int, int]]
) -> None:
    changed = bytearray(data)
    for place, value in changes:
        changed[place % len(changed)] = value
    found = taken(bytes(changed))
    if isinstance(found, Reason):
        assert found in {Reason.MALFORMED, Reason.VERSION}
    else:
        assert type(found) in KINDS


JSONISH: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats() | TEXT | st.binary(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=250)
@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_bodies_with_other_values_are_messages_or_refused(name: str, data: st.DataObject) -> None:
    """Well-formed msgpack of the right names: the types of the fields are what refuses."""
    body = parts(EXAMPLES[name])
    for field in data.draw(st.sets(st.sampled_from(sorted(body)), min_size=1, max_size=3)):
        body[field] = data.draw(JSONISH)
    found = taken(enveloped(name, [], body))
    if isinstance(found, Reason):
        assert found is Reason.MALFORMED
    else:
        assert type(found) is type(EXAMPLES[name])


def test_a_name_of_absurd_length_is_refused_and_never_read_as_a_number() -> None:
    body = {"transfer": "x/" + "9" * 5000}
    assert refused(enveloped("cancel", [], body)).reason is Reason.MALFORMED
    assert Owner.named("t", TransferId("x/" + "9" * 5000)) == Owner("t", "x", 0)


def texts_of(value: Any) -> list[str]:
    """All texts in a value, found by looking at each part of it."""
    if dataclasses.is_dataclass(value):
        return [t for f in dataclasses.fields(value) for t in texts_of(getattr(value, f.name))]
    if isinstance(value, tuple):
        return [text for part in value for text in texts_of(part)]
    if isinstance(value, dict):
        return texts_of((*value, *value.values()))
    return [value] if isinstance(value, str) and not isinstance(value, Enum) else []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_text_in_a_message_is_overlooked(kind: type[Any]) -> None:
    @settings(max_examples=30)
    @given(values_of(kind))
    def check(message: Message) -> None:
        assert sorted(texts_in(message)) == sorted(texts_of(message))

    check()


@pytest.mark.parametrize("at", ["message", "limit_name"])
def test_a_text_inside_a_message_has_a_bound(at: str) -> None:
    def ended(characters: int) -> messages.Ended:
        refusal = Refusal(Reason.ENGINE, Stage.DECODE, "m", 1, 2, "n")
        longer: Any = {at: "x" * characters}
        stated = dataclasses.replace(refusal, **longer)
        return messages.Ended(TransferId("r/1"), End.FAILED, stated, 0, 0, 0, None)

    longest = ended(codec.TEXT_CHARACTERS_MAX)
    assert codec.decode(codec.encode(longest, NEWEST), NEWEST) == longest
    too_long = codec.encode(ended(codec.TEXT_CHARACTERS_MAX + 1), NEWEST)
    with pytest.raises(PeerMisbehaved, match="a text in it has 4097 characters") as caught:
        codec.decode(too_long, NEWEST)
    assert caught.value.reason is Reason.MALFORMED


def test_a_type_in_which_nobody_knows_where_texts_are_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd:
        names: list[str]

    with pytest.raises(TypeError, match="nobody knows where texts are"):
        texts_in(Odd(["x"]))
