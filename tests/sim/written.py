"""A story to be changed by tests."""

from __future__ import annotations

from kvairlock.sim.cases.case import Case
from kvairlock.sim.cases.reader import read

HEAD = """case X-1: a story          # line 1
world:
  landing direct
  there are 2 prefill nodes
  alice asks a: 4 tokens
  bob asks b: 4 tokens
  b is routed to prefill-2

steps:
  # held back
  not yet: page * of a lands
  not yet: the withdrawal of a arrives
  not yet: decode begins a step

  alice sends a
  ...
  page 1 of a lands
  a's client leaves
  bob sends b
  ...
  page 2 of a lands
"""

TOLD = f"""{HEAD}
with guards:
  a ends cancelled

without drain:
  b reads bytes of a
"""


def told(expected: str, without: str, even: str = "") -> Case:
    """Return the story with other expectations; sections are given as `GUARDS: EXPECTATION`."""
    parts = [HEAD, "with guards:", expected]
    for head, section in (("even without", even), ("without", without)):
        if section:
            guards, _, expectation = section.partition(": ")
            parts += [f"{head} {guards}:", expectation]
    if not without:
        parts += ["built in:", "nothing to switch off"]
    return read("\n".join(parts), "a.case")
