"""What the reader takes, and what it says about what it does not."""

from __future__ import annotations

import pytest

from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy, Reader
from kvairlock.sim.cases.case import NEVER_MS
from kvairlock.sim.cases.reader import read
from kvairlock.sim.cases.words import CaseError
from kvairlock.sim.setup import Direction, Theft

from .written import TOLD

WORLD = """case X-7, X-8: two names
world:
  {}
steps:
  ...
with guards:
  a never ends
built in:
  no reason,
  in two lines
"""


def world(*statements: str) -> str:
    return WORLD.format("\n  ".join(statements))


def error_of(text: str) -> str:
    with pytest.raises(CaseError) as raised:
        read(text, "folder/a.case")
    return str(raised.value)


def test_a_whole_case() -> None:
    case = read(TOLD, "a.case")
    assert (case.ids, case.title, case.file) == (("X-1",), "a story", "a.case")
    assert (case.line.number, case.line.text) == (1, "case X-1: a story")
    assert [ask.transfer for ask in case.setup.asks] == ["a/1", "b/1"]
    assert case.setup.policy is LandingPolicy.DIRECT
    assert (case.setup.prefills, case.setup.asks[1].prefill) == (2, 1)
    assert case.setup.guards_off == frozenset()
    assert [step.line.text for step in case.steps][:2] == [
        "not yet: page * of a lands",
        "not yet: the withdrawal of a arrives",
    ]
    assert case.failing is not None
    assert case.failing.guards == (Guard.DRAIN,)
    assert case.failing.without == ("drain",)
    assert [each.line.text for each in case.right[0].expected] == ["a ends cancelled"]


def test_a_world_is_what_its_statements_say() -> None:
    case = read(
        world(
            "decode pulls",
            "decode trusts what it has read",
            "4 tokens to a page",
            "prefill has 5 pages",
            "decode has 6 pages",
            "the model takes 30 tokens",
            "a tenant may have 7 pages in windows",
            "all tenants may have 9 pages in windows",
            "decode may compute 8 tokens a minute itself",
            "prefill keeps up to 3 pages for later prompts",
            "alice asks a: 4 tokens, 2 to generate",
            "alice asks a/2: 4 tokens",
            "bob asks b: 5 tokens",
            "a has prompt p",
            "b has prompt q",
            "a is shared in team",
            "a router presents the ticket of a for b",
        ),
        "a.case",
    )
    setup, (first, second, thief) = case.setup, case.setup.asks
    assert (setup.direction, setup.reader) == (Direction.PULL, Reader.TRUSTING)
    assert (setup.page_tokens, setup.prefill_pages, setup.decode_pages) == (4, 5, 6)
    assert (setup.context_tokens, setup.tenant_pages) == (30, 7)
    assert setup.decode_limits.landing_pages == 9
    assert setup.decode_limits.recompute_tokens_per_min == 8
    assert setup.prefill_limits.prefix_pages == 3
    assert (first.tokens, first.max_tokens, first.scope, first.content) == (4, 2, "team", 1)
    assert (second.request, second.attempt, second.content) == ("a", 2, 0)
    assert (thief.tokens, thief.max_tokens, thief.content) == (5, 1, 2)
    assert (thief.stolen, thief.theft) == ("a/1", Theft.BY_ROUTER)
    assert case.ids == ("X-7", "X-8")
    assert (case.failing, case.built_in) == (None, "no reason, in two lines")


def test_one_may_be_singular() -> None:
    assert read(world("prefill has 1 page", "a asks a: 1 token"), "").setup.prefill_pages == 1


def test_without_deadlines_no_limit_is_ever_reached() -> None:
    case = read(TOLD.replace("without drain:", "without drain, deadlines:"), "a.case")
    assert case.failing is not None
    assert case.failing.without == ("drain", "deadlines")
    setup = case.failing.applied(case.setup)
    assert setup.guards_off == {Guard.DRAIN}
    limits = setup.decode_limits
    waits = (limits.queue_ms, limits.prefill_ms, limits.landing_ms, limits.decode_ms)
    assert {*waits, setup.prefill_limits.verdict_ms} == {NEVER_MS}
    assert limits.queue_max == case.setup.decode_limits.queue_max


def test_a_telling_may_have_steps_of_its_own() -> None:
    text = TOLD.replace("without drain:\n", "without drain:\n  decode dies\n  ...\n")
    case = read(text, "a.case")
    assert case.failing is not None
    assert [step.line.text for step in case.failing.steps] == ["decode dies", "..."]
    assert [each.line.text for each in case.failing.expected] == ["b reads bytes of a"]
    assert case.right[0].steps == ()


# Errors


def test_an_unknown_phrase_is_answered_with_those_that_are_most_like_it() -> None:
    message = error_of(TOLD.replace("  bob sends b\n", "  bob send b\n"))
    first, *like = message.splitlines()
    assert first == ("folder/a.case:19: nobody understands `bob send b`; expected is one like")
    assert "    TENANT sends REQUEST" in like


def test_a_closed_list_is_shown_with_the_phrase() -> None:
    message = error_of(TOLD.replace("a ends cancelled", "a ends refused because"))
    assert "folder/a.case:24: nobody understands" in message
    assert "    REQUEST ends refused REASON" in message
    assert "        REASON: identity, tenant, input" in message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("case X-1: a story", "X-1", "1: expected `case ID: what goes wrong`"),
        ("world:", "worlds:", "2: expected `world:`"),
        ("steps:", "stops:", "9: no section is called `stops:`; there are `world:`, `steps:`,"),
        ("with guards:", "with guard:", "23: no section is called `with guard:`; there are"),
        ("without drain:", "without drian:", "26: there is no guard drian; there are: strip,"),
        ("without drain:\n  b reads bytes of a\n", "", "26: expected `without GUARD, GUARD:`"),
        ("  b reads bytes of a\n", "", "27: expected an expectation"),
        ("  b reads bytes of a\n", "  ...\n", "27: expected an expectation beside the steps"),
        ("  a ends cancelled\n", "", "25: expected an expectation"),
        ("  bob sends b\n", "  bob sends z\n", "19: no request is called z; there are: a, b"),
        ("page * of a", "page * of z", "11: no request is called z; there are: a, b"),
        ("  ...\n", "  not yet: ...\n", "16: a step is expected behind the colon"),
        ("  ...\n", "  prefill-3 dies\n", "16: no node is called prefill-3; there are: decode,"),
        ("routed to prefill-2", "routed to prefill-3", "2: a request is routed to prefill-3, and"),
        ("bob asks b", "bob asks a", "6: there is a request a already"),
        ("asks b: 4", "asks b: 63", "6: a prompt and an answer have fewer than 64 tokens"),
        ("there are 2 prefill", "there are 0 prefill", "4: there is at least one"),
        ("b is routed", "z is routed", "7: no request is called z yet"),
    ],
)
def test_what_does_not_fit_names_file_line_and_what_would(old: str, new: str, message: str) -> None:
    assert old in TOLD
    assert error_of(TOLD.replace(old, new, 1)).startswith(f"folder/a.case:{message}")


def test_nothing_follows_the_last_section() -> None:
    text = f"{TOLD}built in:\n  it is not\n"
    assert error_of(text) == "folder/a.case:28: nothing is expected after this section"


def test_a_file_without_a_case() -> None:
    assert error_of("") == "folder/a.case:1: expected `case ID: what goes wrong`"
    assert error_of("# nothing\n\n") == "folder/a.case:3: expected `case ID: what goes wrong`"


def test_a_world_needs_requests_and_for_some_flaws_two_tenants() -> None:
    assert error_of(world("decode pulls")) == "folder/a.case:2: nobody asks for anything"
    torn = "a foreign byte lands with the last page of a"
    assert "there is only one tenant" in error_of(world("alice asks a: 2 tokens", torn))
