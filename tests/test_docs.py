"""The docs say what is: generated parts are fresh, hand-written ones name what exists."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import kvairlock
import kvairlock.core
from kvairlock.check import deployment
from kvairlock.cli import app
from kvairlock.core.errors import REASONS
from kvairlock.core.evidence import EVENTS
from kvairlock.core.guards import GUARDS
from kvairlock.core.promise.conditions import BREACHES
from kvairlock.drills.demo.scenarios import SCENARIOS
from kvairlock.drills.library import shipped as library
from kvairlock.drills.library.drill import Drill
from kvairlock.drills.runs import deployment as agreement
from kvairlock.gateway.endpoints import ENDPOINTS
from kvairlock.gateway.parameters import READ
from kvairlock.gateway.steering import TRANSFER_PARAMETERS
from kvairlock.gateway.unsupported import NEUTRAL, WITHOUT_EFFECT
from kvairlock.metrics.table import LABELS, METRICS, exposed, series
from kvairlock.runtime import settings
from kvairlock.runtime.failpoints import Failpoint, Flaw
from kvairlock.runtime.traces.table import ATTRIBUTES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(kvairlock.__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGE_IDS = [str(path.relative_to(ROOT)) for path in PAGES]
REFERENCE = ROOT / "docs" / "reference"
UNSEEN = {".git", ".venv", "build", "dist", "__pycache__"}

DEPLOYMENT = re.compile(r"^\[\[(gateway|engine)\]\]", re.MULTILINE)
"""Tables that only a deployment file has; other examples in TOML are settings."""

each_page = pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)


sys.path.insert(0, str(ROOT / "docs"))  # it is a script, with its other half beside it
generate: Any = importlib.import_module("generate")
written: Any = importlib.import_module("pages")


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def codes(text: str) -> set[str]:
    """Return what stands in backticks outside of fenced blocks."""
    return set(re.findall(r"`([^`\n]+)`", without_fences(text)))


def without_fences(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def fences(text: str, language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, text, flags=re.MULTILINE | re.DOTALL)


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("kvairlock", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def core_modules() -> Iterator[ModuleType]:
    for module in pkgutil.walk_packages(kvairlock.core.__path__, "kvairlock.core."):
        yield importlib.import_module(module.name)


# Generated parts


def test_generated_parts_are_fresh() -> None:
    assert [str(path) for path in generate.stale()] == [], "run script/docs"


def test_a_changed_page_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = ROOT / generate.REFERENCE / "guards.md"
    read = generate._read
    monkeypatch.setattr(generate, "_read", lambda path: "" if path == changed else read(path))
    assert generate.stale() == [changed.relative_to(ROOT)]


def test_a_page_without_its_block_is_an_error() -> None:
    assert generate.with_block(
        "a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb\n", "x", "new"
    ) == ("a\n<!-- generated: x -->\n\nnew\n<!-- end: x -->\nb\n")
    with pytest.raises(LookupError, match="generated: x"):
        generate.with_block("a page\n", "x", "new")


def test_a_table_that_is_nowhere_is_an_error() -> None:
    with pytest.raises(LookupError, match="0 objects"):
        written.locate("NO_SUCH_TABLE")


# The code is in the docs


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(f"{path} {name}", below)


def test_every_command_and_option_is_documented() -> None:
    page = (REFERENCE / "cli.md").read_text()
    for path, command in commands("kvairlock", typer.main.get_command(app)):
        assert f"## `{path}`\n" in page
        section = page.split(f"## `{path}`\n")[1].split("\n## ")[0]
        for parameter in command.params:
            for flag in [opt for opt in parameter.opts if opt.startswith("--") and opt != "--help"]:
                assert flag in section, f"{path} {flag}"


def test_every_command_is_in_a_page_that_was_written_by_hand() -> None:
    by_hand = "".join(p.read_text() for p in PAGES if REFERENCE not in p.parents)
    for path, command in commands("kvairlock", typer.main.get_command(app)):
        if not getattr(command, "commands", {}):
            assert path in by_hand, path


def test_every_guard_reason_and_event_is_documented() -> None:
    for page, names in (
        ("guards.md", [str(guard) for guard in GUARDS]),
        ("reasons.md", [str(reason) for reason in REASONS]),
        ("reasons.md", [row.code for row in REASONS.values()]),
        ("evidence.md", list(EVENTS)),
    ):
        missing = set(names) - codes((REFERENCE / page).read_text())
        assert not missing, f"{page}: {missing}"


def test_every_setting_is_documented_with_a_description() -> None:
    page = (REFERENCE / "settings.md").read_text()
    documented = json.loads((REFERENCE / "settings.schema.json").read_text())
    assert documented == json.loads(json.dumps(settings.schema()))
    for name, struct in documented["$defs"].items():
        for field, about in struct.get("properties", {}).items():
            heading = f"## `[{field}]`" in page or f"## `[[{field}]]`" in page
            assert heading or re.search(rf"^\| `{field}` \|.*\S.* \|$", page, re.MULTILINE)
            assert heading or about.get("description"), f"{name}.{field}"


def test_every_module_is_in_the_architecture_and_every_one_there_exists() -> None:
    named = {name for name in codes(text_of("ARCHITECTURE.md")) if name.startswith("kvairlock.")}
    assert named == set(modules()) - {"kvairlock"}


def error_codes() -> set[str]:
    """Return the codes of errors that the gateway makes itself, read from its source."""
    sources = [ast.parse(path.read_text()) for path in (PACKAGE / "gateway").rglob("*.py")]
    calls = [node for tree in sources for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {code for call in calls for code in code_of(call)}


def code_of(call: ast.Call) -> Iterator[str]:
    """Yield the code that a call gives to an error, if it makes one and the code is a literal."""
    function = call.func.id if isinstance(call.func, ast.Name) else ""
    place = {"ApiError": 1, "bad_request": 2, "_unauthorized": 1}.get(function)
    if place is None:
        return
    given = [k.value for k in call.keywords if k.arg == "code"] or call.args[place : place + 1]
    for value in given:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def test_every_error_code_header_and_parameter_of_the_gateway_is_documented() -> None:
    known = codes(text_of("docs/api.md"))
    found = error_codes()
    assert {"malformed_json", "invalid_api_key", "body_too_large", "console_full"} <= found
    assert not (found | {"invalid_value"}) - known
    source = "".join(path.read_text() for path in (PACKAGE / "gateway").rglob("*.py"))
    assert not set(re.findall(r'"(x-kvairlock-[a-z-]+)"', source)) - known
    read = READ.union(*(endpoint.form.own for endpoint in ENDPOINTS))
    assert not (read | WITHOUT_EFFECT | set(NEUTRAL) | TRANSFER_PARAMETERS) - known
    assert {f"POST {endpoint.path}" for endpoint in ENDPOINTS} <= known


def test_every_metric_is_documented() -> None:
    page = codes(text_of("docs/metrics.md"))
    assert {exposed(name) for name in METRICS} | LABELS.keys() <= page


def test_metrics_that_pages_name_exist() -> None:
    known = series().keys() | {exposed(name) for name in METRICS}
    for page in PAGES:
        named = {re.split(r"[{\[ ]", code)[0] for code in codes(page.read_text())}
        written = {name for name in named if re.fullmatch(r"kvairlock_\w+", name)}
        assert not written - known, page.name


def test_the_page_about_breakers_has_the_defaults_and_every_violation() -> None:
    page = text_of("docs/breaker.md")
    (example,) = fences(page, "toml")
    shown, default = settings.parse(example).breaker, settings.BreakerSettings()
    assert shown == default
    listed = page.split("- **Violations**")[1].split(". ")[0]
    assert codes(listed) == {str(reason) for reason in BREACHES}


def test_every_scenario_and_failpoint_is_documented() -> None:
    demo = text_of("docs/demo.md")
    assert all(name in demo for name in SCENARIOS)
    assert not {str(point) for point in Failpoint} - codes(text_of("docs/guards.md"))
    assert not {str(flaw) for flaw in Flaw} - codes(text_of("docs/drills.md"))


# The docs name what exists


@each_page
def test_dotted_names_exist(page: Path) -> None:
    known = {*modules(), *ATTRIBUTES}
    for name in codes(page.read_text()):
        if re.fullmatch(r"kvairlock(\.\w+)+", name):
            assert name in known, name


@each_page
def test_files_and_scripts_that_are_named_exist(page: Path) -> None:
    for name in codes(page.read_text()):
        if re.fullmatch(r"(script|tests|core|wire|runtime|node|gateway|cli|engine)/[\w./-]+", name):
            assert (ROOT / name).exists() or (PACKAGE / name).exists(), name


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, made as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", without_fences(text), flags=re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", title.strip().lower()) for title in titles)
    return {word.replace(" ", "-") for word in words}


@each_page
def test_relative_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_fences(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path.read_text()), target


def test_every_page_is_reachable_from_the_readme() -> None:
    linked: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in linked or page.suffix != ".md":
            continue
        linked.add(page)
        targets = re.findall(r"\]\(([^)\s#]+\.md)[^)]*\)", page.read_text())
        waiting += [(page.parent / t).resolve() for t in targets if ":" not in t]
    unlinked = set(PAGES) - linked - {ROOT / "CHANGELOG.md"}
    assert not unlinked


def reader_of(page: Path, block: str) -> Callable[[str], object]:
    """Return what reads an example in TOML."""
    if page.name == "drills.md":
        agreed = "[[tenant]]" in block
        return (lambda text: agreement.parse(text, "example")) if agreed else drill_in
    return deployment.parse if DEPLOYMENT.search(block) else settings.parse


def drill_in(text: str) -> Drill:
    """Read a drill, whatever it is called."""
    name = re.search(r'^name = "(.+)"$', text, re.MULTILINE)
    return library.parse(text, name[1] if name else "")


@each_page
def test_examples_can_be_read(page: Path) -> None:
    text = page.read_text()
    for block in fences(text, "toml"):
        reader_of(page, block)(block)
    for block in fences(text, "python"):
        ast.parse(block)
    for block in fences(text, "json"):
        json.loads(block)


def test_every_type_in_the_glossary_exists_in_the_core() -> None:
    types = {name for name in codes(text_of("docs/glossary.md")) if name[:1].isupper()}
    assert len(types) > 40
    known = {name for module in core_modules() for name in vars(module)}
    assert not types - known


def test_pages_that_the_code_names_exist() -> None:
    for path in PACKAGE.rglob("*.py"):
        for name in re.findall(r"\bdocs/[\w./-]*\w", path.read_text()):
            assert (ROOT / name).exists(), f"{path.relative_to(ROOT)}: {name}"


def text_files() -> Iterator[tuple[Path, str]]:
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part != ".ci" for part in parts[:-1])
        if path.is_file() and not hidden and not UNSEEN & set(parts):
            try:
                yield path, path.read_text()
            except UnicodeDecodeError:
                continue


def test_no_text_names_a_place_outside_of_the_repository() -> None:
    # Written in pieces, so that this file is not its own finding.
    outside = re.compile(r"(?<![\w.-])/(wo" + r"rk|ro" + r"ot)\b|\b(?<!/)sha" + r"red/")
    for path, text in text_files():
        found = outside.search(text)
        assert found is None, f"{path.relative_to(ROOT)}: {found[0] if found else ''}"
