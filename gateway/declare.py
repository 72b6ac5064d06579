"""Declares the keys of the configuration for the classes of settings."""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any

from gateway import checks


def key(
    doc: str,
    default: Any = MISSING,
    check: checks.Check | None = None,
    *,
    secret: bool = False,
    was_switch: bool = False,
) -> Any:
    """Declare a key: its documentation, its default (a key without one is required), its check.

    Parameters: secret, whether the value may hold a password; errors then do not quote the value.
    was_switch, whether earlier versions had true and false here, which are read as on and off.
    """
    about = {"doc": doc, "check": check, "secret": secret, "was_switch": was_switch}
    return field(default=default, metadata=about)
