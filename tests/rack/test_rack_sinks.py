"""Sinks on the rack: kvairlock's own and a tiny one pass; for each promise a broken one fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kvairlock.core.terms import Incarnation, NodeName, Owner, Peer
from kvairlock.runtime.evidence_settings import Format
from kvairlock.runtime.recording import Value
from kvairlock.sink.contract import SinkContract
from kvairlock.sink.contract_bench import Bench
from kvairlock.wire.keys import Keyring
from tests.rack.benches import ForwardingBench, RecorderBench
from tests.rack.broken import keeps, promises
from tests.rack.tiny_sink import Forwarding


class OnRecorder(SinkContract):
    form: Format

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.count = tmp_path, monkeypatch, 0

    def bench(self, peer: Peer, ring: Keyring) -> Bench:
        self.count += 1
        return RecorderBench(self.folder / str(self.count), peer, ring, self.form, self.patch)


class TestParquet(OnRecorder):
    form = Format.PARQUET


class TestLines(OnRecorder):
    form = Format.JSONL


def on_bench(kind: type[Forwarding]) -> Callable[[Peer, Keyring], Bench]:
    return lambda peer, ring: ForwardingBench(lambda put: kind(peer, ring, put))


class TestForwarding(SinkContract):
    def bench(self, peer: Peer, ring: Keyring) -> Bench:
        return on_bench(Forwarding)(peer, ring)


# One sink for each promise that it breaks


class Rounds(Forwarding):
    def queue(self, event: str, fields: Mapping[str, Value]) -> None:
        rounded = {n: v[:2] if isinstance(v, tuple) else v for n, v in fields.items()}
        super().queue(event, rounded)


class FillsIn(Forwarding):
    def queue(self, event: str, fields: Mapping[str, Value]) -> None:
        super().queue(event, {name: 0 if v is None else v for name, v in fields.items()})


class IsSomebodyElse(Forwarding):
    def __init__(self, peer: Peer, ring: Keyring, put: Callable[[bytes], None]) -> None:
        former = Peer(NodeName(peer.node), peer.role, Incarnation("the life before"))
        super().__init__(former, ring, put)


class CountsFromZero(Forwarding):
    def number(self) -> int:
        return super().number() - 1


class NamesNames(Forwarding):
    def who(self, owner: Owner | None) -> dict[str, Value]:
        return {**super().who(owner)} | ({} if owner is None else {"tenant": owner.tenant})


class TakesAnything(Forwarding):
    def check(self, event: str, owner: Owner | None, fields: Mapping[str, Value]) -> None:
        pass


class TakesAnyType(Forwarding):
    def check(self, event: str, owner: Owner | None, fields: Mapping[str, Value]) -> None:
        super().check(event, owner, {n: _typed(v) for n, v in fields.items()})


def _typed(value: Value) -> Value:
    """A value that passes for a number or a list, whatever it is."""
    return 0 if isinstance(value, str) and value.isdecimal() else value


class WritesItself(Forwarding):
    def queue(self, event: str, fields: Mapping[str, Value]) -> None:
        super().queue(event, fields)
        self.put(self.waiting.pop())


class LosesInSilence(Forwarding):
    def lose(self, records: int) -> None:
        self.number()


class FailsInSilence(Forwarding):
    def failed(self, line: bytes) -> None:
        pass


class TellsOnce(Forwarding):
    def failed(self, line: bytes) -> None:
        self.lost += 1


class AlwaysInOrder(Forwarding):
    def close(self, *, in_order: bool = True) -> None:
        super().close(in_order=True)


class NumbersTwice(Forwarding):
    """What is left of a race: now and then two records have one number."""

    def number(self) -> int:
        super().number()
        if self.sequence % 100 == 0:
            self.sequence -= 1
        return self.sequence


BROKEN: dict[str, type[Forwarding]] = {
    "test_every_event_of_the_schema_comes_back_as_it_was_recorded": Rounds,
    "test_what_is_not_known_is_recorded_as_such": FillsIn,
    "test_every_record_says_who_recorded_it_and_when": IsSomebodyElse,
    "test_records_are_numbered_without_a_gap_from_one": CountsFromZero,
    "test_tenants_and_requests_are_there_as_digests_only": NamesNames,
    "test_what_does_not_fit_its_row_is_refused_and_takes_no_number": TakesAnyType,
    "test_who_records_does_not_wait_for_the_device": WritesItself,
    "test_what_there_is_no_room_for_is_counted_as_lost": LosesInSilence,
    "test_a_device_that_refuses_costs_records_and_nothing_else": FailsInSilence,
    "test_a_count_of_lost_records_that_is_lost_itself_is_told_again": TellsOnce,
    "test_only_a_close_in_order_is_marked": AlwaysInOrder,
    "test_threads_may_record_at_the_same_time": NumbersTwice,
}


@pytest.mark.parametrize("promise", BROKEN)
def test_a_broken_sink_fails(promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvairlock.sink.contract.TIMEOUT_S", 0.5)
    assert keeps(SinkContract, promise, "bench", on_bench(Forwarding))
    assert not keeps(SinkContract, promise, "bench", on_bench(BROKEN[promise]))


def test_there_is_a_broken_sink_for_each_promise() -> None:
    assert set(BROKEN) == promises(SinkContract)


def test_a_sink_that_checks_nothing_fails() -> None:
    promise = "test_what_does_not_fit_its_row_is_refused_and_takes_no_number"
    assert not keeps(SinkContract, promise, "bench", on_bench(TakesAnything))
