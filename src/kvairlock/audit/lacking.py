"""Rules that find evidence insufficient: something is missing, not covered, or contradicts itself.

The last of them asks for the whole chain, so that nothing is excluded for want of evidence.
"""

from __future__ import annotations

from kvairlock.audit import links
from kvairlock.audit.rule import Rule, lacks, of_fact, of_gap
from kvairlock.audit.spans import Gap
from kvairlock.audit.suspicions import Fact

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
