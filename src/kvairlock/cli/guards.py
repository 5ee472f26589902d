"""`kvairlock guards`: the table of what is checked, where, and what appears without it."""

from __future__ import annotations

from kvairlock.cli.output import Json, document, table
from kvairlock.core.guards import GUARDS


def guards(json: Json = False) -> None:
    """List the guards in the order in which a request meets them.

    Each can be switched off in drill mode only (`drill.guards_off`), to see what it prevents.
    """
    if json:
        document(
            [
                {"guard": guard, "roles": row.roles, "does": row.does, "without": row.without}
                for guard, row in GUARDS.items()
            ]
        )
        return
    rows = [(g, ", ".join(row.roles), row.does, row.without) for g, row in GUARDS.items()]
    table(("guard", "where", "does", "without it"), rows)
