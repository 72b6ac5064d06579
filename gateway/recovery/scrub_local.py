"""Comparison of data files with their checksums, while clients use them, and what is done about
those that differ.

A difference counts only if a second reading finds it too, and if the row of the file is as it was
before the first. The NFS server decides in the end: it refuses what was changed since, and gives a
data file up only if the rows say that the bucket has the file. Before it is asked the bucket is. A
data file that is given up is moved to set-aside, never deleted, and the file is fetched again. If
the bucket does not have it, the file is damaged, and its bytes stay where they are.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from gateway.common import failpoints
from gateway.common.errors import ObjectRefused, SpillwayError
from gateway.common.failpoints import SCRUB
from gateway.common.types import Residency
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.drain.send import intent
from gateway.namespace import identity
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.checksums import CRC_BYTES
from gateway.recovery import scrub_reading as reading
from gateway.recovery.scrub_reading import Mismatch, ReadRate, ScrubbedFile, Steps
from gateway.recovery.scrub_rows import ScrubFile, ScrubRows
from gateway.rpc.control import ControlSocket
from gateway.rpc.frames import Finding, Op, RpcRequest

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second to import.
    from gateway.objectstore.s3 import S3Store

log = logging.getLogger("scrub")

OpenControl = Callable[[], AbstractContextManager[ControlSocket]]


class LookAgain(SpillwayError):
    """It cannot be decided now what is wrong: the file is looked at again, from the same place."""


class ScrubVerdict(StrEnum):
    """What became of a file that was found."""

    HEALED = "healed"
    DAMAGED = "damaged"


class ScrubFinding(NamedTuple):
    """A file whose bytes, or whose object, are not what they should be."""

    ino: int
    verdict: ScrubVerdict
    text: str
    """What is wrong, and what was done or what to do, in one line."""


class ScrubContext(NamedTuple):
    """The parts of one scrub."""

    settings: Settings
    database: Database
    store: S3Store
    open_control: OpenControl
    rate: ReadRate

    @property
    def rows(self) -> ScrubRows:
        return ScrubRows(self.database)

    @property
    def files(self) -> DataFiles:
        return DataFiles(self.settings.files_dir)

    def tell(self, file: ScrubFile, finding: Finding, reason: str) -> ScrubVerdict | None:
        """Tell the NFS server what was found of a file.

        Returns None if the file was changed meanwhile, so that nothing was found. Raises UserError,
        ControlSocketClosed, LookAgain, NamespaceError.
        """
        identity.require_surroundings(self.settings)
        request = RpcRequest(
            Op.LOST,
            file.ino,
            name=reason.encode(),
            ino2=file.epoch,
            change=file.content_version,
            offset=finding,
        )
        with self.open_control() as control:
            [reply] = control.run([request])
        if reply.errno in (errno.EBUSY, errno.ESTALE):
            return None
        if reply.errno == errno.EAGAIN:
            raise LookAgain(f"inode {file.ino}: the server cannot decide now")
        if reply.errno or reply.attr is None:
            return ScrubVerdict.DAMAGED
        was_given_up = finding is Finding.BYTES_DIFFER
        is_absent = reply.attr.residency == Residency.ABSENT
        return ScrubVerdict.HEALED if was_given_up and is_absent else ScrubVerdict.DAMAGED


class ScrubPlace(NamedTuple):
    """How far a file is compared."""

    content_version: int = 0
    done_bytes: int = 0


class LocalScrub:
    """Compares data files. Not safe to use from several threads."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self.place = ScrubPlace()
        """How far the present file is. A restart continues there."""

    def check(self, file: ScrubFile, place: ScrubPlace) -> Steps[ScrubFinding | None]:
        """Compare a file, and do what is to be done about it. Returns what was found.

        Raises UserError, StoreUnavailable, StoreRefused, ControlSocketClosed, LookAgain,
        NamespaceError, OSError.

        Args:
            place: how far it was compared before.
        """
        start = place.done_bytes if place.content_version == file.content_version else 0
        mismatch = yield from self.confirmed(file, start)
        # The second look: a client may have changed the file since it was read.
        if mismatch is None or self._context.rows.file(file.ino) != file:
            return None
        failpoints.hit_counted(SCRUB.format(when="found"))
        log.error("inode %d: %s", file.ino, mismatch.reason)
        found = self._heal(file, mismatch)
        failpoints.hit_counted(SCRUB.format(when="healed"))
        return found

    def confirmed(self, file: ScrubFile, start: int = 0) -> Steps[Mismatch | None]:
        """Read a file. Returns what differs in two readings. Raises NamespaceError, OSError.

        Args:
            start: so many bytes are not read.
        """
        before: Mismatch | None = None
        while True:
            mismatch = yield from self._mismatch(file, start)
            if mismatch is None:
                if before is not None:
                    log.warning("inode %d: %s, in one reading of two", file.ino, before.reason)
                return None
            if mismatch == before:
                return mismatch
            before, start = mismatch, self.place.done_bytes

    def _mismatch(self, file: ScrubFile, start: int) -> Steps[Mismatch | None]:
        path = self._context.files.path(file.ino, file.epoch)
        self.place = ScrubPlace(file.content_version, start)
        try:
            with ScrubbedFile(path, self._context.rate) as data:
                if data.size != file.size:
                    return reading.wrong_size(path, data.size, file.size)
                if file.has_blocks:
                    return (yield from self._blocks(data, file, start))
                return (yield from self._whole(data, file))
        except OSError as exc:
            return reading.missing_bytes(path, file.size, exc)

    def _blocks(self, data: ScrubbedFile, file: ScrubFile, start: int) -> Steps[Mismatch | None]:
        database = self._context.database
        with database.reader() as connection:
            blocks = intent.of_object(Session(connection, database.dialect), file.ino)
        if blocks is None:
            return None  # the object is another one by now
        for number in range(start // blocks.block_bytes, len(blocks.crcs) // CRC_BYTES):
            found = yield from reading.block_of(data, number, file.size, blocks.block_bytes)
            if found != reading.expected_block(blocks, number):
                name = f"data file {file.ino}.{file.epoch}"
                return reading.differing_block(blocks, number, file.size, name)
            self.place = ScrubPlace(file.content_version, (number + 1) * blocks.block_bytes)
        return None

    def _whole(self, data: ScrubbedFile, file: ScrubFile) -> Steps[Mismatch | None]:
        if file.checksum is None:
            return None
        try:
            found = yield from reading.checksum_of(data, file.checksum)
        except ValueError:
            return None  # its checksum is of a kind that is not known here
        if found == file.checksum:
            return None
        return Mismatch(0, f"data file {file.ino}.{file.epoch} has other bytes than were sealed")

    def _heal(self, file: ScrubFile, mismatch: Mismatch) -> ScrubFinding | None:
        if (newer := self._newer(file)) is not None:
            return ScrubFinding(file.ino, ScrubVerdict.DAMAGED, f"{mismatch.reason}: {newer}")
        # What another gateway may replace is no copy of what is on the disk.
        self._context.store.require_permit()
        try:
            missing = self._missing(file)
        except ObjectRefused as exc:
            return ScrubFinding(file.ino, ScrubVerdict.DAMAGED, f"{mismatch.reason}: {exc}")
        reason = mismatch.reason + (f", and {missing}" if missing else "")
        finding = Finding.BYTES_GONE if missing else Finding.BYTES_DIFFER
        verdict = self._context.tell(file, finding, reason)
        if verdict is None:
            return None
        if verdict is ScrubVerdict.HEALED:
            return ScrubFinding(file.ino, verdict, f"{reason}: it is fetched again")
        return ScrubFinding(file.ino, verdict, f"{reason}: write the file again, or delete it")

    def _newer(self, file: ScrubFile) -> str | None:
        """Return why a data file may have newer bytes than the row says, or None."""
        on_disk = self._context.files.look(file.ino, file.epoch)
        times = (file.mtime_ns, file.ctime_ns, self._context.rows.read_ns(file.ino))
        if on_disk is None or on_disk.mtime_ns <= max(times):
            return None
        return (
            "it was written after its row: the database may be older than the disk: stop the "
            "gateway and run: spillway fsck, then: spillway adopt files"
        )

    def _missing(self, file: ScrubFile) -> str | None:
        """Return why the bucket cannot give the file back, or None."""
        stored = self._context.rows.object(file.ino)
        if stored is None or not stored.is_of_file or stored.object_version != file.content_version:
            return "the bucket does not have this version"
        if not stored.is_certain:
            raise LookAgain(f"{stored.key}: a request for it was given up")
        head = self._context.store.head(stored.key)
        if head is not None and (head.size, head.etag) == (stored.size, stored.etag):
            return None
        if self._context.rows.object(file.ino) != stored:
            raise LookAgain(f"{stored.key}: it moved")
        state = "missing" if head is None else "not what was recorded"
        return f"its object {stored.key} is {state}"
