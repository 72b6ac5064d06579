"""Keeps a manifest in the bucket for each checkpoint that is durable, and for no other.

A row of ``manifest`` is committed before a request for its key, and says what is at the key after
the answer. So a process that was killed leaves nothing in the bucket that no row names, and a
manifest is deleted only because a row says that it is ours and must go: an empty database deletes
none, and no listing leads to a deletion.

1. Members are read in the transaction that finds the checkpoint durable.
2. The manifest is put, and the checkpoint is looked at once more. If it is still the same, the row
   gets the ETag. Otherwise the manifest is deleted, and made again when the checkpoint is durable.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import IO, TYPE_CHECKING, TypeVar

from gateway import clock, failpoints
from gateway.backoff import jittered_seconds
from gateway.checkpoints.catalogue import catalogue_of
from gateway.checkpoints.facts import State
from gateway.checkpoints.looks import Row
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.statements import VOLUME as VOLUME_ROW
from gateway.drain.metadata import INO, VOLUME
from gateway.errors import ObjectRefused, SpillwayError, StoreError
from gateway.failpoints import MANIFEST
from gateway.manifests import statements as own
from gateway.manifests.kept import Kept, Shelf
from gateway.manifests.rows import document
from gateway.settings import Settings
from gateway.text import printable

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second.
    from gateway.objectstore.objects import Head
    from gateway.objectstore.s3 import S3Store

log = logging.getLogger("checkpoints")

REST_SECONDS = 30.0
SOON_SECONDS = 1.0
"""The rest after a checkpoint that changed while its manifest was made."""
PAUSE_MAX_SECONDS = 30.0

REMEDY = "move it away, so that its checkpoint gets a manifest"

T = TypeVar("T")


class Manifests:
    """A duty (``gateway.checkpoints.duties``). Parameters: settings; database; stop, after which it
    ends between two manifests."""

    name = "manifests"

    def __init__(self, settings: Settings, database: Database, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._database = database
        self._catalogue = catalogue_of(settings, self._database)
        self._shelf = Shelf(self._database, settings.bucket)
        self._opened: S3Store | None = None
        self._volume = ""
        self._tries = 0
        """How often the bucket has failed since it worked."""
        self._resume_at = 0.0
        self._refused: dict[int, float] = {}
        """Monotonic seconds until which checkpoints rest whose manifest was refused, by inode."""

    def turn(self) -> float:
        """Put and delete what is due. Returns the seconds until the next turn. Raises
        NamespaceError."""
        if (seconds := self._resume_at - clock.monotonic_seconds()) > 0:
            return seconds
        try:
            self._each(self._shelf.doubtful(), self._look, lambda kept: kept.ino)
            self._each(self._shelf.untrue(), self._remove, lambda kept: kept.ino)
            changed = self._each(self._shelf.missing(), self._write, lambda ino: ino)
        except StoreError as exc:
            self._tries += 1
            pause_seconds = jittered_seconds(self._tries, PAUSE_MAX_SECONDS)
            self._resume_at = clock.monotonic_seconds() + pause_seconds
            if self._tries == 1:
                log.warning("manifests wait for the bucket: %s", exc)
            if self._opened is not None:
                self._opened.reload()  # a person may have corrected the credentials
            return pause_seconds
        return SOON_SECONDS if changed else REST_SECONDS

    @property
    def _store(self) -> S3Store:
        if self._opened is None:
            from gateway.objectstore.s3 import S3Store
            from gateway.ownership.keeper import guarded

            store = S3Store(kept_readable(self._settings))
            self._opened = guarded(store, self._settings, self._database, self._stop)
        return self._opened

    def _each(self, work: Iterable[T], do: Callable[[T], bool], ino_of: Callable[[T], int]) -> bool:
        """Do work until stop is set. Returns whether some of it is to be done again soon. Raises
        StoreError when the bucket cannot be used."""
        is_left = False
        for one in work:
            if self._stop.is_set():
                break
            if self._refused.get(ino_of(one), 0.0) > clock.monotonic_seconds():
                continue
            try:
                is_left |= do(one)
            except ObjectRefused as exc:
                # The others must not wait for it.
                log.error("%s", exc)
                self._refused[ino_of(one)] = clock.monotonic_seconds() + PAUSE_MAX_SECONDS
                continue
            except OSError as exc:
                where = self._settings.run_dir
                log.error("cannot make a manifest in %s: %s: make room", where, exc.strerror)
                return False
            if self._tries:
                log.info("manifests are written again")
                self._tries = 0
        return is_left

    def _write(self, ino: int) -> bool:
        """Put the manifest of a checkpoint, if it is durable now. Returns whether it changed
        meanwhile. Raises StoreError."""
        from gateway.objectstore.body import Section
        from gateway.ownership import foreign

        with tempfile.TemporaryFile(dir=self._settings.run_dir) as text:
            made = self._make(ino, text)
            if made is None:
                return True
            row, change = made
            key, before = self._shelf.place(row)
            if before is not None:
                if before.is_of(row) and before.etag is not None:
                    return False
                self._remove(before)
            kept = self._shelf.intend(key, row, change, before)
            _hit("intent")
            body = Section(text.fileno(), 0, text.tell())
            metadata = {VOLUME: self._volume_id(), INO: str(ino)}
            try:
                stored = foreign.put(self._store, key, body, metadata, self._is_of_us, REMEDY)
            except SpillwayError:
                self._shelf.know(kept, is_doubtful=True)
                raise
        kept = kept._replace(etag=stored.head.etag)
        _hit("put")
        now = self._catalogue.look(ino).now
        if now is None or now.state != State.DURABLE or not kept.is_of(now):
            # It lists what the bucket may not have any more.
            self._remove(kept)
            return True
        self._shelf.know(kept, stored.is_doubtful)
        log.info("%s: its manifest is in the bucket", printable(kept.path))
        return False

    def _make(self, ino: int, text: IO[bytes]) -> tuple[Row, int] | None:
        """Write the text of a checkpoint's manifest. Returns what it was made of, with the change
        counter of the inode, or None if the checkpoint is not durable now."""
        with self._catalogue.viewing() as view:
            now = self._catalogue.look_in(view, ino).now
            if now is None or now.state != State.DURABLE:
                return None
            found = view.session.one(own.TOP, ino=ino)
            assert found is not None, "the transaction sees the checkpoint"
            text.writelines(document(view.session, now, view.rules))
            text.flush()
            return now, found[1]

    def _remove(self, kept: Kept) -> bool:
        """Delete a manifest. Raises StoreError."""
        head = self._store.head(kept.key)
        if head is not None and not self._is_ours(kept, head.etag, head.metadata):
            log.warning("kept %s: another program has written it", kept.key)
        elif head is not None:
            self._shelf.know(kept._replace(etag=None), is_doubtful=True)
            _hit("doomed")
            try:
                error = self._store.delete_many([kept.key])[kept.key]
                if error is not None:
                    raise error
            except SpillwayError:
                self._shelf.know(kept, is_doubtful=True)
                raise
            _hit("deleted")
            log.info("%s: its manifest is deleted", printable(kept.path))
        self._shelf.forget(kept)
        return False

    def _is_of_us(self, head: Head) -> bool:
        return head.metadata.get(VOLUME) == self._volume_id()

    def _is_ours(self, kept: Kept, etag: str, metadata: dict[str, str]) -> bool:
        if kept.etag is not None:
            return etag == kept.etag
        # The answer to a request is not known. What is there says by itself whose it is.
        return (metadata.get(VOLUME), metadata.get(INO)) == (self._volume_id(), str(kept.ino))

    def _look(self, kept: Kept) -> bool:
        """Look at a key after a request that was given up. Raises StoreError."""
        head = self._store.head(kept.key)
        is_there = head is not None and head.etag == kept.etag
        self._shelf.know(kept._replace(etag=kept.etag if is_there else None, look_ns=None))
        return False

    def _volume_id(self) -> str:
        if not self._volume:
            with self._database.reader() as connection:
                row = Session(connection, self._database.dialect).one(VOLUME_ROW)
            assert row is not None, "the volume row is missing"
            self._volume = bytes(row[0]).hex()
        return self._volume


def kept_readable(settings: Settings) -> Settings:
    """Return settings with which a manifest is put: a person who restores must be able to read it,
    also where files go to an archive."""
    return replace(settings, bucket=replace(settings.bucket, storage_class=""))


def _hit(when: str) -> None:
    failpoints.hit_counted(MANIFEST.format(when=when))
