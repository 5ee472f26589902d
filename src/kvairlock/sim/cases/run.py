"""Plays a case twice, and judges what came of it: one row for each of its ids."""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.sim.cases.case import Case, Step, Telling
from kvairlock.sim.cases.player import CannotHappen, Played, Player
from kvairlock.sim.cases.steps import Control, Several
from kvairlock.sim.cases.words import CaseError, say


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a case.

    Args:
        id: By which it is known.
        title: What goes wrong.
        expected: The right outcome.
        outcome: How its requests ended, with guards.
        ok: Whether that was the right outcome, and the failure showed without the guards.
        without: What was absent in the second run; nothing where nothing can be switched off.
        failure: How the failure showed then; where nothing can be switched off, why not.
        steps: Moves of the run with guards.
        wrong: What did not come as expected.
    """

    id: str
    title: str
    expected: str
    outcome: str
    ok: bool
    without: tuple[str, ...]
    failure: str
    steps: int
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """A case that was played.

    Args:
        rows: One for each id.
        stories: What happened in each telling, line by line, by what was absent.
    """

    rows: tuple[Row, ...]
    stories: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def ok(self) -> bool:
        """Whether all came as expected."""
        return all(row.ok for row in self.rows)


def run(case: Case) -> Judged:
    """Play a case.

    Args:
        case: The case.

    Raises:
        CaseError: A step cannot happen, or a request is never sent.
    """
    told = [(telling, play(case, telling)) for telling in case.right]
    wrong = [line for telling, played in told for line in _wrong(telling, played)]
    failure, with_guards = case.built_in, told[0][1]
    if case.failing is not None:
        played = play(case, case.failing)
        told.append((case.failing, played))
        wrong += _unmet(case.failing, played)
        new = [e for e in case.failing.expected if not e.holds(with_guards)]
        failure = "; ".join(e.line.text for e in new)
        if not new:
            wrong.append(f"{_how(case.failing)}: nothing shows that does not show with guards")
    rows = tuple(_row(case, each, with_guards, failure, wrong) for each in case.ids)
    return Judged(rows, tuple((_how(t), tuple(p.story)) for t, p in told))


def play(case: Case, telling: Telling) -> Played:
    """Play a case's schedule to its end.

    Args:
        case: The case.
        telling: What is absent, and the steps that follow then.

    Raises:
        CaseError: A step cannot happen, or a request is never sent.
    """
    player = Player(telling.applied(case.setup))
    for step in (*case.steps, *telling.steps):
        try:
            _take(player, step)
        except CannotHappen as error:
            message = f"{_how(telling)}, `{step.line.text}`: {error}"
            raise CaseError(case.file, step.line.number, message) from None
    unsent = player.unsent()
    if unsent:
        raise CaseError(case.file, case.line.number, f"no step sends {', '.join(unsent)}")
    return player.finish()


def _take(player: Player, step: Step) -> None:
    match step.phrase.means:
        case Control.SETTLE:
            player.settle()
        case Control.HOLD:
            player.hold(step.fields["STEP"])
        case Control.FREE:
            player.free(step.fields["STEP"])
        case Several(phrases):
            for phrase in phrases:
                player.happen(say(phrase, step.fields))
        case _:
            player.happen(step.line.text)


def _how(telling: Telling) -> str:
    return f"without {', '.join(telling.without)}" if telling.without else "with guards"


def _unmet(telling: Telling, played: Played) -> list[str]:
    unmet = (each.line.text for each in telling.expected if not each.holds(played))
    return [f"{_how(telling)}, not: {text}" for text in unmet]


def _wrong(telling: Telling, played: Played) -> list[str]:
    """What is not as it should be where the right outcome must come."""
    broken = [f"{_how(telling)}: {violation}" for violation in played.violations]
    return broken + _unmet(telling, played)


def _row(case: Case, name: str, played: Played, failure: str, wrong: list[str]) -> Row:
    return Row(
        id=name,
        title=case.title,
        expected="; ".join(each.line.text for each in case.right[0].expected),
        outcome="; ".join(f"{request}: {end}" for request, end in played.ends.items()),
        ok=not wrong,
        without=case.failing.without if case.failing else (),
        failure=failure,
        steps=played.moves,
        wrong=tuple(wrong),
    )
