"""The borrower, a decode node: claim what is offered, read it, ask whether it stood, admit it.

    Referred -> queue, reserve -> claim -> lent -> read -> validate -> judge bytes -> decode
     offers     push's `grants`   claiming       fetching            push's `verdicts`
                                  every claim is given back: `returning`

It is a decode node whose window is its own pages, and whose writer is its own read: admission,
queue, verdict, reading and recovery are those of push. Its host keeps what belongs to a claim until
`CloseWindow`, and may leave `ProbeWindow` alone: what it asks for, `ReadEnded` says unasked.
"""

from kvairlock.core.protocol.pull.borrower.loan import BorrowerLimits
from kvairlock.core.protocol.pull.borrower.machine import BorrowerNode

__all__ = ["BorrowerLimits", "BorrowerNode"]
