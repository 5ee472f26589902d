"""Whether anything is left of the canaries once drills are done, by figures that say so.

    a stack that is whole    nothing open, every page free or a prefix that was declared to stay,
                             and as many pages zeroed as came out of the drain
    every stack              in the end its processes are gone, and with them their memory
    a deployment             asked again, the same prompts find nothing that was kept

What a drill breaks on purpose is not put right again: its stack ends, and that is what is verified.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kvairlock.drills.canaries import Marked
from kvairlock.drills.client import GatewayClient, pages_out
from kvairlock.drills.records import Records
from kvairlock.drills.runs.player import Site
from kvairlock.drills.runs.rows import Cleaned
from kvairlock.drills.runs.witness import LOOKS, SETTLE_S
from kvairlock.drills.stack import DrillFailed

SCRUBBED = "pages_scrubbed"
"""The nodes' own counter: pages that they zeroed before they were free."""


def look(place: str, drills: Iterable[str], site: Site) -> Cleaned:
    """Return what is left in a stack that nothing has broken, once nothing is open in it.

    Args:
        place: What the stack is called.
        drills: What was carried out there.
        site: The stack, which still runs.
    """
    try:
        figures = _books(site)
    except DrillFailed as failed:
        return Cleaned(place, tuple(drills), str(failed), {}, False)
    clean = not figures["pages_out"] and figures["pages_scrubbed"] == figures["pages_drained"]
    how = "nothing is open, and every page that came out of the drain was zeroed"
    return Cleaned(place, tuple(drills), how, figures, clean)


def broken(place: str, drills: Iterable[str]) -> Cleaned:
    """Return what is known of a stack that was broken on purpose, or by a drill that failed."""
    return Cleaned(place, tuple(drills), "it was broken, so all of it goes", {}, True)


def gone(cleaned: Cleaned, pids: Iterable[int]) -> Cleaned:
    """Return what is left after a stack's end: its memory goes with its processes.

    Args:
        cleaned: What was found before.
        pids: The processes that it had.
    """
    left = sum(Path(f"/proc/{pid}").exists() for pid in pids)
    figures = {**cleaned.figures, "processes_left": left}
    return replace(cleaned, figures=figures, verified=cleaned.verified and not left)


def ended(place: str, drills: Iterable[str], folder: Path) -> Cleaned:
    """Return what is left of stacks that others started, and that wrote below a folder.

    Args:
        place: What they are called.
        drills: What was carried out there.
        folder: Every process of theirs has it on its command line.
    """
    mine, left = os.fsencode(folder), 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            left += mine in (process / "cmdline").read_bytes()
    figures = {"processes_left": left}
    how = "the processes are gone, and their memory with them"
    return Cleaned(place, tuple(drills), how, figures, not left)


def _books(site: Site) -> dict[str, int]:
    if site.records is None:
        raise DrillFailed("the evidence is not at hand")
    nodes = [node["status"] for node in site.client.idle()["nodes"].values()]
    scrubbed = sum(node["counters"][SCRUBBED] for node in nodes)
    return {
        "pages_out": sum(map(pages_out, nodes)),
        "pages_kept": sum(node["pages"]["shared"] for node in nodes),
        "pages_scrubbed": scrubbed,
        "pages_drained": _drained(site.records, scrubbed),
    }


def _drained(records: Records, scrubbed: int) -> int:
    """Return how many pages the evidence says came out of the drain; waits for it to be written."""
    drained = 0
    for _ in range(LOOKS):
        drained = sum(len(record["pages"]) for record in records.all("drain_ended"))
        if drained >= scrubbed:
            break
        time.sleep(SETTLE_S / LOOKS)
    return drained


def asked_again(
    place: str, drills: Iterable[str], client: GatewayClient, prompts: Iterable[Marked]
) -> Cleaned:
    """Ask the same prompts of a deployment again; whatever was kept of them shows in the usage."""
    figures = {"asked_again": 0, "tokens_kept": 0, "not_answered": 0}
    for prompt in prompts:
        reply = client.answer(prompt)
        figures["asked_again"] += 1
        details = reply.usage.get("prompt_tokens_details")
        if details is None:
            figures["not_answered"] += 1
        else:
            figures["tokens_kept"] += details["cached_tokens"]
    clean = not figures["tokens_kept"] and not figures["not_answered"]
    how = "the same prompts were asked again, and found nothing that was kept"
    return Cleaned(place, tuple(drills), how, figures, clean)
