"""Writes the stories to their files, and the two happy ones into docs/protocol.md.

`--check` writes nothing: it lists what is stale and exits with status 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tests.transcripts.stories import STORIES
from tests.transcripts.telling import FOLDER, told

PAGE = FOLDER.parents[1] / "docs" / "protocol.md"


def files() -> dict[Path, str]:
    """Return every file with what it should hold."""
    texts = {story.name: told(story) for story in STORIES}
    found = {FOLDER / f"{name}.txt": text for name, text in texts.items()}
    found[PAGE] = with_stories(PAGE.read_text(), texts)
    return found


def with_stories(page: str, texts: dict[str, str]) -> str:
    """Return a page with the stories that it names put between their marks."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- story: {name} -->\n\n```text\n{texts[name]}```\n\n<!-- end: {name} -->"

    pattern = r"<!-- story: (?P<name>[\w-]+) -->.*?<!-- end: (?P=name) -->"
    return re.sub(pattern, block, page, flags=re.DOTALL)


def stale() -> list[Path]:
    """Return the files that do not hold what they should, or that no story is told in."""
    should = files()
    wrong = [path for path, text in should.items() if _read(path) != text]
    return sorted([*wrong, *(path for path in FOLDER.glob("*.txt") if path not in should)])


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def main() -> int:
    """Write what is stale, or only say so; return the exit status."""
    parser = argparse.ArgumentParser(description="Write the stories of the protocol.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if any is stale")
    check, should = parser.parse_args().check, files()
    paths = stale()
    for path in paths:
        if check:
            print(f"stale: {path.name} (run script/transcripts)", file=sys.stderr)
        elif path in should:
            path.write_text(should[path])
            print(f"wrote {path.name}", file=sys.stderr)
        else:
            path.unlink()
            print(f"removed {path.name}", file=sys.stderr)
    return 1 if check and paths else 0


if __name__ == "__main__":
    sys.exit(main())
