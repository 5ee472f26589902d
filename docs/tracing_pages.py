"""What docs/tracing.md shows of spans and attributes: printed from their one table."""

from __future__ import annotations

from pages import code, table

from kvairlock.runtime.traces.table import ATTRIBUTES, SPANS, SpanRow


def spans() -> str:
    """Return the table of all spans."""
    titles = ("span", "process", "under", "what it is", "may end later")
    return table(titles, (_span(name, row) for name, row in SPANS.items()))


def _span(name: str, row: SpanRow) -> tuple[object, ...]:
    later = "yes" if row.outlives else ""
    return (code(name), row.role, code(row.parent), row.meaning, later)


def attributes() -> str:
    """Return the table of all attributes, with the spans that may have them."""
    titles = ("attribute", "what it says", "on")
    return table(titles, ((code(a), says, _on(a)) for a, says in ATTRIBUTES.items()))


def _on(attribute: str) -> str:
    return ", ".join(code(name) for name, row in SPANS.items() if attribute in row.attributes)
