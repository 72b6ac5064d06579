"""Rules of the comparison of names and bucket: what an object is, and what becomes of a file. Pure.

The metadata of an object says of which file and version it is. What says nothing is another
program's. A rule never concludes from what is missing that bytes may go.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from gateway.common import clock
from gateway.common.types import NAME_MAX_BYTES, InodeKind, Residency
from gateway.db.models import RESERVED_NAME
from gateway.objectstore import key_mapper
from gateway.objectstore.checksums import BlockDigests, ChecksumKind, block_bytes_of
from gateway.objectstore.key_mapper import OURS, RESERVED, Parts
from gateway.objectstore.metadata import (
    GID,
    INO,
    MODE,
    MTIME,
    PATH_REST,
    SNAPSHOT,
    UID,
    VOLUME,
    ObjectOrigin,
    origin_of,
)
from gateway.objectstore.objects import PART_BYTES, Head, form, is_plain_md5
from gateway.recovery.bucket_scan import ScannedRow

DAMAGE = "the bucket lacks the object of this file: "
"""Begins the reason of damage that a comparison found. It is forgotten when the object is there."""
_NUMBER_MAX = 1 << 62
_ID_MAX = 1 << 32
INO_MAX = 1 << 48
"""A higher number in metadata is none that a gateway gave out."""


class Case(StrEnum):
    """What is at a key, compared with the row of the key."""

    SAME = "same"
    """The object has the size and the ETag of the row."""
    MISSING = "missing"
    """There is no object at the key of a row."""
    NEWER = "newer"
    """The object is of a newer version of the file than the row."""
    CHANGED = "changed"
    """The object is of the version of the row and has another ETag."""
    REPLACED = "replaced"
    """The object is not that of the row: of another file, of an older version, or foreign."""
    MOVED = "moved"
    """No row has the key. The object is the newest one of a file whose own object is not at its
    key."""
    UNKNOWN = "unknown"
    """No row has the key, and the object is of a file that the names do not have."""
    SECOND_COPY = "second copy"
    """No row has the key, and the object is of a file whose own object is at its key."""
    PROMOTED = "promoted copy"
    """No row has the key of the object of a promoted copy."""
    GARBAGE = "garbage"
    """The drain is to delete the object: its file was deleted or moved."""
    UNDER_WAY = "under way"
    """The object is being sent, copied or moved, or this was interrupted. The drain settles it."""
    FOREIGN = "foreign"
    """No row has the key, and the object does not say that it is this gateway's."""
    MANIFEST = "manifest"
    """A manifest of a checkpoint that no row has."""
    OWN = "own"
    """An object of the gateway's own, which is no file's."""


LOSSES = (Case.MISSING, Case.REPLACED)
"""Cases in which the bucket lacks the object of a row."""
PROBLEMS = (*LOSSES, Case.MOVED, Case.NEWER, Case.CHANGED)
"""Cases in which a client cannot read a file from the bucket before the names are mended."""


class Outcome(StrEnum):
    """What becomes of a file or an object."""

    LEFT = "left"
    """Nothing changes."""
    FOLLOWED = "taken from the bucket"
    """The file is the newer one that the bucket has."""
    RECORDED = "recorded again"
    """The bytes are the same; the row has the object's key and ETag."""
    KEPT_LOCAL = "kept on the disk"
    """The local bytes are newer than the object, and are sent again."""
    CAME_BACK = "came back"
    """The object is a file again."""
    SENT_AGAIN = "sent again"
    """The bucket lacks the object, and the local disk has the bytes."""
    LOST = "lost"
    """Neither the bucket nor the local disk has the bytes: the file is damaged."""
    SET_BESIDE = "renamed"
    """Another file has the path in the bucket: this one has its name with ``.before-`` and a
    time."""
    IMPORTED = "imported"
    """The object of another program is a file now."""
    NAMELESS = "in lost+found"
    """The object is a file again, and its key tells no path."""


class FileState(NamedTuple):
    """A file as the database knows it, in the columns of ``inode`` and of its object."""

    ino: int
    generation: int
    kind: int
    nlink: int
    size: int
    mtime_ns: int
    ctime_ns: int
    content_version: int
    drained_version: int
    write_open: int
    epoch: int
    residency: int
    reserved: int
    read_ns: int
    damage: str | None
    stored_key: str | None
    stored_version: int | None
    stored_size: int | None
    stored_etag: str | None

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file with a name."""
        return self.kind == InodeKind.REGULAR and self.nlink > 0

    @property
    def has_bytes(self) -> bool:
        """Whether its bytes are on the local disk, as far as the row knows."""
        return self.residency == Residency.RESIDENT and self.damage is None

    def is_of(self, origin: ObjectOrigin) -> bool:
        """Return whether metadata names this inode and its generation."""
        return origin.ino == self.ino and origin.generation in (0, self.generation)

    def knows(self, found: os.stat_result) -> bool:
        """Return whether the row knows all bytes of the data file."""
        return found.st_mtime_ns <= max(self.mtime_ns, self.ctime_ns, self.read_ns)


class StoredAttributes(NamedTuple):
    """What the metadata of an object says of its file. None: it does not say."""

    mode: int | None
    uid: int | None
    gid: int | None
    mtime_ns: int | None


def is_ours(origin: ObjectOrigin, volumes: Collection[str]) -> bool:
    """Return whether an object is this namespace's.

    Args:
        volumes: ids of this namespace. An object of an earlier Spillway has none.
    """
    return origin.ino is not None and (origin.volume is None or origin.volume in volumes)


def is_of_row(origin: ObjectOrigin, row: ScannedRow) -> bool:
    """Return whether metadata names the inode of a row and its generation."""
    return origin.ino == row.ino and origin.generation in (0, row.generation)


def version_of(origin: ObjectOrigin) -> int:
    """Return the version of an object that is a file's: 1 if its metadata does not say."""
    version = origin.content_version or 1
    return version if version < _NUMBER_MAX else 1


def against_row(head: Head, row: ScannedRow, volumes: Collection[str]) -> Case:
    """Return what the object at the key of a row is."""
    if row.names(head.size, head.etag):
        return Case.SAME
    origin = origin_of(head.metadata)
    if not is_ours(origin, volumes) or not is_of_row(origin, row):
        return Case.REPLACED
    if origin.content_version is None or origin.content_version < row.content_version:
        return Case.REPLACED
    if origin.content_version >= _NUMBER_MAX:
        return Case.REPLACED
    if origin.content_version > row.content_version or _is_later_snapshot(head, row):
        return Case.NEWER
    return Case.CHANGED if head.size == row.size else Case.REPLACED


def _is_later_snapshot(head: Head, row: ScannedRow) -> bool:
    """Return whether an object of the version of a row shows more of it than the row's object."""
    moment = _number(head, SNAPSHOT, _NUMBER_MAX)
    return row.is_snapshot and (moment is None or moment > row.stored_ns)


def has_same_content(recorded: str | None, head: Head) -> bool:
    """Return whether a recorded checksum shows that an object has the bytes it was made of."""
    return recorded is not None and recorded in _checksums(head)


def checksum_of(head: Head) -> str | None:
    """Return the checksum of an object in the form in which one is recorded, or None."""
    return next(iter(_checksums(head)), None)


def _checksums(head: Head) -> Sequence[str]:
    found = []
    if head.sum is not None and head.sum.kind is not ChecksumKind.MD5:
        found.append(f"{head.sum.kind}:{base64.b64decode(head.sum.value).hex()}")
    if head.opaque_etag:
        return found
    if is_plain_md5(head.etag):
        found.append(f"md5:{head.etag.lower()}")
    part_bytes = head.metadata.get(PART_BYTES, "")
    if form(head.etag) == "md5 of md5s" and part_bytes.isdecimal():
        found.append(f"md5-parts:{int(part_bytes)}:{head.etag.lower().partition('-')[0]}")
    return found


def digests_of(head: Head) -> BlockDigests | None:
    """Return the block digests of an object as far as the store tells them: of an empty one, and of
    one that is a single block."""
    block_bytes = block_bytes_of(head.size)
    if head.size == 0:
        return BlockDigests(block_bytes, b"")
    if head.size > block_bytes or head.sum is None or head.sum.kind is not ChecksumKind.CRC64NVME:
        return None
    return BlockDigests(block_bytes, base64.b64decode(head.sum.value))


def attributes_of_foreign(head: Head, stored_ns: int) -> StoredAttributes:
    """Return what a file gets that was made of the object of another program.

    Args:
        head: of the object.
        stored_ns: when it was stored.
    """
    if origin_of(head.metadata).ino is not None:
        return attributes_of(head)  # of another gateway
    return StoredAttributes(0o644, 0, 0, stored_ns)


def attributes_of(head: Head) -> StoredAttributes:
    """Return what the metadata of an object says of its file."""
    mode = head.metadata.get(MODE, "")
    is_octal = 0 < len(mode) <= 5 and not set(mode) - set("01234567")
    return StoredAttributes(
        int(mode, 8) & 0o7777 if is_octal else None,
        _number(head, UID, _ID_MAX),
        _number(head, GID, _ID_MAX),
        _number(head, MTIME, _NUMBER_MAX),
    )


def generation_of(origin: ObjectOrigin) -> int | None:
    """Return the generation that metadata names, or None."""
    return origin.generation if origin.generation and origin.generation < _NUMBER_MAX else None


def number_of(origin: ObjectOrigin) -> int | None:
    """Return the number of the inode that metadata names, or None if none can have it."""
    return origin.ino if origin.ino is not None and origin.ino < INO_MAX else None


def _number(head: Head, name: str, end: int) -> int | None:
    text = head.metadata.get(name, "")
    return int(text) if text.isdecimal() and int(text) < end else None


def manifest_ino(head: Head, volumes: Collection[str]) -> int | None:
    """Return the inode of the checkpoint of a manifest of this namespace, or None."""
    ino = _number(head, INO, INO_MAX)
    return ino if head.metadata.get(VOLUME) in volumes else None


class KeyPlace(StrEnum):
    """What a key is for."""

    FILE = "file"
    """It is the path of a file."""
    ASIDE = "aside"
    """An object waits there because its file's key was taken, or its file is in the trash."""
    PROMOTED = "promoted"
    MANIFEST = "manifest"
    OWN = "own"


def place_of(prefix: str, key: str, is_outside: bool) -> KeyPlace:
    """Return what a key is for.

    Args:
        prefix: of the gateway.
        is_outside: whether the key is outside of it.
    """
    if is_outside:
        return KeyPlace.PROMOTED
    below = key[len(prefix) + 1 :] if prefix else key
    if not below.startswith(f"{OURS}/"):
        return KeyPlace.FILE
    area = below.split("/")[1]
    if area in ("staging", "trash"):
        return KeyPlace.ASIDE
    if area == "promoted":
        return (
            KeyPlace.OWN if below.endswith(".json") and below.count("/") == 2 else KeyPlace.PROMOTED
        )
    return KeyPlace.MANIFEST if area == "checkpoints" else KeyPlace.OWN


def path_of(prefix: str, key: str, head: Head) -> Parts | None:
    """Return the path of an object, or None if its key tells none that a file can have."""
    try:
        parts = key_mapper.parts_of(prefix, key)
    except ValueError:
        return None
    if key_mapper.is_shortened(key):
        rest = head.metadata.get(PATH_REST, "")
        parts += [name for name in unquote_to_bytes(rest).split(b"/") if name]
    is_path = bool(parts) and parts[0] not in (RESERVED, RESERVED_NAME)
    is_path = is_path and all(map(_is_name, parts))
    return tuple(parts) if is_path else None


def _is_name(name: bytes) -> bool:
    if not 0 < len(name) <= NAME_MAX_BYTES or name in (b".", b".."):
        return False
    return b"/" not in name and b"\0" not in name


def name_beside(name: bytes, stored_ns: int, number: int) -> bytes:
    """Return the name that a file gets whose path another one has in the bucket.

    Args:
        stored_ns: when the object of the other one was stored.
        number: 1, or more if the name is taken.
    """
    moment = datetime.fromtimestamp(stored_ns // clock.NS, UTC).strftime("%Y%m%dT%H%M%SZ")
    end = f".before-{moment}{f'-{number}' if number > 1 else ''}".encode()
    return name[: NAME_MAX_BYTES - len(end)] + end


class Take(StrEnum):
    """What a file takes from an object of a version of it."""

    ROW = "row"
    """Only the row changes: the bytes are those that are recorded."""
    ALL = "all"
    """The file is what the object says, and its bytes are in the bucket."""
    BYTES = "bytes"
    """Its bytes are in the bucket. The row knows of the version or of a later one, so its owner and
    mode are no older than those of the object, which are from when that was sent."""
    NOTHING_LOCAL = "nothing local"
    """The row changes, and the local bytes stay: they are newer, and are sent again."""


def take(state: FileState, head: Head, stat: os.stat_result | None) -> Take:
    """Return what a file takes from an object that is its newest in the bucket.

    Args:
        stat: of the data file, if there is one.
    """
    version = version_of(origin_of(head.metadata))
    is_whole = state.stored_version is not None and state.stored_version <= state.drained_version
    if is_whole and (state.stored_version, state.stored_size) == (version, head.size):
        return Take.ROW
    followed = Take.BYTES if state.content_version >= version else Take.ALL
    if state.residency != Residency.RESIDENT:
        return followed
    if state.damage is not None:
        # What is lost may be newer than the object.
        return Take.NOTHING_LOCAL if state.content_version > version else followed
    is_dirty = state.write_open or state.content_version > state.drained_version
    if is_dirty or (stat is not None and not state.knows(stat)):
        return Take.NOTHING_LOCAL
    if state.stored_version is None and (state.content_version, state.size) == (version, head.size):
        return Take.ROW
    return followed


def can_be_sent_again(state: FileState, stat: os.stat_result | None) -> bool:
    """Return whether the local disk has the bytes of a file whose object is lost.

    Args:
        stat: of the data file, if there is one.
    """
    if state.residency != Residency.RESIDENT or state.damage is not None:
        return False
    if stat is None:
        return state.size == 0 and not state.write_open
    return bool(state.write_open) or stat.st_size == state.size
