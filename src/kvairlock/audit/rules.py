"""Rules: one literal table of what makes a request affected, and what makes evidence insufficient.

    affected       any rule of `kvairlock.audit.accusing` fires
    insufficient   else, any rule of `kvairlock.audit.lacking` fires: something is missing,
                   uncovered, or contradicts
    excluded       no rule fires; and one of them fires whenever the positive chain is not whole

So nothing is ever excluded for want of evidence: `chain_broken` asks for all of

    admitted -> computed -> receipt -> verdict: all checks, all pages -> reads of those -> drain

or for a refusal before anything was read. The rules read one row per request, made by
`kvairlock.audit.chains` and its neighbours, and give one column each.
"""

from __future__ import annotations

from typing import Any

from ibis import Table

from kvairlock.audit.accusing import AFFECTED
from kvairlock.audit.lacking import INSUFFICIENT
from kvairlock.audit.rule import Finding, Rule

__all__ = ["AFFECTED", "AFFECTING", "INSUFFICIENT", "RULES", "reasons"]

Column = Any

RULES: tuple[Rule, ...] = (*AFFECTED, *INSUFFICIENT)
"""All rules; the place of one is its bit in the reasons of a request."""
AFFECTING = (1 << len(AFFECTED)) - 1
"""The bits of all rules that make a request affected."""


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
