"""The demo: each scenario with the guards off, on, and one layer at a time; off must leak.

A table says for each stack which guards are off and what must come out. The demo is good only if
every row came out so, the leaking ones included: a drill that cannot fail proves nothing.
"""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvairlock.core.guards import Guard
from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import Client
from kvairlock.drills.demo.scenarios import SCENARIOS, Bench, Outcome
from kvairlock.drills.records import Records
from kvairlock.drills.stack import DrillFailed, Keys, make_keys, running, workplace

SEED = 2026
TENANTS = ("acme", "bravo", "coral")
LABEL = "hypothetical reconstructions, on this machine, with a model made to show foreign pages"


@dataclass(frozen=True, slots=True)
class Expect:
    """What must come out.

    Args:
        leaks: Another tenant's canary shows.
        refusal: Code of the refusal, or None for an answer.
        http_status: What the client gets.
    """

    leaks: bool = False
    refusal: str | None = None
    http_status: int = 200

    def __str__(self) -> str:
        """Say it in words."""
        if self.leaks:
            return "leaks"
        return f"{self.http_status} {self.refusal}" if self.refusal else "own answer"

    def met_by(self, outcome: Outcome) -> bool:
        """Whether an outcome is what must come out."""
        if self.leaks:
            return outcome.leaked and not outcome.own
        same = (outcome.refusal, outcome.http_status) == (self.refusal, self.http_status)
        return same and not outcome.leaked and outcome.own == (self.refusal is None)


@dataclass(frozen=True, slots=True)
class Case:
    """One stack and what must come out on it.

    Args:
        guards: What its guards are called in the table.
        off: The guards that are off.
        landing: The landing policy of its decode node.
        expects: For each scenario, what must come out of each of its parts.
    """

    guards: str
    off: tuple[Guard, ...]
    landing: str
    expects: dict[str, tuple[Expect, ...]]


LEAKS, OWN = Expect(leaks=True), Expect()
TOO_LONG = Expect(refusal="context_length_exceeded", http_status=400)
WIDE_COLUMNS = 150
COLUMNS = (
    "scenario",
    "guards",
    "expected",
    "computed tokens",
    "bytes written by",
    "answer",
    "verdict",
)
ALONE = (Guard.CONTRACT, Guard.CAPACITY)

CASES = (
    Case(
        "off",
        tuple(Guard),
        "direct",
        {
            "together": (OWN,),
            "incident": (LEAKS,),
            "late-write": (LEAKS,),
            "after-success": (LEAKS,),
            "tickets": (LEAKS, LEAKS, LEAKS),
        },
    ),
    Case(
        "on",
        (),
        "copy",
        {
            "together": (OWN,),
            "incident": (TOO_LONG,),
            "late-write": (OWN,),
            "after-success": (OWN,),
            "tickets": (OWN, OWN, OWN),
        },
    ),
    Case(
        "on, sealed windows",
        (),
        "seal",
        {"together": (OWN,), "late-write": (OWN,)},
    ),
    Case(
        "on behind the gateway",
        (Guard.CONTRACT, Guard.STRIP),
        "copy",
        {
            "incident": (TOO_LONG,),
            "tickets": (
                Expect(refusal="ticket_already_used", http_status=409),
                Expect(refusal="ticket_for_another_input", http_status=403),
                Expect(refusal="ticket_of_another_tenant", http_status=403),
            ),
        },
    ),
    Case(
        "outcome alone",
        ALONE,
        "direct",
        {"incident": (Expect(refusal="prefill_rejected", http_status=502),)},
    ),
    Case(
        "input alone",
        (*ALONE, Guard.OUTCOME),
        "direct",
        {"incident": (Expect(refusal="handoff_input_mismatch", http_status=502),)},
    ),
    Case(
        "range alone",
        (*ALONE, Guard.OUTCOME, Guard.INPUT),
        "direct",
        {"incident": (Expect(refusal="handoff_range_mismatch", http_status=502),)},
    ),
    Case(
        "integrity alone",
        (*ALONE, Guard.OUTCOME, Guard.INPUT, Guard.RANGE, Guard.PAGE_INDEX),
        "direct",
        {"incident": (Expect(refusal="missing_evidence", http_status=502),)},
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, and of the JSON document."""

    scenario: str
    guards: str
    expected: str
    computed: str
    written: str
    answer: str
    leaked: bool
    refusal: str | None
    http_status: int
    verdict: str
    message: str
    ok: bool


def settings(case: Case) -> str:
    """Return the TOML of a case's stack.

    `prefill-0` holds 512 tokens, the other route 1024: what is advertised is more than one of them
    holds. Prefixes are not kept, so that pages have one owner after another. No breaker opens, so
    that each layer is seen for itself.
    """
    off = ", ".join(f'"{guard}"' for guard in case.off)
    return f"""
[gateway]
port = 0

[commitment]
context_tokens = 1024

[[prefill]]
name = "prefill-0"
pages = 32
prefix_share = 0

[[prefill]]
name = "prefill-1"
pages = 64
prefix_share = 0

[[decode]]
name = "decode-0"
pages = 64
landing = "{case.landing}"
tenant_share = 1.0

[breaker]
failures = 1000
violations = 1000

[drill]
enabled = true
guards_off = [{off}]
"""


def run(
    *, json: bool = False, keep: Path | None = None, only: Iterable[str] = (), verbose: bool = False
) -> int:
    """Run the demo and print its table.

    Args:
        json: Print one JSON document instead of the table.
        keep: Keep settings, logs and evidence of all stacks in this folder.
        only: Names of the scenarios to run; all if empty.
        verbose: Show each refusal's message.

    Returns:
        0 if every row came out as expected, 1 if not, 2 for an unknown scenario.
    """
    progress = Console(stderr=True, highlight=False)
    wanted = tuple(only) or tuple(SCENARIOS)
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown:
        progress.print(f"no scenario {', '.join(unknown)}; there are: {', '.join(SCENARIOS)}")
        return 2
    started = time.monotonic()
    try:
        with workplace(keep) as folder:
            rows = _all_rows(folder, wanted, progress)
    except DrillFailed as failed:
        progress.print(f"the demo could not be carried out: {failed}", style="red")
        return 1
    ok = bool(rows) and all(row.ok for row in rows)
    if json:
        document = {"label": LABEL, "seed": SEED, "ok": ok, "rows": [asdict(r) for r in rows]}
        print(jsonlib.dumps(document, indent=2))
    else:
        _print_table(rows, time.monotonic() - started, verbose)
    return 0 if ok else 1


def _all_rows(folder: Path, wanted: Sequence[str], progress: Console) -> list[Row]:
    keys = make_keys(folder, TENANTS)
    rows: list[Row] = []
    for number, case in enumerate(CASES, start=1):
        names = [name for name in wanted if name in case.expects]
        if names:
            progress.print(f"[{number}/{len(CASES)}] guards {case.guards}: {', '.join(names)}")
            rows += _rows_of(case, names, keys, folder / f"stack-{number}")
    return rows


def _rows_of(case: Case, names: Sequence[str], keys: Keys, folder: Path) -> list[Row]:
    rows: list[Row] = []
    with running(settings(case), keys, folder) as stack:
        bench = Bench(Client(stack, keys), Canaries(SEED), Records(stack.evidence, keys.pseudonyms))
        for name in names:
            outcomes = SCENARIOS[name](bench)
            expects = case.expects[name]
            rows += [_row(case, e, o) for e, o in zip(expects, outcomes, strict=True)]
    return rows


def _row(case: Case, expect: Expect, outcome: Outcome) -> Row:
    return Row(
        scenario=outcome.name,
        guards=case.guards,
        expected=str(expect),
        computed=outcome.computed,
        written=outcome.written,
        answer=outcome.answer,
        leaked=outcome.leaked,
        refusal=outcome.refusal,
        http_status=outcome.http_status,
        verdict=outcome.verdict,
        message=outcome.message,
        ok=expect.met_by(outcome),
    )


def _print_table(rows: Sequence[Row], took_s: float, verbose: bool) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDE_COLUMNS)
    console.print(f"[bold]kvairlock demo[/]: {LABEL}\n")
    if console.width < WIDE_COLUMNS:
        _print_blocks(console, rows)
    else:
        console.print(_table(rows))
    for row in rows:
        if row.message and (verbose or not row.ok):
            console.print(f"{row.scenario}, guards {row.guards}: {row.message}")
    leaking = sum(row.leaked for row in rows)
    wrong = sum(not row.ok for row in rows)
    verdict = f"[red]{wrong} NOT as expected[/]" if wrong else "all as expected"
    console.print(f"{len(rows)} rows, {leaking} leaked, {verdict}, in {took_s:.0f} s")


def _table(rows: Sequence[Row]) -> Table:
    table = Table(show_lines=True)
    for name in COLUMNS:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _print_blocks(console: Console, rows: Sequence[Row]) -> None:
    """What a narrow terminal can show of the table: a heading a row, a line a column."""
    for row in rows:
        scenario, guards, *cells = _cells(row)
        console.print(f"[bold]{scenario}[/], guards {guards}")
        for name, cell in zip(COLUMNS[2:], cells, strict=True):
            console.print(f"  {name:<16}  {cell}")


def _cells(row: Row) -> tuple[str, ...]:
    answer = f"{row.http_status} {row.refusal}" if row.refusal else escape(row.answer)
    expected = f"{row.expected}: " + ("yes" if row.ok else "[bold red]NO[/]")
    return (
        row.scenario,
        row.guards,
        expected,
        escape(row.computed),
        row.written,
        f"[red]{answer}[/]" if row.leaked else answer,
        row.verdict,
    )
