"""Objects of which a copy consists, in the bucket or in a directory: both have the same keys.

    names/…      the names (gateway.recovery.names_store)
    settings/…   configuration and tokens (gateway.recovery.settings_store)

In the bucket they are below ``<prefix>/.spillway/``, in a backup below its directory. No key is
ever used twice: a request whose answer is late may replace nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gateway.common import files
from gateway.common.errors import ObjectRefused
from gateway.config.settings import Settings
from gateway.objectstore.key_mapper import ours_below
from gateway.objectstore.objects import ListedObject
from gateway.objectstore.ranges import ObjectLocation, Ranges
from gateway.objectstore.s3 import S3Store

DELETED_AT_ONCE = 1000


class CopyObjects(Protocol):
    """The objects of one copy."""

    below: str
    """The beginning of all keys."""

    def listing(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        """Yield the objects whose keys begin with a prefix.

        Args:
            prefix: the beginning of the keys.
            after: a key, after which the listing begins. It need not exist.

        Raises:
            StoreError: they cannot be listed.
        """

    def put(self, key: str, body: bytes) -> None:
        """Put an object. It is durable on return.

        Raises:
            StoreError: it may be there all the same.
            OSError: the disk does not take it.
        """

    def read(self, listed: ListedObject) -> bytes:
        """Return what an object has.

        Raises:
            StoreError: it cannot be read, or is not as it was listed.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects.

        Raises:
            StoreError: some may be left.
        """


class BucketObjects:
    """The copy in the bucket.

    Args:
        settings: of the gateway.
        store: with the permit of the gateway, if it is to write.
    """

    def __init__(self, settings: Settings, store: S3Store) -> None:
        # They must be readable at once where the files are in an archive.
        readable = replace(settings, bucket=replace(settings.bucket, storage_class=""))
        self._ranges = Ranges(readable)
        self._store = store
        self.below = ours_below(settings.bucket.prefix)

    def listing(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        """Do what ``CopyObjects.listing`` says."""
        return self._store.listing(prefix, after)

    def put(self, key: str, body: bytes) -> None:
        """Do what ``CopyObjects.put`` says."""
        self._store.put(key, body, {})

    def read(self, listed: ListedObject) -> bytes:
        """Do what ``CopyObjects.read`` says."""
        body = bytearray(listed.size)
        if listed.size == 0:
            return b""
        with self._ranges.get(ObjectLocation(listed.key, listed.etag), 0, listed.size) as incoming:
            count = incoming.readinto(memoryview(body))
        if count != listed.size:
            raise ObjectRefused(f"{listed.key}: {count} bytes came, {listed.size} expected")
        return bytes(body)

    def delete(self, keys: Sequence[str]) -> None:
        """Do what ``CopyObjects.delete`` says."""
        for at in range(0, len(keys), DELETED_AT_ONCE):
            for failure in self._store.delete_many(keys[at : at + DELETED_AT_ONCE]).values():
                if failure is not None:
                    raise failure


class DirectoryObjects:
    """The copy in a directory. Only its user can read it: it has hashes of tokens.

    Args:
        root: the directory. Keys are paths of files in it.
    """

    def __init__(self, root: Path) -> None:
        self.below = f"{root}/"
        self._root = root

    def listing(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        """Do what ``CopyObjects.listing`` says."""
        found = []
        for directory, _below, names in os.walk(prefix.rpartition("/")[0]):
            for key in (f"{directory}/{name}" for name in names):
                if key.startswith(prefix) and key > after:
                    stat = os.lstat(key)
                    found.append(ListedObject(key, stat.st_size, "", stat.st_mtime_ns))
        yield from sorted(found)

    def put(self, key: str, body: bytes) -> None:
        """Do what ``CopyObjects.put`` says. ``sync`` makes the name durable."""
        path = Path(key)
        for directory in reversed([*path.relative_to(self._root).parents]):
            (self._root / directory).mkdir(mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(fd)

    def read(self, listed: ListedObject) -> bytes:
        """Do what ``CopyObjects.read`` says."""
        try:
            body = Path(listed.key).read_bytes()
        except OSError as exc:
            raise ObjectRefused(f"{listed.key} cannot be read: {exc.strerror}") from None
        if len(body) != listed.size:
            raise ObjectRefused(f"{listed.key}: {len(body)} bytes came, {listed.size} expected")
        return body

    def delete(self, keys: Sequence[str]) -> None:
        """Do what ``CopyObjects.delete`` says."""
        for key in keys:
            Path(key).unlink(missing_ok=True)

    def sync(self) -> None:
        """Make all names in it durable. Raises OSError."""
        for directory, _below, _names in os.walk(self._root, topdown=False):
            files.sync_directory(Path(directory))
