"""Comparison of objects with what was recorded: by what the store tells of them, or by their bytes.

A difference counts only if a second look finds it too, and if the row of the object is as it was
before the first. What is missing or wrong is sent again, if the file is on the disk, and its bytes
were read and are those of the recorded checksum. The drain sends it, as it does after a request
without an answer: it compares once more. An object that is not known to be this file's, or that is
of a newer version than its row, is never replaced. If the bytes are nowhere, the file is damaged,
and what is in the bucket stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Protocol

from gateway.cache import warming
from gateway.common import failpoints
from gateway.common.errors import ObjectRefused
from gateway.common.failpoints import SCRUB
from gateway.common.types import Residency
from gateway.db.compiled import Session
from gateway.drain.send import intent
from gateway.objectstore.bodies import Incoming
from gateway.objectstore.checksums import CRC_BYTES, BlockDigests, CrcRun
from gateway.objectstore.metadata import origin_of
from gateway.objectstore.objects import MIB, Head
from gateway.objectstore.ranges import ObjectLocation, Ranges, is_archived
from gateway.recovery import scrub_reading as reading
from gateway.recovery.bucket_scan import BucketScan
from gateway.recovery.scrub_local import (
    LocalScrub,
    ScrubContext,
    ScrubFinding,
    ScrubPlace,
    ScrubVerdict,
)
from gateway.recovery.scrub_reading import Mismatch, Steps
from gateway.recovery.scrub_rows import ScrubFile, ScrubObject
from gateway.rpc.frames import Finding

log = logging.getLogger("scrub")

RANGE_BYTES = 4 * MIB
"""So much of an object is asked for at a time."""
NO_OBJECT = "object "
"""Begins the reason of damage that was found in the bucket. It ends when the object is back."""


class ObjectState(StrEnum):
    """What a comparison of the bucket with the rows says of an object."""

    MISSING = "missing"
    REPLACED = "replaced"
    """Another object has the key."""
    CHANGED = "changed"
    """The object has other bytes than were recorded."""


class ObjectDifference(NamedTuple):
    """An object that is not what was recorded."""

    state: ObjectState
    ino: int
    key: str


class ObjectScan(Protocol):
    """A comparison of the bucket with the rows."""

    @property
    def looked(self) -> int:
        """How many objects were compared so far."""

    def differences(self) -> Iterator[ObjectDifference | None]:
        """Yield what differs. None: the comparison may rest here. Raises StoreError,
        NamespaceError."""


class ListScan:
    """A comparison of all objects with what the bucket lists.

    Args:
        context: of the scrub.
    """

    def __init__(self, context: ScrubContext) -> None:
        prefix = context.settings.bucket.prefix
        self._scan = BucketScan(context.database, context.store, prefix)
        self.looked = 0

    def differences(self) -> Iterator[ObjectDifference | None]:
        """Yield what differs, and None after each other object. Raises StoreError,
        NamespaceError."""
        for page in self._scan.pages():
            for listed in page.listed:
                if (row := page.rows.get(listed.key)) is None:
                    continue
                self._scan.saw(row.ino)
                self.looked += 1
                is_same = row.names(listed.size, listed.etag)
                state = ObjectState.REPLACED
                yield None if is_same else ObjectDifference(state, row.ino, row.key)
        for rows in self._scan.unlisted():
            for row in rows:
                self.looked += 1
                yield ObjectDifference(ObjectState.MISSING, row.ino, row.key)


class HeadScan:
    """A comparison that asks for each object by itself, as of some files.

    Args:
        objects: pages of objects.
    """

    def __init__(self, context: ScrubContext, objects: Iterable[list[ScrubObject]]) -> None:
        self._context = context
        self._objects = objects
        self.looked = 0

    def differences(self) -> Iterator[ObjectDifference | None]:
        """Yield what differs, and None after each other object. Raises StoreError,
        NamespaceError."""
        for page in self._objects:
            for stored in page:
                yield self._look(stored)
                self.looked += 1

    def _look(self, stored: ScrubObject) -> ObjectDifference | None:
        try:
            head = self._context.store.head(stored.key)
        except ObjectRefused:
            return ObjectDifference(ObjectState.REPLACED, stored.ino, stored.key)
        if head is None:
            return ObjectDifference(ObjectState.MISSING, stored.ino, stored.key)
        if is_as_recorded(head, stored):
            return None
        return ObjectDifference(ObjectState.REPLACED, stored.ino, stored.key)


def is_as_recorded(head: Head, stored: ScrubObject) -> bool:
    """Return whether the store tells of an object what was recorded."""
    return (head.size, head.etag) == (stored.size, stored.etag)


class ObjectScrub:
    """Looks at objects that may not be what was recorded, and reads objects. Not safe to use from
    several threads."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self._local = LocalScrub(context)
        self.place = ScrubPlace()
        """How far the object that is being read is. A restart continues there."""

    @cached_property
    def _ranges(self) -> Ranges:
        return Ranges(self._context.settings)

    @cached_property
    def _volume(self) -> str:
        return self._context.rows.volume()

    def check(self, ino: int, key: str) -> Steps[ScrubFinding | None]:
        """Look at an object that is said to differ, and do what is to be done about it. Returns
        what was found.

        Raises UserError, StoreUnavailable, StoreRefused, ControlSocketClosed, LookAgain,
        NamespaceError, OSError.
        """
        rows = self._context.rows
        stored, file = rows.object(ino), rows.file(ino)
        if stored is None or file is None or stored.key != key:
            return None
        if not (stored.is_of_file and stored.is_certain):
            return None  # another version of it is sent, or the drain looks at it
        try:
            head = self._context.store.head(key)
        except ObjectRefused as exc:
            return ScrubFinding(ino, ScrubVerdict.DAMAGED, str(exc))
        if head is not None and is_as_recorded(head, stored):
            return self._back(file)
        if rows.object(ino) != stored or rows.file(ino) != file:
            return None
        # Of a bucket that is another one's, or not there, all objects seem to be missing.
        self._context.store.check()
        self._context.store.require_permit()
        failpoints.hit_counted(SCRUB.format(when="found"))
        if head is None:
            problem = f"{NO_OBJECT}{key} is missing"
        else:
            problem = f"{NO_OBJECT}{key} is not what was recorded"
            if (why := self._why_not_ours(head, stored)) is not None:
                return ScrubFinding(ino, ScrubVerdict.DAMAGED, f"{problem}: {why}")
        log.error("inode %d: %s", ino, problem)
        found = yield from self._heal(stored, file, problem, is_changed=False)
        failpoints.hit_counted(SCRUB.format(when="healed"))
        return found

    def _why_not_ours(self, head: Head, stored: ScrubObject) -> str | None:
        """Return why an object must not be replaced, or None."""
        origin = origin_of(head.metadata)
        if origin.volume not in (None, self._volume) or origin.ino is None:
            return (
                "an object that this gateway did not put there has the key, and stays: move it "
                "away, or rename the file"
            )
        version = origin.content_version or 0
        if origin.ino != stored.ino or version > stored.object_version:
            return (
                "it is newer than its row, so it stays: the database may be older than the "
                "bucket: run: spillway reconcile"
            )
        return None

    def back(self, ino: int, key: str) -> ScrubFinding | None:
        """Look whether the object of a damaged file is there again. Returns that it is, or None.
        Raises as ``check``."""
        stored, file = self._context.rows.object(ino), self._context.rows.file(ino)
        if stored is None or file is None or stored.key != key or not stored.is_of_file:
            return None
        head = self._context.store.head(key)
        return self._back(file) if head is not None and is_as_recorded(head, stored) else None

    def _back(self, file: ScrubFile) -> ScrubFinding | None:
        """Forget that a file is damaged whose object was missing."""
        if not file.is_damaged or file.residency == Residency.RESIDENT:
            return None
        reason = self._context.rows.damage_of(file.ino) or ""
        if not reason.startswith(NO_OBJECT):
            return None
        text = "its object is back"
        if self._context.tell(file, Finding.FOUND_AGAIN, text) is None:
            return None
        return ScrubFinding(file.ino, ScrubVerdict.HEALED, text)

    def _heal(
        self, stored: ScrubObject, file: ScrubFile, problem: str, *, is_changed: bool
    ) -> Steps[ScrubFinding | None]:
        """Have an object sent again, or record the damage.

        Args:
            is_changed: whether only the bytes of the object show that it is wrong.
        """
        if file.is_damaged:
            reason = self._context.rows.damage_of(file.ino) or problem
            return ScrubFinding(file.ino, ScrubVerdict.DAMAGED, reason)
        if file.residency == Residency.RESIDENT:
            return (yield from self._heal_from_disk(stored, file, problem, is_changed))
        if not is_changed and self._has_older_version(stored):
            with self._context.database.writing() as session:
                warming.request_whole(session, (file.ino,))
            text = f"{problem}: it is fetched from an older version of the object"
            return ScrubFinding(file.ino, ScrubVerdict.HEALED, text)
        remedy = f"restore its version {stored.etag} in the bucket, or delete the file"
        return self._damage(file, f"{problem}, and its bytes are not on the local disk", remedy)

    def _heal_from_disk(
        self, stored: ScrubObject, file: ScrubFile, problem: str, is_changed: bool
    ) -> Steps[ScrubFinding | None]:
        if not file.has_blocks and file.checksum is None:
            text = f"{problem}, and no checksum is known of the local bytes: write the file again"
            return ScrubFinding(file.ino, ScrubVerdict.DAMAGED, text)
        mismatch = yield from self._local.confirmed(file)
        if self._context.rows.file(file.ino) != file:
            return None
        if mismatch is not None:
            reason = f"{problem}, and {mismatch.reason}"
            return self._damage(file, reason, "write the file again, or delete it")
        rows = self._context.rows
        is_asked = rows.send_again(stored, file.epoch) if is_changed else rows.look_at(stored)
        if not is_asked:
            return None
        return ScrubFinding(file.ino, ScrubVerdict.HEALED, f"{problem}: it is sent again")

    def _damage(self, file: ScrubFile, reason: str, remedy: str) -> ScrubFinding | None:
        verdict = self._context.tell(file, Finding.BYTES_GONE, reason)
        if verdict is None:
            return None
        return ScrubFinding(file.ino, ScrubVerdict.DAMAGED, f"{reason}: {remedy}")

    def _has_older_version(self, stored: ScrubObject) -> bool:
        place = ObjectLocation(stored.key, stored.etag)
        return self._ranges.other_version(place, stored.size) is not None

    def read(self, stored: ScrubObject, place: ScrubPlace) -> Steps[ScrubFinding | None]:
        """Read an object, and do what is to be done about it. Returns what was found.

        Raises as ``check``.

        Args:
            place: how far it was read before.
        """
        if not (stored.is_of_file and stored.is_certain):
            return None
        database = self._context.database
        with database.reader() as connection:
            blocks = intent.of_object(Session(connection, database.dialect), stored.ino)
        if blocks is None:
            return None
        start = place.done_bytes if place.content_version == stored.object_version else 0
        try:
            mismatch = yield from self._confirmed(stored, blocks, start)
        except ObjectRefused as exc:
            if is_archived(exc):
                return None
            return (yield from self.check(stored.ino, stored.key))
        rows = self._context.rows
        file = rows.file(stored.ino)
        if mismatch is None or file is None or rows.object(stored.ino) != stored:
            return None
        head = self._context.store.head(stored.key)
        if head is None or not is_as_recorded(head, stored):
            return (yield from self.check(stored.ino, stored.key))
        self._context.store.require_permit()
        failpoints.hit_counted(SCRUB.format(when="found"))
        log.error("inode %d: %s", stored.ino, mismatch.reason)
        found = yield from self._heal(stored, file, mismatch.reason, is_changed=True)
        failpoints.hit_counted(SCRUB.format(when="healed"))
        return found

    def _confirmed(
        self, stored: ScrubObject, blocks: BlockDigests, start: int
    ) -> Steps[Mismatch | None]:
        before = -1
        number = start // blocks.block_bytes
        while number < len(blocks.crcs) // CRC_BYTES:
            done_bytes = number * blocks.block_bytes
            self.place = ScrubPlace(stored.object_version, done_bytes)
            found = yield from self._block(stored, blocks.block_bytes, done_bytes)
            if found == reading.expected_block(blocks, number):
                number += 1
            elif before == number:
                name = f"{NO_OBJECT}{stored.key}"
                return reading.differing_block(blocks, number, stored.size, name)
            else:
                before = number
        return None

    def _block(self, stored: ScrubObject, block_bytes: int, start: int) -> Steps[bytes]:
        run = CrcRun(start, block_bytes)
        end = min(start + block_bytes, stored.size)
        place = ObjectLocation(stored.key, stored.etag)
        buffer = memoryview(bytearray(reading.SLICE_BYTES))
        for at in range(start, end, RANGE_BYTES):
            # An answer is read without a rest: the store would end the connection. The rest comes
            # before it, so that a block that was read is judged at once.
            yield
            with self._ranges.get(place, at, min(RANGE_BYTES, end - at)) as incoming:
                self._add(run, incoming, buffer)
        return run.crcs[0].bytes if run.crcs else b""

    def _add(self, run: CrcRun, incoming: Incoming, buffer: memoryview) -> None:
        while count := incoming.readinto(buffer):
            self._context.rate.read_bytes += count
            run.add(buffer[:count])
            if count < len(buffer):
                return
