"""What the nodes' own evidence says about the requests of a drill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvairlock.drills.stack import wait_for
from kvairlock.sink.reading import read_folder
from kvairlock.wire.pseudonyms import Pseudonyms

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Records:
    """The evidence of one running stack, read anew at each question.

    Args:
        folder: Where the nodes write it.
        pseudonyms: The evidence key, without which nobody can tell whose record it is.
        tenants: What the drill's tenants are called there, if not as in the drill.
    """

    folder: Path
    pseudonyms: Pseudonyms
    tenants: Mapping[str, str] = field(default_factory=dict)

    def all(self, event: str, **wanted: str | int) -> list[Entry]:
        """Return the records of one kind whose fields have the wanted values, oldest first."""
        each: list[Entry] = read_folder(self.folder)
        found = [r for r in each if r["event"] == event and _matches(r, wanted)]
        return sorted(found, key=lambda record: record["at_boot_ns"])

    def last(self, event: str, **wanted: str) -> Entry:
        """Wait for a record of one kind, and return the newest.

        Raises:
            DrillFailed: None appears.
        """

        def look() -> Entry | None:
            found = self.all(event, **wanted)
            return found[-1] if found else None

        return wait_for(f"evidence of {event}", look)

    def tenant(self, name: str) -> str:
        """Return the pseudonym of a tenant."""
        return self.pseudonyms.of("tenant", self.tenants.get(name, name))

    def request(self, request_id: str) -> str:
        """Return the pseudonym of a request's first attempt."""
        return self.transfer(f"{request_id}/1")

    def transfer(self, name: str) -> str:
        """Return the pseudonym of a request and attempt, as nodes name them in failpoints."""
        return self.pseudonyms.of("request", name)

    def computed(self, request: str) -> str:
        """Say which token range prefill really computed for a request (by pseudonym)."""
        found = self.all("range_computed", request=request)
        if not found:
            return "nothing"
        return f"[{found[-1]['start']}, {found[-1]['stop']})"

    def written(self, request: str) -> str:
        """Say who wrote how many pages for a request (by pseudonym), of how many it reserved."""
        granted = self.all("window_granted", request=request)
        if not granted:
            return "nobody"
        ended = self.all("write_ended", request=request)
        pages = sum(len(record["pages"]) for record in ended)
        by = ended[-1]["node"] if ended else granted[-1]["peer"]
        return f"{by}: {pages} of {len(granted[-1]['pages'])} pages"


def _matches(record: Entry, wanted: Mapping[str, str | int]) -> bool:
    return all(record.get(name) == value for name, value in wanted.items())
