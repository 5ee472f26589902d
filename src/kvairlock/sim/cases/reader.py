"""From text to a case. Whatever does not fit is an error with file, line, and what would fit.

    case IDS: TITLE
    world:         statements of `worlds`
    steps:         phrases of `steps`
    with guards:   phrases of `expectations`: the right outcome
    even without A, B:  the same, where other guards hold; may be left out
    without A, B:  how the failure shows then; or `built in:`, and why nothing can be off

The last three may have further steps of their own. `#` begins a comment; indentation is for the
eye.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from kvairlock.core.guards import Guard
from kvairlock.sim.cases.case import DEADLINES, Case, Expectation, Line, Step, Telling
from kvairlock.sim.cases.expectations import EXPECTATIONS, Judges
from kvairlock.sim.cases.player import Played
from kvairlock.sim.cases.steps import STEPS, Control
from kvairlock.sim.cases.words import ANYTHING, CaseError, Fields, Phrase, T, Vocabulary
from kvairlock.sim.cases.worlds import WORLD, Contradiction, Draft
from kvairlock.sim.state import Topology

HEAD = re.compile(r"case ([A-Za-z0-9-]+(?:, [A-Za-z0-9-]+)*): (.+)")
WORLD_HEAD, STEPS_HEAD, WITH_HEAD, BUILT_IN = "world:", "steps:", "with guards:", "built in:"
WITHOUT, EVEN_WITHOUT = re.compile(r"without (.+):"), re.compile(r"even without (.+):")
NAMED = {"REQUEST": "request", "OTHER": "request", "NODE": "node", "PEER": "node"}
"""Holes with names that the world must know."""
COMMENT, ONE = re.compile(r"(^|\s)#.*"), re.compile(r"\b1 (page|token|request)\b")
"""What is left out of a line, and what it may say in the singular."""
LAST = "`without GUARD, GUARD:`, or `built in:` where nothing can be switched off"
SECTIONS = f"`{WORLD_HEAD}`, `{STEPS_HEAD}`, `{WITH_HEAD}`, `even without GUARD, GUARD:`, {LAST}"


def read(text: str, file: str) -> Case:
    """Read a case.

    Args:
        text: All of it.
        file: How errors call the file.

    Raises:
        CaseError: It cannot be read.
    """
    return _Reader(text, file).case()


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._lines = list(_lines(text))
        self._end = len(text.splitlines()) + 1
        self._names: dict[str, tuple[str, ...]] = {}

    def case(self) -> Case:
        first = self._next("`case ID: what goes wrong`")
        head = HEAD.fullmatch(first.text)
        if head is None:
            raise self._wrong(first, "expected `case ID: what goes wrong`")
        draft = Draft()
        begins = self._section(WORLD_HEAD)
        for line in self._body("a statement about the world"):
            self._state(draft, line)
        setup = self._consistent(begins, draft.setup)
        self._names = {"request": tuple(draft.asks), "node": tuple(Topology(setup).place_of)}
        self._section(STEPS_HEAD)
        steps = tuple(map(self._step, self._body("a step")))
        self._section(WITH_HEAD)
        right = [self._telling(())]
        while self._lines and (even := EVEN_WITHOUT.fullmatch(self._lines[0].text)):
            right.append(self._telling(self._absent(self._lines.pop(0), even[1])))
        failing, built_in = self._last()
        ids = tuple(head[1].split(", "))
        title, told = head[2], tuple(right)
        return Case(self._file, first, ids, title, setup, steps, told, failing, built_in)

    # Sections

    def _last(self) -> tuple[Telling | None, str]:
        head, failing, built_in = self._next(LAST), None, ""
        without = WITHOUT.fullmatch(head.text)
        if without is not None:
            failing = self._telling(self._absent(head, without[1]))
        elif head.text == BUILT_IN:
            why = self._body("why nothing can be switched off")
            built_in = " ".join(line.text for line in why)
        else:
            raise self._wrong(head, f"expected {LAST}")
        if self._lines:
            raise self._wrong(self._lines[0], "nothing is expected after this section")
        return failing, built_in

    def _absent(self, head: Line, names: str) -> Sequence[str]:
        words = names.split(", ")
        unknown = [word for word in words if word not in (*Guard, DEADLINES)]
        if unknown:
            known = ", ".join((*Guard, DEADLINES))
            raise self._wrong(head, f"there is no guard {', '.join(unknown)}; there are: {known}")
        return words

    def _telling(self, absent: Sequence[str]) -> Telling:
        lines = self._body("an expectation")
        steps = [line for line in lines if STEPS.read(line.text) is not None]
        guards = tuple(Guard(word) for word in absent if word != DEADLINES)
        deadlines = tuple(word for word in absent if word == DEADLINES)
        expected = tuple(self._expectation(line) for line in lines if line not in steps)
        if not expected:
            raise self._wrong(lines[-1], "expected an expectation beside the steps")
        return Telling(guards, deadlines, tuple(map(self._step, steps)), expected)

    def _section(self, head: str) -> Line:
        line = self._next(f"`{head}`")
        if line.text != head:
            raise self._wrong(line, f"expected `{head}`")
        return line

    def _body(self, what: str) -> list[Line]:
        """Take the lines up to the next head; there is at least one."""
        body = []
        while self._lines and not _is_head(self._lines[0].text):
            body.append(self._lines.pop(0))
        if not body:
            raise self._wrong(self._lines[0] if self._lines else None, f"expected {what}")
        return body

    def _next(self, expected: str) -> Line:
        if not self._lines:
            raise self._wrong(None, f"expected {expected}")
        return self._lines.pop(0)

    # Lines

    def _state(self, draft: Draft, line: Line) -> None:
        row, fields = self._read(WORLD, line, line.text)
        self._consistent(line, partial(row.means, draft, fields))

    def _step(self, line: Line) -> Step:
        row, fields = self._read(STEPS, line, line.text)
        if row.means in (Control.HOLD, Control.FREE):
            held, _ = self._read(STEPS, line, fields["STEP"], pattern=True)
            if isinstance(held.means, Control):
                raise self._wrong(line, "a step is expected behind the colon")
        return Step(line, row, fields)

    def _expectation(self, line: Line) -> Expectation:
        row, fields = self._read(EXPECTATIONS, line, line.text)
        return Expectation(line, partial(_judge, row.means, fields))

    def _read(
        self, vocabulary: Vocabulary[T], line: Line, text: str, pattern: bool = False
    ) -> tuple[Phrase[T], Fields]:
        found = vocabulary.read(text, pattern)
        if found is None and text.endswith(":"):
            raise self._wrong(line, f"no section is called `{text}`; there are {SECTIONS}")
        if found is None:
            near = vocabulary.nearest(text)
            raise self._wrong(line, f"nobody understands `{text}`; expected is one like\n{near}")
        self._check_names(line, found[1])
        return found

    def _check_names(self, line: Line, fields: Fields) -> None:
        for hole, name in fields.items():
            kind = NAMED.get(hole, "")
            known = self._names.get(kind)
            if known is not None and name not in (ANYTHING, *known):
                message = f"no {kind} is called {name}; there are: {', '.join(known)}"
                raise self._wrong(line, message)

    def _consistent(self, line: Line, call: Callable[[], T]) -> T:
        try:
            return call()
        except Contradiction as error:
            raise self._wrong(line, str(error)) from None

    def _wrong(self, line: Line | None, message: str) -> CaseError:
        return CaseError(self._file, line.number if line else self._end, message)


def _lines(text: str) -> Iterator[Line]:
    for number, line in enumerate(text.splitlines(), 1):
        bare = COMMENT.sub("", line).strip()
        if bare:
            yield Line(number, ONE.sub(r"1 \1s", bare))


def _is_head(text: str) -> bool:
    heads = (WORLD_HEAD, STEPS_HEAD, WITH_HEAD, BUILT_IN)
    return text in heads or bool(WITHOUT.fullmatch(text) or EVEN_WITHOUT.fullmatch(text))


def _judge(judges: Judges, fields: Fields, played: Played) -> bool:
    return judges(played, fields)
