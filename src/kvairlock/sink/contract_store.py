"""What a sink that keeps its files in a folder must promise beside `kvairlock.sink.contract`.

Its files are read by `kvairlock.sink.reading` and judged by `kvairlock.sink.chain`: whatever a life
ends in, no record that was written is lost or twice, and what was sealed can't be changed unseen.
A store's test module subclasses `StoreContract`, gives a `Store`, and pytest collects the rest.
"""

# ruff: noqa: D102, S101 - these methods are tests: their names say what is promised

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from kvairlock.runtime.recording import Sink
from kvairlock.sink import seal_lines
from kvairlock.sink.chain import FileState, verify
from kvairlock.sink.contract import BEAT, PEER, RING
from kvairlock.sink.naming import SEALS
from kvairlock.sink.reading import files, read_folder
from kvairlock.sink.seal_lines import Act, Seal
from kvairlock.wire.keys import KEY_BYTES, Keyring

OTHERS = Keyring({"k1": b"x" * KEY_BYTES})


class Store(ABC):
    """A folder in which one node records, life after life, and its device."""

    folder: Path

    @abstractmethod
    def begin(self, life: str) -> Sink:
        """Start a life of `PEER`'s node, which seals with `RING` and whose segments are small."""

    @abstractmethod
    def wait_written(self, sink: Sink) -> None:
        """Wait until all that was recorded is in files; a TimeoutError instead of hanging."""

    @abstractmethod
    def die(self, sink: Sink) -> None:
        """End a life at once, when all that it recorded is written and nothing else is done."""

    @abstractmethod
    def refuse_seals(self) -> None:
        """Let the device have no room for what sealing writes, until `resume`."""

    @abstractmethod
    def resume(self) -> None:
        """Let the device work again; idempotent."""


class StoreContract(ABC):
    """Subclass it as `Test...` and give `store`."""

    @abstractmethod
    def store(self) -> Store:
        """Return a folder of its own, in which nothing was recorded yet."""

    def test_a_full_segment_is_sealed_while_recording_goes_on(self) -> None:
        store = self.store()
        sink = store.begin("a")
        for _ in range(4):
            _record(sink, 10)
            store.wait_written(sink)
        sealed = [file for file in verify(store.folder, RING).files if file.records]
        assert len(sealed) > 1
        sink.close()
        assert _numbers(store) == {"a": list(range(1, 42))}

    def test_a_close_seals_what_is_open(self) -> None:
        store = self.store()
        sink = store.begin("a")
        _record(sink, 3)
        sink.close()
        chain = verify(store.folder, RING)
        assert {file.state for file in chain.files} == {FileState.SEALED}
        assert sum(file.records or 0 for file in chain.files) == 4

    def test_what_a_dead_life_left_open_is_sealed_by_the_next(self) -> None:
        store = self.store()
        sink = store.begin("a")
        _record(sink, 3)
        store.die(sink)
        assert FileState.OPEN in {file.state for file in verify(store.folder, RING).files}
        store.begin("b").close()
        assert verify(store.folder, RING).whole
        assert Act.RECOVERED in [seal.act for seal in _seals(store) if _life(seal) == "a"]
        assert _numbers(store) == {"a": [1, 2, 3], "b": [1]}

    def test_a_torn_file_is_read_up_to_the_tear(self) -> None:
        store = self.store()
        sink = store.begin("a")
        _record(sink, 3)
        store.die(sink)
        newest = files(store.folder)[-1]
        newest.write_bytes(newest.read_bytes() + b'{"schema": 2, "event": "be')
        assert _numbers(store) == {"a": [1, 2, 3]}
        store.begin("b").close()
        assert _numbers(store) == {"a": [1, 2, 3], "b": [1]}
        assert verify(store.folder, RING).whole

    def test_without_room_for_seals_no_record_is_lost(self) -> None:
        store = self.store()
        sink = store.begin("a")
        store.refuse_seals()
        _record(sink, 3)
        sink.close()
        store.resume()
        assert _numbers(store) == {"a": [1, 2, 3, 4]}
        store.begin("b").close()
        assert _numbers(store) == {"a": [1, 2, 3, 4], "b": [1]}
        assert verify(store.folder, RING).whole

    def test_seals_are_one_chain_over_all_lives(self) -> None:
        store = self.store()
        for life in ("a", "b"):
            store.begin(life).close()
        found = _seals(store)
        assert [_life(seal) for seal in found] == ["a", "a", "a", "b", "b", "b"]
        macs = [seal.mac for seal in found]
        assert [seal.before for seal in found] == ["", *macs[:-1]]
        assert {len(mac) for mac in macs} == {len(RING.mac("k1", "", b"").hex())}

    def test_seals_are_of_who_has_the_key(self) -> None:
        store = self.store()
        store.begin("a").close()
        assert verify(store.folder, RING).whole
        (file,) = verify(store.folder, OTHERS).files
        assert file.state is FileState.FORGED


def _record(sink: Sink, times: int) -> None:
    for _ in range(times):
        sink.record("beat", None, BEAT)


def _numbers(store: Store) -> dict[str, list[object]]:
    """The numbers of the records of each life, in their order."""
    found: dict[str, list[object]] = {}
    for record in read_folder(store.folder):
        found.setdefault(str(record["incarnation"]), []).append(record["sequence"])
    return found


def _seals(store: Store) -> list[Seal]:
    found = seal_lines.read(store.folder / f"{PEER.node}{SEALS}")
    return [seal for seal in found if seal is not None]


def _life(seal: Seal) -> str:
    return seal.content.incarnation
