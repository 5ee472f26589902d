"""What must come of a schedule, in the words of cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvairlock.core.effects import Record
from kvairlock.sim.cases.player import COMPLETED, Played
from kvairlock.sim.cases.steps import request_of, transfer_of
from kvairlock.sim.cases.words import Fields, Phrase, Vocabulary
from kvairlock.sim.outcome import Fault

Judges = Callable[[Played, Fields], bool]


def _ends(played: Played, fields: Fields, end: str) -> bool:
    return played.ends.get(fields["REQUEST"]) == end


def _reads_of(played: Played, fields: Fields) -> bool:
    reader, whose = transfer_of(fields["REQUEST"]), transfer_of(fields["OTHER"])
    details = (v.detail for v in played.violations if v.fault is Fault.LEAK)
    return any(
        f"{reader} read bytes of" in detail and whose in detail.split("bytes of ")[1].split(", ")
        for detail in details
    )


def _misses(played: Played, fields: Fields) -> bool:
    reader = transfer_of(fields["REQUEST"])
    details = (v.detail for v in played.violations if v.fault is Fault.CORRUPTION)
    return any(f"{reader} did not find" in detail for detail in details)


def _lost(played: Played, fields: Fields) -> bool:
    details = (v.detail for v in played.violations if v.fault is Fault.PAGES_LOST)
    return any(detail.startswith(f"{fields['NODE']}: ") for detail in details)


def _before(played: Played, fields: Fields) -> bool:
    order = list(played.ends)
    one, other = fields["REQUEST"], fields["OTHER"]
    return one in order and (other not in order or order.index(one) < order.index(other))


def _reused(played: Played, request: str) -> int:
    records = _records(played, "prefix_reused", request)
    return sum(int(str(record.fields["tokens"])) for record in records)


def _records(played: Played, event: str, request: str) -> Iterator[Record]:
    for record in played.records:
        owner = record.owner
        if record.event == event and owner and request_of(owner.transfer) == request:
            yield record


EXPECTATIONS: Vocabulary[Judges] = Vocabulary(
    (
        Phrase(
            "REQUEST ends completed",
            "its client has the whole answer",
            lambda played, fields: _ends(played, fields, COMPLETED),
        ),
        Phrase(
            "REQUEST ends cancelled",
            "its client had left before",
            lambda played, fields: _ends(played, fields, "cancelled"),
        ),
        Phrase(
            "REQUEST ends refused REASON",
            "its client is told why",
            lambda played, fields: _ends(played, fields, fields["REASON"]),
        ),
        Phrase(
            "REQUEST is refused by the gateway",
            "no node has heard of it",
            lambda played, fields: fields["REQUEST"] in played.at_gateway,
        ),
        Phrase(
            "REQUEST never ends",
            "nobody will ever tell its client anything",
            lambda played, fields: fields["REQUEST"] not in played.ends,
        ),
        Phrase("REQUEST ends before OTHER", "in this order", _before),
        Phrase(
            "nothing is computed for REQUEST",
            "on no node",
            lambda played, fields: all(r != fields["REQUEST"] for _, r in played.computed),
        ),
        Phrase(
            "NODE has computed REQUEST",
            "once",
            lambda played, fields: played.computed.count((fields["NODE"], fields["REQUEST"])) == 1,
        ),
        Phrase(
            "REQUEST is never read",
            "no decode step has seen its pages",
            lambda played, fields: not any(_records(played, "read_started", fields["REQUEST"])),
        ),
        Phrase(
            "REQUEST is read",
            "decode has taken its pages for what was asked for",
            lambda played, fields: any(_records(played, "read_started", fields["REQUEST"])),
        ),
        Phrase(
            "REQUEST reuses NUMBER tokens",
            "of an earlier prompt",
            lambda played, fields: _reused(played, fields["REQUEST"]) == int(fields["NUMBER"]),
        ),
        Phrase(
            "REQUEST reuses nothing",
            "all of its prompt is computed",
            lambda played, fields: _reused(played, fields["REQUEST"]) == 0,
        ),
        Phrase(
            "the evidence has EVENT of REQUEST",
            "an audit can see it",
            lambda played, fields: any(_records(played, fields["EVENT"], fields["REQUEST"])),
        ),
        Phrase("REQUEST reads bytes of OTHER", "what is not its own to read", _reads_of),
        Phrase("REQUEST misses tokens", "it reads pages that lack its own prompt", _misses),
        Phrase(
            "nobody reads what is another's",
            "with guards this is always demanded",
            lambda played, fields: all(v.fault is not Fault.LEAK for v in played.violations),
        ),
        Phrase(
            "all pages come back",
            "nothing is left on any node; with guards this is always demanded",
            lambda played, fields: all(v.fault is not Fault.PAGES_LOST for v in played.violations),
        ),
        Phrase("pages of NODE are lost", "they never become free again", _lost),
    )
)
