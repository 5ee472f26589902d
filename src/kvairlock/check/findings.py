"""What a check found, as a noun and as the document that scripts read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kvairlock.check.embedded import Front
from kvairlock.check.reading import Reading
from kvairlock.core.promise.commitment import Commitment, RouteReports, Silence, serves
from kvairlock.core.promise.violations import Violation


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check found.

    Args:
        commitment: What is promised.
        fronts: The gateways, with what they publish.
        readings: All nodes, as they were found.
        routes: All routes that a request may take.
        published_tokens: What may be published of the context window, by what the nodes hold.
        together: How many requests of each class are held at one time, by its name.
        violations: Where the commitment is not kept.
        warnings: What is uncertain.
    """

    commitment: Commitment
    fronts: tuple[Front, ...]
    readings: tuple[Reading, ...]
    routes: tuple[RouteReports, ...]
    published_tokens: int
    together: Mapping[str, int]
    violations: tuple[Violation, ...]
    warnings: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether all that is promised is held."""
        return not self.violations

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        told: dict[str, Any] = msgspec.to_builtins(
            {
                "ok": self.kept,
                "commitment": self.commitment,
                "published_tokens": self.published_tokens,
                "gateways": [_front(front) for front in self.fronts],
                "nodes": [_node(reading) for reading in self.readings],
                "concurrency": self.together,
                "routes": [self._route(route) for route in self.routes],
                "violations": self.violations,
                "warnings": self.warnings,
            }
        )
        return told

    def _route(self, route: RouteReports) -> dict[str, Any]:
        limit, classes = route.limit, self.commitment.classes
        return {
            "route": str(route.route),
            "state": route.state,
            "serves": serves(self.commitment, route),
            "longest_tokens": route.longest_tokens,
            "limit_name": limit and limit.name,
            "node": limit and limit.node,
            "concurrency": {c.name: route.concurrency(c.context_tokens) for c in classes},
        }


def _front(front: Front) -> dict[str, Any]:
    return {
        "gateway": front.name,
        "advertised_tokens": front.published_tokens,
        "advertised_output_tokens": front.published_output_tokens,
    }


def _node(reading: Reading) -> dict[str, Any]:
    limit, said = reading.limit, reading.said
    return {
        "node": reading.node,
        "role": reading.role,
        "kind": reading.kind,
        "silence": said if isinstance(said, Silence) else None,
        "report": None if isinstance(said, Silence) else said,
        "advertised_tokens": reading.advertised_tokens,
        "admitted_tokens": reading.admitted_tokens,
        "longest_tokens": None if limit is None else limit.tokens,
        "limit_name": None if limit is None else limit.name,
    }
