"""Writes those parts of the docs that the code already says, from the tables in the code.

    docs/reference/*             whole files
    ARCHITECTURE.md, docs/*.md   what is between `<!-- generated: NAME -->` and `<!-- end: NAME -->`

`--check` writes nothing: it lists what is stale and exits with status 1.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import audit_pages
import drill_pages
import metrics_pages
import pages
import tracing_pages

from kvairlock.runtime.settings import schema

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = Path("docs/reference")
NOTE = "<!-- Made by docs/generate.py; change the code, then run script/docs. -->\n\n"

BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
    "ARCHITECTURE.md": {"modules": pages.modules},
    "docs/api.md": {"refusals": pages.refusals},
    "docs/audit-rules.md": {
        "rules-affected": audit_pages.affected,
        "rules-insufficient": audit_pages.insufficient,
    },
    "docs/breaker.md": {
        "breaker-conditions": pages.breaker_conditions,
        "breaker-records": pages.breaker_records,
    },
    "docs/capacity.md": {"violations": pages.violations},
    "docs/drills.md": {
        "rounds": drill_pages.rounds,
        "drills": drill_pages.drills,
        "sights": drill_pages.sights,
        "notes": drill_pages.notes,
        "changes": drill_pages.changes,
        "example": drill_pages.example,
        "steps": drill_pages.steps,
        "asking": drill_pages.asking,
        "stack": drill_pages.stack,
        "limits": drill_pages.limits,
        "not-proven": drill_pages.not_proven,
    },
    "docs/metrics.md": {
        "metrics": metrics_pages.metrics,
        "metric-labels": metrics_pages.labels,
        "alerts": metrics_pages.alerts,
        "panels": metrics_pages.panels,
    },
    "docs/tracing.md": {
        "trace-spans": tracing_pages.spans,
        "trace-attributes": tracing_pages.attributes,
    },
    "docs/versions.md": {
        "message-versions": pages.message_versions,
        "combinations": pages.combinations,
        "replacements": pages.replacements,
        "incompatible": pages.incompatible,
    },
    "docs/cases.md": {
        "cases": pages.cases,
        "cases-not-replayed": pages.cases_not_replayed,
        "cases-world": partial(pages.case_phrases, "world"),
        "cases-steps": partial(pages.case_phrases, "steps"),
        "cases-expectations": partial(pages.case_phrases, "expectations"),
    },
}

WHOLE: dict[str, Callable[[], str]] = {
    "cli.md": pages.cli,
    "settings.md": pages.settings,
    "deployment.md": pages.deployment,
    "guards.md": pages.guards,
    "evidence.md": pages.evidence,
    "reasons.md": pages.reasons,
    "states.md": pages.states,
    "faults.md": pages.faults,
    "mutants.md": partial(pages.mutants, ROOT / "docs/mutants.json"),
}


def with_block(text: str, name: str, content: str) -> str:
    """Return a page with the content of one block replaced.

    Raises:
        LookupError: The page has no such block, or several.
    """
    begin, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise LookupError(f"there must be one block from {begin.strip()} to {end.strip()}")
    before, _, rest = text.partition(begin)
    return before + begin + "\n" + content + "\n" + end + rest.partition(end)[2]


def generated() -> dict[Path, str]:
    """Return all files that are generated, wholly or in part, with what they should hold."""
    files = {REFERENCE / name: NOTE + _tidy(make()) for name, make in WHOLE.items()}
    files[REFERENCE / "settings.schema.json"] = json.dumps(schema(), indent=2) + "\n"
    for page, blocks in BLOCKS.items():
        text = (ROOT / page).read_text()
        for name, make in blocks.items():
            text = with_block(text, name, _tidy(make()))
        files[Path(page)] = text
    return files


def _tidy(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text.rstrip()) + "\n"


def stale() -> list[Path]:
    """Return the files that do not hold what they should, or that nobody makes any more."""
    files = generated()
    wrong = [path for path, text in files.items() if _read(ROOT / path) != text]
    made = (path.relative_to(ROOT) for path in (ROOT / REFERENCE).iterdir())
    return sorted([*wrong, *(path for path in made if path not in files)])


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def main() -> int:
    """Write what is stale, or only say so; return the exit status."""
    parser = argparse.ArgumentParser(description="Write the generated parts of the docs.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if any is stale")
    check = parser.parse_args().check
    paths = stale()
    for path in paths:
        print(f"stale: {path} (run script/docs)" if check else f"wrote {path}", file=sys.stderr)
    if check:
        return 1 if paths else 0
    files = generated()
    for path in paths:
        if path in files:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(files[path])
        else:
            (ROOT / path).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
