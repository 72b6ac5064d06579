"""Facts that a store tells about objects and parts, and the arithmetic of S3. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from gateway.common.errors import ObjectRefused
from gateway.objectstore.checksums import BodyChecksums, ChecksumKind, ExpectedChecksum

KIB = 1024
MIB = 1024 * KIB
PARTS_MAX = 10_000
PART_MAX_BYTES = 5 * 1024 * MIB
OBJECT_MAX_BYTES = PARTS_MAX * PART_MAX_BYTES
"""48.8 TiB."""
COPY_MAX_BYTES = 5 * 1024 * MIB
"""The limit of S3 for one CopyObject. Larger objects are copied in parts."""
COPY_PART_BYTES = 512 * MIB
PART_BYTES = "part-bytes"
"""Metadata with the size of the parts that an object was made of. An ETag in the form of parts is
computed from parts of this size."""

_MD5 = re.compile("[0-9a-fA-F]{32}")
_MULTIPART_ETAG = re.compile("[0-9a-fA-F]{32}-[0-9]+")


class Etag(str):
    """An ETag as the store spells it, without quotes: it is sent back like this in conditions.

    Two of them are equal also in another case. Some stores answer hexadecimal digits in capital
    letters, and what older releases recorded is in lower case.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self.lower() == other.lower() if isinstance(other, str) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.lower())


class Part(NamedTuple):
    """One part of a multipart upload that the store has."""

    number: int
    etag: str
    digests: BodyChecksums
    """The digests of the bytes that were sent."""


class ListedPart(NamedTuple):
    """A part as ListParts shows it."""

    etag: str
    """Without quotes."""
    size: int
    """Bytes."""
    sum: ExpectedChecksum | None
    """The checksum beside the ETag, where it was asked for and the store tells it."""

    def has(self, digests: BodyChecksums, kind: ChecksumKind) -> bool:
        """Whether the store says that it has these bytes."""
        wanted = digests.sum(kind)
        return (self.etag == wanted.value) if kind is ChecksumKind.MD5 else self.sum == wanted


class Head(NamedTuple):
    """The facts that the store tells about an object."""

    size: int
    """Bytes."""
    etag: str
    """Without quotes."""
    metadata: dict[str, str]
    """Names in lower case (servers differ)."""
    opaque_etag: bool
    """The object is encrypted with a key of the store: its ETag looks like an MD5 but is none."""
    sum: ExpectedChecksum | None = None
    """The checksum of the whole object, where it was asked for and the store tells it."""
    storage_class: str = ""
    """Empty: the store does not say. S3 says nothing of STANDARD."""


class ListedObject(NamedTuple):
    """An object as a listing shows it."""

    key: str
    size: int
    """Bytes."""
    etag: str
    """Without quotes."""
    modified_ns: int
    """When it was stored, by the clock of the store."""


class VerifiedObject(NamedTuple):
    """An object that was sent and verified."""

    head: Head
    digests: BodyChecksums
    """The digests of the bytes that were sent."""
    is_indeterminate: bool = False
    """Whether an earlier try got no answer. The store may carry it out after other requests."""


class BegunCopy(NamedTuple):
    """The multipart upload of a copy in parts."""

    upload_id: str
    part_bytes: int


class PendingUpload(NamedTuple):
    """A multipart upload that was neither completed nor aborted."""

    key: str
    upload_id: str
    initiated: datetime


def part_bytes_of(size: int, wanted_bytes: int) -> int:
    """Return a size of parts, in whole MiB, with which the object has no more parts than S3 allows.

    Raises: ObjectRefused when no object can be so large.
    """
    if size > OBJECT_MAX_BYTES:
        raise ObjectRefused(
            f"{size} bytes are more than an object can have ({OBJECT_MAX_BYTES}): split the file"
        )
    least = -(-size // PARTS_MAX)
    return max(wanted_bytes, -(-least // MIB) * MIB)


def etag_of(answer: Mapping[str, Any]) -> Etag:
    """Return the ETag of an answer, without quotes."""
    return Etag(str(answer.get("ETag", "")).strip('"'))


def is_plain_md5(etag: str) -> bool:
    return _MD5.fullmatch(etag) is not None


def form(etag: str) -> str:
    """Return the kind of an ETag. Only ETags of one kind can be compared."""
    if is_plain_md5(etag):
        return "md5"
    return "md5 of md5s" if _MULTIPART_ETAG.fullmatch(etag) else "opaque"


def is_opaque(answer: Mapping[str, Any]) -> bool:
    """Return whether the ETag of an answer says nothing about the bytes."""
    kms = str(answer.get("ServerSideEncryption", "")).startswith("aws:")
    return kms or "SSECustomerAlgorithm" in answer


def sum_in(answer: Mapping[str, Any], kind: ChecksumKind) -> ExpectedChecksum | None:
    """The checksum that an answer has beside the ETag; None: none of the kind, of the whole."""
    value = str(answer.get(kind.field) or "")
    # One of parts' checksums, with their number behind it, says nothing of the whole.
    return None if not value or "-" in value else ExpectedChecksum(kind, value)


def require_sum(answer: Mapping[str, Any], expected: ExpectedChecksum, key: str) -> bool:
    """Compare what an answer says of the bytes; returns whether it says it.

    Raises: ObjectRefused when the store has other bytes.
    """
    if expected.kind is ChecksumKind.MD5:
        return require_etag(answer, expected.value, key)
    checksum = sum_in(answer, expected.kind)
    if checksum is not None:
        require(checksum.value, expected.value, key)
    return checksum is not None


def require_etag(answer: Mapping[str, Any], expected: str, key: str) -> bool:
    """Compare an answer's ETag with the expected one, if possible. Returns whether it was.

    Raises: ObjectRefused when the store has other bytes.
    """
    etag = etag_of(answer)
    if is_opaque(answer) or form(etag) != form(expected):
        return False
    require(etag, expected, key)
    return True


def require(found: str, expected: str, key: str) -> None:
    """Raises ObjectRefused when two ETags or checksums of one kind differ."""
    if found != expected:
        raise ObjectRefused(f"{key}: sent bytes with checksum {expected}, the store has {found}")
