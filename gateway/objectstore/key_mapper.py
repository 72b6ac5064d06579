"""Key mapper: the object key of each path below the export, and the path of each key.

A key is the path of a file in UTF-8. Two paths never share a key. Valid UTF-8 stays readable. Only
what a key or the XML of S3 cannot carry becomes %XX (gateway.common.text), and so do backslashes
and the names . and .. The path can be computed from such a key.

A key of more than 1,024 bytes is shortened to the directories that fit, ``%~`` and the SHA-256 of
the whole path. Only those directories can be computed from it. The object carries the rest of the
path (``rest_of``).

``<prefix>/.spillway/`` belongs to the gateway: no path of a client maps below it. The paths in the
gateway's own directory of the namespace do, and begin with ``RESERVED``.

The functions are pure. ``KeyMapper`` also knows the prefixes of promoted copies from their rows:
the copy ``/.spillway/promoted/best`` that a person promoted to ``models`` has the keys
``models/best`` and ``models/best/...``, and no other copy or file has them. The prefix of the
gateway and that of a copy are never one below the other (gateway.lifecycle.promotion.store).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from urllib.parse import quote_from_bytes

from sqlalchemy import select

from gateway.common.text import bytes_of, text_of
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement
from gateway.db.models import RESERVED_INO, ROOT_INO
from gateway.db.statements import promotion
from gateway.namespace.lookup import DirectoryMemo, way_up

KEY_MAX_BYTES = 1024
"""The limit of S3."""
REST_MAX_BYTES = 1500
"""S3 accepts 2 KB of metadata with an object."""
OURS = ".spillway"
"""First name, below the prefix, of every key in the bucket that is not a client's file."""
RESERVED = b"/" + OURS.encode()
"""First part of a path in the gateway's own directory (gateway.namespace.reserved). No name has a
slash: a client's entry of that name would have another key."""
TRASH = (RESERVED, b"trash")
"""The path of the trash."""
PROMOTED = (RESERVED, b"promoted")
"""The path of the promoted copies."""
_WHOLE_NAMES = {RESERVED.decode(): OURS, OURS: "%2Espillway", ".": "%2E", "..": "%2E%2E"}

_SHORTENED = re.compile("%~[0-9a-f]{64}")


def key_of(prefix: str, parts: Sequence[bytes]) -> str:
    """Return the key of a path.

    Args:
        prefix: prefix without slashes at its ends, may be empty.
        parts: the names below the export, at least one, none empty.
    """
    names = _names(parts)
    key = _below(prefix, "/".join(names))
    if len(key.encode()) <= KEY_MAX_BYTES:
        return key
    last = "%~" + hashlib.sha256(b"/".join(parts)).hexdigest()
    return _below(prefix, "/".join([*names[: _kept(prefix, names)], last]))


def rest_of(prefix: str, parts: Sequence[bytes]) -> str:
    """Return the part of a path that its shortened key lacks, quoted as in URLs.

    It is the names after the directories of the key; of a very long path it is their end. It is
    empty if the key is not shortened.
    """
    names = _names(parts)
    if len(_below(prefix, "/".join(names)).encode()) <= KEY_MAX_BYTES:
        return ""
    rest = quote_from_bytes(b"/".join(parts[_kept(prefix, names) :]))
    return rest if len(rest) <= REST_MAX_BYTES else rest[-REST_MAX_BYTES:].partition("/")[2]


def promoted(
    prefix: str, key_prefix: str | None, parts: tuple[bytes, ...]
) -> tuple[str, tuple[bytes, ...]]:
    """Return the prefix and the parts of which the key of a path in a promoted copy is made.

    Args:
        prefix: of the gateway.
        key_prefix: of the copy, if it was published at a prefix of its own, or None.
        parts: the path, which begins with ``PROMOTED`` and the name of the promotion.
    """
    return (prefix, parts) if key_prefix is None else (key_prefix, parts[len(PROMOTED) :])


def is_shortened(key: str) -> bool:
    """Return whether a key was shortened because its path is too long."""
    return _SHORTENED.fullmatch(key.rpartition("/")[2]) is not None


def parts_of(prefix: str, key: str) -> list[bytes]:
    """Return the path of a key (the inverse of key_of), or the directories of a shortened key.

    Raises: ValueError for a key that is not below the prefix.
    """
    start = _below(prefix, "")
    path = key[len(start) :]
    if not key.startswith(start) or not path or path == OURS:
        raise ValueError(f"not the key of a file below {start!r}: {key!r}")
    names = path.split("/")
    if names[0] == OURS:
        names[0] = RESERVED.decode()
    return [bytes_of(name) for name in (names[:-1] if is_shortened(key) else names)]


def _names(parts: Sequence[bytes]) -> list[str]:
    # SeaweedFS takes a backslash for a slash: the file a\\b would replace the object of a/b.
    names = [text_of(part).replace("\\", "%5C") for part in parts]
    return [
        _WHOLE_NAMES.get(name, name) if at == 0 or name != OURS else name
        for at, name in enumerate(names)
    ]


def _kept(prefix: str, names: Sequence[str]) -> int:
    """Return how many directories fit into a shortened key, with the hash."""
    room = KEY_MAX_BYTES - len(_below(prefix, "%~").encode()) - hashlib.sha256().digest_size * 2
    for at, name in enumerate(names[:-1]):
        room -= len(name.encode()) + 1
        if room < 0:
            return at
    return len(names) - 1


def above(prefix: str, key: str) -> list[str]:
    """Return the keys below the prefix that a key goes through, the shortest first.

    A store that keeps objects as files has no object at one of them beside one at the key.
    """
    start = len(_below(prefix, ""))
    return [key[:at] for at in range(start, len(key)) if key[at] == "/"]


def cross(one: str, other: str) -> bool:
    """Return whether one of two keys goes through the other."""
    return one.startswith(f"{other}/") or other.startswith(f"{one}/")


def staging_key(prefix: str, ino: int) -> str:
    """Return the key at which an inode's object waits while another file takes its old key."""
    return _below(prefix, f"{OURS}/staging/{ino}")


def probe_key(prefix: str, name: str) -> str:
    """Where an object is put for a moment, to see how the store behaves."""
    return _below(prefix, f"{OURS}/probe/{name}")


def owner_key(prefix: str) -> str:
    """Return the key of the object that says which gateway the prefix belongs to."""
    return _below(prefix, f"{OURS}/owner.json")


def owned_prefix(key: str) -> str | None:
    """Return the prefix whose owner object has a key, or None if it is no such key."""
    above, _slash, last = key.rpartition(f"{OURS}/owner.json")
    return None if last or (above and not above.endswith("/")) else above.rstrip("/")


def probes_below(prefix: str) -> str:
    """Return the prefix of the keys that ``probe_key`` gives."""
    return _below(prefix, f"{OURS}/probe/")


def manifests_below(prefix: str) -> str:
    """Return the prefix of the keys of manifests. ``key_of`` and ``parts_of`` take it: the parts
    are the names of the run, and the name that ``catalogue.manifests.name_of`` gives."""
    return _below(prefix, f"{OURS}/checkpoints")


def ours_below(prefix: str) -> str:
    """Return the beginning of the keys of what belongs to the gateway."""
    return _below(prefix, f"{OURS}/")


def promoted_below(prefix: str) -> str:
    """Return the prefix of the keys of promoted copies and their manifests."""
    return _below(prefix, f"{OURS}/promoted")


def _below(prefix: str, path: str) -> str:
    return f"{prefix}/{path}" if prefix else path


Parts = tuple[bytes, ...]
KEY_PREFIXES = Statement(
    select(promotion.c.name, promotion.c.key_prefix).where(promotion.c.key_prefix.is_not(None))
)
KEYS_KEPT = 8192
"""Keys are kept because a plan and the two transactions of its upload need the same key."""
DIRECTORIES_KEPT = 4096
_key_of = lru_cache(KEYS_KEPT)(key_of)


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
        roots = {ROOT_INO: (), RESERVED_INO: (RESERVED,)}
        self._settled = DirectoryMemo[Parts](roots, DIRECTORIES_KEPT)

    def key_of(self, parts: Parts) -> str:
        """Return the key of a path."""
        return _key_of(*self._placed(parts))

    def rest_of(self, parts: Parts) -> str:
        """Return the part of a path that its key does not contain. Mostly it is empty."""
        prefix, below = self._placed(parts)
        return rest_of(prefix, below) if is_shortened(_key_of(prefix, below)) else ""

    def parts_of(self, key: str) -> Parts | None:
        """Return the path of a key, or the directories of a shortened key.

        Returns:
            None for a key that is not below the prefix.
        """
        try:
            return tuple(parts_of(self._prefix, key))
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
        if parts[:2] == PROMOTED and len(parts) > 2:
            return promoted(self._prefix, self._key_prefixes.get(parts[2]), parts)
        return self._prefix, parts

    @cached_property
    def _key_prefixes(self) -> dict[bytes, str]:
        return {name.encode(): key_prefix for name, key_prefix in self._session.all(KEY_PREFIXES)}
