"""What clients do wrong, counted against their tenant and against nothing else.

    a request that was its client's own fault ---> count of its tenant within a minute
                                                      | over `breaker.tenant_faults_per_min`
                                                      v
                                        429 with Retry-After, before anything is read

A client can make its own requests fail, and must not be able to close a route with that. To leave
is no fault: a request that ends because its client is gone is not counted.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import replace

from kvairlock.core.errors import Fault, Reason, Refusal, Stage
from kvairlock.core.promise.recent import Recent
from kvairlock.core.terms import NS_PER_MS, Instant, Owner
from kvairlock.gateway.errors import ApiError, from_refusal
from kvairlock.runtime import clock
from kvairlock.runtime.recording import Sink, Value

WITHIN_MS = 60_000
TENANTS_MAX = 4096
"""Tenants whose faults are counted; of more, those are forgotten that did nothing wrong longest."""

COUNT_MAX = 1000
"""Faults of one tenant that are told apart where no limit asks for more."""


def is_fault(refusal: Refusal) -> bool:
    """Return whether a refusal is its client's own fault."""
    return refusal.row.fault is Fault.CLIENT and refusal.reason is not Reason.CANCELLED


class Tally:
    """The faults of all tenants.

    Args:
        limit: Faults of one tenant within a minute before it is refused; 0 for no limit.
        evidence: Where each fault is recorded.
    """

    def __init__(self, limit: int, evidence: Sink) -> None:
        self._limit, self._evidence = limit, evidence
        self._faults: OrderedDict[str, Recent] = OrderedDict()

    def add(self, owner: Owner, fault: str) -> None:
        """Count a fault of a request against its tenant.

        Args:
            owner: Whose request it was.
            fault: What was wrong: a reason, or the code of an error.
        """
        count = self._of(owner.tenant).add(clock.now())
        fields: dict[str, Value] = {"fault": fault, "faults": count, "limit": self._limit}
        self._evidence.record("tenant_fault", owner, fields)

    def refuses(self, tenant: str) -> tuple[Refusal, ApiError] | None:
        """Return why a tenant is refused, and what its client gets; None if it is not."""
        now, faults = clock.now(), self._faults.get(tenant)
        if not self._limit or faults is None or (count := faults.count(now)) < self._limit:
            return None
        message = f"this tenant's clients were at fault {count} times within a minute"
        refusal = Refusal(
            Reason.TENANT_SHARE,
            Stage.GATEWAY,
            message,
            count,
            self._limit,
            "tenant_faults_per_min",
        )
        wait_s = _seconds(now, faults.fewer_at(now))
        return refusal, replace(from_refusal(refusal), headers={"retry-after": str(wait_s)})

    def _of(self, tenant: str) -> Recent:
        faults = self._faults.setdefault(tenant, Recent(WITHIN_MS, max(COUNT_MAX, self._limit)))
        self._faults.move_to_end(tenant)
        if len(self._faults) > TENANTS_MAX:
            self._faults.popitem(last=False)
        return faults


def _seconds(now: Instant, until: Instant) -> int:
    return max(1, math.ceil((until - now) / (1000 * NS_PER_MS)))
