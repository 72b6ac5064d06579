"""Names the person who gives an order, for the record of it."""

from __future__ import annotations

import os
import pwd

from gateway.text import shown


def name() -> str:
    """Return the name of the user who runs the command, or who called sudo."""
    if said := os.environ.get("SUDO_USER"):
        return shown(said)
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
