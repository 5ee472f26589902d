"""What docs/audit-rules.md shows of rules: printed from their one table."""

from __future__ import annotations

from collections.abc import Iterable

from pages import code, table

from kvairlock.audit.rule import Rule
from kvairlock.audit.rules import AFFECTED, INSUFFICIENT


def affected() -> str:
    """Return the rules that make a request affected."""
    return _rules(AFFECTED)


def insufficient() -> str:
    """Return the rules that make evidence insufficient."""
    return _rules(INSUFFICIENT)


def _rules(rules: Iterable[Rule]) -> str:
    titles = ("rule", "what it finds", "grade", "rests on")
    return table(titles, ((code(r.name), r.finds, r.grade, _events(r)) for r in rules))


def _events(rule: Rule) -> str:
    return ", ".join(code(event) for event in rule.needs) or "numbers, clocks, seals"
