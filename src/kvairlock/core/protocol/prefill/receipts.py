"""What prefill states: the range and digests of a job, or nothing at all with a refusal."""

from __future__ import annotations

from kvairlock.core.effects import Send
from kvairlock.core.ends import End
from kvairlock.core.errors import Refusal
from kvairlock.core.events import Granted
from kvairlock.core.messages import Receipt
from kvairlock.core.protocol.prefill.job import Job
from kvairlock.core.protocol.prefill.state import PrefillState
from kvairlock.core.terms import Owner


def send_receipt(
    node: PrefillState,
    asked: Granted,
    owner: Owner,
    outcome: End,
    refusal: Refusal | None,
    done: Job | None = None,
) -> None:
    """State what was really done.

    Args:
        node: The node.
        asked: The grant that is answered.
        owner: For whom.
        outcome: How it ended here.
        refusal: Why, if it did not complete.
        done: The job whose pages were written; None states that nothing was.
    """
    digests = done.digests if done else ()
    receipt = Receipt(
        transfer=asked.transfer,
        owner=owner,
        outcome=outcome,
        refusal=refusal,
        window=asked.window,
        input_digest=done.input_digest if done else b"",
        layout=node.layout,
        pages=tuple(range(len(digests))),
        start=0,
        stop=done.stop if done else 0,
        generations=asked.generations,
        digests=digests,
        reused=done.reused_tokens(node.books.report.page_tokens) if done else 0,
    )
    node.books.record(
        "receipt_sent", owner, outcome=outcome, start=receipt.start, stop=receipt.stop
    )
    node.emit(Send(asked.decode.node, receipt))
