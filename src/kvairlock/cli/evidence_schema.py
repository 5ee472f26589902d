"""The schema of evidence as people and programs read it: a table, and the JSON Schema of a line."""

from __future__ import annotations

from typing import Any

from kvairlock.core.evidence import ENVELOPE, EVENTS, SCHEMA_VERSION, Field, Kind, Sensitivity

COLUMNS = ("event", "field", "type", "unit", "purpose", "retention", "sensitivity")
EVERY_EVENT = "(every event)"

_TYPES: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {"type": ["string", "null"]},
    Kind.INTEGER: {"type": ["integer", "null"]},
    Kind.INTEGERS: {"type": ["array", "null"], "items": {"type": "integer"}},
    Kind.TEXTS: {"type": ["array", "null"], "items": {"type": "string"}},
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of an evidence file, an alternative for each event."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"kvairlock evidence, version {SCHEMA_VERSION}",
        "oneOf": [_record(event, fields) for event, fields in EVENTS.items()],
    }


def _record(event: str, fields: dict[str, Field]) -> dict[str, Any]:
    properties = {name: _property(field) for name, field in (ENVELOPE | fields).items()}
    for name, field in ENVELOPE.items():
        properties[name]["type"] = "integer" if field.kind is Kind.INTEGER else "string"
    properties["event"]["const"] = event
    properties["schema"]["const"] = SCHEMA_VERSION
    return {
        "title": event,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _property(field: Field) -> dict[str, Any]:
    known: dict[str, Any] = {
        **_TYPES[field.kind],
        "description": field.purpose,
        "x-retention-days": field.retention_days,
        "x-sensitivity": field.sensitivity,
    }
    if field.sensitivity is Sensitivity.PSEUDONYM:
        known["description"] += " (keyed digest)"
    return known | ({"x-unit": field.unit} if field.unit else {})


def rows() -> list[tuple[str, ...]]:
    """Return a row of `COLUMNS` for each field: those of every record, then those of each event."""
    found = [_row(EVERY_EVENT, name, field) for name, field in ENVELOPE.items()]
    for event, fields in EVENTS.items():
        found += [_row(event, name, field) for name, field in fields.items()]
    return found


def _row(event: str, name: str, field: Field) -> tuple[str, ...]:
    days = f"{field.retention_days} days"
    return (event, name, field.kind, field.unit, field.purpose, days, field.sensitivity)
