"""Prefill's side: judge by the own pool, compute, seal, write, state what was really done.

    Granted -> GRANTED: queue, compute, seal, digest, write -> REPORTED -> ruling -> CLOSED
     intake                   filling              receipts                 ending

A write that was submitted runs to its own terminal status whatever becomes of the request; its
source pages and the window stay held until then.
"""

from kvairlock.core.protocol.prefill.job import PrefillLimits
from kvairlock.core.protocol.prefill.machine import PrefillNode

__all__ = ["PrefillLimits", "PrefillNode"]
