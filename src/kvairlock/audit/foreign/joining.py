"""Which sightings are of the same request: the halves of a pair name it differently.

    decode.log    rid 'a1', room 77 ---+
    prefill.log             room 77 ---+--> one request

Ids that one line names together belong together. So do ids that hold the same UUID, since vLLM puts
`cmpl-` in front of a request's id and numbers behind it, on each half for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from kvairlock.audit.foreign.sightings import Sighting

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
DIGEST_BYTES = 8


class _Groups:
    """Ids that mean the same, by union and find."""

    def __init__(self) -> None:
        self.above: dict[str, str] = {}

    def find(self, key: str) -> str:
        top = self.above.setdefault(key, key)
        while top != self.above[top]:
            self.above[top] = top = self.above[self.above[top]]
        return top

    def join(self, keys: Iterable[str]) -> None:
        first, *others = (self.find(key) for key in keys)
        for other in others:
            self.above[other] = first


def stem(key: str) -> str:
    """Return the part of an id by which both halves know a request: its UUID if it has one."""
    found = _UUID.search(key)
    return found[0].replace("-", "") if found else key


def by_request(sightings: Iterable[Sighting]) -> list[tuple[str, list[Sighting]]]:
    """Return the sightings of each request, with the shortest of the ids that lines know it by.

    Args:
        sightings: Of all files; those that name no request are left out.
    """
    groups, named = _Groups(), [one for one in sightings if one.keys]
    for one in named:
        groups.join(stem(key) for key in one.keys)
    requests: dict[str, list[Sighting]] = {}
    for one in named:
        requests.setdefault(groups.find(stem(one.keys[0])), []).append(one)
    return [(_name(found), found) for found in requests.values()]


def _name(found: Iterable[Sighting]) -> str:
    keys = {key for one in found for key in one.keys}
    return min(keys, key=lambda key: (key.startswith("room "), len(key), key))


def pseudonym(request: str) -> str:
    """Return what stands for an id where ids are not shown.

    No key is mixed in, so that two reports can be compared: who can guess an id can check it.
    """
    return blake2b(request.encode(), digest_size=DIGEST_BYTES).hexdigest()
