"""The settings of metrics: who may read them where, and which groups of requests are too small."""

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
            description="Requests that a class of prompt lengths must have had before others are "
            "counted by it; the first ones are counted as `other`. 0 shows every class at once.",
        ),
    ] = 5
