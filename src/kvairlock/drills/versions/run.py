"""Carries out the table of versions: each row on real processes of two releases.

A row holds if everything that is looked at is as it must be; what was seen is told either way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from kvairlock.core.errors import KvairlockError
from kvairlock.drills.stack import DrillFailed, Keys, make_keys, workplace
from kvairlock.drills.table_row import TableRow
from kvairlock.drills.versions.release import Release, release_at, this_release
from kvairlock.drills.versions.sights import TENANTS, Sight, leaves_evidence
from kvairlock.drills.versions.stack import mixed
from kvairlock.drills.versions.stories import Story, stories
from kvairlock.drills.versions.table import Build

ROUND = "versions"

Progress = Callable[[str], None]


class NoSuchRow(KvairlockError):
    """No row has such a name."""

    code = "unknown_drill"


def names() -> tuple[str, ...]:
    """Return the names of all rows."""
    return tuple(story.name for story in stories())


def run_versions(
    old: Path, progress: Progress, keep: Path | None = None, only: Collection[str] = ()
) -> list[TableRow]:
    """Carry out the table of versions.

    Args:
        old: The earlier release: a source tree, or the interpreter of its environment.
        progress: Told each row before it is carried out.
        keep: Keep settings, logs and evidence in this folder.
        only: Names or shell patterns of the rows to carry out; all of them if empty.

    Raises:
        NoSuchRow: No row has such a name.
        DrillFailed: There is no earlier release there.
    """
    chosen = _chosen(only)
    releases = {Build.OLD: release_at(old), Build.NEW: this_release()}
    done: list[TableRow] = []
    with workplace(keep) as folder:
        keys = make_keys(folder, TENANTS)
        for number, story in enumerate(chosen, start=1):
            progress(f"[{number}/{len(chosen)}] {story.name}")
            done.append(carry_out(story, releases, keys, folder / f"row-{number}"))
    return done


def carry_out(
    story: Story, releases: Mapping[Build, Release], keys: Keys, folder: Path
) -> TableRow:
    """Carry out one row on a stack of its own.

    Args:
        story: The row.
        releases: What each build is started from.
        keys: The keys of its tenants.
        folder: Where settings, logs and evidence go.
    """
    began_s = time.monotonic()
    seen: list[Sight] = []
    trouble = ""
    try:
        with mixed(releases, story.seats, keys, folder, story.off) as stack:
            for sight in story.play(stack):
                seen.append(sight)
        seen.append(leaves_evidence(stack))
    except DrillFailed as failed:
        trouble = f"; BUT it could not be carried out: {failed}"
    return TableRow(
        drill=f"versions:{story.name}",
        round=ROUND,
        guards_off=tuple(sorted(map(str, story.off))),
        held=not trouble and all(sight.ok for sight in seen),
        failed_as_expected=None,
        expected="; ".join(sight.expected for sight in seen),
        saw="; ".join(sight.saw if sight.ok else f"BUT {sight.saw}" for sight in seen) + trouble,
        refusal=None,
        http_status=None,
        seconds=round(time.monotonic() - began_s, 2),
    )


def _chosen(only: Collection[str]) -> Sequence[Story]:
    known = stories()
    for pattern in only:
        if not any(fnmatchcase(story.name, pattern) for story in known):
            raise NoSuchRow(f"no row is called {pattern}; there are: {', '.join(names())}")
    return [
        story
        for story in known
        if not only or any(fnmatchcase(story.name, pattern) for pattern in only)
    ]
