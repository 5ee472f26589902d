"""Figures become families of Prometheus by their row of the table, or are not shown at all.

    Tallies      counters of one process: row and labels -> how many so far
    Gathering    one answer in the making: rows with their figures as of now

A name without a row, and labels that are not those of the row, are refused. So what is shown, what
is documented and what alerts ask for are one thing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kvairlock.core.errors import InvariantBroken
from kvairlock.core.lengths import in_steps
from kvairlock.core.waits import BOUNDS_MS, Waited
from kvairlock.metrics.table import METRICS, PREFIX, Kind

MS_PER_S = 1000
_FAMILIES = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
    Kind.INFO: InfoMetricFamily,
}


class Tallies:
    """Counters of one process; they only rise.

    Args:
        names: Rows of the table that are shown as 0 from the start, so that the first rise shows.
        step: The fewest by which a series that is told apart by length may rise.
    """

    def __init__(self, *names: str, step: int = 1) -> None:
        self._step = step
        self._counted: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        for name in names:
            self._counted[name, ()] = 0

    def count(self, name: str, /, **labels: str) -> None:
        """Count one more.

        Args:
            name: The row.
            labels: Its labels.
        """
        self._counted[name, tuple(sorted(labels.items()))] += 1

    def totals(self, name: str, *labels: str) -> dict[tuple[str, ...], int]:
        """Return how many there were so far, held back ones included, by the values of some labels.

        Args:
            name: The row.
            labels: Those by which they are told apart; over all others they are summed up.
        """
        found: Counter[tuple[str, ...]] = Counter()
        for (row, told), value in self._counted.items():
            if row == name:
                found[tuple(dict(told)[label] for label in labels)] += value
        return dict(found)

    def show(self, into: Gathering) -> None:
        """Add all of them to an answer, as far as they may be shown."""
        for (name, told), value in self._counted.items():
            labels = dict(told)
            shown = in_steps(value, self._step) if "length" in labels else value
            if shown or "length" not in labels:
                into.add(name, shown, **labels)


class Gathering(Collector):
    """The figures of one answer, as of now; once it is complete, any thread may render it."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def add(self, name: str, value: float, /, **labels: str) -> None:
        """Add one figure; an `info` has none, so that its value is left out.

        Args:
            name: The row.
            value: The figure.
            labels: Its labels, those of the row.

        Raises:
            InvariantBroken: There is no such row, it is a histogram, or the labels are others.
        """
        family, values = self._family(name, labels), self._values(name, labels)
        if isinstance(family, InfoMetricFamily):
            family.add_metric(values, {})
        elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
            family.add_metric(values, value)
        else:
            raise InvariantBroken("metrics", f"{name} is made of waits")

    def add_waits(self, name: str, waited: Iterable[Waited], /, **labels: str) -> None:
        """Add one histogram, made of all that was waited: what they have in common.

        Args:
            name: The row.
            waited: The histograms that it is the sum of.
            labels: Its labels, those of the row.

        Raises:
            InvariantBroken: There is no such row, it is no histogram, or the labels are others.
        """
        family, values = self._family(name, labels), self._values(name, labels)
        if not isinstance(family, HistogramMetricFamily):
            raise InvariantBroken("metrics", f"{name} is not made of waits")
        total = tuple(waited)
        sum_s = sum(each.sum_ms for each in total) / MS_PER_S
        family.add_metric(values, list(_buckets(total)), sum_s)

    def collect(self) -> Iterator[Metric]:
        """Return the families in the order of the table."""
        return (self._families[name] for name in METRICS if name in self._families)

    def _family(self, name: str, labels: dict[str, str]) -> Metric:
        row = METRICS.get(name)
        if row is None or set(row.labels) != labels.keys():
            raise InvariantBroken("metrics", f"{name} is not shown with {sorted(labels)}")
        if name not in self._families:
            made = _FAMILIES[row.kind]
            unit = {"unit": row.unit} if row.unit else {}
            self._families[name] = made(f"{PREFIX}{name}", row.help, labels=row.labels, **unit)
        return self._families[name]

    @staticmethod
    def _values(name: str, labels: dict[str, str]) -> list[str]:
        return [labels[label] for label in METRICS[name].labels]


def _buckets(waited: tuple[Waited, ...]) -> Iterator[tuple[str, float]]:
    """Return how many took at most so many seconds, by bound; then all."""
    within: Counter[int] = Counter()
    for each in waited:
        within.update(each.within_ms)
    bounds = sorted({*BOUNDS_MS, *within})
    for bound_ms, count in zip(bounds, accumulate(within[b] for b in bounds), strict=True):
        yield str(bound_ms / MS_PER_S), count
    yield "+Inf", sum(each.count for each in waited)
