"""The figures of many routes are made from one look at the nodes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kvairlock.core.terms import Route
from kvairlock.gateway.breaker_file import BreakerFile
from kvairlock.gateway.breakers import Breakers
from kvairlock.gateway.console import figures
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.routes import Routes, all_routes
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.settings import parse

SETTINGS = "".join(
    f'[[{role}]]\nname = "{role}-{number}"\n'
    for role in ("prefill", "decode")
    for number in range(4)
)


class Looked(Routes):
    """Routes that count how often all reports were put together."""

    looks = 0

    def reports(self, trusted: Route | None = None) -> Any:
        self.looks += 1
        return super().reports(trusted)


def test_sixteen_routes_are_told_from_one_look(tmp_path: Path) -> None:
    settings, evidence = parse(SETTINGS), cast(Any, SimpleNamespace(record=lambda *_: None))
    file = BreakerFile(tmp_path / "breakers.json")
    file.claim()
    breakers = Breakers(all_routes(settings.nodes), settings.breaker.conditions, file, evidence)
    guards = Guarding(settings, 0).guards
    routes = Looked(settings.nodes, guards, settings.commitment.promised, breakers, lost_ms=1000)
    told = figures._routes(cast(Parts, SimpleNamespace(routes=routes, breakers=breakers)))
    assert [row["route"] for row in told] == [str(route) for route in routes.all]
    assert (len(told), routes.looks) == (16, 1)
