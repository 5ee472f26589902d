"""The page of an audit of real processes: the demo's incident, from its evidence alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.auditing import audit
from kvairlock.audit.page import html
from kvairlock.audit.page.words import DIGITS
from kvairlock.audit.report import Class
from kvairlock.audit.story import story_of
from kvairlock.audit.tables import open_evidence
from tests.drills.test_page_live import BY_GUARDS, carry_out
from tests.pictures.pages import assert_harmless, assert_served, main_of, words

pytestmark = pytest.mark.slow


def test_the_demos_incident_is_drawn_with_whose_pages_it_read(
    engine: BaseBackend, tmp_path: Path
) -> None:
    stack, working = tmp_path / "stack", tmp_path / "working"
    stack.mkdir()
    working.mkdir()
    recorded = carry_out(BY_GUARDS["off"], stack, ["incident"])
    evidence = open_evidence([recorded], working, engine)
    report = audit(evidence)
    made = html(report, story_of(evidence, report))
    assert_harmless(made)
    main = main_of(made)
    assert_served(main)
    (verdict,) = report.verdicts(Class.AFFECTED)
    (article,) = main.iter("article")
    assert words(article[0]) == f"Request {verdict.request[:DIGITS]}"
    picture = article.find(".//svg[@role='img']")
    assert picture is not None
    (other,) = {exposure.other for exposure in report.exposures}
    assert verdict.request[:4] in words(picture)
    assert other[:4] in words(picture)
    assert "read, not confirmed" in words(picture)
    assert "tokens [0, 1) were confirmed" in words(article)
