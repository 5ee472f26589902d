"""The life of a page: one literal table, stage x verb -> stage.

    FREE -reserve-> RESERVED -fill-> FILLING -seal-> SEALED -share-> SHARED      (prefill)
                    RESERVED -grant-> LANDING -admit-> READABLE                 (decode)
    any owned stage -retire-> DRAINING -fence-> FENCED -scrub-> SCRUBBED -free-> FREE
    any owned stage, DRAINING -quarantine-> QUARANTINED -fence-> FENCED
    FREE -withdraw-> WITHDRAWN -restore-> SCRUBBED                              (a node is resized)

Quarantine marks pages whose content nobody vouches for; they come back the same way, on the same
evidence. Only free pages are withdrawn, so what is restored holds nobody's bytes. Empty cells are
refusals. Only one edge leads to FREE. The diagram in the docs, the exhaustive test and the
vectorised lookup below all read `TABLE`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class PageStage(IntEnum):
    """Where a page is in its life. The values index `TABLE`."""

    FREE = 0
    RESERVED = 1
    FILLING = 2
    LANDING = 3
    SEALED = 4
    READABLE = 5
    SHARED = 6
    DRAINING = 7
    QUARANTINED = 8
    FENCED = 9
    SCRUBBED = 10
    WITHDRAWN = 11


class Verb(IntEnum):
    """What can be done to a page."""

    RESERVE = 0
    FILL = 1
    GRANT = 2
    SEAL = 3
    ADMIT = 4
    SHARE = 5
    RETIRE = 6
    QUARANTINE = 7
    FENCE = 8
    SCRUB = 9
    FREE = 10
    WITHDRAW = 11
    RESTORE = 12


_S, _V = PageStage, Verb

TABLE: dict[PageStage, dict[Verb, PageStage]] = {
    _S.FREE: {_V.RESERVE: _S.RESERVED, _V.WITHDRAW: _S.WITHDRAWN},
    _S.RESERVED: {
        _V.FILL: _S.FILLING,
        _V.GRANT: _S.LANDING,
        _V.ADMIT: _S.READABLE,
        _V.RETIRE: _S.DRAINING,
        _V.QUARANTINE: _S.QUARANTINED,
    },
    _S.FILLING: {
        _V.FILL: _S.FILLING,
        _V.SEAL: _S.SEALED,
        _V.RETIRE: _S.DRAINING,
        _V.QUARANTINE: _S.QUARANTINED,
    },
    _S.LANDING: {
        _V.ADMIT: _S.READABLE,
        _V.RETIRE: _S.DRAINING,
        _V.QUARANTINE: _S.QUARANTINED,
    },
    _S.SEALED: {
        _V.SHARE: _S.SHARED,
        _V.RETIRE: _S.DRAINING,
        _V.QUARANTINE: _S.QUARANTINED,
    },
    _S.READABLE: {_V.RETIRE: _S.DRAINING, _V.QUARANTINE: _S.QUARANTINED},
    _S.SHARED: {_V.RETIRE: _S.DRAINING, _V.QUARANTINE: _S.QUARANTINED},
    _S.DRAINING: {_V.QUARANTINE: _S.QUARANTINED, _V.FENCE: _S.FENCED},
    _S.QUARANTINED: {_V.FENCE: _S.FENCED},
    _S.FENCED: {_V.SCRUB: _S.SCRUBBED},
    _S.SCRUBBED: {_V.FREE: _S.FREE},
    _S.WITHDRAWN: {_V.RESTORE: _S.SCRUBBED},
}

REFUSED = -1

CONTENT_ENDS = frozenset({Verb.RETIRE, Verb.QUARANTINE})
"""Verbs after which a page's content is nobody's: its generation turns."""


def _lookup() -> NDArray[np.int8]:
    table = np.full((len(PageStage), len(Verb)), REFUSED, dtype=np.int8)
    for stage, row in TABLE.items():
        for verb, after in row.items():
            table[stage, verb] = after
    return table


LOOKUP: NDArray[np.int8] = _lookup()
"""`TABLE` as an array, shape (stages, verbs); `REFUSED` where the table is empty."""
