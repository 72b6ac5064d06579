"""Documents of the settings: what they have, their keys, and reading them.

    settings/<number>-<utc time>-<random>.json.gz

One document has the configuration without what may be a password, and the tokens of the admin API.
The highest number is the newest one, whatever the clocks said.
"""

from __future__ import annotations

import gzip
import json
import re
import secrets
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gateway.common import clock
from gateway.objectstore.objects import ListedObject
from gateway.recovery.copy_objects import CopyObjects
from gateway.recovery.segments import BadSegment

FORMAT = 1
"""The version of this format. A reader refuses a higher one."""
SUFFIX = ".json.gz"
_NAME = re.compile(r"(\d{8})-(\d{8}T\d{6}Z)-[0-9a-f]{8}" + re.escape(SUFFIX))
_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class SettingsDocument:
    """The settings of a gateway at one moment."""

    version: str
    """The version of the program."""
    time_ns: int
    namespace: str
    """Id of the namespace, in hex."""
    configuration: str
    """The keys that were set, as the TOML file has them, without secrets."""
    admin_db: bytes | None
    """A database of SQLite with the tables of ``admin.db``: see ``gateway.recovery.admin_copy``.
    None: there was none."""

    def encoded(self) -> bytes:
        """Return the object."""
        admin_db = None if self.admin_db is None else b64encode(self.admin_db).decode("ascii")
        facts = {
            "format": FORMAT,
            "version": self.version,
            "time": clock.rfc3339(self.time_ns),
            "namespace": self.namespace,
            "configuration": self.configuration,
            "admin_db": admin_db,
        }
        return gzip.compress(json.dumps(facts, indent=1).encode() + b"\n", mtime=0)


def decoded(body: bytes, name: str) -> SettingsDocument:
    """Return the document that an object has.

    Args:
        body: of the object.
        name: for errors.

    Raises:
        BadSegment: it is not whole, or cannot be understood.
    """
    try:
        facts: dict[str, Any] = json.loads(gzip.decompress(body))
        if facts["format"] > FORMAT:
            raise BadSegment(
                f"{name} was written by a newer Spillway (format {facts['format']}): install that"
            )
        admin_db = facts["admin_db"]
        return SettingsDocument(
            str(facts["version"]),
            clock.nanoseconds_of(facts["time"]),
            str(facts["namespace"]),
            str(facts["configuration"]),
            None if admin_db is None else b64decode(admin_db, validate=True),
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as exc:
        raise BadSegment(f"{name} cannot be understood: {exc}") from None


class ListedSettings(NamedTuple):
    """A document, as its key says."""

    number: int
    time_ns: int
    listed: ListedObject


class SettingsStore:
    """The documents in one place.

    Args:
        objects: of the copy.
    """

    def __init__(self, objects: CopyObjects) -> None:
        self._objects = objects
        self._below = f"{objects.below}settings/"

    def documents(self) -> list[ListedSettings]:
        """Return what is there, the oldest first.

        Raises:
            StoreError: the bucket cannot be listed.
        """
        found = []
        for listed in self._objects.listing(self._below):
            if match := _NAME.fullmatch(listed.key.removeprefix(self._below)):
                moment = datetime.strptime(match[2], _TIME).replace(tzinfo=UTC)
                time_ns = int(moment.timestamp()) * clock.NS
                found.append(ListedSettings(int(match[1]), time_ns, listed))
        return sorted(found)

    def read(self, found: ListedSettings) -> SettingsDocument:
        """Read a document.

        Raises:
            BadSegment: it cannot be understood.
            StoreError: the bucket does not give it.
        """
        return decoded(self._objects.read(found.listed), found.listed.key)

    def put(self, document: SettingsDocument, number: int) -> None:
        """Put a document.

        Raises:
            StoreError: it may be there all the same.
            OSError: the disk does not take it.
        """
        moment = datetime.fromtimestamp(document.time_ns // clock.NS, UTC).strftime(_TIME)
        name = f"{number:08d}-{moment}-{secrets.token_hex(4)}{SUFFIX}"
        self._objects.put(f"{self._below}{name}", document.encoded())

    def delete(self, documents: Sequence[ListedSettings]) -> None:
        """Delete documents.

        Raises:
            StoreError: some may be left.
        """
        self._objects.delete([found.listed.key for found in documents])


def superfluous(there: Sequence[ListedSettings], kept_ns: int) -> list[ListedSettings]:
    """Return the documents that no restore to a time since then needs. Pure.

    Args:
        there: what is there, the oldest first.
        kept_ns: the time, by the clock of the store.
    """
    old = [found for found in there if found.listed.modified_ns < kept_ns]
    # The newest of them was valid then.
    return [found for found in old[:-1] if found != there[-1]]
