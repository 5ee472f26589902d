"""What is done to evidence after it was sealed shows: each kind of meddling has its own word."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvairlock.sink import chain as chains
from kvairlock.sink import seal_lines
from kvairlock.sink.chain import CUT_OFF, Chain, FileState, verify
from kvairlock.sink.contract import BEAT
from kvairlock.sink.reading import read_folder
from kvairlock.sink.retention import prune
from kvairlock.sink.seal_lines import Act
from kvairlock.sink.seals import Seals
from kvairlock.wire.keys import KEY_BYTES, Keyring
from tests.sink.keeping_made import RING, lived, recorder, seals_of

LIVES = ("a1", "b2", "c3")
THIEF = Keyring({"k1": b"t" * KEY_BYTES})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lived(tmp_path, *LIVES)
    return tmp_path


def file_of(folder: Path, life: str) -> Path:
    return folder / f"decode-0-{life}.000001.parquet"


def states(chain: Chain) -> dict[str, str]:
    """The state of each file that is not as it was sealed, by its life."""
    bad = (file for file in chain.files if file.state is not FileState.SEALED)
    return {file.incarnation: str(file.state) for file in bad}


def lines(folder: Path) -> list[str]:
    return (folder / "decode-0.seals").read_text().splitlines(keepends=True)


def put(folder: Path, changed: list[str]) -> None:
    (folder / "decode-0.seals").write_text("".join(changed))


def test_what_nobody_touched_is_whole(folder: Path) -> None:
    chain = verify(folder, RING)
    assert chain.whole
    assert chain.proven
    assert states(chain) == {}
    assert [(file.first, file.last, file.records) for file in chain.files] == [(1, 4, 4)] * 3
    assert [(node.node, node.entries, node.holds) for node in chain.nodes] == [
        ("decode-0", 9, True)
    ]


def test_a_changed_byte_anywhere_in_a_file_shows(folder: Path) -> None:
    path = file_of(folder, "b2")
    data = path.read_bytes()
    for place in range(0, len(data), len(data) // 23):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert states(verify(folder, RING)) == {"b2": "altered"}
    path.write_bytes(data[:-1])
    assert states(verify(folder, RING)) == {"b2": "altered"}


def test_a_file_that_was_taken_is_missing_and_one_that_was_pruned_is_not(folder: Path) -> None:
    file_of(folder, "b2").unlink()
    assert states(verify(folder, RING)) == {"b2": "missing"}
    kept = seals_of(folder).kept()
    prune(seals_of(folder), [kept[file_of(folder, "a1").name]])
    chain = verify(folder, RING)
    assert states(chain) == {"a1": "pruned", "b2": "missing"}
    assert not chain.whole


def test_a_thief_who_writes_that_a_file_was_pruned_is_found_out(folder: Path) -> None:
    thief = Seals(folder, "decode-0", THIEF)
    prune(thief, [seals_of(folder).kept()[file_of(folder, "b2").name]])
    assert not file_of(folder, "b2").exists()
    assert states(verify(folder, RING)) == {"b2": "forged"}


def test_a_thief_who_seals_a_changed_file_again_is_found_out(folder: Path) -> None:
    path = file_of(folder, "b2")
    path.write_bytes(path.read_bytes() + b"more")
    thief = Seals(folder, "decode-0", THIEF)
    content = seals_of(folder).kept()[path.name].content
    thief.add(Act.SEALED, content)
    assert states(verify(folder, RING)) == {"b2": "forged"}


@pytest.mark.parametrize(
    ("meddle", "bad"),
    [
        (lambda old: [*old[:4], *old[5:]], {"b2": "unsealed", "c3": "forged"}),
        (lambda old: old[1:], dict.fromkeys(LIVES, "forged")),
        (
            lambda old: [*old[:4], old[7], *old[5:7], old[4], old[8]],
            {"b2": "forged", "c3": "forged"},
        ),
        (lambda old: [*old, old[7]], {"c3": "forged"}),
        (lambda old: [*old[:4], "{}\n", *old[5:]], {"b2": "unsealed"}),
        (lambda old: [*old[:6], "{}\n", *old[7:]], {"c3": "forged"}),
        (lambda old: old[:7], {"c3": "unsealed"}),
        (lambda _: [], dict.fromkeys(LIVES, "unsealed")),
        (lambda old: [*old[:7], old[7].rstrip("\n")], {"c3": "unsealed"}),
    ],
    ids=["middle", "first", "order", "twice", "unreadable", "before", "last", "all", "torn"],
)
def test_what_is_done_to_the_seals_shows(
    folder: Path, meddle: Callable[[list[str]], list[str]], bad: dict[str, str]
) -> None:
    put(folder, meddle(lines(folder)))
    chain = verify(folder, RING)
    assert states(chain) == bad
    assert not chain.whole


def test_every_field_of_a_seal_is_authenticated(folder: Path) -> None:
    old = lines(folder)
    seal = json.loads(old[4])
    changed = [{**seal, name: _other(seal[name])} for name in seal if name != "content"]
    content = seal["content"]
    changed += [{**seal, "content": {**content, name: _other(content[name])}} for name in content]
    for each in changed:
        put(folder, [*old[:4], json.dumps(each) + "\n", *old[5:]])
        assert not verify(folder, RING).whole, each
    put(folder, old)
    assert verify(folder, RING).whole


def _other(value: object) -> object:
    return value + 1 if isinstance(value, int) else f"{value}0"


def test_without_keys_only_hashes_are_compared_and_that_is_said(folder: Path) -> None:
    thief = Seals(folder, "decode-0", THIEF)
    prune(thief, [seals_of(folder).kept()[file_of(folder, "b2").name]])
    chain = verify(folder, None)
    assert (chain.whole, chain.proven) == (True, False)
    file_of(folder, "c3").write_bytes(b"")
    assert not verify(folder, None).whole


def test_seals_of_a_key_that_is_not_known_prove_nothing(folder: Path) -> None:
    chain = verify(folder, Keyring({"k2": b"k" * KEY_BYTES}))
    assert states(chain) == dict.fromkeys(LIVES, "forged")
    assert "k1" in chain.nodes[0].reason
    both = Keyring({"k2": b"2" * KEY_BYTES, **RING.keys})
    assert verify(folder, both).whole


def test_an_end_that_was_cut_off_shows_against_an_earlier_head(folder: Path) -> None:
    heads = {node.node: node.head for node in verify(folder, RING).nodes}
    file_of(folder, "c3").unlink()
    put(folder, lines(folder)[:6])
    assert verify(folder, RING).whole, "from the folder alone it can't be seen"
    chain = verify(folder, RING, heads)
    assert (chain.whole, chain.nodes[0].reason) == (False, CUT_OFF)
    lived(folder, "d4")
    assert not verify(folder, RING, heads).whole
    assert not verify(folder, RING, {"gateway": "00"}).whole


def test_a_chain_that_goes_on_still_has_its_earlier_heads(folder: Path) -> None:
    heads = {node.node: node.head for node in verify(folder, RING).nodes}
    lived(folder, "d4")
    assert verify(folder, RING, heads).whole


def test_a_file_that_was_put_there_is_vouched_for_by_nobody(folder: Path) -> None:
    (folder / "decode-0-e5.000001.parquet").write_bytes(file_of(folder, "a1").read_bytes())
    (folder / "prefill-0-1f0e.jsonl").write_text("")
    assert states(verify(folder, RING)) == {"e5": "unsealed", "1f0e": "unsealed"}


def test_lines_put_beside_a_sealed_file_are_not_read(folder: Path) -> None:
    before = read_folder(folder)
    file_of(folder, "b2").with_suffix(".jsonl").write_text('{"schema": 2, "event": "beat"}\n')
    assert read_folder(folder) == before
    assert verify(folder, RING).whole


def test_a_segment_that_must_have_been_there_is_missing(tmp_path: Path) -> None:
    sink = recorder(tmp_path, "a1")
    sink.close()
    sink.path.rename(tmp_path / "decode-0-a1.000003.parquet")
    found = {file.segment: file.state for file in verify(tmp_path, RING).files}
    assert found[2] is FileState.MISSING


def test_what_is_being_written_is_open(tmp_path: Path) -> None:
    sink = recorder(tmp_path, "a1")
    (file,) = verify(tmp_path, RING).files
    assert (file.state, file.records) == (FileState.OPEN, None)
    sink.close(in_order=False)
    assert verify(tmp_path, RING).files == ()


def test_what_is_sealed_while_it_is_looked_at_is_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = recorder(tmp_path, "a1")
    sink.record("beat", None, BEAT)
    for name in ("all_files", "read"):
        monkeypatch.setattr(chains, name, _then(getattr(chains, name), sink.close))
    monkeypatch.setattr(chains, "LOOKS_MAX", 1)
    assert verify(tmp_path, RING).whole


def test_what_is_pruned_while_it_is_looked_at_is_no_alarm(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = seals_of(folder)
    pruning = iter([own.kept().values()])
    monkeypatch.setattr(
        chains, "read", _then(seal_lines.read, lambda: prune(own, next(pruning, ())))
    )
    assert verify(folder, RING).whole


def _then(look: Callable[[Path], Any], do: Callable[[], object]) -> Callable[[Path], Any]:
    """A look at something, right after which something is done."""

    def looked(path: Path) -> Any:
        found = look(path)
        do()
        return found

    return looked


def test_a_seal_that_names_a_path_elsewhere_deletes_nothing(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.write_text("not evidence")
    seal = json.loads(lines(folder)[1])
    content = {**seal["content"], "file": "../outside"}
    put(folder, [*lines(folder), json.dumps({**seal, "act": "pruned", "content": content}) + "\n"])
    assert prune(seals_of(folder), []) == []
    assert outside.exists()
