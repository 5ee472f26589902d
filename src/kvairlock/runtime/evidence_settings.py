"""The settings of evidence: in which form it is kept, in parts of which size, and for how long."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta


class Format(StrEnum):
    """In which form a segment is kept once it is sealed; an open one is always lines."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class EvidenceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How each process keeps its evidence; see docs/evidence.md."""

    format: Annotated[
        Format,
        Meta(description="Form of files that are sealed: `parquet`, or `jsonl` (JSON lines)."),
    ] = Format.PARQUET
    segment_mib: Annotated[
        int, Meta(ge=1, le=32, description="MiB of lines after which a file is sealed.")
    ] = 16
    segment_s: Annotated[
        int, Meta(ge=1, description="Seconds after which a file is sealed, however small.")
    ] = 3600
    retention_days: Annotated[
        int,
        Meta(
            ge=1,
            le=3650,
            description="Days for which sealed files are kept, and after which tenants and "
            "requests get other digests.",
        ),
    ] = 90
    mib_max: Annotated[
        int,
        Meta(ge=0, description="MiB of sealed files of a process, at most; 0 sets no limit."),
    ] = 0
