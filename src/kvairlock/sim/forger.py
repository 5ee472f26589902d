"""Somebody who knows everything but the cluster's key, and can put messages on a wire."""

from __future__ import annotations

import numpy as np

from kvairlock.core.ends import End
from kvairlock.core.messages import Receipt
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.sim.bytes import page_digests
from kvairlock.sim.setup import Setup


def forged_receipt(setup: Setup, reception: Reception) -> Receipt:
    """Return a receipt that fits a window into which nothing was written, digest for digest."""
    want = reception.transfer.want
    nothing = np.zeros((1, setup.page_tokens), dtype=np.int32)
    page = np.zeros(1, dtype=np.int32)
    return Receipt(
        transfer=reception.name,
        owner=want.owner,
        outcome=End.COMPLETED,
        refusal=None,
        window=want.window,
        input_digest=want.input_digest,
        layout=want.layout,
        pages=tuple(range(want.pages)),
        start=0,
        stop=want.prompt_tokens,
        generations=want.generations,
        digests=page_digests(nothing, page, reception.asked.seed) * want.pages,
        reused=0,
    )
