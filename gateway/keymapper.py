"""Maps paths to object keys and back.

The copy ``/.spillway/promoted/best`` that a person released to ``models`` has the keys
``models/best`` and ``models/best/...``, and no other copy or file has them: the prefix of the
gateway and that of a release are never one below the other (gateway.promotion.wishes).
"""

from __future__ import annotations

from functools import cached_property, lru_cache

from sqlalchemy import select

from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement
from gateway.db.models import RESERVED_INO, ROOT_INO
from gateway.db.statements import promotion
from gateway.namespace.lookup import DirectoryMemo, way_up
from gateway.objectstore import keys

Parts = tuple[bytes, ...]
RELEASED = Statement(
    select(promotion.c.name, promotion.c.released).where(promotion.c.released.is_not(None))
)
KEYS_KEPT = 8192
"""Keys are kept because a plan and the two transactions of its upload need the same key."""
DIRECTORIES_KEPT = 4096
_key_of = lru_cache(KEYS_KEPT)(keys.key_of)


class KeyMapper:
    """The keys of one namespace, and the paths that have reached the bucket.

    It remembers promotions and directories, so it serves one look at the tables.

    Args:
        session: in a transaction, or without one to read only.
        prefix: of the keys.
    """

    def __init__(self, session: Session, prefix: str) -> None:
        self._session = session
        self._prefix = prefix
        roots = {ROOT_INO: (), RESERVED_INO: (keys.RESERVED,)}
        self._settled = DirectoryMemo[Parts](roots, DIRECTORIES_KEPT)

    def key_of(self, parts: Parts) -> str:
        """Return the key of a path."""
        return _key_of(*self._placed(parts))

    def rest_of(self, parts: Parts) -> str:
        """Return the part of a path that its key does not contain. Mostly it is empty."""
        prefix, below = self._placed(parts)
        return keys.rest_of(prefix, below) if keys.is_shortened(_key_of(prefix, below)) else ""

    def parts_of(self, key: str) -> Parts | None:
        """Return the path of a key, or the directories of a shortened key.

        Returns:
            None for a key that is not below the prefix.
        """
        try:
            return tuple(keys.parts_of(self._prefix, key))
        except ValueError:
            return None

    def settled_path(self, directory: int) -> Parts | None:
        """Return the path of a directory that has reached the bucket.

        Returns:
            None if it has no path, or a rename of it or of one above has not reached the bucket.
        """
        return self._settled.of(directory, way_up(self._session, directory), self._below)

    def is_settled(self, ino: int, key: str) -> bool:
        """Return whether a key is that of one of a file's names."""
        for parent, name in self._session.all(sql.NAMES, ino=ino):
            above = self.settled_path(parent)
            if above is not None and self.key_of((*above, name)) == key:
                return True
        return False

    def _below(self, above: Parts, ino: int, name: bytes) -> Parts | None:
        return None if self._session.one(sql.REKEY, ino=ino) else (*above, name)

    def _placed(self, parts: Parts) -> tuple[str, Parts]:
        if parts[:2] == keys.PROMOTED and len(parts) > 2:
            return keys.promoted(self._prefix, self._released.get(parts[2]), parts)
        return self._prefix, parts

    @cached_property
    def _released(self) -> dict[bytes, str]:
        return {name.encode(): released for name, released in self._session.all(RELEASED)}
