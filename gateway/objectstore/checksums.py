"""Checksums that show that a store has the bytes that were sent, and CRCs of a file's blocks. Pure.

Every store verifies MD5: Content-MD5 and ETags. The newer checksums cost a tenth of its processor
time or less. They are used with stores that were seen to verify them (negotiation.py). A newer
checksum is of the whole object, also when the object was sent in parts (FULL_OBJECT).

A block digest is a CRC-64/NVME, computed as the bytes pass. They come in runs (the parts of an
upload), several runs at a time, each in order. A run gives the CRC of each block that it touches,
cut at the boundaries of the blocks in the file. ``joined`` combines the two halves of a block that
two runs share, so a part may end inside a block.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache, reduce
from typing import NamedTuple

from awscrt.checksums import combine_crc32c, combine_crc64nvme, crc64nvme

MIB = 1024 * 1024
BLOCK_BYTES = 4 * MIB
DIGESTS_MAX_BYTES = MIB
"""The most bytes for the digests of one file. Larger files have larger blocks."""
CRC_BYTES = 8
ZEROS = memoryview(bytes(MIB))
"""The bytes of a hole are slices of this buffer, so that they need no reading."""


class Crc(NamedTuple):
    """The CRC of consecutive bytes."""

    value: int = 0
    size: int = 0
    """Bytes."""

    def then(self, following: Crc) -> Crc:
        """Return the CRC of these bytes and those that follow them."""
        value: int = combine_crc64nvme(self.value, following.value, following.size)
        return Crc(value, self.size + following.size)

    @property
    def bytes(self) -> bytes:
        """The CRC as S3 writes it, and as it is recorded: the most significant byte first."""
        return self.value.to_bytes(CRC_BYTES, "big")


class BlockDigests(NamedTuple):
    """The digests of one version of a file."""

    block_bytes: int
    crcs: bytes
    """One CRC after the other, ``CRC_BYTES`` each."""

    def differing(self, other: BlockDigests) -> list[range]:
        """Return the ranges of bytes in which two differ, in whole blocks of one size."""
        ranges: list[range] = []
        for at in range(0, len(self.crcs), CRC_BYTES):
            if self.crcs[at : at + CRC_BYTES] != other.crcs[at : at + CRC_BYTES]:
                start = at // CRC_BYTES * self.block_bytes
                if ranges and ranges[-1].stop == start:
                    start = ranges.pop().start
                ranges.append(range(start, (at // CRC_BYTES + 1) * self.block_bytes))
        return ranges


def block_bytes_of(size: int) -> int:
    """Return the size of the blocks of a file of so many bytes."""
    block_bytes = BLOCK_BYTES
    while -(-size // block_bytes) * CRC_BYTES > DIGESTS_MAX_BYTES:
        block_bytes *= 2
    return block_bytes


@lru_cache(64)
def of_hole(size: int) -> Crc:
    """Return the CRC of so many zero bytes."""
    crc = _of_zeros(size % len(ZEROS))
    for _ in range(size // len(ZEROS)):
        crc = crc.then(_of_zeros(len(ZEROS)))
    return crc


def is_hole(data: bytes | memoryview) -> bool:
    """Return whether the bytes stand for a hole."""
    return isinstance(data, memoryview) and data.obj is ZEROS.obj


class CrcRun:
    """The CRCs of one run of a file's bytes.

    Args:
        start: start of the run in the file.
        block_bytes: the size of the blocks.
    """

    def __init__(self, start: int, block_bytes: int) -> None:
        self.crcs: list[Crc] = []
        """The CRC of each block, or of the part of it that the run has."""
        self._at = start
        self._block_bytes = block_bytes

    def add(self, data: bytes | memoryview) -> None:
        """Add the next bytes of the run."""
        rest = memoryview(data)
        while rest:
            within = self._at % self._block_bytes
            part = rest[: self._block_bytes - within]
            before = self.crcs.pop() if within and self.crcs else Crc()
            self.crcs.append(_after(before, part))
            self._at += len(part)
            rest = rest[len(part) :]


def joined(runs: Iterable[Sequence[Crc]], block_bytes: int) -> BlockDigests:
    """Return the digests of a file from the runs that make it up, in order."""
    crcs: list[Crc] = []
    for run in runs:
        for crc in run:
            if crcs and crcs[-1].size < block_bytes:
                crc = crcs.pop().then(crc)
            crcs.append(crc)
    return BlockDigests(block_bytes, b"".join(crc.bytes for crc in crcs))


def _after(before: Crc, data: memoryview) -> Crc:
    if is_hole(data):
        return before.then(_of_zeros(len(data)))
    value: int = crc64nvme(data, before.value)
    return Crc(value, before.size + len(data))


@lru_cache(64)
def _of_zeros(size: int) -> Crc:
    value: int = crc64nvme(ZEROS[:size])
    return Crc(value, size)


class ChecksumKind(StrEnum):
    """The kind of the checksum that goes with a body."""

    MD5 = "md5"
    CRC64NVME = "crc64nvme"
    CRC32C = "crc32c"

    @property
    def header(self) -> str:
        """The header of a request that has a body, and of its answer."""
        return "Content-MD5" if self is ChecksumKind.MD5 else f"x-amz-checksum-{self}"

    @property
    def algorithm(self) -> str:
        """The name of the algorithm in S3."""
        return self.upper()

    @property
    def field(self) -> str:
        """The field in what boto3 sends and answers. No answer has a field for MD5."""
        return f"Checksum{self.algorithm}"


class ExpectedChecksum(NamedTuple):
    """The checksum that a store should answer for some bytes."""

    kind: ChecksumKind
    value: str
    """An ETag for MD5, and base64 for the other kinds."""


class BodyChecksums(NamedTuple):
    """The checksums of one body."""

    md5: bytes
    """The MD5. It is empty when it was not asked for."""
    sha256: str
    """The SHA-256 in hex. It is empty when it was not asked for."""
    crcs: tuple[Crc, ...]
    """The CRCs of the blocks of the file, or of the parts of blocks that the body has."""
    crc32c: int = 0
    """The CRC-32C. It is 0 when it was not asked for."""

    def value(self, kind: ChecksumKind) -> bytes:
        """Return the checksum of a kind that was asked for."""
        return self.md5 if kind is ChecksumKind.MD5 else value_of([self], kind)

    def header(self, kind: ChecksumKind) -> str:
        """Return the value of the header that goes with the body."""
        return base64.b64encode(self.value(kind)).decode()

    def sum(self, kind: ChecksumKind) -> ExpectedChecksum:
        """Return the checksum that a store should answer for this body, as an object or a part."""
        return ExpectedChecksum(
            kind, self.md5.hex() if kind is ChecksumKind.MD5 else self.header(kind)
        )


def value_of(parts: Sequence[BodyChecksums], kind: ChecksumKind) -> bytes:
    """Return the checksum of an object from its parts, in order. For MD5 it is the MD5 of the
    parts' MD5s."""
    if kind is ChecksumKind.MD5:
        md5s = b"".join(part.md5 for part in parts)
        return hashlib.md5(md5s, usedforsecurity=False).digest()
    if kind is ChecksumKind.CRC64NVME:
        return reduce(Crc.then, (crc for part in parts for crc in part.crcs), Crc()).bytes
    value = 0
    for part in parts:
        value = combine_crc32c(value, part.crc32c, sum(crc.size for crc in part.crcs))
    return value.to_bytes(4, "big")


def sum_of(parts: Sequence[BodyChecksums], kind: ChecksumKind) -> ExpectedChecksum:
    """Return the checksum that a store should answer for an object of these parts."""
    value = value_of(parts, kind)
    if kind is ChecksumKind.MD5:
        return ExpectedChecksum(kind, f"{value.hex()}-{len(parts)}")
    return ExpectedChecksum(kind, base64.b64encode(value).decode())
