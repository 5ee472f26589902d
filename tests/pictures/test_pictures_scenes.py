"""A run in scenes and rows: pages of one history are one row, and every bound is said."""

from __future__ import annotations

import ast
import random
from itertools import pairwise
from pathlib import Path

import pytest

from kvairlock import pictures
from kvairlock.pictures.edges import Clock, Who
from kvairlock.pictures.gaps import gaps
from kvairlock.pictures.names import names_of, page_ranges
from kvairlock.pictures.scenes import SCENES_MAX, TIMES_MAX, Picture, picture
from kvairlock.pictures.shelves import ROWS_MAX
from tests.pictures.recorded import ACME, BRAVO, MS, Node, all_of, decode, ended, prefill, received


def served(node: Node, at_ms: float, who: Who, pages: list[int]) -> None:
    received(node, at_ms, who, pages, f"w{at_ms}")
    ended(node, at_ms + 5, who, pages)


def rows(seen: Picture) -> list[tuple[int, ...]]:
    return [row.pages for scene in seen.scenes for shelf in scene.shelves for row in shelf.rows]


def test_pages_with_one_history_are_one_row() -> None:
    node = decode()
    received(node, 10, ACME, [4, 5, 6, 9], "w")
    received(node, 10, BRAVO, [7, 8], "v")
    ended(node, 20, BRAVO, [7, 8])
    assert rows(picture(node.records)) == [(4, 5, 6, 9), (7, 8)]


def test_a_page_that_is_held_by_others_too_has_a_row_of_its_own() -> None:
    node = decode()
    served(node, 10, ACME, [0, 1, 2])
    served(node, 20, BRAVO, [1])
    assert rows(picture(node.records)) == [(0, 2), (1,)]


def test_the_picture_does_not_depend_on_the_order_of_the_records() -> None:
    first, second = decode(), prefill()
    served(first, 10, ACME, [0, 1])
    second.record(12, "pages_allocated", BRAVO, lease=1, pages=[3])
    records = all_of(first, second)
    shuffled = records.copy()
    random.Random(5).shuffle(shuffled)
    assert picture(records) == picture(shuffled)


def test_scenes_end_where_nobody_holds_a_page() -> None:
    node = decode()
    for number in range(40):
        served(node, 10 + 20 * number, ACME, [number % 3])
    scenes = picture(node.records).scenes
    assert len(scenes) == 3
    for before, after in pairwise(scenes):
        assert after.began_ns - before.ended_ns == 12 * MS
    told = [edge for scene in scenes for edge in scene.edges]
    assert [edge.sequence for edge in told] == list(range(2, 40 * 9 + 2))


def test_a_kept_prefix_does_not_hold_scenes_together() -> None:
    node = prefill()
    for number in range(60):
        at_ms = 10 + 20 * number
        node.record(at_ms, "pages_allocated", ACME, lease=number, pages=[number])
        node.record(at_ms + 1, "range_computed", ACME, stop=90, pages=[number])
        node.record(at_ms + 2, "request_ended", ACME, end="completed")
    seen = picture(node.records)
    assert len(seen.scenes) == 2
    assert rows(seen)[-1] == (59,)


def test_what_never_rests_is_cut_and_what_is_left_out_is_said() -> None:
    node = decode()
    node.record(1, "pages_allocated", BRAVO, lease=1, pages=[63])
    for number in range(600):
        served(node, 10 + 10 * number, ACME, [number % 3])
    seen = picture(node.records)
    assert len(seen.scenes) == SCENES_MAX
    assert all(len(scene.times_ns) <= TIMES_MAX + 1 for scene in seen.scenes)
    assert seen.scenes_left_out == 3
    assert "Later scenes that are not drawn: 3." in gaps(seen)
    last = seen.scenes[-1]
    assert last.edges[-1].at_ns <= last.ended_ns


def test_rows_that_there_is_no_room_for_are_counted_and_findings_come_first() -> None:
    node = decode()
    for page in range(ROWS_MAX + 6):
        received(node, 10 + page * 0.01, ACME, [page], f"w{page}")
    for page in range(ROWS_MAX + 6):
        ended(node, 90 + page * 0.01, ACME, [page], fence="unproven" if page == 29 else "local")
    (shelf,) = picture(node.records).scenes[0].shelves
    assert [row.pages for row in shelf.rows] == [(p,) for p in [*range(ROWS_MAX - 1), 29]]
    assert shelf.pages_left_out == 6


def test_a_run_that_holds_no_page_has_a_story_and_no_rows() -> None:
    node = Node("gateway", decode().role)
    node.record(1, "peer_up", peer="decode-0")
    node.record(2, "request_refused", ACME, stage="gateway", reason="context_length")
    node.record(3, "peer_lost", peer="decode-0")
    (scene,) = picture(node.records).scenes
    assert scene.shelves == ()
    assert [edge.event for edge in scene.edges] == ["request_refused"]


def test_no_evidence_is_a_gap_and_not_a_good_run() -> None:
    seen = picture([])
    assert (seen.accounts, seen.findings, seen.clock) == ((), (), Clock.BOOT)
    assert gaps(seen)[0].startswith("There is no evidence")


def test_every_gap_of_the_evidence_is_said() -> None:
    node = Node("decode-0", decode().role)
    node.start("copy")
    node.record(1, "beat")
    node.record(2, "drain_ended", ACME, lease=1, pages=[7], fence="local")
    node.record(3, "beat")
    del node.records[1]
    node.records += [node.records[-1], {"event": "who knows"}]
    silent = prefill()
    silent.record(1, "beat")
    del silent.records[0]
    assert gaps(picture(all_of(node, silent))) == (
        "decode-0: records that are missing: 1.",
        "decode-0: no close marker, so what came last is not known.",
        "prefill-0: records that are missing: 1.",
        "prefill-0: no close marker, so what came last is not known.",
        "prefill-0: no record says which guards were on, nor how bytes became pages.",
        "Records that do not fit the schema, and were not read: 1.",
        "Records with the number of another one, which were not read: 1.",
        "Records about pages that their owner is not known to hold: 1.",
    )
    complete = decode()
    complete.close(9)
    assert gaps(picture(complete.records)) == ()


def test_pseudonyms_are_as_long_as_they_have_to_be() -> None:
    node = decode()
    for tenant, request in (("abcd1234", "1" * 8), ("abcd1299", "2" * 8), ("abcd1234", "3" * 8)):
        node.record(1, "request_admitted", Who(tenant, request), stage="gateway")
    names = picture(node.records).names
    assert (names.tenant_digits, names.request_digits) == (7, 4)
    who = Who("abcd1299", "22222222")
    assert names.full(who) == "request 2222 · tenant abcd129"
    assert (names.brief(who), names.hue(who)) == ("2222 · abcd129", 1)
    assert names_of([]).tenant_digits == 4


@pytest.mark.parametrize(
    ("pages", "parts_max", "words"),
    [
        ([], 0, "no pages"),
        ([7], 0, "page 7"),
        ([3, 1, 2], 0, "pages 1-3"),
        ([0, 1, 5, 9, 10, 11], 0, "pages 0-1, 5, 9-11"),
        ([0, 1, 5, 9, 10, 11], 2, "pages 0-1, 5, 3 more"),
    ],
)
def test_pages_are_named_as_ranges(pages: list[int], parts_max: int, words: str) -> None:
    assert page_ranges(pages, parts_max) == words.replace("-", "\N{EN DASH}")


def test_pictures_know_nothing_of_drills() -> None:
    """Whoever has evidence can have it drawn: an audit as well."""
    folder = Path(pictures.__file__).parent
    trees = [ast.parse(path.read_text()) for path in folder.glob("*.py")]
    imports = [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    ]
    named = {node.module or "" for node in imports if (node.module or "").startswith("kvairlock")}
    assert "kvairlock.core.evidence" in named
    assert all(name.startswith(("kvairlock.core.", "kvairlock.pictures.")) for name in named)


def with_generations(node: Node, at_ms: float, who: Who, pages: list[int], turn: list[int]) -> None:
    node.record(at_ms, "pages_allocated", who, lease=1, pages=pages, generations=turn)
    node.record(at_ms + 4, "read_started", who, pages=pages)
    ended(node, at_ms + 5, who, pages)


def test_pages_that_differ_in_their_generation_only_share_a_row_that_names_all_of_them() -> None:
    node = decode()
    with_generations(node, 10, ACME, [0, 1, 2], [4, 0, 2])
    with_generations(node, 30, BRAVO, [0, 1, 2], [5, 1, 3])
    (row,) = picture(node.records).scenes[0].shelves[0].rows
    assert row.pages == (0, 1, 2)
    assert row.generations == ((0, 2, 4), (1, 3, 5))


def test_a_generation_that_is_not_recorded_for_each_page_is_recorded_for_none() -> None:
    node = decode()
    with_generations(node, 10, ACME, [0, 1], [4])
    (row,) = picture(node.records).scenes[0].shelves[0].rows
    assert row.generations == ((),)


def test_a_picture_about_one_request_has_its_pages_and_its_findings_only() -> None:
    node = decode()
    received(node, 1_000, ACME, [0, 1], "w")
    ended(node, 1_010, ACME, [0, 1])
    node.record(1_020, "pages_allocated", BRAVO, lease=2, pages=[1, 2])
    node.record(1_021, "read_started", BRAVO, pages=[1, 2])
    ended(node, 1_022, BRAVO, [1, 2])
    node.record(1_030, "read_started", ACME, pages=[0])
    node.record(1_035, "read_ended", ACME, pages=[0])
    whole, about = picture(node.records), picture(node.records, about=BRAVO.request)
    pages = {page for shelf in about.scenes[0].shelves for row in shelf.rows for page in row.pages}
    assert pages == {1, 2}
    assert {who for found in about.findings for who in found.whos} == {BRAVO}
    assert {who for found in whole.findings for who in found.whos} == {ACME, BRAVO}


def test_times_of_a_picture_about_one_request_begin_with_the_first_record_about_any() -> None:
    node = decode()
    received(node, 1_000, ACME, [0], "w")
    ended(node, 1_010, ACME, [0])
    assert picture(node.records).scenes[0].began_ns == 1_000 * MS
    assert picture(node.records, about=ACME.request).scenes[0].began_ns == 0
