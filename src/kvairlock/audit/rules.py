"""Rules: one literal table of what makes a request affected, and what makes evidence insufficient.

    affected       any rule fires that says so
    insufficient   else, any rule fires at all: something is missing, uncovered, or contradicts
    excluded       no rule fires; and one of them fires whenever the positive chain is not whole

So nothing is ever excluded for want of evidence: `chain_broken` asks for all of

    admitted -> computed -> receipt -> verdict: all checks, all pages -> reads of those -> drain

or for a refusal before anything was read. The rules read one row per request, made by
`kvairlock.audit.chains` and its neighbours, and give one column each.
"""

from __future__ import annotations

from typing import Any

from ibis import Table

from kvairlock.audit import links
from kvairlock.audit.rule import (
    Finding,
    Grade,
    Rule,
    affected,
    answered_though,
    lacks,
    of_fact,
    of_gap,
)
from kvairlock.audit.spans import Gap
from kvairlock.audit.suspicions import Fact

Column = Any

_O, _I = Grade.OBSERVED, Grade.INFERRED

AFFECTED: tuple[Rule, ...] = (
    affected(
        "prefill_refused",
        "prefill refused, and decode read all the same",
        _O,
        "receipt_sent request_refused read_started",
        links.has_refused,
    ),
    answered_though(
        "answered_after_refusal",
        "prefill refused, and its client was given an answer all the same",
        "receipt_sent request_refused response_sent",
        links.has_refused,
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
    ),
    affected(
        "read_after_refusal",
        "decode did not admit, and read all the same",
        _O,
        "verdict read_started",
        lambda t: (t.decode_verdict > 0) & (t.admitted == 0) & (t.decode_range_computed == 0),
    ),
    affected(
        "read_foreign",
        "pages were read that the request did not have",
        _O,
        "pages_allocated read_started",
        # If records are lost, the one that gave it these pages may be among them.
        lambda t: (
            of_fact(Fact.READ_FOREIGN)(t)
            | (of_fact(Fact.READ_UNALLOCATED)(t) & ~of_gap(Gap.EVENTS_LOST)(t))
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
        # Numbers of two lives have no order.
        lambda t: (
            (t.decode_life == t.decode_other_life)
            & (t.decode_drain_began == t.decode_pages_allocated)
            & (t.last_read_seq > t.began_seq)
        ),
    ),
    affected(
        "used_after_given_on",
        "pages were used after they had been given to another request",
        _O,
        "pages_allocated read_ended write_ended",
        of_fact(Fact.USED_AFTER_GIVEN_ON),
    ),
    affected(
        "two_owners",
        "a page was given to it while its former owner still had it",
        _O,
        "pages_allocated drain_ended",
        of_fact(Fact.SHARED_WITH_FORMER),
    ),
    affected(
        "generation_reused",
        "a page was given to it in a generation that had an owner before",
        _I,
        "pages_allocated",
        of_fact(Fact.GENERATION_REUSED),
    ),
    affected(
        "written_by_former",
        "a page was given to it before the writer of its former owner was fenced",
        _I,
        "pages_allocated window_fenced node_started",
        of_fact(Fact.WRITTEN_BY_FORMER),
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
        of_fact(Fact.PREFIX_GIVEN_ON),
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
        lambda t: (t.admitted > 1) | (t.claim != t.other_claim),
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

_GAPS: dict[Gap, tuple[str, str]] = {
    Gap.EVENTS_LOST: ("records of a process that it was on are lost", "evidence_lost"),
    Gap.NUMBERS_REPEATED: ("records of a process that it was on have one number", ""),
    Gap.START_UNKNOWN: ("how guards were set is not recorded", "node_started guards_changed"),
    Gap.CLOSE_MISSING: ("a process that it was on may have recorded more", "node_closed"),
    Gap.SILENT: ("a process that it was on was silent for longer than a beat", "beat"),
    Gap.CLOCK_STEPPED: ("a clock was set while it was there", ""),
    Gap.GUARD_DISABLED: ("a guard was off", "node_started"),
    Gap.GUARD_RELAXED: ("a guard only observed, or checked a part", "guards_changed"),
    Gap.LANDING_DIRECT: ("others could store into the pool", "node_started"),
    Gap.FAILPOINT: ("a drill could make a process do wrong", "failpoint"),
    Gap.INVARIANT_BROKEN: ("a process found its own books wrong", "invariant_broken"),
    Gap.FILE_ALTERED: ("a file of a process that it was on is not what was sealed", ""),
    Gap.SEAL_FORGED: ("the seals of a node that it was on do not verify", ""),
    Gap.FILE_REMOVED: ("a sealed file of a process that it was on is not there", ""),
    Gap.FILE_UNSEALED: ("no seal vouches for a file of a process that it was on", ""),
}

INSUFFICIENT: tuple[Rule, ...] = (
    *(lacks(str(gap), finds, needs, of_gap(gap)) for gap, (finds, needs) in _GAPS.items()),
    lacks(
        "node_missing",
        "there is no evidence of the node that was to prefill",
        "window_granted",
        lambda t: (t.admitted > 0) & t.prefill_life.isnull(),
    ),
    lacks(
        "node_restarted",
        "a node that it was on was restarted in between, or it was on two of a kind",
        "node_started",
        links.is_on_two_lives,
    ),
    lacks(
        "clocks_skewed",
        "something was answered before it was asked, by the clocks of two nodes",
        "request_admitted receipt_sent verdict",
        links.is_out_of_order,
    ),
    lacks(
        "contradicting",
        "records of the request contradict each other",
        "request_ended",
        links.is_contradicting,
    ),
    lacks(
        "would_refuse",
        "a guard that only observed would have refused it",
        "would_refuse",
        lambda t: t.would_refuse > 0,
    ),
    lacks(
        "policy_reduced",
        "not all pages were to be verified",
        "verdict",
        lambda t: (t.admitted > 0) & t.reduced,
    ),
    lacks("fields_missing", "a record lacks a field", "verdict", links.lacks_figures),
    lacks(
        "former_unaccounted",
        "a page was given to it whose former owner is not proven to be gone",
        "drain_ended",
        of_fact(Fact.FORMER_UNACCOUNTED),
    ),
    lacks(
        "read_unknown",
        "pages were read that nobody is recorded to have had",
        "pages_allocated read_started",
        of_fact(Fact.READ_UNKNOWN | Fact.READ_UNALLOCATED),
    ),
    lacks(
        "prefix_unknown",
        "a prefix was taken from pages that nobody is recorded to have computed",
        "prefix_reused",
        of_fact(Fact.PREFIX_UNKNOWN),
    ),
    lacks(
        "prefix_unscoped",
        "a prefix was taken, and for which scope it was computed is not recorded",
        "prefix_reused",
        of_fact(Fact.PREFIX_UNSCOPED),
    ),
    lacks(
        "no_admission",
        "that it was let in is not recorded",
        "request_admitted",
        lambda t: (t.gateway_request_admitted == 0) & (t.gateway_request_refused == 0),
    ),
    lacks(
        "no_response", "what its client was told is not recorded", "response_sent", links.is_untold
    ),
    lacks("no_end", "its end is not recorded", "request_ended", links.has_no_end),
    lacks(
        "no_receipt",
        "it was admitted, and what prefill computed or stated is not recorded",
        "receipt_sent range_computed",
        lambda t: (t.admitted > 0) & ~links.is_stated(t),
    ),
    lacks(
        "no_verdict",
        "it was read, and no ruling is recorded",
        "verdict",
        lambda t: links.was_read(t) & (t.admitted == 0) & (t.decode_range_computed == 0),
    ),
    lacks(
        "no_fence",
        "memory was given back without evidence that nobody could reach it",
        "drain_ended window_fenced",
        lambda t: ~(links.is_drained(t) & links.is_fenced(t)),
    ),
    lacks(
        "chain_broken",
        "the chain that would exclude it is not whole",
        "request_admitted verdict read_started request_ended",
        lambda t: ~(links.is_answered(t) | links.is_refused_unread(t)),
    ),
)

RULES: tuple[Rule, ...] = (*AFFECTED, *INSUFFICIENT)
"""All rules; the place of one is its bit in the reasons of a request."""


def reasons(t: Table) -> Column:
    """Return which rules fire for each request, as one number with a bit for each."""
    bits = [
        rule.fires(t).fill_null(rule.finding is Finding.INSUFFICIENT).cast("int64") * (1 << place)
        for place, rule in enumerate(RULES)
    ]
    total = bits[0]
    for bit in bits[1:]:
        total = total + bit
    return total
