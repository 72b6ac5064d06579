"""Paths on the way to the admin API and back: it has them as text that can be read back."""

from __future__ import annotations

import os
from typing import Any

from gateway.escapes import bytes_of, text_of
from gateway.text import printable


def encoded(path: str) -> str:
    """Return a path of the command line in the form that the API takes."""
    return text_of(os.fsencode(path))


def shown_path(text: str) -> str:
    """Return a path or name of an answer as commands show it."""
    return printable(bytes_of(text))


def shown_paths(facts: dict[str, Any], *names: str) -> dict[str, Any]:
    """Have facts show paths as commands do. Returns the same facts. Parameters: names, of what is a
    path or a name."""
    for name in names:
        if facts.get(name) is not None:
            facts[name] = shown_path(facts[name])
    return facts
