"""Who asks: a token or a session, with its role. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Role(IntEnum):
    """What a caller may do. Each role may do everything that the one before it may."""

    VIEWER = 1
    """Reads everything but secrets."""
    OPERATOR = 2
    """Orders work that loses nothing: promote, pin, warm, evict, hold, undelete."""
    ADMIN = 3
    """Deletes, changes policies, exports and tokens."""

    @property
    def word(self) -> str:
        """The role as people write it."""
        return self.name.lower()


class Principal(NamedTuple):
    """A caller whose token or session was verified."""

    name: str
    role: Role
    token_id: str
    """The token, also of a session: it ends when its token is revoked."""
