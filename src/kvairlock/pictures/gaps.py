"""What a picture could not see, in sentences: a gap is never filled, and never passed over."""

from __future__ import annotations

from collections.abc import Iterator

from kvairlock.pictures.accounts import Account, Close
from kvairlock.pictures.edges import Clock
from kvairlock.pictures.scenes import Picture


def gaps(seen: Picture) -> tuple[str, ...]:
    """Say what is missing in the evidence of a run, and what was left out of its picture."""
    return tuple(_gaps(seen))


def _gaps(seen: Picture) -> Iterator[str]:
    if not seen.accounts:
        yield "There is no evidence: nothing of this run can be shown, and that shows nothing."
    for account in seen.accounts:
        yield from _of_life(account)
    for count, what in (
        (seen.misfits, "Records that do not fit the schema, and were not read"),
        (seen.repeated, "Records with the number of another one, which were not read"),
        (seen.unmatched, "Records about pages that their owner is not known to hold"),
        (seen.scenes_left_out, "Later scenes that are not drawn"),
    ):
        if count:
            yield f"{what}: {count}."
    if seen.clock is Clock.WALL:
        yield "Processes had different clocks: the order between nodes is as good as those agree."


def _of_life(account: Account) -> Iterator[str]:
    node = account.life.node
    if account.missing:
        yield f"{node}: records that are missing: {account.missing}."
    if account.close is Close.NO_MARKER:
        yield f"{node}: no close marker, so what came last is not known."
    if account.guards_off is None:
        yield f"{node}: no record says which guards were on, nor how bytes became pages."
