"""The settings of a waiver: the waiver is the setting, there is no other way to reduce a check."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from kvairlock.core.checks import CheckPolicy, Checks
from kvairlock.core.guards import GUARDS, Guard, GuardMode
from kvairlock.core.promise.waivers import Waiver
from kvairlock.core.terms import Route

REDUCED = (CheckPolicy.SAMPLED, CheckPolicy.GENERATION)


class WaiverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Permission to check less for a time; see docs/guards.md. It names `guards` or `checks`."""

    name: Annotated[
        str, Meta(pattern="^[a-z][a-z0-9-]{0,63}$", description="Name of the waiver, unique.")
    ]
    guards: Annotated[
        tuple[Guard, ...], Meta(description="Guards that do not enforce; only what compares can.")
    ] = ()
    mode: Annotated[
        GuardMode, Meta(description="How these guards are set instead: `observing`.")
    ] = GuardMode.ENFORCING
    checks: Annotated[
        CheckPolicy,
        Meta(description="Which landed pages are digested: `sampled` or `generation`."),
    ] = CheckPolicy.FULL
    share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="With `sampled`: share of the pages in front of the last one, over 0; one "
            "of them and the last one always are.",
        ),
    ] = 0.0
    routes: Annotated[
        tuple[str, ...], Meta(description="Where, as PREFILL/DECODE; all routes if left out.")
    ] = ()
    conditions: Annotated[
        str, Meta(min_length=1, description="Under which conditions it may be used.")
    ]
    owner: Annotated[str, Meta(min_length=1, description="Team or role that answers for it.")]
    expires: Annotated[
        datetime,
        Meta(tz=True, description="When it ends by itself, with the offset of its time zone."),
    ]
    evidence: Annotated[
        str, Meta(min_length=1, description="What must be seen before it may be widened.")
    ]

    def made(self, stack: Collection[Route]) -> Waiver:
        """Return the waiver itself; its settings must be without problems.

        Args:
            stack: All routes of the stack.
        """
        return Waiver(
            name=self.name,
            guards=frozenset(self.guards),
            checks=Checks(self.checks, self.share or 1.0),
            routes=tuple(route for route in stack if not self.routes or str(route) in self.routes),
            conditions=self.conditions,
            owner=self.owner,
            expires_unix_s=math.floor(self.expires.timestamp()),
            evidence=self.evidence,
        )

    def problems(self, stack: Collection[Route]) -> Iterator[str]:
        """Say why it can't be used, if so.

        Args:
            stack: All routes of the stack.
        """
        known = {str(route) for route in stack}
        yield from (f"there is no route {name}" for name in self.routes if name not in known)
        blank = [name for name in ("conditions", "owner", "evidence") if self._is_blank(name)]
        yield from (f"{name} is empty" for name in blank)
        yield from self._problems_of_guards()
        yield from self._problems_of_checks()

    def _is_blank(self, name: str) -> bool:
        return not getattr(self, name).strip()

    def _problems_of_guards(self) -> Iterator[str]:
        if self.mode is GuardMode.DISABLED:
            yield "a waiver disables no guard (drill.guards_off does, in drill mode)"
        if bool(self.guards) != (self.mode is GuardMode.OBSERVING):
            yield "guards and mode = 'observing' go together"
        for guard in self.guards:
            if not GUARDS[guard].can_observe:
                yield f"{guard} cannot observe: {GUARDS[guard].observing}"

    def _problems_of_checks(self) -> Iterator[str]:
        if self.checks is CheckPolicy.OFF:
            yield "checks = 'off' is for drills only (drill.guards_off names integrity)"
        if not self.guards and self.checks not in REDUCED:
            yield "it waives nothing: name guards, or checks = 'sampled' or 'generation'"
        if (self.checks is CheckPolicy.SAMPLED) != (self.share > 0):
            yield "checks = 'sampled' and a share over 0 go together"
