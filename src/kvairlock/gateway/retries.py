"""Who may try again: the gateway within one budget, each tenant's clients within one of their own.

The gateway makes a second attempt where a route was lost or full before a byte was sent: out of its
own budget and out of that of the tenant, who may have used up no more of its own than is left in
the gateway's. So one tenant alone can take half of what all share, and the others still have some.
Clients try again by themselves; those of OpenAI say so in `x-stainless-retry-count`, and obey a
response with `x-should-retry: false`. A tenant whose clients have used up their budget gets that
header with every refusal that invites a retry, until its requests succeed again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from starlette.datastructures import Headers

from kvairlock.core.errors import Fault, Reason, Refusal
from kvairlock.core.promise.retries import RetryBudget
from kvairlock.runtime.settings import RetrySettings

COUNT_HEADER = "x-stainless-retry-count"
ADVICE_HEADER = "x-should-retry"
TENANTS_MAX = 4096
"""Budgets that are remembered; the tenant that was idle longest starts afresh."""

ELSEWHERE = frozenset({Reason.PEER_LOST, Reason.ROUTE_CLOSED, Reason.CAPACITY, Reason.DRAINING})
"""What another route may not suffer from. A violation is not among them: it ends the request."""


def declared(headers: Headers) -> int:
    """Return how many attempts a client says it has made before; 0 if it does not say."""
    said = headers.get(COUNT_HEADER, "0")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 4 else 0


class Retries:
    """The budgets of one gateway.

    Args:
        settings: Their share and burst, and how many attempts a request may have.
    """

    def __init__(self, settings: RetrySettings) -> None:
        self._settings = settings
        self._own = self._fresh()
        self._tenants: OrderedDict[str, RetryBudget] = OrderedDict()

    @property
    def left(self) -> int:
        """Second attempts that the gateway could make now."""
        return self._own.left

    def arrived(self, tenant: str, before: int) -> None:
        """Take note of a request, and charge its tenant if it is a retry.

        Args:
            tenant: Whose it is.
            before: How many attempts its client says it has made before.
        """
        if before:
            self._of(tenant).spend()

    def succeeded(self, tenant: str) -> None:
        """Take note of an answer."""
        self._own.succeeded()
        self._of(tenant).succeeded()

    def spend(self, tenant: str, refusal: Refusal, attempt: int) -> int:
        """Take one more attempt for a request that was refused, if it may have one.

        Args:
            tenant: Whose request it is.
            refusal: Why it was refused.
            attempt: Which attempt that was, from 1.

        Returns:
            How many were taken: 1 or 0.
        """
        if refusal.reason not in ELSEWHERE or attempt >= self._settings.attempts_max:
            return 0
        of_tenant = self._of(tenant)
        if not of_tenant.left or of_tenant.used >= self._own.left:
            return 0
        of_tenant.spend()
        return self._own.spend()

    def advice(self, tenant: str, refusal: Refusal) -> Mapping[str, str]:
        """Return the headers that keep a tenant's clients from trying again, if need be."""
        if refusal.row.fault is Fault.CLIENT or self._of(tenant).left:
            return {}
        return {ADVICE_HEADER: "false"}

    def _of(self, tenant: str) -> RetryBudget:
        budget = self._tenants.setdefault(tenant, self._fresh())
        self._tenants.move_to_end(tenant)
        if len(self._tenants) > TENANTS_MAX:
            self._tenants.popitem(last=False)
        return budget

    def _fresh(self) -> RetryBudget:
        return RetryBudget(self._settings.share, self._settings.burst)
