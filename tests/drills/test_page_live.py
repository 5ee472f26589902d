"""Pictures of real processes: what leaked stands out by their own records, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import Client
from kvairlock.drills.demo.run import CASES, SEED, TENANTS, Case, settings
from kvairlock.drills.demo.scenarios import SCENARIOS, Bench
from kvairlock.drills.records import Records
from kvairlock.drills.report.page import page
from kvairlock.drills.runs.rows import RunEvidence
from kvairlock.drills.stack import make_keys, running
from kvairlock.pictures.edges import Clock
from kvairlock.pictures.findings import FindingKind
from kvairlock.pictures.gaps import gaps
from kvairlock.pictures.scenes import Picture, picture
from kvairlock.sink.reading import read_folder
from tests.drills.test_page import DOCUMENT
from tests.pictures.pages import assert_harmless, main_of, words

BY_GUARDS = {case.guards: case for case in CASES}
SCENES = ("incident", "late-write", "after-success", "tickets")


def carry_out(case: Case, folder: Path, scenes: Sequence[str] = SCENES) -> Path:
    """Carry the scenarios out on a stack of their own, and return its evidence."""
    keys = make_keys(folder, TENANTS)
    with running(settings(case), keys, folder) as stack:
        bench = Bench(Client(stack, keys), Canaries(SEED), Records(stack.evidence, keys.pseudonyms))
        for name in scenes:
            SCENARIOS[name](bench)
    return stack.evidence


def seen_in(folder: Path) -> Picture:
    return picture(read_folder(folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guards", "kinds"),
    [
        (
            "off",
            {
                FindingKind.AGAINST_STATEMENT,
                FindingKind.UNCONFIRMED,
                FindingKind.UNPROVEN,
                FindingKind.UNHELD,
                FindingKind.FOREIGN,
                FindingKind.LATE_WRITE,
            },
        ),
        ("on", set()),
    ],
)
def test_what_leaks_on_a_real_stack_stands_out_and_nothing_else(
    guards: str, kinds: set[FindingKind], tmp_path: Path
) -> None:
    folder = carry_out(BY_GUARDS[guards], tmp_path)
    seen = seen_in(folder)
    assert {finding.kind for finding in seen.findings} == kinds
    assert (seen.clock, gaps(seen)) == (Clock.BOOT, ())
    html = page(DOCUMENT, [RunEvidence(f"guards {guards}", folder)])
    assert_harmless(html)
    assert not [name for name in TENANTS if name in html]
    assert len(list(main_of(html).iterfind(".//svg[@role='img']"))) == len(seen.scenes) > 0
    assert ("Nothing does, in what was recorded." in words(main_of(html))) == (not kinds)
