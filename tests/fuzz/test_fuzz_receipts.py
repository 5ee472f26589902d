"""Receipts that are almost right: admitted exactly where every field is what was expected.

The oracle knows no check of the verifier. It writes what was stated and what should have been
stated as bytes, and compares those; so a field that is added to receipts is compared at once.
"""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

import msgspec
import pytest

from kvairlock.core.checks import FULL
from kvairlock.core.ends import End
from kvairlock.core.errors import PeerMisbehaved, Reason, Refusal, Stage
from kvairlock.core.guards import ALL_GUARDS
from kvairlock.core.messages import Receipt
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.handoff import (
    Expectation,
    Verdict,
    judge_bytes,
    judge_statement,
)
from kvairlock.core.terms import NodeName, Owner, Route, TransferId, WindowId
from kvairlock.wire import codec
from tests.fuzz import valid
from tests.fuzz.campaign import fuzz, inputs, reached
from tests.fuzz.odd import almost, changed, encode, fields_as_bytes, spliced

WANT = Expectation(
    owner=Owner("alice", "r", 1),
    window=WindowId("w"),
    input_digest=bytes(range(32)),
    layout="layout",
    prompt_tokens=5,
    pages=3,
    generations=(0, 1, 7),
)
LANDED = (0, 1, 2**64 - 1)
ROUTE = Route(NodeName("p"), NodeName("d"))
ONE_APART = {
    "itself": WANT,
    "attempt": replace(WANT, owner=Owner("alice", "r", 2)),
    "tenant": replace(WANT, owner=Owner("bob", "r", 1)),
    "window": replace(WANT, window=WindowId("v")),
    "input": replace(WANT, input_digest=bytes(32)),
    "layout": replace(WANT, layout="Layout"),
    "tokens": replace(WANT, prompt_tokens=6),
    "pages": replace(WANT, pages=2, prompt_tokens=4, generations=(0, 1)),
    "generations": replace(WANT, generations=(0, 1, 8)),
}
"""Expectations of which each differs from the first in one thing."""


def perfect(want: Expectation) -> Receipt:
    """The receipt that must be admitted."""
    return Receipt(
        transfer=want.owner.transfer,
        owner=want.owner,
        outcome=End.COMPLETED,
        refusal=None,
        window=want.window,
        input_digest=want.input_digest,
        layout=want.layout,
        pages=tuple(range(want.pages)),
        start=0,
        stop=want.prompt_tokens,
        generations=want.generations,
        digests=LANDED[: want.pages],
        reused=0,
    )


def statement(receipt: Receipt) -> bytes:
    """All that a receipt vouches for, as bytes.

    The transfer's name finds the expectation and is not a part of it; what was reused is a figure
    for bills, within the range that was computed.
    """
    return codec.encode(replace(receipt, transfer=TransferId(""), reused=0), valid.NEWEST)


RIGHT = {name: statement(perfect(want)) for name, want in ONE_APART.items()}
PERFECT = [perfect(want) for want in ONE_APART.values()]
BODIES = [codec.encode(receipt, valid.NEWEST) for receipt in PERFECT]
TREES = [valid.plain(receipt) for receipt in PERFECT]
HEAD = BODIES[0][: len(BODIES[0]) - len(encode(TREES[0]))]


REFUSAL = valid.plain(Refusal(Reason.ENGINE, Stage.PREFILL, "why", 1, 2, "limit"))


def odd_receipt(rng: Random) -> bytes:
    """A receipt that something was done to, as a message body; most are well-formed."""
    at = rng.choice((0, 0, 0, rng.randrange(len(BODIES))))
    match rng.randrange(10):
        case 0:
            return changed(rng, BODIES[at])
        case 1:
            return spliced(rng, BODIES[at], rng.choice(BODIES))
        case 2:
            return HEAD + fields_as_bytes(rng, TREES[at])
    tree = dict(TREES[at])
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice(list(tree))
        tree[name] = near(rng, name, tree[name])
    return HEAD + encode(tree)


def near(rng: Random, name: str, value: Any) -> Any:
    """Another value of a field: of another receipt, or close to its own."""
    if name == "outcome":
        return rng.choice(tuple(End))
    if name == "refusal":
        return rng.choice((None, REFUSAL))
    return rng.choice((rng.choice(TREES)[name], almost(rng, value)))


def judge_receipt(data: bytes) -> str:
    try:
        receipt = codec.decode(data, valid.NEWEST)
    except PeerMisbehaved:
        return "no message"
    if not isinstance(receipt, Receipt):
        return "no receipt"
    states = statement(receipt)
    admitted = [name for name, want in ONE_APART.items() if is_admitted(want, receipt, states)]
    assert len(admitted) <= 1
    return f"admitted for {admitted[0]}" if admitted else "refused"


def is_admitted(want: Expectation, receipt: Receipt, states: bytes) -> bool:
    """Whether the verifier admits; it must, exactly if the statement is the right one."""
    digests = LANDED[: want.pages]
    stands = judge_statement(want, receipt, ALL_GUARDS, ROUTE).admitted
    admitted = stands and judge_all(receipt.digests, digests).admitted
    name = next(name for name, other in ONE_APART.items() if other is want)
    right = states == RIGHT[name] and 0 <= receipt.reused <= receipt.stop
    assert admitted == right, f"{name}: admitted={admitted}"
    return admitted


def judge_all(stated: tuple[int, ...], landed: tuple[int, ...]) -> Verdict:
    """Judge digests of all pages that landed."""
    return judge_bytes(stated, landed, FULL.sample(len(landed), 0), ALL_GUARDS, ROUTE)


@inputs(200_000)
def test_receipts(count: int) -> None:
    outcomes = fuzz("receipt", count, odd_receipt, judge_receipt)
    assert reached(outcomes, "refused", *(f"admitted for {name}" for name in ONE_APART))


def odd_digests(rng: Random) -> bytes:
    """Digests that are stated, and digests that landed: mostly almost the same, as two lists."""
    landed = [rng.choice(LANDED) for _ in range(rng.randrange(1, 4))]
    stated = rng.choice((landed, almost(rng, landed), [*landed, *landed]))
    return encode([[digest % 2**64 for digest in stated], landed])


def judge_digests(data: bytes) -> str:
    stated, landed = read_digests(data)
    verdict = judge_all(stated, landed)
    assert verdict.admitted == (stated == landed)
    if verdict.refusal is None:
        return "admitted"
    assert verdict.refusal.reason in (Reason.INTEGRITY, Reason.MISSING_EVIDENCE)
    return verdict.refusal.reason


def read_digests(data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return msgspec.msgpack.decode(data, type=tuple[tuple[int, ...], tuple[int, ...]])


@inputs(100_000)
def test_digests(count: int) -> None:
    outcomes = fuzz("digests", count, odd_digests, judge_digests)
    assert reached(outcomes, "admitted", "integrity", "missing_evidence")


# The oracle


@pytest.mark.parametrize("name", [field.name for field in fields(Receipt)])
def test_each_field_of_a_receipt_is_a_part_of_its_statement(name: str) -> None:
    other: dict[str, Any] = {
        "owner": Owner("alice", "q", 1),
        "outcome": End.REJECTED,
        "refusal": Refusal(Reason.ENGINE, Stage.PREFILL, ""),
        "stop": 6,
        "start": 1,
        "reused": 6,
        "pages": (0, 1),
        "generations": (),
        "digests": (1,),
        "input_digest": b"",
    }
    receipt = replace(PERFECT[0], **{name: other.get(name, "other")})
    if name in ("transfer", "reused"):
        assert statement(receipt) == RIGHT["itself"]
    else:
        assert statement(receipt) != RIGHT["itself"]
    assert is_admitted(WANT, receipt, statement(receipt)) == (name == "transfer")


def test_a_verifier_that_forgets_a_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign can fail: the real verifier with one check left out."""
    for at in range(len(handoff._BY_STATEMENT)):
        left = handoff._BY_STATEMENT[:at] + handoff._BY_STATEMENT[at + 1 :]
        with monkeypatch.context() as patch:
            patch.setattr(handoff, "_BY_STATEMENT", left)
            with pytest.raises(AssertionError, match="admitted=True"):
                fuzz("receipt", 4_000, odd_receipt, judge_receipt)
