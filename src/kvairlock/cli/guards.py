"""`kvairlock guards`: the table of what is checked, where, and what appears without it."""

from __future__ import annotations

from kvairlock.cli.output import Json, document, table
from kvairlock.core.guards import GUARDS


def guards(json: Json = False) -> None:
    """List the guards in the order in which a request meets them.

    Those that compare can be made to observe by a waiver; any can be disabled, in drill mode only
    (`drill.guards_off`), to see what it prevents. `kvairlock coverage` says how they are set now.
    """
    if json:
        document(
            [
                {
                    "guard": guard,
                    "roles": row.roles,
                    "does": row.does,
                    "without": row.without,
                    "nature": row.nature,
                    "can_observe": row.can_observe,
                    "observing": row.observing,
                }
                for guard, row in GUARDS.items()
            ]
        )
        return
    titles = ("guard", "where", "does", "without it", "observing")
    rows = [
        (
            g,
            ", ".join(r.roles),
            r.does,
            r.without,
            r.observing if r.can_observe else f"no: {r.observing}",
        )
        for g, r in GUARDS.items()
    ]
    table(titles, rows)
