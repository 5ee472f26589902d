"""Groups of requests by prompt length, and figures of them that rise in steps of a few at once.

    a series:   counted  0 1 2 3 4 5 6 7 8 9 10 11
                shown    . . . . . 5 5 5 5 5 10 10        with steps of 5

Counted by length, a rare class hides in no average. But a figure that rises by one says how one
request went, and when. So whatever is told apart by length is shown in whole steps only, each
series by itself: what is held back is shown with what comes after it, and never elsewhere. A series
that has less than one step is not shown at all.
"""

from __future__ import annotations

LENGTHS = (256, 1024, 4096, 16384)
"""The most prompt tokens of each class."""

LONGER = "more"
"""The class of what is longer than all of them."""

OTHER = "other"
"""The group of what has no length, or more than one."""

CLASSES = (*map(str, LENGTHS), LONGER)
GROUPS = (*CLASSES, OTHER)
"""Every value of a label `length`."""


def length_class(prompt_tokens: int) -> str:
    """Return the name of the class of a prompt."""
    return next((str(most) for most in LENGTHS if prompt_tokens <= most), LONGER)


def in_steps(count: int, step: int) -> int:
    """Return how many of `count` may be shown.

    Args:
        count: How many there were.
        step: The fewest by which the figure may rise; 0 and 1 hold nothing back.
    """
    return count - count % max(1, step)
