"""The lender, a prefill node: compute, seal, offer, and hold for one claimant until it is done.

    Asked -> queue, compute, seal, digest -> offer -> claim -> validate -> release -> pages retire
     intake        push's `filling`           lending                     ending

A prompt is computed by the steps of push. What is lent ends by release, by proof that its reader is
gone, or, if the reader asks afterwards, by time: then the generation turns before a page is free.
"""

from kvairlock.core.protocol.pull.lender.loan import LenderLimits
from kvairlock.core.protocol.pull.lender.machine import LenderNode

__all__ = ["LenderLimits", "LenderNode"]
