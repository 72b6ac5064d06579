"""Computes the checksums that show that a store has the bytes that were sent. Pure.

Every store verifies MD5: Content-MD5 and ETags. The newer checksums cost a tenth of its processor
time or less. They are used with stores that were seen to verify them (negotiation.py). A newer
checksum is of the whole object, also when the object was sent in parts (FULL_OBJECT).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from enum import StrEnum
from functools import reduce
from typing import NamedTuple

from awscrt.checksums import combine_crc32c

from gateway.objectstore.crc64 import Crc


class Kind(StrEnum):
    """The kind of the checksum that goes with a body."""

    MD5 = "md5"
    CRC64NVME = "crc64nvme"
    CRC32C = "crc32c"

    @property
    def header(self) -> str:
        """The header of a request that has a body, and of its answer."""
        return "Content-MD5" if self is Kind.MD5 else f"x-amz-checksum-{self}"

    @property
    def algorithm(self) -> str:
        """The name of the algorithm in S3."""
        return self.upper()

    @property
    def field(self) -> str:
        """The field in what boto3 sends and answers. No answer has a field for MD5."""
        return f"Checksum{self.algorithm}"


class Sum(NamedTuple):
    """The checksum that a store should answer for some bytes."""

    kind: Kind
    value: str
    """An ETag for MD5, and base64 for the other kinds."""


class Digests(NamedTuple):
    """The checksums of one body."""

    md5: bytes
    """The MD5. It is empty when it was not asked for."""
    sha256: str
    """The SHA-256 in hex. It is empty when it was not asked for."""
    crcs: tuple[Crc, ...]
    """The CRCs of the blocks of the file, or of the parts of blocks that the body has."""
    crc32c: int = 0
    """The CRC-32C. It is 0 when it was not asked for."""

    def value(self, kind: Kind) -> bytes:
        """Return the checksum of a kind that was asked for."""
        return self.md5 if kind is Kind.MD5 else value_of([self], kind)

    def header(self, kind: Kind) -> str:
        """Return the value of the header that goes with the body."""
        return base64.b64encode(self.value(kind)).decode()

    def sum(self, kind: Kind) -> Sum:
        """Return the checksum that a store should answer for this body, as an object or a part."""
        return Sum(kind, self.md5.hex() if kind is Kind.MD5 else self.header(kind))


def value_of(parts: Sequence[Digests], kind: Kind) -> bytes:
    """Return the checksum of an object from its parts, in order. For MD5 it is the MD5 of the
    parts' MD5s."""
    if kind is Kind.MD5:
        md5s = b"".join(part.md5 for part in parts)
        return hashlib.md5(md5s, usedforsecurity=False).digest()
    if kind is Kind.CRC64NVME:
        return reduce(Crc.then, (crc for part in parts for crc in part.crcs), Crc()).bytes
    value = 0
    for part in parts:
        value = combine_crc32c(value, part.crc32c, sum(crc.size for crc in part.crcs))
    return value.to_bytes(4, "big")


def sum_of(parts: Sequence[Digests], kind: Kind) -> Sum:
    """Return the checksum that a store should answer for an object of these parts."""
    value = value_of(parts, kind)
    if kind is Kind.MD5:
        return Sum(kind, f"{value.hex()}-{len(parts)}")
    return Sum(kind, base64.b64encode(value).decode())
