"""Metrics of an engine in the text format of Prometheus: the few samples that a check needs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kvairlock.runtime.asking import NoAnswer

PATH = "/metrics"
STARTED = "process_start_time_seconds"
DIGITS_MAX = 15


def samples_of(text: str, *names: str) -> dict[str, list[Sample]]:
    """Return the samples of some metrics.

    Args:
        text: The whole exposition.
        names: The metrics to look for; one that is not there has no samples.

    Raises:
        NoAnswer: It is no exposition.
    """
    found: dict[str, list[Sample]] = {name: [] for name in names}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in found:
                    found[sample.name].append(sample)
    except Exception:  # somebody else's parser on somebody else's text: not only ValueError
        raise NoAnswer(f"{PATH}: these are no metrics") from None
    return found


def started_s(samples: list[Sample]) -> float | None:
    """Return when the one process started that a sample is of, or None if that is not said."""
    if len(samples) != 1 or not math.isfinite(samples[0].value):
        return None
    return samples[0].value


def whole(labels: Mapping[str, str], metric: str, name: str) -> int:
    """Return a label that must be a positive whole number.

    Raises:
        NoAnswer: It is not there, or something else.
    """
    text = labels.get(name, "")
    if not text.isascii() or not text.isdecimal() or len(text) > DIGITS_MAX or int(text) < 1:
        raise NoAnswer(f"{PATH}: {metric} has no `{name}` that is a number")
    return int(text)
