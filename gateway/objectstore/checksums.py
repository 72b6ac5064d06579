"""The checksums by which a store and we make sure that it has what was sent. Pure.

MD5 is what every store verifies: Content-MD5, and ETags. The newer ones cost a tenth or less of its
processor time, and are for stores that were seen to verify them (negotiation.py). They are of whole
objects, also of those that were sent in parts (FULL_OBJECT).
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
    """Which checksum goes with a body."""

    MD5 = "md5"
    CRC64NVME = "crc64nvme"
    CRC32C = "crc32c"

    @property
    def header(self) -> str:
        """Of a request that has a body, and of its answer."""
        return "Content-MD5" if self is Kind.MD5 else f"x-amz-checksum-{self}"

    @property
    def algorithm(self) -> str:
        """As S3 names it."""
        return self.upper()

    @property
    def field(self) -> str:
        """Of what boto3 sends and answers; no answer has one for MD5."""
        return f"Checksum{self.algorithm}"


class Sum(NamedTuple):
    """What a store should say of some bytes."""

    kind: Kind
    value: str
    """An ETag for MD5, else in base64."""


class Digests(NamedTuple):
    """Of one body."""

    md5: bytes
    """Empty when it was not asked for."""
    sha256: str
    """In hex; empty when it was not asked for."""
    crcs: tuple[Crc, ...]
    """Of the blocks of the file, or of what the body has of them."""
    crc32c: int = 0
    """0 when it was not asked for."""

    def value(self, kind: Kind) -> bytes:
        """The checksum of a kind that was asked for."""
        return self.md5 if kind is Kind.MD5 else value_of([self], kind)

    def header(self, kind: Kind) -> str:
        """As it goes with the body."""
        return base64.b64encode(self.value(kind)).decode()

    def sum(self, kind: Kind) -> Sum:
        """What a store should say that has this body as an object or a part."""
        return Sum(kind, self.md5.hex() if kind is Kind.MD5 else self.header(kind))


def value_of(parts: Sequence[Digests], kind: Kind) -> bytes:
    """The checksum of a whole from its parts, in order. MD5: that of the parts' MD5s."""
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
    """What a store should say of an object of these parts."""
    value = value_of(parts, kind)
    if kind is Kind.MD5:
        return Sum(kind, f"{value.hex()}-{len(parts)}")
    return Sum(kind, base64.b64encode(value).decode())
