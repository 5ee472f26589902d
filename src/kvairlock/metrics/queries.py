"""What a query asks for, as far as it can be read without a parser: names of metrics and labels.

Alerts and panels are checked with it against the table, so that none of them asks for what nobody
shows. Whether a query is valid at all is Prometheus' own tool's to say.
"""

from __future__ import annotations

import re

from kvairlock.metrics.table import PREFIX

_TEXTS = re.compile(r'"[^"]*"')
_NAMES = re.compile(rf"\b{PREFIX}\w+")
_LISTS = re.compile(r"\b(?:by|on|ignoring|without|group_left)\s*\(([^)]*)\)")
_MATCHERS = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")


def names_in(query: str) -> set[str]:
    """Return the metrics of this project that a query asks for."""
    return set(_NAMES.findall(_TEXTS.sub('""', query)))


def labels_in(query: str) -> set[str]:
    """Return the labels by which it selects, groups or joins."""
    grouped = {name.strip() for found in _LISTS.findall(query) for name in found.split(",")}
    return (grouped | set(_MATCHERS.findall(query))) - {""}
