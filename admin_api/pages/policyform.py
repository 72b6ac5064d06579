"""A policy as a form: its keys are fields, and a field that is empty says nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TIERS = 3
"""The rows of ``thin`` that a form has."""
_CHOICES = ("keep_best.best", "keep_best.unmeasured")
"""They have a value also if no checkpoint is kept as one of the best."""
_TEXTS = (
    "name",
    "run",
    "path",
    "keep_best.file",
    "keep_best.key",
    "storage_class",
    "approve",
    *_CHOICES,
)
_NUMBERS = (
    *("keep_newest", "keep_every_steps", "keep_best.number"),
    *("delete_after_days", "wait_hours", "evict_after_hours", "transition_after_days"),
)
_TIER = ("older_than_days", "one_per_hours")
FIELDS = (*_TEXTS, *_NUMBERS, *(f"thin.{row}.{key}" for row in range(TIERS) for key in _TIER))
_KEY = re.compile(r"policy [^:]*: ([a-z_.]+)")


def document_of(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the document that a form says, for ``gateway.retention.policy.of``.

    A number that is none stays a text: the policy then says what is wrong with that key.
    """
    said = {name: values.get(name, "").strip() for name in FIELDS}
    if not any(
        said[name] for name in FIELDS if name.startswith("keep_best.") if name not in _CHOICES
    ):
        said |= dict.fromkeys(_CHOICES, "")
    document: dict[str, Any] = {}
    for name in (*_TEXTS, *_NUMBERS):
        if not said[name]:
            continue
        table, key = document, name
        if "." in name:
            above, key = name.split(".")
            table = document.setdefault(above, {})
        table[key] = said[name] if name in _TEXTS else _number(said[name])
    rows = [{key: _number(said[f"thin.{row}.{key}"]) for key in _TIER} for row in range(TIERS)]
    rows = [{key: value for key, value in row.items() if value != ""} for row in rows]
    if rows := [row for row in rows if row]:
        document["thin"] = rows
    return document


def values_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a form for a document. Inverse of ``document_of``."""
    values = dict.fromkeys(FIELDS, "")
    for key, value in document.items():
        if key == "thin":
            for row, tier in enumerate(value[:TIERS]):
                values |= {
                    f"thin.{row}.{name}": _text(tier[name]) for name in _TIER if name in tier
                }
        elif isinstance(value, Mapping):
            values |= {f"{key}.{name}": _text(inner) for name, inner in value.items()}
        else:
            values[key] = _text(value)
    return values


def fits(document: Mapping[str, Any]) -> bool:
    """Return whether a form can show a document, so that saving it loses nothing."""
    return document_of(values_of(document)) == dict(document)


def field_of(error: str) -> str | None:
    """Return the field that the error of a policy is about, if there is one."""
    found = _KEY.match(error)
    if found is None:
        return "name" if error.startswith("a policy has name") else None
    name = found[1].rstrip(".")
    return {"thin": "thin.0.older_than_days", "keep_best": "keep_best.number"}.get(name, name)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)
