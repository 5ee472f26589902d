"""The life of a loan: one literal table for both ends.

    OFFERED -claim-> CLAIMED -read-> READING -land-> READ -stand-> STOOD -return-> RETURNED
    OFFERED, CLAIMED, READ -revoke-> REVOKED -return-> RETURNED

The lender sees claims, returns and its own revocations; what happens between is the borrower's. A
loan that is being read can neither be returned nor be heard to be revoked: its read runs to its end
first. Nothing leads from REVOKED to STOOD: what was taken back is never believed.
"""

from __future__ import annotations

from enum import StrEnum

from kvairlock.core.errors import InvariantBroken


class LoanStage(StrEnum):
    """Where a loan is."""

    OFFERED = "offered"
    CLAIMED = "claimed"
    READING = "reading"
    READ = "read"
    STOOD = "stood"
    REVOKED = "revoked"
    RETURNED = "returned"


class LoanSignal(StrEnum):
    """What moves a loan."""

    CLAIM = "claim"
    READ = "read"
    LAND = "land"
    STAND = "stand"
    REVOKE = "revoke"
    RETURN = "return"


_L, _S = LoanStage, LoanSignal

LOAN: dict[LoanStage, dict[LoanSignal, LoanStage]] = {
    _L.OFFERED: {_S.CLAIM: _L.CLAIMED, _S.REVOKE: _L.REVOKED, _S.RETURN: _L.RETURNED},
    _L.CLAIMED: {_S.READ: _L.READING, _S.REVOKE: _L.REVOKED, _S.RETURN: _L.RETURNED},
    _L.READING: {_S.LAND: _L.READ},
    _L.READ: {_S.STAND: _L.STOOD, _S.REVOKE: _L.REVOKED, _S.RETURN: _L.RETURNED},
    _L.STOOD: {_S.RETURN: _L.RETURNED},
    _L.REVOKED: {_S.RETURN: _L.RETURNED},
    _L.RETURNED: {},
}


def move(stage: LoanStage, signal: LoanSignal) -> LoanStage:
    """Return the stage after `signal`.

    Raises:
        InvariantBroken: The table has no such edge.
    """
    after = LOAN[stage].get(signal)
    if after is None:
        raise InvariantBroken("loan", f"{signal} in {stage}")
    return after
