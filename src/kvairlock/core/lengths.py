"""Groups of requests by prompt length, so that a rare class hides in no average, and nobody in it.

    prompt ---> its class (at most 256, 1024, ... tokens)
                  |  the first few requests of a class ---> `other`
                  +--the ones after them ----------------> the class

A figure of a class with one request in it says how that one request went. So a class has no figures
of its own before it has had enough requests; what comes before is counted in `other`, and stays
there. Each request is counted in exactly one group, for good: every counter only rises, and the
groups add up to all requests.
"""

from __future__ import annotations

from collections import Counter

LENGTHS = (256, 1024, 4096, 16384)
"""The most prompt tokens of each class."""

LONGER = "more"
"""The class of what is longer than all of them."""

OTHER = "other"
"""The group of classes that have had too few requests, and of what has no length."""

CLASSES = (*map(str, LENGTHS), LONGER)
GROUPS = (*CLASSES, OTHER)
"""Every value of a label `length`."""


def length_class(prompt_tokens: int) -> str:
    """Return the name of the class of a prompt."""
    return next((str(most) for most in LENGTHS if prompt_tokens <= most), LONGER)


class LengthGroups:
    """Says in which group a request is counted.

    Args:
        requests_min: How many requests a class must have had before others are counted by it.
    """

    def __init__(self, requests_min: int) -> None:
        self._least = requests_min
        self._seen: Counter[str] = Counter()

    def of(self, prompt_tokens: int) -> str:
        """Return the group of one more request. Ask once for each; its group never changes.

        Args:
            prompt_tokens: The length of its prompt.
        """
        name = length_class(prompt_tokens)
        self._seen[name] += 1
        return name if self._seen[name] > self._least else OTHER
