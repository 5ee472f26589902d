"""Versions of the messages: which one is agreed on, and what version 1 says byte by byte."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.ends import End
from kvairlock.core.errors import PeerIncompatible, PeerMisbehaved, Reason, Stage
from kvairlock.core.messages import (
    Beat,
    Cancel,
    Ended,
    Grant,
    Message,
    NodeStatus,
    PageMap,
    Rehearse,
    Rehearsed,
    Resize,
    Watch,
)
from kvairlock.core.promise.capacity import Basis, CapacityReport, KvGroup
from kvairlock.core.terms import Incarnation, NodeName, Peer, Reader, Role, TransferId
from kvairlock.wire import codec, frames, tickets, version1, versions
from kvairlock.wire.frames import HELLO, Hello, Session
from kvairlock.wire.keys import Keyring
from kvairlock.wire.versions import SPEAKS, UNSTATED, Versions, agree

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "golden/version1.json").read_text(encoding="utf-8")
)
SAID = {name: bytes.fromhex(text) for name, text in GOLDEN["messages"].items()}
CHANNEL = {name: bytes.fromhex(text) for name, text in GOLDEN["channel"].items()}
RING = Keyring.parse("one " + "ab" * 32)
NEWEST = SPEAKS[-1]
D = Peer(NodeName("d"), Role.DECODE, Incarnation("d-1"))
P = Peer(NodeName("p"), Role.PREFILL, Incarnation("p-1"))
ASKS = Hello(D, "p", b"d" * 16, "layout", speaks=SPEAKS)
ANSWERS = Hello(P, "d", b"p" * 16, "layout", b"d" * 16, SPEAKS)
CANCEL = Cancel(TransferId("r/1"))

some_versions: st.SearchStrategy[Versions] = st.sets(st.integers(1, 9), min_size=1, max_size=5).map(
    lambda found: tuple(sorted(found))
)


# What is agreed on


@given(some_versions, some_versions)
def test_the_highest_common_version_is_agreed_on_by_both_sides(
    mine: Versions, theirs: Versions
) -> None:
    common = [version for version in mine if version in theirs]
    if common:
        assert agree(mine, theirs) == agree(theirs, mine) == common[-1]
    else:
        with pytest.raises(PeerIncompatible, match="no version in common"):
            agree(mine, theirs)


def test_whoever_has_no_common_version_is_told_both_sides() -> None:
    with pytest.raises(PeerIncompatible) as caught:
        agree((1, 2), (3,))
    assert str(caught.value) == "no version in common: messages 1, 2 here, messages 3 there"


@pytest.mark.parametrize(
    ("mine", "theirs", "version"), [((1, 2), (1, 2), 2), ((1, 2), (1,), 1), ((2, 3), (1, 2), 2)]
)
def test_a_channel_speaks_what_both_hellos_allow(
    mine: Versions, theirs: Versions, version: int
) -> None:
    decode = Session(RING, replace(ASKS, speaks=mine), replace(ANSWERS, speaks=theirs))
    prefill = Session(RING, replace(ANSWERS, speaks=theirs), replace(ASKS, speaks=mine))
    assert decode.version == prefill.version == version
    if version in codec.FORMS:
        assert prefill.open(decode.seal(CANCEL)) == CANCEL


def test_no_channel_opens_without_a_common_version() -> None:
    for mine, theirs in (((1, 2), (3,)), ((3,), UNSTATED)):
        with pytest.raises(PeerIncompatible, match="messages 3"):
            Session(RING, replace(ASKS, speaks=mine), replace(ANSWERS, speaks=theirs))


def test_a_version_is_spoken_if_and_only_if_it_has_forms() -> None:
    assert tuple(codec.FORMS) == SPEAKS
    assert codec.FORMS[NEWEST].types is codec.TYPES
    assert versions.protocols() == "messages 1, 2; tickets 1"


def signed_hello(said: dict[str, Any], ring: Keyring = RING) -> bytes:
    """A hello under a MAC of a ring, with whatever a peer may say."""
    body = msgspec.msgpack.encode(said)
    head = frames.HEADER.pack(frames.MAGIC, 1, HELLO, b"one".ljust(8, b"\0"), 0, len(body))
    return head + body + ring.mac("one", "hello", head + body)


def plain(hello: Hello) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(hello, builtin_types=(bytes,))
    return found


def test_a_hello_that_states_no_versions_speaks_the_first() -> None:
    said = plain(ASKS)
    del said["speaks"]
    assert frames.open_hello(RING, signed_hello(said)).speaks == (1,)


@pytest.mark.parametrize(
    "speaks", [[], [0], [-1, 1], [2, 1], [1, 1], [1, "2"], [1.0], None, 1, list(range(1, 18))]
)
def test_versions_that_no_process_states_are_refused(speaks: object) -> None:
    assert frames.open_hello(RING, signed_hello(plain(ASKS))) == ASKS
    with pytest.raises(PeerMisbehaved) as caught:
        frames.open_hello(RING, signed_hello({**plain(ASKS), "speaks": speaks}))
    assert caught.value.reason is Reason.MALFORMED


def test_nobody_in_between_can_lower_the_version() -> None:
    """A changed hello is forged; an honest one, of when its process spoke less, opens nothing."""
    lowered = {**plain(ASKS), "speaks": [1]}
    with pytest.raises(PeerMisbehaved) as caught:
        frames.open_hello(RING, signed_hello(lowered, Keyring.parse("one " + "cd" * 32)))
    assert caught.value.reason is Reason.FORGED
    older = replace(ASKS, nonce=b"o" * 16, speaks=UNSTATED)
    believed = Session(RING, ANSWERS, older)
    assert believed.version == 1
    with pytest.raises(PeerMisbehaved) as caught:
        believed.open(Session(RING, ASKS, ANSWERS).seal(Beat()))
    assert caught.value.reason is Reason.FORGED


# Version 1, as the release says it


def test_all_messages_of_version_1_are_there() -> None:
    assert GOLDEN["release"] == "0.1.0"
    assert set(SAID) == set(codec.FORMS[1].types)


@pytest.mark.parametrize("name", SAID)
def test_what_the_release_says_is_read_and_said_again_byte_by_byte(name: str) -> None:
    message = codec.decode(SAID[name], 1)
    assert type(message) is codec.TYPES[name]
    assert codec.encode(message, 1) == SAID[name]


def test_a_channel_with_the_release_is_the_same_byte_by_byte() -> None:
    theirs = frames.open_hello(RING, CHANNEL["hello"])
    assert theirs == Hello(D, "p", b"d" * 16, "layout")
    answer = frames.open_hello(RING, CHANNEL["answer"])
    mine = replace(answer, speaks=SPEAKS)
    session = Session(RING, mine, theirs)
    assert session.version == 1
    assert session.open(CHANNEL["first"]) == Beat()
    grant = session.open(CHANNEL["second"])
    assert isinstance(grant, Grant)
    again = Session(RING, theirs, mine)
    assert [again.seal(Beat()), again.seal(grant)] == [CHANNEL["first"], CHANNEL["second"]]


def test_a_ticket_of_the_release_is_read_and_signed_again_byte_by_byte() -> None:
    signed = bytes.fromhex(GOLDEN["ticket"])
    assert tickets.sign(RING, tickets.verify(RING, signed)) == signed


@pytest.mark.parametrize("kind", [End, Reason, Stage, Reader, Role], ids=lambda kind: kind.__name__)
def test_version_1_knows_every_member_of_an_enum_that_crosses(kind: type[Enum]) -> None:
    """The release closes a channel on which it reads a member that it does not know."""
    assert [member.value for member in kind] == GOLDEN["enums"][kind.__name__]


# Up and down


BASIS = Basis("recall", "float32", "tp1", 1 << 20, "0.2.0", "messages 1, 2; tickets 1")
REPORT = CapacityReport(
    node=NodeName("d"),
    role=Role.DECODE,
    incarnation=Incarnation("d-1"),
    epoch=3,
    fingerprint="f",
    basis=BASIS,
    page_tokens=16,
    pages=8,
    landing_pages=4,
    windows=5,
    context_tokens=4096,
    groups=(KvGroup("all", 16, 8, 1, 0),),
)


def status_of_version_1() -> NodeStatus:
    message = codec.decode(SAID["nodestatus"], 1)
    assert isinstance(message, NodeStatus)
    return message


def test_what_version_1_does_not_say_is_the_first_epoch_or_unknown() -> None:
    status = status_of_version_1()
    assert status.relaxed is None, "not: nothing is relaxed"
    assert status.coverage is None, "not: nothing was read"
    assert status.waits is None, "not: nothing has waited"
    assert status.window_fences is None, "not: no window was let go"
    report = status.report
    assert report.epoch == 0
    assert report.basis is None
    assert report.windows == 0
    assert report.groups == ()


def test_what_version_1_says_of_figures_is_believed_as_it_stands() -> None:
    tree = msgspec.msgpack.decode(SAID["nodestatus"])[2]
    status = status_of_version_1()
    for name, said in tree.pop("report").items():
        assert getattr(status.report, name) == said
    for name, said in tree.items():
        assert msgspec.to_builtins(getattr(status, name)) == (
            tuple(said) if isinstance(said, list) else said
        )


def test_down_leaves_out_only_what_version_1_has_no_field_for() -> None:
    status = replace(status_of_version_1(), report=REPORT)
    status = replace(status, fences={"local": 3, "sealed": 1}, window_fences={"sealed": 2})
    said = msgspec.msgpack.decode(codec.encode(status, 1))[2]
    assert said["fences"] == {"local": 3, "sealed": 3}, "version 1 counts both as one"
    assert set(said["report"]) == {field.name for field in fields(version1.CapacityReport)}
    assert set(said) == {field.name for field in fields(version1.NodeStatus)}
    again = codec.decode(codec.encode(status, 1), 1)
    assert isinstance(again, NodeStatus)
    assert again.report == replace(REPORT, epoch=0, basis=None, windows=0, groups=())


def test_an_end_of_version_1_does_not_say_what_it_recovered_from() -> None:
    ended = codec.decode(SAID["ended"], 1)
    assert isinstance(ended, Ended)
    assert ended.recovered_from is None
    recovered = replace(ended, recovered_from=ended.refusal)
    assert recovered.recovered_from is not None
    assert codec.decode(codec.encode(recovered, 2), 2) == recovered
    assert codec.encode(recovered, 1) == SAID["ended"], "and it is not told"


@pytest.mark.parametrize("name", ["submit", "grant", "claim"])
def test_version_1_traces_nothing_and_is_told_no_trace(name: str) -> None:
    message: Any = codec.decode(SAID[name], 1)
    assert message.trace == ""
    traced = replace(message, trace="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    assert codec.decode(codec.encode(traced, 2), 2) == traced
    assert codec.encode(traced, 1) == SAID[name], "and it is not told"


@pytest.mark.parametrize("alternatives", [-1, 21])
def test_a_submit_of_version_1_that_makes_no_sense_is_refused(alternatives: int) -> None:
    name, must, tree = msgspec.msgpack.decode(SAID["submit"])
    wrong = msgspec.msgpack.encode([name, must, {**tree, "alternatives": alternatives}])
    with pytest.raises(PeerMisbehaved) as caught:
        codec.decode(wrong, 1)
    assert caught.value.reason is Reason.MALFORMED


def test_a_status_of_version_1_is_refused_on_a_channel_of_version_2() -> None:
    with pytest.raises(PeerMisbehaved, match="missing required field") as caught:
        codec.decode(SAID["nodestatus"], 2)
    assert caught.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("field", ["epoch", "basis", "windows", "groups"])
def test_a_report_of_version_2_without_a_field_is_refused(field: str) -> None:
    status = replace(status_of_version_1(), report=REPORT)
    name, must, tree = msgspec.msgpack.decode(codec.encode(status, 2))
    assert codec.decode(msgspec.msgpack.encode([name, must, tree]), 2) == status
    del tree["report"][field]
    with pytest.raises(PeerMisbehaved, match=field) as caught:
        codec.decode(msgspec.msgpack.encode([name, must, tree]), 2)
    assert caught.value.reason is Reason.MALFORMED


def test_what_a_version_has_no_form_for_is_not_said_and_costs_no_frame() -> None:
    assert codec.can_say(Resize, NEWEST)
    assert not codec.can_say(Resize, 1)
    old = replace(ANSWERS, speaks=UNSTATED)
    sender, receiver = Session(RING, ASKS, old), Session(RING, old, ASKS)
    with pytest.raises(PeerIncompatible, match="messages 1 have no resize"):
        sender.seal(Resize(7))
    assert receiver.open(sender.seal(CANCEL)) == CANCEL


@pytest.mark.parametrize("kind", [Resize, Rehearse, Rehearsed, Watch, PageMap])
def test_what_came_with_version_2_has_no_form_in_version_1(kind: type[Message]) -> None:
    assert codec.can_say(kind, 2)
    assert not codec.can_say(kind, 1)


def test_a_message_that_came_later_is_refused_by_version_1() -> None:
    with pytest.raises(PeerMisbehaved, match="unknown message type") as caught:
        codec.decode(codec.encode(Resize(7), NEWEST), 1)
    assert caught.value.reason is Reason.VERSION
