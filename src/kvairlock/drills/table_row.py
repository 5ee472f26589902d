"""A row of a table that stands beside the drills, carried out: what was seen, what had to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableRow:
    """What became of one row.

    Args:
        drill: Its name, as the command line takes it.
        round: Its table.
        guards_off: The guards that were off.
        held: Whether all was as it must be.
        failed_as_expected: With a guard off on purpose, whether the row has failed, as it must;
            None for a row that has to hold.
        expected: What had to be seen.
        saw: What was seen, and what of it is wrong.
        refusal: Code of the refusal that the client got, or None.
        http_status: What the client got, or None.
        seconds: How long it took.
    """

    drill: str
    round: str
    guards_off: tuple[str, ...]
    held: bool
    failed_as_expected: bool | None
    expected: str
    saw: str
    refusal: str | None
    http_status: int | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it came out as it must."""
        return self.held if self.failed_as_expected is None else self.failed_as_expected
