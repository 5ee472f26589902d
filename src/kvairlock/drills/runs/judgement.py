"""Whether a run came out as it must: by what was seen of each request, and what was recorded.

    guarded   nothing of another tenant shows anywhere; who is looked at gets an answer or a refusal
    alone     each expectation is met to the letter: sight, reason, stage, figures, record
    off       each fault is seen that the guards keep out

A run that could not be carried out has come out as nothing: it neither held nor failed as expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kvairlock.core.errors import REASONS
from kvairlock.drills.library.drill import ANY, Drill, Expectation, Mode, Run, Sighting, Trace
from kvairlock.drills.library.sights import LEAKS, SIGHTS, Seen, Sight

Left = Callable[[Trace], bool]
"""Whether the receiver recorded what it must."""

HARMLESS = frozenset({Sight.OWN, Sight.REFUSED, Sight.LEFT})


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a run.

    Args:
        held: Whether nothing got through that the guards are there for.
        failed_as_expected: Whether the fault was seen; None where the guards were on.
        wrong: What was not as it must be, in sentences.
    """

    held: bool
    failed_as_expected: bool | None
    wrong: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether it came out as it must."""
        return self.held if self.failed_as_expected is None else self.failed_as_expected


def judge(run: Run, seen: Mapping[str, Seen], left: Left | None) -> Judged:
    """Judge a run.

    Args:
        run: Which drill, and which guards were off.
        seen: What came to light of each of its requests.
        left: Says what the receiver recorded; None if its evidence is not at hand, and only the
            answers can be judged.
    """
    if run.mode is Mode.OFF:
        missing = tuple(_not_shown(run.drill, seen))
        return Judged(not any(_breaches(run.drill, seen)), not missing, missing)
    if run.mode is Mode.GUARDED:
        wrong = tuple(_breaches(run.drill, seen))
    else:
        wrong = (*_leaks(seen), *_not_met(run.drill, seen, left))
    return Judged(not wrong, None, wrong)


def not_carried_out(run: Run, why: str) -> Judged:
    """Return what became of a run that did not come to its end."""
    off = run.mode is Mode.OFF
    return Judged(False, False if off else None, (f"not carried out: {why}",))


def _chosen(drill: Drill, request: str, seen: Mapping[str, Seen]) -> dict[str, Seen]:
    return {name: seen[name] for name in drill.members(request)}


# With the guards on


def _leaks(seen: Mapping[str, Seen]) -> Iterator[str]:
    for name, one in seen.items():
        if one.sight in LEAKS:
            yield f"{name}: {SIGHTS[one.sight]}"


def _breaches(drill: Drill, seen: Mapping[str, Seen]) -> Iterator[str]:
    """What another guard must keep out as well, whichever acts first."""
    yield from _leaks(seen)
    for wanted in drill.holds:
        fine = HARMLESS | {wanted.sight}
        for name, one in _chosen(drill, wanted.request, seen).items():
            if one.sight not in fine | LEAKS:
                yield f"{name}: {SIGHTS[one.sight]}"


def _not_met(drill: Drill, seen: Mapping[str, Seen], left: Left | None) -> Iterator[str]:
    for wanted in drill.holds:
        for name, one in _chosen(drill, wanted.request, seen).items():
            yield from _unmet(name, wanted, one)
        if left is not None and wanted.recorded is not None and not left(wanted.recorded):
            yield f"it was not recorded: {wanted.recorded}"


def _unmet(name: str, wanted: Expectation, one: Seen) -> Iterator[str]:
    if one.sight in LEAKS:
        return  # as it was said of every request
    if one.sight is not wanted.sight:
        yield f"{name}: {SIGHTS[one.sight]}, not {SIGHTS[wanted.sight]}"
    elif wanted.reason is not None and one.refusal != REASONS[wanted.reason].code:
        yield f"{name}: refused with {one.refusal}, not {REASONS[wanted.reason].code}"
    elif wanted.stage is not None and one.error.get("stage") != wanted.stage:
        yield f"{name}: refused at {one.error.get('stage')}, not at {wanted.stage}"
    yield from _figures(name, wanted, one)


def _figures(name: str, wanted: Expectation, one: Seen) -> Iterator[str]:
    """Whoever fills a limit is answered in full, and refused beyond it with both figures."""
    if one.limit_tokens is None:
        return
    if wanted.sight is Sight.REFUSED:
        asked, limit = one.error.get("asked"), one.error.get("limit")
        # A prompt that is too long by itself is refused as such, whatever its answer would add.
        if limit != one.limit_tokens or asked not in (one.asked_tokens, one.sent_tokens):
            yield f"{name}: {one.asked_tokens} over {one.limit_tokens} was told as {asked}, {limit}"
    elif wanted.sight is Sight.OWN and one.prompt_tokens != one.sent_tokens:
        yield f"{name}: {one.sent_tokens} prompt tokens were sent, {one.prompt_tokens} computed"


# With the guards off


def _not_shown(drill: Drill, seen: Mapping[str, Seen]) -> Iterator[str]:
    for wanted in drill.shows:
        if not _is_shown(drill, wanted, seen):
            yield f"it should be seen, and was not: {wanted}"


def _is_shown(drill: Drill, wanted: Sighting, seen: Mapping[str, Seen]) -> bool:
    shown = [one.sight is wanted.sight for one in _chosen(drill, wanted.request, seen).values()]
    return any(shown) if wanted.request == ANY else all(shown)
