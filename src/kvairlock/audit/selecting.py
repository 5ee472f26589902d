"""Requests of one class as columns, and the first few of them as objects.

There may be millions of requests of a class. Who lists some of them must not make objects of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvairlock.audit.report import ORDER, Class, Report, Verdict, masks_of
from kvairlock.audit.rule import Rule
from kvairlock.audit.rules import RULES


def of_class(report: Report, wanted: Class) -> pa.Table:
    """Return the requests of a class, as they are classified.

    Args:
        report: Of an audit.
        wanted: Which class.
    """
    masks = masks_of(report.classified["reasons"].to_numpy())
    return report.classified.filter(pa.array(masks[wanted]))


def first_of(report: Report, requests: pa.Table, count: int) -> Iterator[Verdict]:
    """Yield the verdicts of those requests that began first.

    Args:
        report: Of an audit.
        requests: Some rows of its `classified`.
        count: How many at most.
    """
    first = pc.select_k_unstable(requests, k=count, sort_keys=ORDER)
    return replace(report, classified=requests.take(first)).verdicts()


def by_reason(requests: pa.Table, rules: Sequence[Rule] = RULES) -> dict[str, pa.Table]:
    """Return for each rule the requests for which it fired, those with most requests first.

    Args:
        requests: Some rows of `classified`; one may be with several rules.
        rules: Of which rules; those that fired for nobody are left out.
    """
    reasons = requests["reasons"].to_numpy()
    fired = {
        rule.name: np.flatnonzero(reasons >> place & 1)
        for place, rule in enumerate(RULES)
        if rule in rules
    }
    ordered = sorted(fired.items(), key=lambda item: -len(item[1]))
    return {name: requests.take(pa.array(rows)) for name, rows in ordered if len(rows)}
