"""What a place for evidence must promise, as tests that any sink can be put on.

Evidence is what an audit rests on, so a sink may lose records, but never without saying so, and
never at the cost of who records. A sink's test module subclasses `SinkContract`, gives a `Bench`,
and pytest collects the rest (docs/rack.md).
"""

# ruff: noqa: D102, S101 - these methods are tests: their names say what is promised

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Thread

from kvairlock.core.errors import InvariantBroken
from kvairlock.core.evidence import ENVELOPE, EVENTS, SCHEMA_VERSION, Kind
from kvairlock.core.terms import Incarnation, NodeName, Owner, Peer, Role
from kvairlock.runtime.recording import Value
from kvairlock.sink.contract_bench import Bench
from kvairlock.wire.keys import KEY_BYTES, Keyring

PEER = Peer(NodeName("node-a"), Role.DECODE, Incarnation("life-1"))
RING = Keyring({"k1": b"k" * KEY_BYTES})
OWNER = Owner("tenant-alice", "request-17", 2)
TIMEOUT_S = 20.0
THREADS, EACH = 4, 200

_VALUES: dict[Kind, Value] = {
    Kind.TEXT: "text",
    Kind.INTEGER: 2**40,
    Kind.INTEGERS: (0, 1, 7),
    Kind.TEXTS: ("some", "words"),
}
BEAT: dict[str, Value] = {name: _VALUES[field.kind] for name, field in EVENTS["beat"].items()}


class SinkContract(ABC):
    """Subclass it as `Test...` and give `bench`."""

    @abstractmethod
    def bench(self, peer: Peer, ring: Keyring) -> Bench:
        """Return a new sink of a process on a device of its own."""

    @contextmanager
    def running(self) -> Iterator[Bench]:
        """A bench on which nothing was recorded yet."""
        bench = self.bench(PEER, RING)
        try:
            yield bench
        finally:
            bench.resume()
            bench.close()

    def test_every_event_of_the_schema_comes_back_as_it_was_recorded(self) -> None:
        with self.running() as bench:
            for event in EVENTS:
                bench.sink.record(event, *_example(event))
            bench.sink.close(in_order=False)
            records = bench.records()
            assert [record["event"] for record in records] == list(EVENTS)
            for record in records:
                _, fields = _example(str(record["event"]))
                assert {name: _plain(record[name]) for name in fields} == _plain_all(fields)
                assert set(record) == set(ENVELOPE) | set(EVENTS[str(record["event"])])

    def test_what_is_not_known_is_recorded_as_such(self) -> None:
        with self.running() as bench:
            _, fields = _example("request_refused")
            nothing = {**fields, "asked": None, "limit": None, "limit_name": None}
            bench.sink.record("request_refused", OWNER, nothing)
            bench.sink.close()
            record = bench.records()[0]
            assert [record[name] for name in ("asked", "limit", "limit_name")] == [None] * 3

    def test_every_record_says_who_recorded_it_and_when(self) -> None:
        with self.running() as bench:
            _beat(bench, 3)
            bench.sink.close()
            for record in bench.records():
                who = [record[name] for name in ("schema", "node", "role", "incarnation")]
                assert who == [SCHEMA_VERSION, PEER.node, PEER.role, PEER.incarnation]
            for clock in ("at_unix_ns", "at_boot_ns"):
                times = [_number(record, clock) for record in bench.records()]
                assert times == sorted(times)
                assert times[0] > 0

    def test_records_are_numbered_without_a_gap_from_one(self) -> None:
        with self.running() as bench:
            _beat(bench, 50)
            bench.sink.close()
            assert _sequence(bench) == list(range(1, 52))

    def test_tenants_and_requests_are_there_as_digests_only(self) -> None:
        with self.running() as bench:
            other = Owner(OWNER.tenant, OWNER.request, OWNER.attempt + 1)
            for owner in (OWNER, OWNER, other):
                bench.sink.record("read_started", owner, _example("read_started")[1])
            bench.sink.close()
            first, same, later = bench.records()[:3]
            assert first["tenant"] == same["tenant"] == later["tenant"]
            assert first["tenant"] == bench.sink.pseudonym("tenant", OWNER.tenant)
            assert first["request"] == same["request"] != later["request"]
            for name in (OWNER.tenant, OWNER.request):
                assert name.encode() not in bench.raw()

    def test_what_does_not_fit_its_row_is_refused_and_takes_no_number(self) -> None:
        with self.running() as bench:
            owner, fields = _example("read_started")
            odd: list[tuple[str, Owner | None, dict[str, Value]]] = [
                ("no such event", owner, fields),
                ("read_started", None, fields),
                ("beat", owner, BEAT),
                ("read_started", owner, {}),
                ("read_started", owner, {**fields, "prompt": "what was asked"}),
                ("read_started", owner, {**fields, "pages": "0, 1"}),
                ("beat", None, {**BEAT, "records": "1"}),
            ]
            for event, who, given in odd:
                _refused(partial(bench.sink.record, event, who, given))
            _beat(bench)
            bench.sink.close()
            assert _sequence(bench) == [1, 2]
            assert b"what was asked" not in bench.raw()

    def test_who_records_does_not_wait_for_the_device(self) -> None:
        with self.running() as bench:
            bench.hold()
            recording = Thread(target=_beat, args=(bench, 100), daemon=True)
            recording.start()
            recording.join(TIMEOUT_S)
            waited = recording.is_alive()
            bench.resume()
            recording.join(TIMEOUT_S)
            assert not waited
            bench.sink.close()
            assert _sequence(bench) == list(range(1, 102))

    def test_what_there_is_no_room_for_is_counted_as_lost(self) -> None:
        """And so is a close that follows at once: it waits for room, others never do."""
        with self.running() as bench:
            bench.hold()
            _beat(bench)
            bench.wait_held()
            _beat(bench, bench.waiting_max + 5)
            bench.resume()
            bench.sink.close()
            assert bench.records()[-1]["event"] == "node_closed"
            assert _lost(bench) > 0
            assert _told(bench) == _lost(bench) == bench.sink.lost

    def test_a_device_that_refuses_costs_records_and_nothing_else(self) -> None:
        with self.running() as bench:
            _beat(bench)
            bench.refuse()
            _beat(bench, 3)
            bench.wait_refused()
            bench.resume()
            _beat(bench)
            bench.sink.close()
            assert _lost(bench) > 0
            assert _told(bench) == _lost(bench) == bench.sink.lost
            assert bench.records()[-1]["event"] == "node_closed"

    def test_a_count_of_lost_records_that_is_lost_itself_is_told_again(self) -> None:
        with self.running() as bench:
            for _ in range(3):
                bench.refuse()
                _beat(bench)
                bench.wait_refused()
            bench.resume()
            _beat(bench)
            bench.sink.close()
            assert _lost(bench) > 3
            assert _told(bench) == _lost(bench) == bench.sink.lost

    def test_only_a_close_in_order_is_marked(self) -> None:
        with self.running() as bench:
            _beat(bench)
            bench.sink.close()
            bench.sink.close()
            assert [record["event"] for record in bench.records()] == ["beat", "node_closed"]
            assert bench.records()[-1]["records"] == 1
        with self.running() as bench:
            _beat(bench)
            bench.sink.close(in_order=False)
            assert [record["event"] for record in bench.records()] == ["beat"]

    def test_threads_may_record_at_the_same_time(self) -> None:
        with self.running() as bench:
            threads = [
                Thread(target=_beat, args=(bench, EACH), daemon=True) for _ in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(TIMEOUT_S)
            bench.sink.close()
            assert _sequence(bench) == list(range(1, THREADS * EACH + 2))


def _example(event: str) -> tuple[Owner | None, dict[str, Value]]:
    """Whose record of an event it is, if anybody's, and a value for each other field."""
    row = EVENTS[event]
    owner = OWNER if "tenant" in row else None
    own = set(row) - {"tenant", "request"}
    return owner, {name: _VALUES[row[name].kind] for name in row if name in own}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple | list) else value


def _plain_all(fields: Mapping[str, Value]) -> dict[str, object]:
    return {name: _plain(value) for name, value in fields.items()}


def _beat(bench: Bench, times: int = 1) -> None:
    for _ in range(times):
        bench.sink.record("beat", None, BEAT)


def _number(record: Mapping[str, object], name: str) -> int:
    value = record[name]
    assert isinstance(value, int)
    return value


def _sequence(bench: Bench) -> list[int]:
    return [_number(record, "sequence") for record in bench.records()]


def _lost(bench: Bench) -> int:
    """How many numbers are missing."""
    numbers = _sequence(bench)
    assert len(set(numbers)) == len(numbers)
    return max(numbers) - len(numbers)


def _told(bench: Bench) -> int:
    """How many records the evidence itself says are missing."""
    lost = [r for r in bench.records() if r["event"] == "evidence_lost"]
    return sum(_number(record, "records") for record in lost)


def _refused(record: Callable[[], None]) -> None:
    try:
        record()
    except InvariantBroken:
        return
    raise AssertionError("a record that does not fit its row was taken")
