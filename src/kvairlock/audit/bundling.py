"""Makes the part of a bundle that is about one attempt: out of its explanation, and all evidence.

What is made is tried at once: do the records that go into the bundle come to the same verdict as
all records did? If not, the bundle says so, and rests on its signature alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from kvairlock.audit import bundle
from kvairlock.audit.blinding import Names, blinded
from kvairlock.audit.bundle import Attempt
from kvairlock.audit.explaining import Explanation, Record
from kvairlock.audit.held_still import held
from kvairlock.audit.neighbours import neighbours, repeated_writes
from kvairlock.audit.rederiving import agrees, rederive
from kvairlock.audit.report import Exposure
from kvairlock.audit.tables import Evidence, files_of
from kvairlock.sink.naming import Segment


def attempt_of(
    evidence: Evidence, paths: Sequence[Path], told: Explanation, number: int, own: Iterable[str]
) -> Attempt:
    """Return what a bundle says of one attempt.

    Args:
        evidence: What was audited.
        paths: Where it is.
        told: The explanation of the attempt.
        number: Which attempt of its request it is, 0 if that is not known.
        own: Digests of the other attempts of the same request.
    """
    names = Names(frozenset({told.verdict.request, told.verdict.tenant, *own}))
    place = {life.number: i for i, life in enumerate(told.lives)}
    near = neighbours(evidence.records, told.records)
    mine = [*told.records, *repeated_writes(evidence.records, told.records)]
    said = told.verdict
    attempt = Attempt(
        request=said.request,
        tenant=said.tenant,
        number=number,
        verdict=str(said.verdict),
        grade=str(said.grade),
        reasons=said.reasons,
        rederived=False,
        met=tuple(_met(told.exposures, names)),
        lives=tuple(
            bundle.Life(**{**asdict(life), "number": place[life.number]}) for life in told.lives
        ),
        spans=tuple(
            bundle.Span(**{**asdict(s), "life": place[s.life], "gap": str(s.gap)})
            for s in told.spans
        ),
        files=tuple(_files(paths, told)),
        records=tuple(_in_order(blinded(mine, near, names))),
    )
    found = rederive(attempt)
    return msgspec.structs.replace(attempt, rederived=agrees(attempt, found))


def _in_order(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda r: (r["node"], r["incarnation"], r["sequence"]))


def _met(exposures: Iterable[Exposure], names: Names) -> Iterator[bundle.Met]:
    for e in exposures:
        yield bundle.Met(names.of(e.other), e.node, e.incarnation, e.pages, e.generations)


def _files(paths: Sequence[Path], told: Explanation) -> Iterator[bundle.File]:
    """Yield the files of the lives that the attempt was in, with their digests."""
    lives = {(life.node, life.incarnation) for life in told.lives}
    for path in files_of(paths):
        segment = Segment.of(path.name)
        if segment is not None and (segment.node, segment.incarnation) in lives:
            now = held(path)
            yield bundle.File(Path(now.path).name, now.sha256)
