"""Decode's side: reserve, grant a window, judge what comes, read only what was confirmed.

    Submitted -> OFFERED (queue) -> GRANTED -> receipt -> REPORTED -> landed -> CONFIRMED -> CLOSED
     intake          grants                  verdicts                   reading       ending

Any end closes: the first wins and is written once. The lease then waits in the drain for its
holds, and the window, which is the writer's as well, for evidence that nobody can write into it.
"""

from kvairlock.core.protocol.decode.machine import DecodeNode
from kvairlock.core.protocol.decode.reception import DecodeLimits

__all__ = ["DecodeLimits", "DecodeNode"]
