"""Writer of manifests: the bucket has one for each durable checkpoint, and for no other.

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, TypeVar

from gateway.catalogue import manifests as own
from gateway.catalogue.display_state import CheckpointRow
from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.manifest_store import ManifestRow, ManifestRows, ManifestStore
from gateway.catalogue.manifests import document
from gateway.catalogue.store import catalogue_of
from gateway.common import clock, failpoints
from gateway.common.errors import ObjectRefused, SpillwayError, StoreError
from gateway.common.failpoints import MANIFEST
from gateway.common.text import printable
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.statements import VOLUME as VOLUME_ROW
from gateway.objectstore.circuit_breaker import CircuitBreaker
from gateway.objectstore.metadata import INO, VOLUME

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second.
    from gateway.objectstore.objects import Head

log = logging.getLogger("checkpoints")

IDLE_SECONDS = 30.0
SOON_SECONDS = 1.0
"""The pause after a checkpoint that changed while its manifest was made."""
PAUSE_MAX_SECONDS = 30.0

REMEDY = "move it away, so that its checkpoint gets a manifest"

T = TypeVar("T")


class Manifests:
    """A background task (``gateway.catalogue.background``).

    Args:
        stop: after which it ends between two manifests.
    """

    name = "manifests"

    def __init__(self, settings: Settings, database: Database, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._database = database
        self._catalogue = catalogue_of(settings, self._database)
        self._rows = ManifestRows(self._database, settings.bucket)
        self._store = ManifestStore(settings, database, stop)
        self._volume = ""
        self._breaker = CircuitBreaker(PAUSE_MAX_SECONDS)
        self._refused: dict[int, float] = {}
        """Monotonic seconds until which checkpoints wait whose manifest was refused, by inode."""

    def run_once(self) -> float:
        """Put and delete what is due. Returns the seconds until the next pass. Raises
        NamespaceError."""
        if (seconds := self._breaker.pause_seconds()) > 0:
            return seconds
        try:
            self._each(self._rows.indeterminate(), self._look, lambda kept: kept.ino)
            self._each(self._rows.untrue(), self._remove, lambda kept: kept.ino)
            changed = self._each(self._rows.missing(), self._write, lambda ino: ino)
        except StoreError as exc:
            self._breaker.failed()
            if self._breaker.failures == 1:
                log.warning("manifests wait for the bucket: %s", exc)
            self._store.reload()  # a person may have corrected the credentials
            return self._breaker.pause_seconds()
        return SOON_SECONDS if changed else IDLE_SECONDS

    def _each(self, work: Iterable[T], do: Callable[[T], bool], ino_of: Callable[[T], int]) -> bool:
        """Do work until stop is set. Returns whether some of it is to be done again soon. Raises
        StoreError when the bucket cannot be used."""
        is_left = False
        for task in work:
            if self._stop.is_set():
                break
            if self._refused.get(ino_of(task), 0.0) > clock.monotonic_seconds():
                continue
            try:
                is_left |= do(task)
            except ObjectRefused as exc:
                # The others must not wait for it.
                log.error("%s", exc)
                self._refused[ino_of(task)] = clock.monotonic_seconds() + PAUSE_MAX_SECONDS
                continue
            except OSError as exc:
                where = self._settings.run_dir
                log.error("cannot make a manifest in %s: %s: make room", where, exc.strerror)
                return False
            if self._breaker.failures:
                log.info("manifests are written again")
                self._breaker.worked()
        return is_left

    def _write(self, ino: int) -> bool:
        """Put the manifest of a checkpoint, if it is durable now. Returns whether it changed
        meanwhile. Raises StoreError."""
        with tempfile.TemporaryFile(dir=self._settings.run_dir) as text:
            made = self._make(ino, text)
            if made is None:
                return True
            row, change = made
            key, before = self._rows.place(row)
            if before is not None:
                if before.is_of(row) and before.etag is not None:
                    return False
                self._remove(before)
            kept = self._rows.intend(key, row, change, before)
            _hit("intent")
            metadata = {VOLUME: self._volume_id(), INO: str(ino)}
            with self._requesting(kept):
                stored = self._store.put(key, text, metadata, self._is_of_us, REMEDY)
        kept = kept._replace(etag=stored.head.etag)
        _hit("put")
        now = self._catalogue.look(ino).now
        if now is None or now.state != CheckpointState.DURABLE or not kept.is_of(now):
            # It lists what the bucket may not have any more.
            self._remove(kept)
            return True
        self._rows.know(kept, stored.is_indeterminate)
        log.info("%s: its manifest is in the bucket", printable(kept.path))
        return False

    def _make(self, ino: int, text: IO[bytes]) -> tuple[CheckpointRow, int] | None:
        """Write the text of a checkpoint's manifest. Returns what it was made of, with the change
        counter of the inode, or None if the checkpoint is not durable now."""
        with self._catalogue.viewing() as view:
            now = self._catalogue.look_in(view, ino).now
            if now is None or now.state != CheckpointState.DURABLE:
                return None
            row = view.session.one(own.TOP, ino=ino)
            assert row is not None, "the transaction sees the checkpoint"
            text.writelines(document(view.session, now, view.rules))
            text.flush()
            return now, row[1]

    def _remove(self, kept: ManifestRow) -> bool:
        """Delete a manifest. Raises StoreError."""
        if self._store.delete(kept.key, partial(self._is_ours, kept), self._deleting(kept)):
            log.info("%s: its manifest is deleted", printable(kept.path))
        self._rows.forget(kept)
        return False

    @contextmanager
    def _deleting(self, kept: ManifestRow) -> Iterator[None]:
        self._rows.know(kept._replace(etag=None), is_indeterminate=True)
        _hit("doomed")
        with self._requesting(kept):
            yield
        _hit("deleted")

    @contextmanager
    def _requesting(self, kept: ManifestRow) -> Iterator[None]:
        """Record that the answer to a request is not known, if it fails."""
        try:
            yield
        except SpillwayError:
            self._rows.know(kept, is_indeterminate=True)
            raise

    def _is_of_us(self, head: Head) -> bool:
        return head.metadata.get(VOLUME) == self._volume_id()

    def _is_ours(self, kept: ManifestRow, head: Head) -> bool:
        if kept.etag is not None:
            return head.etag == kept.etag
        # The answer to a request is not known. What is there says by itself whose it is.
        made_by = (head.metadata.get(VOLUME), head.metadata.get(INO))
        return made_by == (self._volume_id(), str(kept.ino))

    def _look(self, kept: ManifestRow) -> bool:
        """Look at a key after a request that was given up. Raises StoreError."""
        head = self._store.head(kept.key)
        is_there = head is not None and head.etag == kept.etag
        self._rows.know(kept._replace(etag=kept.etag if is_there else None, check_after_ns=None))
        return False

    def _volume_id(self) -> str:
        if not self._volume:
            with self._database.reader() as connection:
                row = Session(connection, self._database.dialect).one(VOLUME_ROW)
            assert row is not None, "the volume row is missing"
            self._volume = bytes(row[0]).hex()
        return self._volume


def _hit(when: str) -> None:
    failpoints.hit_counted(MANIFEST.format(when=when))
