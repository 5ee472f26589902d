"""Which requests are a drill's: they are judged like all others, and said to be a drill's.

A drill makes requests go wrong on purpose. Hidden, they would hide what else went wrong meanwhile;
unnamed, they would raise an alarm.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from ibis import Table

from kvairlock.core.terms import Role


def labelled(classified: pa.Table, records: Table) -> pa.Table:
    """Add a column `drill` to classified requests: which drill asked, empty if none did.

    Args:
        classified: A row per request.
        records: The wide table.
    """
    asked = records.filter((records.event == "drill_requested") & (records.role == Role.GATEWAY))
    drills = asked.group_by("request").aggregate(drill=asked.drill.max()).to_pyarrow()
    place = pc.index_in(classified["request"], drills["request"].combine_chunks())
    names = pc.take(drills["drill"].cast(pa.string()), place)
    return classified.append_column("drill", pc.fill_null(names, ""))
