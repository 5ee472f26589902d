"""The fault matrix as data: every cell has one rule, and a file that is not whole is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import REASONS, Reason
from kvairlock.drills.faults.mishaps import CUT_AT, LOSE, PROCESS
from kvairlock.drills.faults.outcomes import (
    Answer,
    CutShort,
    Left,
    RecordedEnd,
    Refused,
    When,
    recorded,
)
from kvairlock.drills.faults.run import PROVES, names
from kvairlock.drills.faults.scenes import PLACES
from kvairlock.drills.faults.table import (
    CELLS,
    SHIPPED,
    Cell,
    FaultTableWrong,
    Mishap,
    Phase,
    Row,
    Struck,
    parse,
    shipped,
)
from kvairlock.runtime.failpoints import Cut

TEXT = SHIPPED.read_text()
ROWS = shipped().rows
PROCESSES = {Struck.GATEWAY, Struck.PREFILL, Struck.DECODE}


def row(name: str) -> Row:
    (found,) = shipped().chosen({name})
    return found


def refused(text: str, message: str) -> None:
    with pytest.raises(FaultTableWrong, match=re.escape(message)):
        parse(text)


def replaced(old: str, new: str) -> str:
    """The shipped file with the first place of a text changed."""
    assert old in TEXT
    return TEXT.replace(old, new, 1)


def test_each_process_and_each_link_has_its_mishaps_in_each_phase() -> None:
    assert len(CELLS) == 80
    assert [row.cell for row in ROWS] == list(CELLS)
    assert len(set(names())) == len(names()) == 80
    for struck in Struck:
        mishaps = {cell.mishap for cell in CELLS if cell.struck is struck}
        of_processes = {Mishap.CRASH, Mishap.STOP, Mishap.LONG_STOP}
        assert (mishaps == of_processes) is (struck in PROCESSES)
        for mishap in mishaps:
            phases = {c.phase for c in CELLS if (c.struck, c.mishap) == (struck, mishap)}
            assert phases == set(Phase)


def test_a_cell_without_a_rule_is_an_error() -> None:
    last = TEXT.rindex("[[rule]]")
    refused(TEXT[:last], "no rule for prefill+decode-reset-draining")


def test_a_cell_with_two_rules_is_an_error() -> None:
    last = TEXT.rindex("[[rule]]")
    refused(TEXT + "\n" + TEXT[last:], "two rules for prefill+decode-reset-draining")


def test_a_rule_about_what_cannot_happen_is_an_error() -> None:
    last = TEXT.rindex("[[rule]]")
    impossible = TEXT[last:].replace('"prefill+decode"', '"gateway"')
    refused(TEXT + "\n" + impossible, "nothing that can happen")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[stack]", "[stack", "cannot be read"),
        ("lost-ms = 1_000\n", "", "lost-ms"),
        ("lost-ms = 1_000", "lost-ms = 0", ">= 1"),
        ("lost-ms = 1_000", "lost-ms = 1_000\npatience-ms = 1", "patience-ms"),
        ('[mishap.crash]\ndoes = "', '[mishap.fire]\ndoes = "', "fire"),
        ('struck = ["gateway+decode"]', 'struck = ["gateway+disk"]', "gateway+disk"),
        ('let-go = "meanwhile"\n', "", "let-go"),
        ('let-go = "meanwhile"', 'let-go = "later"', "later"),
        ('gets = "answer", when = "afterwards"', 'gets = "answer"', "when"),
        ('gets = "answer"', 'gets = "something"', "something"),
        ('reason = "peer_lost", ', "", "reason"),
        ('reason = "peer_lost"', 'reason = "peer_tired"', "peer_tired"),
        ('decode = ["completed"]', "decode = []", "length"),
        ('decode = ["completed"]', 'decode = ["well"]', "well"),
        ('fence = ["acknowledged"]', 'fence = ["hoped"]', "hoped"),
        ('why = "', 'so = "', "so"),
    ],
)
def test_what_is_missing_unknown_or_of_another_kind_is_an_error(
    old: str, new: str, message: str
) -> None:
    refused(replaced(old, new), message)


def test_a_mishap_or_phase_of_which_nothing_is_said_is_an_error() -> None:
    begin, end = TEXT.index("[mishap.reset]"), TEXT.index("# Short mishaps")
    refused(TEXT[:begin] + TEXT[end:], "does not say what this is: reset")
    begin, end = TEXT.index('queued = "'), TEXT.index('computing = "')
    refused(TEXT[:begin] + TEXT[end:], "does not say what this is: queued")


def test_rows_are_chosen_by_name_and_pattern_and_in_order() -> None:
    table = shipped()
    assert table.chosen(()) == ROWS
    assert [r.cell.name for r in table.chosen({"prefill-crash-*"})] == [
        f"prefill-crash-{phase}" for phase in Phase
    ]
    chosen = table.chosen(["gateway+*-long-partition-queued", "decode-stop-queued"])
    assert [r.cell.name for r in chosen] == [
        "decode-stop-queued",
        "gateway+decode-long-partition-queued",
        "gateway+prefill-long-partition-queued",
    ]
    with pytest.raises(FaultTableWrong, match="no row of the fault matrix is called prefil-"):
        table.chosen(["prefill-crash-queued", "prefil-*"])
    assert row(PROVES).cell == Cell(Struck.PREFILL, Mishap.LONG_STOP, Phase.DRAINING)


def test_what_rows_expect_is_said_in_the_words_of_the_core() -> None:
    lost, reason = Reason.PEER_LOST, REASONS[Reason.PEER_LOST]
    refusal = Refused(When.MEANWHILE, lost)
    assert str(refusal) == f"{reason.http_status} {reason.code}, meanwhile"
    event = CutShort(When.AFTERWARDS, lost)
    assert str(event) == "first tokens, then error event node_lost, afterwards"
    assert str(Answer(When.AFTERWARDS)) == "own answer, afterwards"
    assert str(Left()) == "nothing: it has left"
    assert [end.words for end in RecordedEnd] == [
        "nothing",
        "completed",
        "cancelled",
        "failed (peer_lost)",
    ]
    assert recorded(End.COMPLETED, "") == "completed"
    assert recorded(End.REJECTED, "capacity") == "rejected (capacity)"


def test_a_client_that_is_gone_gets_nothing_and_every_other_gets_something() -> None:
    for each in ROWS:
        gone = each.cell.phase is Phase.DRAINING
        assert isinstance(each.rule.client, Left) is gone, each.cell.name


def test_whoever_has_to_let_go_can_be_told_then() -> None:
    """Points are released by way of the gateway, and a process that is stopped hears nothing."""
    for each in ROWS:
        if each.rule.let_go is When.MEANWHILE:
            place = PLACES[each.cell.phase].node
            assert PROCESS.get(each.cell.struck) not in ("gateway", place), each.cell.name


def test_a_mishap_that_nobody_notices_ends_no_request() -> None:
    for each in ROWS:
        if not each.cell.mishap.is_noticed:
            ends = {*each.rule.decode, *each.rule.prefill}
            assert ends <= {RecordedEnd.COMPLETED, RecordedEnd.CANCELLED}, each.cell.name


def test_everything_that_can_be_struck_has_somebody_who_strikes_it_and_who_notices() -> None:
    assert set(PROCESS) | set(CUT_AT) == set(Struck) == set(LOSE)
    assert set(PROCESS) == PROCESSES
    for struck, name in PROCESS.items():
        assert {peer for _, peer in LOSE[struck]} == {name}
        assert name not in {node for node, _ in LOSE[struck]}


def test_the_page_about_it_says_what_every_word_of_a_row_means() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
    words = (*Struck, *Mishap, *Phase, *Cut, *(f"*{when}*" for when in When))
    assert [word for word in words if str(word) not in page] == []
    assert PROVES in page
