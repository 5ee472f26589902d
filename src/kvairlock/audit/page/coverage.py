"""What was looked at, and what of it nobody can see: a picture, and the same as tables."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from kvairlock.audit.page import lanes
from kvairlock.audit.page.words import spaced, utc
from kvairlock.audit.placing import Placed
from kvairlock.audit.report import Coverage, Report
from kvairlock.audit.spans import Gap, Life, Missing
from kvairlock.audit.story import Story
from kvairlock.pictures.markup import Inside, tag
from kvairlock.pictures.parts import folded, left_out, scrolled, section, table

ROWS_MAX = 200
HEADS_MISSING = ("node", "life", "named by")

MEANS: dict[Gap, str] = {
    Gap.EVENTS_LOST: "numbers are missing: what was recorded there, nobody has",
    Gap.NUMBERS_REPEATED: "two records have one number: one is not what was recorded",
    Gap.START_UNKNOWN: "how guards were set is not recorded",
    Gap.CLOSE_MISSING: "no close marker: it may have gone on",
    Gap.SILENT: "no record, not even a beat",
    Gap.CLOCK_STEPPED: "the clock was set: order between nodes is not known",
    Gap.GUARD_DISABLED: "a guard was off: nobody looked",
    Gap.GUARD_RELAXED: "a guard only observed, or checked a part",
    Gap.LANDING_DIRECT: "others could store into the pool itself",
    Gap.FAILPOINT: "a drill could make the process do wrong, from here on",
    Gap.INVARIANT_BROKEN: "the process found its own books wrong",
    Gap.FILE_ALTERED: "a file is not what was sealed",
    Gap.SEAL_FORGED: "the seals of the node do not verify",
    Gap.FILE_REMOVED: "a file was sealed, and is not there",
}


def coverage(report: Report, story: Story) -> Element:
    """Return the section on coverage."""
    seen = report.coverage
    return section("coverage", "What was covered, and what was not", *_parts(seen, story))


def _parts(seen: Coverage, story: Story) -> Iterator[Inside]:
    if not seen.lives:
        yield tag("p", "There is evidence of no process.", class_="doubt")
    else:
        yield tag("p", _caption(seen))
        yield scrolled(lanes.draw(seen, story.placed), "Picture: evidence over time")
        yield left_out(len(seen.lives) - lanes.LIVES_MAX, "Lives that are not drawn")
        yield left_out(story.spans_left_out, "Gaps that are not drawn")
    yield from _gaps(seen, story)
    yield from _missing(seen)
    yield from _unreadable(seen)
    yield from _seals(seen)
    if seen.lives:
        yield folded(["All processes, by their own records"], _lives(seen))


def _caption(seen: Coverage) -> str:
    ends = sum(life.closed for life in seen.lives)
    return (
        f"Each bar is the time from the first to the last record of one life of a process, the "
        f"stroke at its end a close marker, which {ends:,} of {len(seen.lives):,} have. Hatched is "
        "what vouches for nothing, with its reason: no request that it concerns is excluded."
    )


def _gaps(seen: Coverage, story: Story) -> Iterator[Inside]:
    if not seen.spans:
        yield tag("p", "✓ No gap: all numbers are there, all guards were on.", class_="good")
        return
    lives = {life.number: life for life in seen.lives}
    rows = (_gap(each, lives[each.span.life]) for each in story.placed[:ROWS_MAX])
    heads = ("gap", "node", "life", "from, UTC", "until", "why it is one", "more")
    yield table("What is not covered", heads, rows)
    yield left_out(len(seen.spans) - ROWS_MAX, "Gaps that are not listed")


def _gap(each: Placed, life: Life) -> list[Inside]:
    span = each.span
    more = ", ".join(part for part in (span.route and f"route {span.route}", span.detail) if part)
    return [
        spaced(span.gap),
        tag("span", life.node, class_="whole-name"),
        life.incarnation[:6],
        utc(each.from_unix_ns),
        utc(each.to_unix_ns),
        MEANS[span.gap],
        more or "the whole of it" if span.since == 0 else more,
    ]


def _missing(seen: Coverage) -> Iterator[Inside]:
    if seen.missing:
        rows = ([each.node, *_of_missing(each)] for each in seen.missing[:ROWS_MAX])
        yield table("Lives that are named, without any evidence", HEADS_MISSING, rows)
        yield left_out(len(seen.missing) - ROWS_MAX, "More of them")


def _of_missing(each: Missing) -> Iterator[str]:
    yield each.incarnation[:6] or "not recorded"
    yield each.named_by


def _unreadable(seen: Coverage) -> Iterator[Inside]:
    if seen.unreadable:
        rows = (
            [each.file or "any of the files", f"{each.records:,}", each.reason]
            for each in seen.unreadable[:ROWS_MAX]
        )
        heads = ("file", "records, at least", "why")
        yield table("What was found and can't be judged", heads, rows)
        yield left_out(len(seen.unreadable) - ROWS_MAX, "More of it")


def _seals(seen: Coverage) -> Iterator[Inside]:
    if seen.seals.states:
        how = "with the cluster's keys" if seen.seals.keyed else "by their hashes alone"
        states = ", ".join(f"{count:,} {state}" for state, count in seen.seals.states)
        yield tag("p", f"Files, compared with their seals {how}: {states}.")


def _lives(seen: Coverage) -> Element:
    heads = ("node", "role", "life", "records", "numbers", "from, UTC", "until", "end")
    rows = (
        [
            life.node,
            life.role,
            life.incarnation[:6],
            f"{life.records:,}",
            f"{life.first:,} to {life.last:,}",
            utc(life.from_unix_ns),
            utc(life.to_unix_ns),
            "close marker" if life.closed else "none recorded",
        ]
        for life in seen.lives[:ROWS_MAX]
    )
    left = len(seen.lives) - ROWS_MAX
    caption = "Each life of a process" + (f"; left out: {left:,}" if left > 0 else "")
    return table(caption, heads, rows)
