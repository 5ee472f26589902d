"""One run of a drill on a running stack: carried out, judged, and told as a row."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx

from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.library.drill import Expectation, Mode, Run, Sighting, Trace
from kvairlock.drills.library.sights import SIGHTS, Seen
from kvairlock.drills.runs.judgement import judge, not_carried_out
from kvairlock.drills.runs.player import Player, Site
from kvairlock.drills.runs.rows import Outcome, Row, row_of
from kvairlock.drills.runs.witness import Asked, Witness
from kvairlock.drills.stack import DrillFailed

NOT_AT_HAND = "the evidence is not at hand"
"""What a row says instead of who recorded something."""

Wanted = Sequence[Sighting | Expectation]


@dataclass(frozen=True, slots=True)
class Once:
    """What became of one run.

    Args:
        row: The same for people.
        carried_out: Whether it came to its end; if not, what it left behind is not known.
        answered: The prompts that were answered, with whatever: all that could have been kept.
    """

    row: Row
    carried_out: bool
    answered: tuple[Marked, ...] = ()


def carry_out(run: Run, site: Site, canaries: Canaries) -> Once:
    """Carry out a run, and wait until nothing of it is open where the guards were on.

    Args:
        run: What.
        site: Where.
        canaries: Makes its prompts.
    """
    began_s = time.monotonic()
    try:
        player = Player(run.drill, site, canaries)
        seen = player.play()
        judged = judge(run, seen, None if site.records is None else player.witness.left)
        outcome = _outcome(run, seen, player.witness)
        if run.mode is not Mode.OFF and site.stack is not None:
            site.client.idle()
    except (DrillFailed, httpx.HTTPError) as failed:
        return nothing(run, str(failed), time.monotonic() - began_s)
    row = row_of(run, judged, outcome, time.monotonic() - began_s)
    return Once(row, True, _answered(player.asked, seen))


def nothing(run: Run, why: str, seconds: float = 0.0) -> Once:
    """Return what became of a run that did not come to its end."""
    return Once(row_of(run, not_carried_out(run, why), Outcome(), seconds), False)


def _answered(asked: Mapping[str, Asked], seen: Mapping[str, Seen]) -> tuple[Marked, ...]:
    return tuple(asked[name].prompt for name, one in seen.items() if one.text)


def _outcome(run: Run, seen: Mapping[str, Seen], witness: Witness) -> Outcome:
    wanted: Wanted = run.drill.shows if run.mode is Mode.OFF else run.drill.holds
    subject = _subject(run, wanted, seen)
    return Outcome(
        saw="; ".join(_saw(run, each.request, seen) for each in wanted),
        refusal=seen[subject].refusal,
        http_status=seen[subject].http_status,
        recorded_by=_recorded_by(run, subject, witness),
    )


def _recorded_by(run: Run, subject: str, witness: Witness) -> str:
    """Say who recorded what: the receiver that the drill is about, if it did, or else the first."""
    if not witness.has_evidence:
        return NOT_AT_HAND
    if run.mode is Mode.ALONE:
        left = [str(trace) for trace in _traces(run) if witness.left(trace)]
        return "; ".join(left)
    return witness.refused_by(subject)


def _traces(run: Run) -> list[Trace]:
    return [wanted.recorded for wanted in run.drill.holds if wanted.recorded is not None]


def _subject(run: Run, wanted: Wanted, seen: Mapping[str, Seen]) -> str:
    """Return the request that a row shows: where the receiver had to act, or what was seen."""
    members = run.drill.members(wanted[0].request)
    if run.mode is Mode.OFF:
        shown = (name for name in members if seen[name].sight is wanted[0].sight)
        return next(shown, members[0])
    acted = [trace.request for trace in _traces(run) if trace.request]
    return acted[0] if acted else members[0]


def _saw(run: Run, request: str, seen: Mapping[str, Seen]) -> str:
    counts = Counter(_words(seen[name]) for name in run.drill.members(request))
    if counts.total() == 1:
        return f"{request}: {next(iter(counts))}"
    return f"{request}: {', '.join(f'{count} {words}' for words, count in counts.items())}"


def _words(one: Seen) -> str:
    told = f" ({one.http_status} {one.refusal})" if one.refusal else ""
    return f"{SIGHTS[one.sight]}{told}"
