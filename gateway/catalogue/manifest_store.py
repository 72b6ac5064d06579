"""Manifest store: the manifests in the bucket, and the rows of ``manifest`` that name them.

A manifest always has the storage class of the bucket: it must be readable where the files are in an
archive. Only an object that is known to be ours is replaced or deleted. It serves the manifests of
checkpoints and of promoted copies.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import IO, TYPE_CHECKING

from gateway.config.settings import Settings
from gateway.db.engine import Database

if TYPE_CHECKING:
    # The imports are for types only: boto3 takes half a second.
    from gateway.objectstore.objects import Head, VerifiedObject
    from gateway.objectstore.s3 import S3Store
from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.catalogue import manifests as own
from gateway.catalogue.display_state import CheckpointRow
from gateway.catalogue.manifests import name_of
from gateway.common import clock
from gateway.config.settings import BucketSettings
from gateway.db.compiled import Session, Statement
from gateway.objectstore import key_mapper

log = logging.getLogger("checkpoints")


class ManifestStore:
    """Client for the manifests of one gateway. The bucket is opened at the first request.

    Args:
        settings: of the gateway.
        database: of the gateway.
        stop: ends the wait for the ownership of the bucket.
    """

    def __init__(
        self, settings: Settings, database: Database, stop: threading.Event | None = None
    ) -> None:
        self._settings = settings
        self._database = database
        self._stop = stop

    @cached_property
    def _bucket(self) -> S3Store:
        from gateway.objectstore.ownership import guarded
        from gateway.objectstore.s3 import S3Store

        readable = replace(self._settings.bucket, storage_class="")
        store = S3Store(replace(self._settings, bucket=readable))
        return guarded(store, self._settings, self._database, self._stop)

    def reload(self) -> None:
        """Read the credentials again at the next request: a person may have corrected them."""
        if "_bucket" in self.__dict__:
            self._bucket.reload()

    def head(self, key: str) -> Head | None:
        """Return what is at a key.

        Raises:
            StoreError: the bucket cannot be used.
        """
        return self._bucket.head(key)

    def put(
        self,
        key: str,
        text: IO[bytes],
        metadata: Mapping[str, str],
        is_ours: Callable[[Head], bool],
        remedy: str,
    ) -> VerifiedObject:
        """Put a manifest where nothing is, or an older one of ours.

        Args:
            key: of the manifest.
            text: an open file that was flushed, at its end.
            metadata: of the object.
            is_ours: whether an object at the key may be replaced.
            remedy: what a person can do about another program's object.

        Raises:
            ForeignObject: another program's object has the key.
            StoreError: the bucket cannot be used.
        """
        from gateway.objectstore import foreign
        from gateway.objectstore.bodies import FileRange

        body = FileRange(text.fileno(), 0, text.tell())
        return foreign.put(self._bucket, key, body, metadata, is_ours, remedy)

    def delete(
        self,
        key: str,
        is_ours: Callable[[Head], bool],
        deleting: AbstractContextManager[None],
    ) -> bool:
        """Delete a manifest.

        Args:
            key: of the manifest.
            is_ours: whether the object at the key may be deleted.
            deleting: entered around the request. It is left with the error of a request that may be
                carried out all the same, and must record that.

        Returns:
            Whether something was deleted. Another program's object stays.

        Raises:
            StoreError: the bucket cannot be used.
        """
        head = self.head(key)
        if head is None:
            return False
        if not is_ours(head):
            log.warning("kept %s: another program has written it", key)
            return False
        with deleting:
            error = self._bucket.delete_many([key])[key]
            if error is not None:
                raise error
        return True


class ManifestRow(NamedTuple):
    """A row of ``manifest``."""

    key: str
    ino: int
    path: bytes
    change: int
    evidence: str
    durable_ns: int
    etag: str | None
    written_ns: int
    check_after_ns: int | None

    def is_of(self, row: CheckpointRow) -> bool:
        """Whether it was made of a checkpoint as the row says that it is."""
        made_of = (self.ino, self.evidence, self.durable_ns)
        return made_of == (row.ino, row.evidence, row.durable_ns)


class ManifestRows:
    """The table, of one gateway. Not safe to use from several threads."""

    def __init__(self, database: Database, bucket: BucketSettings) -> None:
        self._database = database
        self._below = key_mapper.manifests_below(bucket.prefix)
        self._trash = f"{key_mapper.key_of(bucket.prefix, key_mapper.TRASH)}/"
        self._late_ns = int(bucket.late_seconds * clock.NS)

    def missing(self) -> list[int]:
        """Return the durable checkpoints without their manifest. Raises TryAgain."""
        with self._database.reading() as session:
            return [ino for (ino,) in session.all(own.MISSING)]

    def untrue(self) -> list[ManifestRow]:
        """Return the manifests that must go. That of a checkpoint which is held for a newer one
        stays while the objects are where it says. Raises TryAgain."""
        with self._database.reading() as session:
            rows = [_kept(row) for row in session.all(own.UNTRUE)]
            held: dict[int, list[int]] = {}
            for ino, top in session.all(own.HELD) if rows else ():
                held.setdefault(ino, []).append(top)
            return [row for row in rows if not self._is_held(session, held.get(row.ino, ()))]

    def _is_held(self, session: Session, tops: Sequence[int]) -> bool:
        """Return whether the bucket has what clients removed of a checkpoint at its keys. An object
        gives way to that of another file with its path, and goes below the key of the trash."""
        stored = (key for top in tops for (key,) in session.all(own.KEYS_BELOW, top=top))
        return bool(tops) and not any(key.startswith(self._trash) for key in stored)

    def indeterminate(self) -> list[ManifestRow]:
        """Return the manifests that must be looked at. Raises TryAgain."""
        now_ns = clock.now_ns()
        return self._kept(own.INDETERMINATE, now_ns=now_ns, late_ns=now_ns + self._late_ns)

    def place(self, row: CheckpointRow) -> tuple[str, ManifestRow | None]:
        """Return the key of a checkpoint's manifest, and its row. Raises TryAgain.

        Of two checkpoints with one step, the first that is durable has the key of the step.
        """
        run = [name for name in row.run.split(b"/") if name]
        with self._database.reading() as session:
            for ino in (None, row.ino):
                key = key_mapper.key_of(self._below, [*run, name_of(row.path, row.step, ino)])
                stored_row = session.one(own.ROW, the_key=key)
                kept = None if stored_row is None else _kept(stored_row)
                if kept is None or kept.ino == row.ino:
                    break
                if session.one(own.IS_THERE, ino=kept.ino) is None:
                    break
        return key, kept

    def intend(
        self, key: str, row: CheckpointRow, change: int, before: ManifestRow | None
    ) -> ManifestRow:
        """Record that a manifest is about to be put. Raises TryAgain.

        Args:
            change: change of the checkpoint's inode.
            before: the row of the key.
        """
        now_ns = clock.now_ns()
        assert row.durable_ns is not None, "a manifest is of a durable checkpoint"
        facts = (key, row.ino, row.path, change, row.evidence, row.durable_ns, None, now_ns)
        made = ManifestRow(*facts, now_ns + self._late_ns)
        with self._database.writing() as session:
            session.run(own.DELETE, the_key=key)
            session.run(own.INSERT, **made._asdict())
        return made._replace(check_after_ns=None if before is None else before.check_after_ns)

    def know(self, kept: ManifestRow, is_indeterminate: bool = False) -> None:
        """Record what is at a key. Raises TryAgain.

        Args:
            is_indeterminate: whether a request was given up that may still be carried out.
        """
        check_after_ns = clock.now_ns() + self._late_ns if is_indeterminate else kept.check_after_ns
        with self._database.writing() as session:
            session.run(
                own.KNOWN, the_key=kept.key, new_etag=kept.etag, new_check_after_ns=check_after_ns
            )

    def forget(self, kept: ManifestRow) -> None:
        """Record that there is nothing of ours at a key. Raises TryAgain."""
        if kept.check_after_ns is not None and clock.is_ahead(kept.check_after_ns, self._late_ns):
            # An earlier request may still bring a manifest. The row stays until it cannot.
            self.know(kept._replace(etag=None))
            return
        with self._database.writing() as session:
            session.run(own.DELETE, the_key=kept.key)

    def _kept(self, statement: Statement, **parameters: Any) -> list[ManifestRow]:
        with self._database.reading() as session:
            return [_kept(row) for row in session.all(statement, **parameters)]


def _kept(row: Any) -> ManifestRow:
    made = ManifestRow(*row)
    return made._replace(path=bytes(made.path))
