"""Rules that find a request affected: it read, or could have read, what was not its own.

Each needs records that are there. A rule that also needs one that is not there (nobody computed it
again, nobody ruled for it) asks that none can be lost, and a rule that rests on counts, pairs or
order that every number is of one record: else the request is insufficient by those gaps.
"""

from __future__ import annotations

from kvairlock.audit import links
from kvairlock.audit.rule import Grade, Rule, affected, numbered_once, of_fact
from kvairlock.audit.suspicions import Fact

_O, _I = Grade.OBSERVED, Grade.INFERRED

AFFECTED: tuple[Rule, ...] = (
    affected(
        "prefill_refused",
        "prefill refused, and decode read all the same",
        _O,
        "receipt_sent request_refused read_started",
        links.has_refused,
    ),
    affected(
        "answered_after_refusal",
        "prefill refused, and its client was given an answer all the same",
        _O,
        "receipt_sent request_refused response_sent",
        links.has_refused,
        of=links.was_answered,
    ),
    affected(
        "answered_unread",
        "its client was given an answer for which nobody is recorded to have read",
        _I,
        "request_refused request_ended response_sent",
        links.is_answered_unread,
        of=links.was_answered,
    ),
    affected(
        "beyond_confirmed",
        "more was allocated and read than the receipt confirms",
        _O,
        "verdict read_started",
        lambda t: (
            (t.confirmed_stop - t.confirmed_start < t.expected_tokens)
            | (t.confirmed_stop - t.confirmed_start < t.prompt_tokens)
            | (t.receipt_stop < t.confirmed_stop)
        ),
    ),
    affected(
        "beyond_computed",
        "more was confirmed and read than prefill computed",
        _O,
        "range_computed verdict read_started",
        lambda t: (t.admitted > 0) & (t.computed_stop < t.confirmed_stop),
    ),
    affected(
        "usage_beyond_range",
        "the usage that was stated is more than was confirmed or computed",
        _O,
        "request_ended verdict range_computed",
        lambda t: t.computed_tokens > t.recomputed_stop.coalesce(t.confirmed_stop),
    ),
    affected(
        "usage_beyond_computed",
        "its client was told of more tokens than were computed, confirmed or generated",
        _O,
        "response_sent request_ended verdict range_computed",
        links.is_told_too_much,
        of=links.was_served,
    ),
    affected(
        "read_after_refusal",
        "decode did not admit, and read all the same",
        _O,
        "verdict read_started",
        links.has_read_after_refusal,
    ),
    affected(
        "read_foreign",
        "pages were read that the request did not have",
        _O,
        "pages_allocated read_started",
        # If records are lost, the one that gave it these pages may be among them.
        lambda t: (
            of_fact(Fact.READ_FOREIGN)(t) | (of_fact(Fact.READ_UNALLOCATED)(t) & ~links.may_lack(t))
        ),
    ),
    affected(
        "read_beyond_verdict",
        "the pages that were ruled on are not those that were read",
        _O,
        "pages_allocated verdict read_started",
        lambda t: (t.admitted > 0) & (t.reads_own > 0) & (t.rulings_own == 0) & ~t.unlisted,
    ),
    affected(
        "read_of_ended_generation",
        "pages were read after the lease had ended and their generation had turned",
        _O,
        "drain_began read_started read_ended",
        numbered_once(links.has_read_late),
    ),
    affected(
        "read_before_verdict",
        "pages were read before the ruling, or the computing, that lets them be read",
        _O,
        "read_started verdict range_computed",
        numbered_once(links.has_read_early),
    ),
    affected(
        "used_after_given_on",
        "pages were used after they had been given to another request",
        _O,
        "pages_allocated read_ended write_ended",
        numbered_once(of_fact(Fact.USED_AFTER_GIVEN_ON)),
    ),
    affected(
        "two_owners",
        "a page was given to it while its former owner still had it",
        _O,
        "pages_allocated drain_ended",
        numbered_once(of_fact(Fact.SHARED_WITH_FORMER)),
    ),
    affected(
        "generation_reused",
        "a page was given to it in a generation that had an owner before",
        _I,
        "pages_allocated",
        numbered_once(of_fact(Fact.GENERATION_REUSED)),
    ),
    affected(
        "written_by_former",
        "a page was given to it before the writer of its former owner was fenced",
        _I,
        "pages_allocated window_fenced node_started",
        numbered_once(of_fact(Fact.WRITTEN_BY_FORMER)),
    ),
    affected(
        "written_after_fence",
        "a copy of its write ran into its pages after the fence",
        _I,
        "write_repeated window_fenced node_started",
        of_fact(Fact.WRITTEN_AFTER_FENCE),
    ),
    affected(
        "prefix_given_on",
        "a prefix was taken from pages that were another's by then",
        _O,
        "prefix_reused pages_allocated",
        numbered_once(of_fact(Fact.PREFIX_GIVEN_ON)),
    ),
    affected(
        "prefix_across_scopes",
        "a prefix was taken that was computed for another scope",
        _O,
        "prefix_reused",
        of_fact(Fact.PREFIX_ACROSS_SCOPES),
    ),
    affected(
        "receipt_used_twice",
        "one receipt admitted pages twice, or two claimants had one claim",
        _O,
        "verdict pages_claimed read_started",
        numbered_once(lambda t: (t.admitted > 1) | (t.claim != t.other_claim)),
    ),
    affected(
        "check_let_pass",
        "a check failed and only observed",
        _O,
        "verdict read_started",
        lambda t: t.let_pass,
    ),
    affected(
        "check_not_run",
        "a check did not run that the policy demands",
        _I,
        "verdict node_started",
        lambda t: t.unchecked & ~links.is_relaxed(t),
    ),
    affected(
        "page_not_verified",
        "a page was not verified though the policy demands all",
        _I,
        "verdict node_started",
        lambda t: t.unverified & ~links.is_relaxed(t),
    ),
    affected(
        "did_not_stand",
        "pages that were read from afar did not stand, and were admitted",
        _O,
        "pages_validated pages_revoked verdict",
        lambda t: (t.admitted > 0) & (t.fell > 0),
    ),
)
