"""Says at which key the object of a file should be, and whether it can be there by now."""

from __future__ import annotations

from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.models import RESERVED_INO, ROOT_INO
from gateway.namespace.lookup import way_up
from gateway.objectstore import keys
from gateway.released import Releases

Parts = tuple[bytes, ...]
_ROOT: dict[int, Parts | None] = {ROOT_INO: (), RESERVED_INO: (keys.RESERVED,)}
KEPT = 4096
"""The directories whose paths are remembered."""


class Homes:
    """The keys of paths. It remembers the paths of directories, so it serves one look at the
    tables.

    Parameters: session, without a transaction or in one that only reads; prefix of the keys.
    """

    def __init__(self, session: Session, prefix: str) -> None:
        self._session = session
        self._keys = Releases(session, prefix)
        self._paths = dict(_ROOT)

    def key_of(self, parts: Parts) -> str:
        """Return the key of a path."""
        return self._keys.key_of(parts)

    def path(self, directory: int) -> Parts | None:
        """Return the path of a directory, or None if it has none or a rename of it, or of one
        above, has not reached the bucket."""
        if directory in self._paths:
            return self._paths[directory]
        if len(self._paths) >= KEPT:
            self._paths = dict(_ROOT)
        below: list[tuple[int, bytes]] = []
        at = directory
        for ino, parent, name in way_up(self._session, directory):
            if ino in self._paths:
                break
            below.append((ino, name))
            at = parent
        if at not in self._paths:
            self._paths[directory] = None  # it was removed meanwhile
        for ino, name in reversed(below):
            above = self._paths.get(at)
            is_renamed = self._session.one(sql.REKEY, ino=ino) is not None
            self._paths[ino] = None if above is None or is_renamed else (*above, name)
            at = ino
        return self._paths[directory]

    def is_at_home(self, ino: int, key: str) -> bool:
        """Return whether a key is that of one of a file's names."""
        for parent, name in self._session.all(sql.NAMES, ino=ino):
            above = self.path(parent)
            if above is not None and self.key_of((*above, name)) == key:
                return True
        return False
