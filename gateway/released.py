"""Makes the keys of paths, also of promoted copies that are released at a prefix of their own.

The copy ``/.spillway/promoted/best`` that a person released to ``models`` has the keys
``models/best`` and ``models/best/...``, and no other copy or file has them: the prefix of the
gateway and that of a release are never one below the other (gateway.promotion.wishes).
"""

from __future__ import annotations

from functools import cached_property, lru_cache

from sqlalchemy import select

from gateway.db.compiled import Session, Statement
from gateway.db.statements import promotion
from gateway.objectstore import keys

Parts = tuple[bytes, ...]
RELEASED = Statement(
    select(promotion.c.name, promotion.c.released).where(promotion.c.released.is_not(None))
)
KEYS_KEPT = 8192
"""Keys are kept because a plan and the two transactions of its upload need the same key."""
_key_of = lru_cache(KEYS_KEPT)(keys.key_of)


class Releases:
    """The keys of one namespace, as one transaction sees the promotions.

    Parameters: session; prefix of the keys.
    """

    def __init__(self, session: Session, prefix: str) -> None:
        self._session = session
        self._prefix = prefix

    def key_of(self, parts: Parts) -> str:
        """Return the key of a path."""
        return _key_of(*self._placed(parts))

    def rest_of(self, parts: Parts) -> str:
        """Return the part of a path that its key does not contain. Mostly it is empty."""
        prefix, below = self._placed(parts)
        return keys.rest_of(prefix, below) if keys.is_shortened(_key_of(prefix, below)) else ""

    def _placed(self, parts: Parts) -> tuple[str, Parts]:
        if parts[:2] == keys.PROMOTED and len(parts) > 2:
            released = self._released.get(parts[2])
            if released is not None:
                return released, parts[2:]
        return self._prefix, parts

    @cached_property
    def _released(self) -> dict[bytes, str]:
        return {name.encode(): released for name, released in self._session.all(RELEASED)}
