"""Logs and metrics of other engines: candidates, each for a reason, and honest about the rest.

All lines here are built from the format strings in the public sources of the engines, not captured.
"""

from __future__ import annotations

import datetime as dt
import gzip
import random
import re
import time
from pathlib import Path

import pytest

from kvairlock.audit.foreign.candidates import FOREIGN_RULES
from kvairlock.audit.foreign.counters import COUNTERS
from kvairlock.audit.foreign.heads import head_of
from kvairlock.audit.foreign.joining import pseudonym
from kvairlock.audit.foreign.lines import LINE_BYTES_MAX
from kvairlock.audit.foreign.patterns import PATTERNS
from kvairlock.audit.foreign.report import ForeignReport, read_foreign
from kvairlock.audit.foreign.signs import Engine, Side, Sign

BUILT = Path(__file__).parent / "foreign"
PAGE = Path(__file__).parents[2] / "docs" / "foreign.md"
UUID = "5f1c6a9e-8a40-4a54-9c07-0d4c5c1f1a01"
VLLM_HEAD = "(EngineCore pid=1) ERROR 11-30 10:00:{s:02d} [nixl.py:1] "
EXPIRED = "Releasing expired KV blocks for request {} which were retrieved by 0 remote worker(s)"
READ_UNKNOWN = (
    "Potentially invalid KV blocks for unrecognized request {} were retrieved by a decode"
)
SGLANG_HEAD = "[2026-11-30 10:00:{s:02d} TP0] "

EXAMPLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Releasing expired KV blocks for request r-1 which were retrieved by 1 decode worker(s) within "
    "120 seconds.": (Sign.LEASE_EXPIRED, ("r-1",)),
    "Releasing expired KV blocks for request r-1 which were retrieved by 0 remote worker(s) before "
    "lease expired.": (Sign.LEASE_EXPIRED, ("r-1",)),
    "Request r-1 timed out after 480 seconds without being sent. Freeing its blocks on the "
    "producer side.": (Sign.LEASE_EXPIRED, ("r-1",)),
    "Potentially invalid KV blocks for unrecognized request r-1 were retrieved by a decode worker. "
    "They may have expired.": (Sign.READ_UNKNOWN, ("r-1",)),
    "Declining expired remote read for r-1 from engine e.": (Sign.READ_DECLINED, ("r-1",)),
    "NIXL transfer failure: notification_failed. P worker blocks will be freed after timeout. | "
    "Context: {'failure_type': 'notification_failed', 'request_id': 'r-1', 'engine_id': 'e'}": (
        Sign.NOTE_LOST,
        ("r-1",),
    ),
    "NIXL transfer failure: transfer_setup_failed. Deferring | Context: {'failure_type': "
    "'transfer_setup_failed', 'request_id': 'r-1', 'engine_id': 'e', 'remote_request_id': 'p-1'}": (
        Sign.TRANSFER_FAILED,
        ("r-1", "p-1"),
    ),
    "pulling kv_caches for ['r-1'] failed: session lost": (Sign.TRANSFER_FAILED, ("r-1",)),
    "Failing 1 request(s) due to KV load failure (failure_policy=fail, 96 tokens affected). "
    "Request IDs: {'r-1'}": (Sign.DECODE_FAILED, ("r-1",)),
    "Finished recving KV transfer for request r-1": (Sign.TRANSFERRED, ("r-1",)),
    "Request r-1 aborted.": (Sign.ABORTED, ("r-1",)),
    "Aborted request(s) r-1.": (Sign.ABORTED, ("r-1",)),
    "Generated response r-1 (streaming complete): output: 'x', finish_reason: stop": (
        Sign.ANSWERED,
        ("r-1",),
    ),
    "Prefill transfer failed for request rank=0 req.rid='r-1' req.bootstrap_room=7": (
        Sign.PREFILL_FAILED,
        ("r-1", "room 7"),
    ),
    "Prefill bootstrap failed for request rank=0 req.rid='r-1' req.bootstrap_room=7": (
        Sign.PREFILL_FAILED,
        ("r-1", "room 7"),
    ),
    "Request r-1 exceeds the maximum number of tokens: 900 > 506": (Sign.REFUSED, ("r-1",)),
    "NIXL transport error for room 7: backend": (Sign.TRANSFER_FAILED, ("room 7",)),
    "Received abort notification for room 7, ignoring (already completed or unknown)": (
        Sign.ABORT_LATE,
        ("room 7",),
    ),
    "Received abort notification for room 7, marked as Failed": (Sign.ABORTED, ("room 7",)),
    "Abort transfer queue request. decode_req.req.rid='r-1'": (Sign.ABORTED, ("r-1",)),
    "Decode transfer failed for request rank=0 decode_req.req.rid='r-1' "
    "decode_req.req.bootstrap_room=7": (Sign.DECODE_FAILED, ("r-1", "room 7")),
    "Deferred KV release for room 7 timed out after 30.0s without a full drain ack from prefill; "
    "releasing anyway.": (Sign.RELEASED_UNPROVEN, ("room 7",)),
    "Context corruption detected: Request r-1 (bootstrap_room=7) received metadata from "
    "bootstrap_room=8. Metadata buffer index: 0.": (Sign.OTHERS_METADATA, ("r-1", "room 7")),
    "KV checksum mismatch req=r-1 bootstrap_room=7 expected=0x1 got=0x2": (
        Sign.OTHER_BYTES,
        ("r-1", "room 7"),
    ),
    "KV checksum skipped: prefill layout signature 0x1 differs from this decode's 0x2": (
        Sign.UNCHECKED,
        (),
    ),
    "Finish: obj=GenerateReqInput(rid='r-1', bootstrap_room=7), out={'meta_info': {}}": (
        Sign.ANSWERED,
        ("r-1", "room 7"),
    ),
}
"""A line of every kind: what it is a sign of, and whom it names."""


def read(tmp_path: Path, **logs: str) -> ForeignReport:
    """Read logs whose names say which half they are of."""
    paths = []
    for name, text in logs.items():
        paths.append(tmp_path / f"{name}.log")
        paths[-1].write_text(text)
    return read_foreign(paths)


def sglang(*lines: tuple[int, str]) -> str:
    return "".join(f"{SGLANG_HEAD.format(s=s)}{text}\n" for s, text in lines)


def vllm(*lines: tuple[int, str]) -> str:
    return "".join(f"{VLLM_HEAD.format(s=s)}{text}\n" for s, text in lines)


def rules(report: ForeignReport) -> dict[str, tuple[str, ...]]:
    return {one.request: one.rules for one in report.candidates}


# Lines


@pytest.mark.parametrize("message", EXAMPLES)
def test_a_line_of_each_kind_is_recognised_with_the_ids_in_it(tmp_path: Path, message: str) -> None:
    sign, keys = EXAMPLES[message]
    (file,) = read(tmp_path, log=vllm((1, message))).files
    assert [(one.sign, one.keys) for one in file.sightings] == [(sign, keys)]
    assert (file.recognised, file.headed, file.tally.lines) == (1, 1, 1)


def test_every_pattern_has_an_example_line() -> None:
    unmatched = [p.message for p in PATTERNS if not any(map(p.regex.match, EXAMPLES))]
    assert unmatched == []


def test_only_one_pattern_fits_a_line() -> None:
    for message in EXAMPLES:
        assert sum(bool(p.regex.match(message)) for p in PATTERNS) == 1, message


@pytest.mark.parametrize(
    ("line", "engine", "message"),
    [
        ("ERROR 11-30 10:00:01 [nixl_connector.py:1048] m", Engine.VLLM, "m"),
        ("(EngineCore_DP0 pid=3) ERROR 11-30 10:00:01 [a/.../b.py:9] m", Engine.VLLM, "m"),
        ("\x1b[0;36m(EngineCore pid=3)\x1b[0;0m ERROR 11-30 10:00:01 [b.py:9] m", Engine.VLLM, "m"),
        ("2026-11-30T10:00:02Z stdout F ERROR 11-30 10:00:01 [b.py:9] m", Engine.VLLM, "m"),
        ("[2026-11-30 10:00:01] m", Engine.SGLANG, "m"),
        ("[2026-11-30 10:00:01.123 DP1 TP0] m", Engine.SGLANG, "m"),
        ('{"asctime": "2026-11-30 10:00:01,000", "levelname": "E", "message": "m"}', None, "m"),
    ],
)
def test_heads_are_known_in_every_form(line: str, engine: Engine | None, message: str) -> None:
    head = head_of(line, dt.datetime(2026, 12, 1, tzinfo=dt.UTC))
    assert head is not None
    assert (head.engine, head.message) == (engine, message)
    at = dt.datetime(2026, 11, 30, 10, 0, 1, tzinfo=dt.UTC).timestamp()
    assert head.at_s is not None
    assert int(head.at_s) == at


def test_a_line_without_a_year_is_never_younger_than_its_file() -> None:
    head = head_of("ERROR 12-31 23:59:59 [b.py:9] m", dt.datetime(2027, 1, 1, 8, tzinfo=dt.UTC))
    assert head is not None
    assert head.at_s == dt.datetime(2026, 12, 31, 23, 59, 59, tzinfo=dt.UTC).timestamp()


def test_text_of_a_client_inside_a_message_is_no_sign(tmp_path: Path) -> None:
    said = READ_UNKNOWN.format("x")
    report = read(tmp_path, log=vllm((1, f"Received request y: params: {said} worker.")))
    assert report.signs() == {}
    assert report.candidates == ()


def test_long_torn_and_undecodable_lines_are_counted_and_stop_nothing(tmp_path: Path) -> None:
    file = tmp_path / "decode.log.gz"
    last = sglang((1, "Deferred KV release for room 7 timed out after 30.0s without a full drain"))
    body = b"x" * (3 * LINE_BYTES_MAX) + b"\n\xff\xfe\n" + last.encode()
    file.write_bytes(gzip.compress(body))
    (read_whole,) = read_foreign([file]).files
    tally = read_whole.tally
    assert (tally.lines, tally.cut, tally.undecodable, tally.torn) == (3, 1, 1, False)
    assert len(read_whole.sightings) == 1
    file.write_bytes(gzip.compress(body)[:-12])
    assert read_foreign([file]).files[0].tally.torn


def test_a_hostile_line_takes_no_longer_than_a_plain_one(tmp_path: Path) -> None:
    print("seed 7")
    rng = random.Random(7)
    starts = [message[: rng.randrange(8, len(message))] for message in EXAMPLES]
    hostile = [s + rng.choice(("a" * 30_000, "'" * 30_000, "1 " * 15_000)) for s in starts]
    began = time.process_time()
    read(tmp_path, log=vllm(*((1, text) for text in hostile)))
    assert time.process_time() - began < 2  # a backtracking pattern takes minutes here


def test_no_pattern_repeats_what_it_repeats() -> None:
    nested = re.compile(r"\([^)]*[+*][^)]*\)[+*]")
    assert [p.message for p in PATTERNS if nested.search(p.message)] == []


# Candidates


def test_a_read_after_the_lease_of_prefill_had_expired_is_a_candidate(tmp_path: Path) -> None:
    report = read(
        tmp_path,
        prefill=vllm((1, EXPIRED.format(f"cmpl-{UUID}-0-9b1d")), (2, EXPIRED.format("cmpl-other"))),
        decode=vllm((8, f"Generated response cmpl-{UUID}-0: output: 'x', finish_reason: stop")),
    )
    assert rules(report) == {f"cmpl-{UUID}-0": ("expired_then_read",)}
    assert report.candidates[0].order == "clocks of several files"


def test_an_answer_from_before_the_lease_expired_is_none(tmp_path: Path) -> None:
    report = read(
        tmp_path,
        decode=vllm((1, "Generated response r: output: 'x', finish_reason: stop")),
        prefill=vllm(
            (
                30,
                EXPIRED.format("r"),
            )
        ),
    )
    assert report.candidates == ()


def test_an_answer_that_prefill_logs_is_not_taken_for_that_of_decode(tmp_path: Path) -> None:
    refused = "Request r exceeds the maximum number of tokens: 900 > 506"
    finished = "Finish: obj=GenerateReqInput(rid='r', bootstrap_room=7), out={}"
    assert read(tmp_path, prefill=sglang((1, refused), (2, finished))).candidates == ()
    report = read(tmp_path, prefill=sglang((1, refused)), decode=sglang((2, finished)))
    assert rules(report) == {"r": ("refused_then_answered",)}


def test_halves_that_know_a_request_by_different_ids_are_joined_by_what_names_both(
    tmp_path: Path,
) -> None:
    context = "{'failure_type': 'x', 'request_id': 'd-1', 'remote_request_id': 'p-1'}"
    report = read(
        tmp_path,
        decode=vllm((1, f"NIXL transfer failure: transfer_failed | Context: {context}")),
        prefill=vllm(
            (
                4,
                READ_UNKNOWN.format("p-1"),
            )
        ),
    )
    assert [len(one.sightings) for one in report.candidates] == [1]
    joined = sglang(
        (1, "Decode transfer failed for request rank=0 decode_req.req.rid='d' "
            "decode_req.req.bootstrap_room=7"),
    )  # fmt: skip
    late = "Received abort notification for room 7, ignoring (already completed or unknown)"
    report = read(tmp_path, decode=joined, prefill=sglang((2, late)))
    assert rules(report) == {"d": ("aborted_then_transferred",)}


def test_a_request_that_decode_gave_up_and_did_not_answer_is_no_candidate(tmp_path: Path) -> None:
    report = read(
        tmp_path,
        prefill=sglang((1, "Prefill transfer failed for request rank=0 req.rid='r' "
                           "req.bootstrap_room=7")),
        decode=sglang((2, "Decode transfer failed for request rank=0 decode_req.req.rid='r' "
                          "decode_req.req.bootstrap_room=7")),
    )  # fmt: skip
    assert report.signs() == {"prefill_failed": 1, "decode_failed": 1}
    assert report.candidates == ()


def test_the_built_logs_give_exactly_the_candidates_that_were_built_into_them() -> None:
    report = read_foreign(sorted(BUILT.glob("*.log")))
    assert rules(report) == {
        "a1b2": ("refused_then_answered",),
        "e5": ("aborted_then_transferred", "released_unproven"),
        "prefill-request-3": ("failed_then_answered",),
        f"cmpl-{UUID}-0": ("expired_then_read", "freed_then_reported"),
    }
    sides = {file.name: file.side for file in report.files}
    assert sides["vllm-prefill.log"] == sides["sglang-prefill.log"] == Side.PREFILL


def test_only_lines_of_the_engine_that_was_asked_for_are_read() -> None:
    report = read_foreign(sorted(BUILT.glob("*.log")), [Engine.SGLANG])
    assert {one.engine for one in report.candidates} == {Engine.SGLANG}


def test_neither_text_nor_ids_are_in_a_report_unless_asked_for() -> None:
    report = read_foreign(sorted(BUILT.glob("*.log")))
    hidden, shown = (str(report.to_json(show_ids=show)) for show in (False, True))
    assert "secret" not in hidden + shown
    assert UUID not in hidden
    assert UUID in shown
    assert pseudonym(f"cmpl-{UUID}-0") in hidden


def test_no_report_says_excluded_of_anything() -> None:
    report = read_foreign(sorted(BUILT.glob("*.log"))).to_json(show_ids=True)
    assert {one["grade"] for one in report["candidates"]} == {"inferred"}
    assert "excluded" not in str(report).replace("Nothing is excluded", "")


# Counters


def test_a_counter_that_grew_gives_a_window_and_one_that_stood_gives_none() -> None:
    report = read_foreign([BUILT / "vllm-metrics.txt"])
    grown = [(one.counter.name, one.events, one.since_start) for one in report.windows]
    assert grown == [
        ("vllm:nixl_num_kv_expired_reqs", 2, False),
        ("vllm:nixl_num_notifications_after_expiry", 1, False),
    ]
    assert {(one.from_s, one.to_s) for one in report.windows} == {(1796032800.0, 1796032860.0)}


def test_a_single_scrape_tells_only_that_it_happened_since_the_start(tmp_path: Path) -> None:
    report = read(tmp_path, metrics="sglang:num_transfer_failed_reqs_total 3.0\n")
    (window,) = report.windows
    assert (window.events, window.since_start, window.to_s) == (3, True, None)


def test_a_process_that_began_again_counts_from_zero(tmp_path: Path) -> None:
    text = "".join(f"sglang:num_transfer_failed_reqs_total {n}\n" for n in (5, 2, 2))
    assert [one.events for one in read(tmp_path, metrics=text).windows] == [5, 2]


def test_a_counter_of_another_outcome_is_not_read(tmp_path: Path) -> None:
    text = 'sglang:decode_deferred_kv_release_total{outcome="drained"} 4.0\n'
    assert read(tmp_path, metrics=text).windows == ()
    report = read(tmp_path, metrics=text.replace("drained", "timeout"))
    assert [one.events for one in report.windows] == [4]


# The page


def test_the_page_names_every_sign_rule_and_counter_and_what_it_does_not_prove() -> None:
    page = PAGE.read_text()
    for pattern in PATTERNS:
        assert f"| {pattern.engine} | {pattern.sign} |" in page, pattern.message
        assert pattern.source in page
        assert pattern.unproven in page
    for rule in FOREIGN_RULES:
        assert f"| {rule.finds} | {rule.unproven} |" in page, rule.name
    for counter in COUNTERS:
        assert f"| `{counter.name}` | {counter.means} | {counter.unproven} |" in page
