"""What a run of drills comes to: rows, what was skipped, what was cleaned up, and the evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvairlock.drills.library.drill import Run
from kvairlock.drills.runs.judgement import Judged

NOT_PROVEN: tuple[str, ...] = (
    "A canary shows that a page was read; that none shows does not prove that none was.",
    "The answer repeats one place of its prompt: a foreign page elsewhere may leave it as it was.",
    "The orders of events are chosen, not explored: these schedules were tried and no other ones.",
    "The canary model is made to be sensitive; a trained one would mix a foreign page into fluent "
    "text.",
    "One machine, one kernel, memory files: nothing is said of network cards, or of hardware that "
    "goes on after it was told to stop.",
    "Faults are those that were thought of: a drill says nothing of one that is in no drill.",
)
"""What canaries, and drills with them, do not prove."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one run.

    Args:
        drill: The drill.
        round: What was broken.
        level: What is accepted with it; None for what stands beside the levels.
        guards_off: The guards that were off.
        held: Whether nothing got through.
        failed_as_expected: Whether the fault was seen; None where the guards were on.
        expected: What had to be seen.
        saw: What was seen.
        refusal: Code of the refusal that the client got, or None.
        http_status: What the client got, or None.
        recorded_by: Who recorded that it refused, and why; empty if nobody did.
        seconds: How long it took, without start and stop of the stack.
        message: What was not as it must be; empty if all was.
    """

    drill: str
    round: str
    level: int | None
    guards_off: tuple[str, ...]
    held: bool
    failed_as_expected: bool | None
    expected: str
    saw: str
    refusal: str | None
    http_status: int | None
    recorded_by: str
    seconds: float
    message: str

    @property
    def ok(self) -> bool:
        """Whether it came out as it must."""
        return self.held if self.failed_as_expected is None else self.failed_as_expected


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out for the request that a row shows.

    Args:
        saw: What was seen, in words.
        refusal: Code of its refusal, or None.
        http_status: What its client got, or None.
        recorded_by: Who recorded the refusal.
    """

    saw: str = "nothing"
    refusal: str | None = None
    http_status: int | None = None
    recorded_by: str = ""


def row_of(run: Run, judged: Judged, outcome: Outcome, seconds: float) -> Row:
    """Return the row of a run."""
    drill = run.drill
    return Row(
        drill=drill.name,
        round=drill.round,
        level=drill.level,
        guards_off=tuple(sorted(run.off)),
        held=judged.held,
        failed_as_expected=judged.failed_as_expected,
        expected=run.expected(),
        saw=outcome.saw,
        refusal=outcome.refusal,
        http_status=outcome.http_status,
        recorded_by=outcome.recorded_by,
        seconds=round(seconds, 3),
        message="; ".join(judged.wrong),
    )


@dataclass(frozen=True, slots=True)
class Skipped:
    """A drill that was not carried out.

    Args:
        drill: Which.
        why: Why not.
    """

    drill: str
    why: str


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What is left of the canaries in one place.

    Args:
        place: Which stack or deployment.
        drills: The drills that were carried out there.
        how: How it is known that nothing is left.
        figures: The figures that it is known by.
        verified: Whether it is.
    """

    place: str
    drills: tuple[str, ...]
    how: str
    figures: dict[str, int]
    verified: bool


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """The evidence of one stack.

    Args:
        title: What was done there.
        folder: Where its processes wrote it.
    """

    title: str
    folder: Path


@dataclass(frozen=True, slots=True)
class DrillRun:
    """All that came of drills that were carried out together.

    Args:
        seed: What the canaries were drawn from.
        rows: What became of each run.
        skipped: What was not carried out.
        cleaned: What is left of the canaries.
        evidence: Of each stack, for as long as its data is kept.
    """

    seed: int
    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    cleaned: tuple[Cleaned, ...]
    evidence: tuple[RunEvidence, ...]

    @property
    def ok(self) -> bool:
        """Whether all came out as it must, and nothing was left; not if all of it was skipped."""
        clean = all(place.verified for place in self.cleaned)
        shown = bool(self.rows) or not self.skipped
        return shown and all(row.ok for row in self.rows) and clean

    def document(self, data: str) -> dict[str, Any]:
        """Return all of it as one JSON document.

        Args:
            data: What becomes of the data of the run.
        """
        return {
            "ok": self.ok,
            "seed": self.seed,
            "rows": [asdict(row) for row in self.rows],
            "skipped": [asdict(skipped) for skipped in self.skipped],
            "cleanup": {
                "verified": all(place.verified for place in self.cleaned),
                "places": [asdict(place) for place in self.cleaned],
                "data": data,
            },
            "canaries_do_not_prove": list(NOT_PROVEN),
        }


def joined(runs: Iterable[DrillRun], seed: int) -> DrillRun:
    """Return runs as one."""
    every = list(runs)
    return DrillRun(
        seed,
        tuple(row for run in every for row in run.rows),
        tuple(skipped for run in every for skipped in run.skipped),
        tuple(place for run in every for place in run.cleaned),
        tuple(evidence for run in every for evidence in run.evidence),
    )
