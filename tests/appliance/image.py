"""The machine that the roles make a gateway of: a fresh Debian with systemd and sshd.

The tests start with a copy, so what they change does not stay.
"""

from __future__ import annotations

from pathlib import Path

from package.base import Base, base

MORE = ("lvm2", "mdadm", "postgresql", "sudo")


def image(cache: Path) -> Base:
    """Return the machine, made if the cache has none. As root. Raises CalledProcessError."""
    return base(cache, "machine", MORE)
