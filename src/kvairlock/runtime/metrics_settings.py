"""The settings of metrics: who may read them where, and how many requests are too few to show."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MetricsPort = Annotated[
    int,
    Meta(
        ge=0,
        le=65535,
        description="Port on which the node serves its own `/metrics`, on `metrics.host`; 0 takes "
        "a free one and says which.",
    ),
]


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is shown to Prometheus; see docs/metrics.md."""

    nodes: Annotated[
        bool,
        Meta(description="Whether prefill and decode nodes serve `/metrics` of their own."),
    ] = True
    host: Annotated[
        str,
        Meta(description="Address that nodes serve `/metrics` on; loopback unless you say so."),
    ] = "127.0.0.1"
    group_requests_min: Annotated[
        int,
        Meta(
            ge=0,
            description="Fewest requests by which a figure that is told apart by prompt length may "
            "rise; those before are held back until there are so many. 0 holds nothing back.",
        ),
    ] = 5
