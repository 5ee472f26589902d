"""Histories with planted incidents, and the truth beside them.

One table says which kinds of incidents there are, and by which rule each must be found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvairlock.audit import plants
from kvairlock.audit.conversations import Change, Conversation
from kvairlock.audit.stories import answered, left, pulled, recomputed, shared, too_long
from kvairlock.audit.synthetic import Row, Stack, Story
from kvairlock.core.terms import LandingPolicy


@dataclass(frozen=True, slots=True)
class Incident:
    """One way for a request to read what is not its own.

    Args:
        rule: The rule that must find it.
        play: Plays it, and notes who was affected.
        landing: How writes land in the stack in which it can happen.
    """

    rule: str
    play: Callable[[Stack, plants.Planted], Story]
    landing: LandingPolicy = LandingPolicy.COPY


def _without(name: str) -> Change:
    return lambda _it, row: {"checks": [check for check in row["checks"] if check != name]}


INCIDENTS: dict[str, Incident] = {
    "the incident": Incident("prefill_refused", plants.the_incident),
    "a short receipt": Incident(
        "beyond_confirmed",
        plants.odd_records(verdict=plants.put(stop=64), receipt_sent=plants.put(stop=64)),
    ),
    "a receipt over what was computed": Incident(
        "beyond_computed", plants.odd_records(range_computed=plants.put(stop=64))
    ),
    "usage copied from the request": Incident(
        "usage_beyond_range", plants.odd_records(request_ended=plants.put(computed_tokens=900))
    ),
    "usage that nobody computed": Incident(
        "usage_beyond_computed", plants.odd_records(response_sent=plants.put(prompt_tokens=900))
    ),
    "more tokens told than generated": Incident(
        "usage_beyond_computed", plants.odd_records(response_sent=plants.put(generated_tokens=900))
    ),
    "an answer after a refusal": Incident("answered_after_refusal", plants.answer_after_refusal),
    "an answer to who was turned away": Incident("answered_unread", plants.answer_of_a_refusal),
    "an answer that nobody read for": Incident("answered_unread", plants.answer_without_read),
    "a prefix of another scope": Incident("prefix_across_scopes", plants.prefix_of_another_scope),
    "a read after the end": Incident("read_of_ended_generation", plants.read_after_end),
    "a read when all was over": Incident("read_of_ended_generation", plants.read_long_after),
    "a read before its ruling": Incident("read_before_verdict", plants.read_before_ruling),
    "a read of the next owner's pages": Incident("used_after_given_on", plants.read_after_next),
    "a page of two owners": Incident("two_owners", plants.read_after_next),
    "a generation that did not turn": Incident("generation_reused", plants.same_generation),
    "a stolen ticket": Incident("read_foreign", plants.another_lease),
    "a late write": Incident("written_by_former", plants.late_write, LandingPolicy.DIRECT),
    "a write after success": Incident(
        "written_after_fence", plants.copy_after_success, LandingPolicy.DIRECT
    ),
    "a receipt used twice": Incident("receipt_used_twice", plants.receipt_twice),
    "a claim of two claimants": Incident("receipt_used_twice", plants.two_claimants),
    "pages that did not stand": Incident("did_not_stand", plants.did_not_stand),
    "a check that did not run": Incident(
        "check_not_run", plants.odd_records(verdict=_without("range"))
    ),
    "a check that only observed": Incident(
        "check_let_pass", plants.odd_records(verdict=plants.put(observed=["integrity"]))
    ),
    "a page that was not verified": Incident(
        "page_not_verified",
        plants.odd_records(verdict=lambda it, row: {"verified": row["verified"][:-1]}),
    ),
    "a ruling on other pages": Incident(
        "read_beyond_verdict",
        plants.odd_records(
            verdict=lambda it, row: {"pages": row["pages"][::-1], "verified": row["pages"][::-1]}
        ),
    ),
    "a read after a refusal": Incident("read_after_refusal", plants.read_after_refusal),
    "a prefix of another's pages": Incident("prefix_given_on", plants.prefix_given_on),
}
"""Every kind of incident, by a name; each must be found by its rule."""


@dataclass(frozen=True, slots=True)
class History:
    """Records, and the truth about them.

    Args:
        rows: The records.
        affected: Requests that an audit must find affected, and no other.
        met: Pairs of who could read and whose pages.
        requests: All requests.
    """

    rows: tuple[Row, ...]
    affected: frozenset[str]
    met: frozenset[tuple[str, str]]
    requests: frozenset[str]


def history(seed: int, *incidents: Incident, quiet: int = 12, pages: int = 256) -> History:
    """Play a history with some incidents among requests without any.

    Args:
        seed: What names are drawn from.
        incidents: What is planted; all must be possible with one landing policy.
        quiet: How many other requests there are, beside two that share a prefix.
        pages: How many pages each pool has: of few, most are had by one request after another.
    """
    landing = incidents[0].landing if incidents else LandingPolicy.COPY
    stack, planted = Stack(seed, pages=pages, landing=landing), plants.Planted()
    stack.start()
    kinds = (answered, pulled, left, answered, too_long, recomputed)
    calm = [
        kinds[i % len(kinds)](Conversation(stack, 60 + 7 * i, prefill=i % 2)) for i in range(quiet)
    ]
    first = Conversation(stack, 90)
    calm.append(shared(first, Conversation(stack, 120).of(first)))
    stack.play(calm[: quiet // 2])
    stack.beat()
    # One at a time: each arranges the free lists for itself.
    stack.play([incident.play(stack, planted) for incident in incidents], at_once=1)
    stack.beat()
    stack.play(calm[quiet // 2 :])
    stack.beat()
    stack.close()
    rows = tuple(stack.rows())
    named = frozenset(row["request"] for row in rows if "request" in row)
    return History(rows, frozenset(planted.affected), frozenset(planted.met), named)
