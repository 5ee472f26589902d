"""The links of the chain that excludes a request: each says what must be on record, and how often.

A link is true only by records that are there. Comparisons with a field that is missing give null,
which counts as false in a link: what is missing never holds a chain together.
"""

from __future__ import annotations

from typing import Any

from ibis import Table

from kvairlock.audit.spans import Gap

Column = Any

_RELAXING = (Gap.GUARD_DISABLED, Gap.GUARD_RELAXED, Gap.START_UNKNOWN)
_LOSING = (Gap.EVENTS_LOST, Gap.CLOSE_MISSING)


def has_gap(t: Table, *gaps: Gap) -> Column:
    """A process that it was on has a span of one of these kinds at that time."""
    return (t.gaps & sum(1 << tuple(Gap).index(gap) for gap in gaps)) != 0


def may_lack(t: Table) -> Column:
    """Records of it may be lost: that one of them is not there tells nothing."""
    return has_gap(t, *_LOSING) | is_on_two_lives(t)


def was_read(t: Table) -> Column:
    """Decode has read pages for it, or says that it generated."""
    return (
        (t.decode_read_started > 0)
        | (t.decode_read_ended > 0)
        | (t.generated_tokens > 0).fill_null(False)
    )


def was_answered(t: Table) -> Column:
    """Its client got an answer."""
    return t.answers > 0


def was_served(t: Table) -> Column:
    """It was read, or its client got an answer, whoever read."""
    return was_read(t) | was_answered(t)


def has_refused(t: Table) -> Column:
    """Prefill refused it, or stated that it did not complete, and nobody else computed it.

    That nobody did is only known if decode has ruled on what prefill left, or lost no record.
    """
    refused = (t.receipts_refusing > 0) | (t.prefill_request_refused > 0)
    known = (t.admitted > 0) | (t.decode_life.notnull() & ~may_lack(t))
    return refused & ~_recomputing(t).fill_null(True) & known


def has_read_after_refusal(t: Table) -> Column:
    """Decode ruled against it, and neither ruled for it nor computed it itself."""
    refused = (t.verdicts_refusing > 0) & (t.decode_verdict == t.verdicts_refusing)
    return refused & (t.decode_range_computed == 0) & ~may_lack(t)


def is_answered_unread(t: Table) -> Column:
    """Its client got tokens, and the gateway let nobody generate them, or decode never did."""
    unread = ~was_read(t) & (t.told_generated_tokens > 0)
    ended = (t.decode_request_ended > 0) & (t.generated_tokens == 0)
    return (unread & (is_turned_away(t) | ended) & ~may_lack(t)).fill_null(False)


def is_turned_away(t: Table) -> Column:
    """The gateway refused it, and it went nowhere."""
    refused = (t.gateway_request_refused > 0) & (t.gateway_request_admitted == 0)
    return refused & t.decode_life.isnull() & t.prefill_life.isnull()


def has_read_early(t: Table) -> Column:
    """It was read before the ruling, or the computing, that lets it be read."""
    one_life = t.decode_life == t.decode_other_life
    return (one_life & (t.read_seq < t.confirmed_seq)).fill_null(False)


def has_read_late(t: Table) -> Column:
    """It was read after every lease of it had ended, by numbers of one life."""
    over = t.decode_drain_began == t.decode_pages_allocated
    one_life = t.decode_life == t.decode_other_life
    return one_life & over & (t.last_read_seq > t.began_seq) & ~may_lack(t)


def is_told_too_much(t: Table) -> Column:
    """The usage that its client was told is more than was computed or generated.

    What was taken from a prefix is computed: ranges go to the end of the prompt, wherever they
    begin.
    """
    computed = t.recomputed_stop.coalesce(t.confirmed_stop)
    return (t.told_prompt_tokens > computed).fill_null(False) | (
        t.told_generated_tokens > t.generated_tokens
    ).fill_null(False)


def is_untold(t: Table) -> Column:
    """It was generated for, and what its client got is not on record."""
    return (t.generated_tokens.fill_null(0) > 0) & (t.gateway_response_sent == 0)


def is_relaxed(t: Table) -> Column:
    """Some guard did not enforce, or may not have: then a check that did not run tells nothing."""
    return has_gap(t, *_RELAXING)


def is_on_two_lives(t: Table) -> Column:
    """It has records of two lives of one role."""
    return (
        (t.gateway_life != t.gateway_other_life).fill_null(False)
        | (t.decode_life != t.decode_other_life).fill_null(False)
        | (t.prefill_life != t.prefill_other_life).fill_null(False)
    )


def is_out_of_order(t: Table) -> Column:
    """Clocks of two nodes say that an effect came before its cause."""
    pushed = (t.decode_window_granted > 0) & (t.prefill_pages_claimed == 0)
    return (
        (t.entered_at > t.arrived_at).fill_null(False)
        | (pushed & (t.arrived_at > t.accepted_at)).fill_null(False)
        | ((t.admitted > 0) & (t.stated_at > t.judged_at)).fill_null(False)
    )


def is_contradicting(t: Table) -> Column:
    """Something is on record more often than it can happen, or of two tenants."""
    twice = t.too_many | (t.namesakes > 1)
    for name in (
        "gateway_request_admitted",
        "gateway_response_sent",
        "decode_request_admitted",
        "decode_request_ended",
        "decode_read_started",
        "decode_read_ended",
        "prefill_request_admitted",
        "prefill_request_ended",
        "prefill_range_computed",
        "prefill_receipt_sent",
    ):
        twice |= t[name] > 1
    return twice


def lacks_figures(t: Table) -> Column:
    """A record is there, and a figure that rules read is not in it."""
    return (
        (t.unsaid & (t.admitted > 0))
        | ((t.gateway_request_admitted > 0) & t.prompt_tokens.isnull())
        | ((t.prefill_receipt_sent > 0) & t.receipt_stop.isnull())
        | (t.prefill_receipt_sent != t.receipts_completed + t.receipts_refusing)
        | ((t.prefill_range_computed > 0) & t.computed_stop.isnull())
        | ((t.decode_request_ended > 0) & (t.computed_tokens + t.generated_tokens).isnull())
        | ((t.gateway_response_sent > 0) & t.told_prompt_tokens.isnull())
        | ((t.gateway_response_sent > 0) & t.told_generated_tokens.isnull())
    )


def has_no_end(t: Table) -> Column:
    """It was let in, and neither ended on decode nor was it refused there."""
    let_in = (t.gateway_request_admitted > 0) | (t.decode_request_admitted > 0)
    refused = (t.decode_request_refused > 0) & (t.decode_request_admitted == 0)
    return let_in & (t.decode_request_ended == 0) & ~refused


def is_stated(t: Table) -> Column:
    """Prefill computed it, stated so, and ended its part."""
    return (
        (t.prefill_request_admitted == 1)
        & (t.prefill_range_computed == 1)
        & (t.prefill_receipt_sent == 1)
        & (t.receipts_completed == 1)
        & (t.prefill_request_ended == 1)
    ).fill_null(False)


def is_drained(t: Table) -> Column:
    """Every lease has ended on decode, and its pages came back on evidence."""
    return (
        (t.decode_drain_began == t.decode_pages_allocated)
        & (t.decode_drain_ended == t.decode_pages_allocated)
        & (t.drains_proven == t.decode_pages_allocated)
    ).fill_null(False)


def is_fenced(t: Table) -> Column:
    """Every window has a fence that proves something."""
    return (
        (t.decode_window_fenced == t.decode_window_granted)
        & (t.windows_proven == t.decode_window_granted)
    ).fill_null(False)


def is_answered(t: Table) -> Column:
    """The whole chain of a request that was read, however its cache came about."""
    read = (
        (t.gateway_request_admitted == 1)
        & (t.decode_request_admitted == 1)
        & (t.decode_read_started == 1)
        & (t.decode_read_ended == 1)
        & (t.reads_own == 1)
        & (t.confirmed_seq < t.read_seq)
        & (t.last_read_seq < t.began_seq)
        & (t.decode_request_ended == 1)
    )
    filled = is_handed_over(t) | is_recomputed(t)
    return (read & filled & is_drained(t) & is_fenced(t)).fill_null(False)


def is_handed_over(t: Table) -> Column:
    """Prefill computed the whole prompt, and decode ruled on all of its pages."""
    ruled = (
        (t.admitted == 1)
        & (t.decode_verdict == 1)
        & (t.rulings_own == 1)
        & (t.decode_pages_allocated == 1)
        & (t.prefill_pages_allocated == 1)
        & ~(t.unchecked | t.let_pass | t.reduced | t.unverified | t.unsaid)
    )
    whole = (
        (t.confirmed_start == 0)
        & (t.confirmed_stop == t.expected_tokens)
        & (t.confirmed_stop == t.prompt_tokens)
        & (t.confirmed_stop == t.receipt_stop)
        & (t.confirmed_stop == t.computed_stop)
        & (t.computed_tokens <= t.confirmed_stop)
    )
    prefill_done = (t.prefill_drains_began > 0) & (
        t.prefill_drains_proven == t.prefill_drains_began
    )
    moved = is_pushed(t) | is_pulled(t)
    return (ruled & whole & is_stated(t) & prefill_done & moved).fill_null(False)


def is_pushed(t: Table) -> Column:
    """One write into one window, which ended as it should."""
    return (t.decode_window_granted == 1) & (t.prefill_write_ended == 1) & (t.writes_done == 1)


def is_pulled(t: Table) -> Column:
    """One claim, one read that ended as it should, and pages that stood to its end."""
    return (
        (t.prefill_pages_claimed == 1)
        & (t.decode_remote_read_ended == 1)
        & (t.remote_reads_done == 1)
        & (t.stood == 1)
        & (t.fell == 0)
    )


def is_recomputed(t: Table) -> Column:
    """Decode computed the whole prompt itself, into pages of a new lease."""
    return _recomputing(t).fill_null(False)


def _recomputing(t: Table) -> Column:
    """The same, null where a figure is missing."""
    return (
        (t.decode_request_recomputed == 1)
        & (t.admitted == 0)
        & (t.decode_range_computed == 1)
        & (t.ranges_own == 1)
        & (t.recomputed_stop == t.prompt_tokens)
        & (t.computed_tokens <= t.recomputed_stop)
    )


def is_refused_unread(t: Table) -> Column:
    """It was refused, or ended, before anything was read; what it had came back on evidence.

    And its client was told nothing that somebody must have read.
    """
    on_decode = (t.gateway_request_admitted == 1) & ~has_no_end(t) & t.decode_life.notnull()
    figures = (t.decode_request_ended == 0) | (t.generated_tokens == 0)
    untold = (t.answers == 0) & (t.told_generated_tokens.fill_null(0) == 0)
    unread = (~was_read(t) & figures & untold & is_drained(t) & is_fenced(t)).fill_null(False)
    return (is_turned_away(t) | on_decode) & unread
