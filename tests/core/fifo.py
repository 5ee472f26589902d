"""What the fair queue is compared with: the same queue, in which all tenants share one line."""

from __future__ import annotations

from kvairlock.core.promise.fair import FairQueue
from kvairlock.core.terms import TransferId

EVERYBODY = "everybody"


class OneLine(FairQueue):
    """First in, first out, whoever asks."""

    def join(self, tenant: str, name: TransferId) -> None:
        super().join(EVERYBODY, name)

    def join_first(self, tenant: str, name: TransferId) -> None:
        super().join_first(EVERYBODY, name)

    def waiting(self, tenant: str) -> int:
        return super().waiting(EVERYBODY)
