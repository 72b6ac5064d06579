"""Declares the keys of the configuration for the classes of settings."""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any

from gateway import checks


def key(
    doc: str, default: Any = MISSING, check: checks.Check | None = None, *, secret: bool = False
) -> Any:
    """Declare a key: its documentation, its default (a key without one is required), its check.

    Parameters: secret, whether the value may hold a password; errors then do not quote the value.
    """
    return field(default=default, metadata={"doc": doc, "check": check, "secret": secret})
