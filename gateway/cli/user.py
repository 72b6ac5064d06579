"""Names the person who gives an order, for the record of it."""

from __future__ import annotations

import os
import pwd

from gateway.text import shown

_kept: list[str] = []


def keep() -> None:
    """Keep the name: the process becomes another user."""
    _kept.append(name())


def name() -> str:
    """Return the name of the user who runs the command, or who called sudo."""
    if _kept:
        return _kept[0]
    if said := os.environ.get("SUDO_USER"):
        return shown(said)
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
