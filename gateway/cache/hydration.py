"""State of one hydration: blocks of an absent file, its data file, and which blocks come next.

Only the hydrator writes in the data file of an absent file. The file of an epoch is made with its
full size. It stays sparse: runs of zeros are not written where it has a hole already.

The lock of the hydrator guards all of it.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Self

from awscrt.checksums import crc64nvme

from gateway.cache.rows import AbsentFileRow, AbsentSource, Rows
from gateway.common import clock
from gateway.namespace.data_files import DataFiles, sync_directory
from gateway.objectstore.checksums import CRC_BYTES, of_hole
from gateway.objectstore.objects import MIB
from gateway.objectstore.ranges import ObjectLocation


class BlockState(IntEnum):
    """The state of a block."""

    MISSING = 0
    TAKEN = 1
    """It is being fetched."""
    BAD = 2
    """The bucket does not have its bytes. It is asked again only when a client or the time says."""
    PRESENT = 3
    """Its bytes are verified and written."""
    DURABLE = 4
    """They are on stable storage too."""


_TO_BITS = bytes(ord("1") if state >= BlockState.DURABLE else ord("0") for state in range(256))


class BlockMap:
    """The states of the blocks of one file.

    Args:
        count: count of the blocks.
    """

    def __init__(self, count: int) -> None:
        self._states = bytearray(count)

    def __getitem__(self, block: int) -> BlockState:
        return BlockState(self._states[block])

    def __setitem__(self, block: int, state: BlockState) -> None:
        self._states[block] = state

    def count(self, *states: BlockState) -> int:
        """Return how many blocks are in one of these states."""
        return sum(self._states.count(state) for state in states)

    @property
    def is_whole(self) -> bool:
        """Whether all blocks are present."""
        return self.count(BlockState.PRESENT, BlockState.DURABLE) == len(self._states)

    @property
    def is_durable(self) -> bool:
        """Whether all blocks are on stable storage."""
        return self.count(BlockState.DURABLE) == len(self._states)

    def first(self, state: BlockState, start: int = 0) -> int:
        """Return the first block from a start on that is in a state, or -1."""
        return self._states.find(state, start)

    def all(self, state: BlockState) -> Iterator[int]:
        """Yield the blocks that are in a state."""
        block = self.first(state)
        while block >= 0:
            yield block
            block = self.first(state, block + 1)

    def take(self, start: int, most: int) -> range:
        """Take the missing blocks from a missing one on, up to so many. Returns them."""
        end = start
        while end < min(start + most, len(self._states)) and self[end] is BlockState.MISSING:
            self[end] = BlockState.TAKEN
            end += 1
        return range(start, end)

    def release(self, blocks: range) -> None:
        """Make those of some blocks missing again that are taken."""
        for block in blocks:
            if self[block] is BlockState.TAKEN:
                self[block] = BlockState.MISSING

    def change(self, old: BlockState, new: BlockState) -> None:
        """Give all blocks of one state another one."""
        self._states = self._states.replace(bytes((old,)), bytes((new,)))

    def present(self) -> Iterator[range]:
        """Yield the runs of blocks that are present."""
        start = None
        for block, state in enumerate(self._states):
            if state >= BlockState.PRESENT and start is None:
                start = block
            elif state < BlockState.PRESENT and start is not None:
                yield range(start, block)
                start = None
        if start is not None:
            yield range(start, len(self._states))

    def durable(self) -> bytes:
        """Return a bit for each block that is on stable storage, as ``present_blocks.blocks`` has
        them: the first in the lowest bit of the first byte."""
        digits = self._states.translate(_TO_BITS)[::-1].decode()
        return int(digits, 2).to_bytes(-(-len(self._states) // 8), "little")

    def believe(self, blocks: bytes) -> None:
        """Make the blocks durable that ``present_blocks.blocks`` names."""
        digits = f"{int.from_bytes(blocks, 'little'):0{len(self._states)}b}"[::-1]
        for block in range(len(self._states)):
            if digits[block] == "1":
                self[block] = BlockState.DURABLE


log = logging.getLogger("cache")

ZEROS = bytes(64 * 1024)
"""Shorter or unaligned runs of zeros are written: a hole would save hardly any space."""


class DataFile:
    """The open data file of one epoch.

    Args:
        was_there: whether it was made before.
        was_long: whether it had its size then.
    """

    def __init__(self, fd: int, source: AbsentSource, was_there: bool, was_long: bool) -> None:
        self._fd = fd
        self._source = source
        self.was_there = was_there
        """It may have verified bytes that no durable map names."""
        self.was_long = was_long
        """If it had another size, no durable map is of this file."""
        self._is_named = False
        """Whether its directory was synced since it was made."""

    @classmethod
    def open(cls, files: DataFiles, source: AbsentSource, rows: Rows) -> Self | None:
        """Open the data file of a source, or make it. Returns None if the file is not absent with
        this epoch any more. Raises OSError, NamespaceError."""
        path = files.path(source.ino, source.epoch)
        try:
            fd, was_there = os.open(path, os.O_RDWR | os.O_CLOEXEC), True
        except FileNotFoundError:
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL
            fd, was_there = os.open(path, flags, 0o600), False
        try:
            # An eviction that commits after this look deletes the file. One that committed before
            # found no file to delete, so the file would stay if it were not deleted here.
            if not was_there and not rows.has_epoch(source.ino, source.epoch):
                path.unlink()
                os.close(fd)
                return None
            was_long = was_there and os.fstat(fd).st_size == source.size
            os.ftruncate(fd, source.size)
            if was_there:
                # What is read from it later must be what the disk has: after a failed sync, pages
                # in memory are clean and right, and the disk has other bytes.
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, source, was_there, was_long)

    def close(self) -> None:
        os.close(self._fd)

    def write(self, buffer: bytearray, count: int, at: int) -> None:
        """Write the first bytes of a buffer. Raises OSError.

        Args:
            count: count of the bytes.
            at: the place in the file.
        """
        view = memoryview(buffer)
        start = 0
        while start < count:
            end = start
            while end < count and not self._stays_hole(buffer, end, count, at):
                end += min(len(ZEROS), count - end)
            done = start
            while done < end:
                done += os.pwrite(self._fd, view[done:end], at + done)
            start = end
            while start < count and self._stays_hole(buffer, start, count, at):
                start += len(ZEROS)

    def _stays_hole(self, buffer: bytearray, start: int, count: int, at: int) -> bool:
        end = start + len(ZEROS)
        is_zero = end <= count and buffer.startswith(ZEROS, start, end)
        return is_zero and self._is_hole(at + start, at + end)

    def _is_hole(self, start: int, end: int) -> bool:
        # Bytes that an earlier fetch left may be wrong: they are written over, also by zeros.
        try:
            return os.lseek(self._fd, start, os.SEEK_DATA) >= end
        except OSError as exc:
            if exc.errno == errno.ENXIO:
                return True
            raise

    def is_empty(self, block: int) -> bool:
        """Return whether a block has a hole in its whole length. Raises OSError."""
        start = block * self._source.block_bytes
        return self._is_hole(start, start + self._source.bytes_of(block))

    def is_zero(self, block: int) -> bool:
        """Return whether a block is one of zeros, and needs no fetching. Raises OSError."""
        zeros = of_hole(self._source.bytes_of(block)).bytes
        return self._source.crc(block) == zeros and self.is_empty(block)

    def has(self, block: int, buffer: bytearray) -> bool:
        """Return whether the file has the right bytes of a block already. Raises OSError.

        What the disk cannot read is fetched again, and written over.
        """
        if self.is_empty(block):
            return False
        at = block * self._source.block_bytes
        left, crc = self._source.bytes_of(block), 0
        while left:
            view = memoryview(buffer)[: min(left, len(buffer))]
            try:
                count = os.preadv(self._fd, [view], at)
            except OSError as exc:
                log.error("inode %d: its data file cannot be read: %s", self._source.ino, exc)
                return False
            if count == 0:
                return False
            crc = crc64nvme(view[:count], crc)
            at, left = at + count, left - count
        return crc.to_bytes(CRC_BYTES, "big") == self._source.crc(block)

    def sync(self, files: DataFiles) -> None:
        """Put everything that was written before on stable storage. Raises OSError."""
        os.fdatasync(self._fd)
        if not self._is_named:
            sync_directory(files.path(self._source.ino, self._source.epoch).parent)
            self._is_named = True


GET_BYTES = 16 * MIB
"""The most that one request asks for, or one block if that is larger."""
SAVE_BYTES = 64 * MIB
SAVE_SECONDS = 2.0
"""The durable map is written when so many bytes are new, or when the first of them is so old."""
ALONE_SECONDS = 120.0
ALONE_TRIES = 6
"""Clients get an error for a file that failed alone for so long and so often."""
START_SECONDS = 0.5
"""The time for which nothing is fetched beside the first block that a client waits for. Transfers
beside it would delay it."""
WHOLE = -1
"""Stands in place of a block for trouble with the object as a whole."""


class Trouble(NamedTuple):
    """Something that went wrong with the object."""

    block: int
    """The block, or WHOLE."""
    error: Exception


class ArchiveRestore(NamedTuple):
    """An object on its way back from an archive."""

    since_ns: int
    """When it was asked back."""
    tier: str
    """How fast it comes."""
    expected_ns: int
    """The time until which it usually is back."""
    expires_ns: int | None = None
    """The time until which it is readable, if it is back and was not fetched yet."""


class LoneFailures:
    """The requests of one file that failed, none in between having succeeded, while the bucket gave
    other files their bytes.

    Such failures say nothing of the bucket: the store refuses this key, or cannot read this object.
    A failure after which no other file was served says nothing of the file, and is not counted.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._since = 0.0
        self._last = 0.0
        self._is_alone = False
        self._throttles = 0

    def failed(self, began: float, now: float, worked_at: float, throttles: int) -> bool:
        """Note a failure. Returns whether other files were served since the one before.

        In a storm of these answers some files have no luck for long, and nothing is wrong with
        their objects.

        Args:
            began: when the request began: requests that were under way together are one failure.
            now, worked_at: the time at which the bucket last worked (monotonic seconds).
            throttles: how often the store has said that it gets too many requests.
        """
        if began < self._last:
            return self._is_alone
        if throttles != self._throttles:
            self._since, self.failures = 0.0, 0
        self._is_alone = 0 < self._last < worked_at and throttles == self._throttles
        self._last, self._throttles = now, throttles
        if self._is_alone:
            self._since = self._since or now
            self.failures += 1
        return self._is_alone

    def is_lasting(self, now: float) -> bool:
        """Return whether the failures have lasted for so long that clients are told."""
        return self.failures >= ALONE_TRIES and now - self._since >= ALONE_SECONDS


class Hydration:
    """One absent file that is being fetched.

    Args:
        tries: how often its hydration failed in earlier runs.
    """

    def __init__(self, ino: int, tries: int = 0) -> None:
        self.ino = ino
        self.tries = tries
        self.path = f"inode {ino}"
        self.source: AbsentSource | None = None
        self.place: ObjectLocation | None = None
        """Where the bytes are read: the source's place, or an older version of it."""
        self.data: DataFile | None = None
        self.map = BlockMap(0)

        self.is_asked = False
        """Whether a client has asked for it. Otherwise it is fetched without haste."""
        self.asks: list[tuple[int, int]] = []
        """Offset and length, in bytes, of what clients wait for, until the next look."""
        self.wanted: dict[int, None] = {}
        """The blocks that clients wait for, in the order of their requests."""
        self.wanted_since = 0.0
        self.has_arrived = False
        """Whether a block has arrived since then."""
        self.session = 0
        """The session of the control socket in which the server was told which blocks are
        present."""

        self.users = 0
        """The threads that use ``data``."""
        self.needs_look = True
        """Whether the database must be looked at, alone, before anything else is done."""
        self.is_condemned = False
        """Whether nothing in the data file is believed any more: it could not be synced."""
        self.is_untold = False
        """Whether the server does not know yet that the data file is condemned. Until then it may
        serve what the next fetch writes before its digest is known."""
        self.due_at = 0.0
        """Nothing is done before this time (monotonic seconds)."""
        self.alone = LoneFailures()

        self.troubles: list[Trouble] = []
        """What the next look must judge."""
        self.strikes: Counter[int] = Counter()
        """How often each block was not what it should be."""
        self.is_searched = False
        """Whether an older version was looked for."""
        self.refusal: str | None = None
        """Why the next look gives the whole file up, whatever else is wrong with it."""
        self.error: str | None = None
        self.retry_at = 0.0
        """The time at which bad blocks are tried again."""
        self.restore: ArchiveRestore | None = None
        """How the object comes back from an archive, if it is in one."""

        self.unsaved_bytes = 0
        self.unsaved_since = 0.0
        """The time of the first block that the durable map lacks; 0: none."""
        self.is_arriving = False
        """Whether the server was told that the file is whole."""
        self.arrive_at = 0.0

    @property
    def is_whole(self) -> bool:
        return self.source is not None and self.map.is_whole

    @property
    def is_durable(self) -> bool:
        return self.source is not None and self.map.is_durable

    def is_starting(self, now: float) -> bool:
        """Return whether a client waits for the first block that is fetched for it."""
        if not self.users or not self.wanted or now - self.wanted_since > START_SECONDS:
            return False
        return not self.has_arrived

    def sleeps_until(self, now: float) -> float:
        """Return the time before which there is nothing to do, if no client asks. It is past while
        there is something: a file all of whose missing blocks cannot be had waits for its retry."""
        if self.due_at > now:
            return self.due_at
        is_waiting = self.retry_at > now and not (
            self.needs_look or self.users or self.wanted or self.asks or self.restore
        )
        return self.retry_at if is_waiting and self.map.first(BlockState.MISSING) < 0 else 0.0

    def ask(self, offset: int, length: int, now: float) -> None:
        """Note that a client waits for bytes. What was bad is tried again for it."""
        self.is_asked, self.due_at = True, 0.0
        if not self.wanted and not self.asks:
            self.wanted_since, self.has_arrived = now, False
        self.asks.append((offset, length))
        if not self.needs_look:
            self.absorb()

    def absorb(self) -> None:
        """Turn the requested ranges into blocks. The source is known, and was looked at since."""
        assert self.source is not None
        for offset, length in self.asks:
            first = offset // self.source.block_bytes
            end = -(-min(offset + length, self.source.size) // self.source.block_bytes)
            for block in range(first, end):
                if self.map[block] is BlockState.BAD:
                    self._forgive(block)
                if self.map[block] < BlockState.PRESENT:
                    self.wanted[block] = None
        self.asks.clear()

    def _forgive(self, block: int) -> None:
        self.map[block] = BlockState.MISSING
        self.is_searched = False
        for number in (block, WHOLE):
            self.strikes.pop(number, None)

    def forgive_all(self) -> None:
        """Try everything that was bad again."""
        self.map.change(BlockState.BAD, BlockState.MISSING)
        self.strikes.clear()
        self.retry_at, self.is_searched = 0.0, False

    def take_wanted(self, is_alone: bool) -> range | None:
        """Take the next blocks that a client waits for, with those that follow them.

        Args:
            is_alone: whether to take no others, because other clients wait too.
        """
        if self.source is None:
            return None
        for block in self.wanted:
            if self.map[block] is BlockState.MISSING:
                most = self._most()
                if is_alone:
                    most = next((n for n in range(1, most) if block + n not in self.wanted), most)
                return self.map.take(block, most)
        return None

    def take_rest(self) -> range | None:
        """Take the next missing blocks, in their order."""
        if self.source is None or (first := self.map.first(BlockState.MISSING)) < 0:
            return None
        return self.map.take(first, self._most())

    def _most(self) -> int:
        assert self.source is not None
        return max(1, GET_BYTES // self.source.block_bytes)

    def arrived(self, block: int, now: float) -> None:
        """Note that a block is verified and written."""
        assert self.source is not None
        self.map[block] = BlockState.PRESENT
        self.has_arrived = True
        self.alone = LoneFailures()
        self.wanted.pop(block, None)
        self.strikes.pop(block, None)
        self.strikes.pop(WHOLE, None)
        self.restore = None
        self.unsaved_bytes += self.source.bytes_of(block)
        self.unsaved_since = self.unsaved_since or now

    def failed(self, block: int, error: Exception) -> None:
        """Note trouble with the object. The next look judges it."""
        self.needs_look = True
        if all(trouble.block != block for trouble in self.troubles):
            # Requests that were under way together are one try.
            self.strikes[block] += 1
            self.troubles.append(Trouble(block, error))

    def refused(self, reason: str) -> None:
        """Note that the bucket gives other files, but not this one. The next look gives it up."""
        self.needs_look, self.refusal = True, reason

    def is_save_due(self, now: float) -> bool:
        """Return whether the durable map is to be written, or the file is whole."""
        if self.data is None or self.needs_look or self.is_arriving:
            return False
        if self.is_whole:
            return self.users == 0 and now >= self.arrive_at
        age_seconds = now - self.unsaved_since if self.unsaved_since else 0.0
        return self.unsaved_bytes >= SAVE_BYTES or age_seconds >= SAVE_SECONDS

    def adopt(self, found: AbsentFileRow, data: DataFile | None) -> None:
        """Take over what the database says.

        Args:
            data: if it is another data file.
        """
        source = found.source
        assert source is not None
        self.path, self.source, self.place = found.path, source, source.place
        self.troubles.clear()
        self.strikes.clear()
        self.is_searched, self.refusal = False, None
        if data is None:
            return
        self.data, self.map = data, BlockMap(source.blocks)
        self.unsaved_bytes, self.unsaved_since = 0, 0.0
        self.is_arriving, self.arrive_at = False, 0.0
        if found.durable is not None and data.was_long:
            self.map.believe(found.durable)
        for block in range(source.blocks):
            if self.map[block] is BlockState.MISSING and data.is_zero(block):
                self.map[block] = BlockState.PRESENT

    def reset(self) -> None:
        """Forget the data file, but not what clients wait for. No other thread uses the file."""
        if self.source is not None:
            size = self.source.block_bytes
            self.asks += [(block * size, size) for block in self.wanted]
        if self.data is not None:
            self.data.close()
        self.data = self.source = self.place = None
        self.map = BlockMap(0)
        self.wanted.clear()

    def shown(self) -> dict[str, object]:
        """Return the progress, for people."""
        if self.source is None:
            return {"ino": self.ino, "path": self.path, "done_bytes": 0, "total_bytes": None}
        done = self.map.count(BlockState.PRESENT, BlockState.DURABLE) * self.source.block_bytes
        size = self.source.size
        done_bytes = min(done, size)
        return {
            "ino": self.ino,
            "path": self.path,
            "done_bytes": done_bytes,
            "total_bytes": size,
        }


def now() -> float:
    """Return the time that the fields of a hydration are in."""
    return clock.monotonic_seconds()
