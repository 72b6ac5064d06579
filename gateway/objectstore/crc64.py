"""Computes the CRC-64/NVME of the blocks of a file from its bytes as they pass. Pure.

The bytes come in runs (the parts of an upload), several runs at a time, each in order. A run gives
the CRC of each block that it touches, cut at the boundaries of the blocks in the file. ``joined``
combines the two halves of a block that two runs share, so a part may end inside a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from awscrt.checksums import combine_crc64nvme, crc64nvme

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
        found: list[range] = []
        for at in range(0, len(self.crcs), CRC_BYTES):
            if self.crcs[at : at + CRC_BYTES] != other.crcs[at : at + CRC_BYTES]:
                start = at // CRC_BYTES * self.block_bytes
                if found and found[-1].stop == start:
                    start = found.pop().start
                found.append(range(start, (at // CRC_BYTES + 1) * self.block_bytes))
        return found


def block_bytes_of(size: int) -> int:
    """Return the size of the blocks of a file of so many bytes."""
    block_bytes = BLOCK_BYTES
    while -(-size // block_bytes) * CRC_BYTES > DIGESTS_MAX_BYTES:
        block_bytes *= 2
    return block_bytes


@lru_cache(64)
def of_hole(size: int) -> Crc:
    """Return the CRC of so many zero bytes."""
    found = _of_zeros(size % len(ZEROS))
    for _ in range(size // len(ZEROS)):
        found = found.then(_of_zeros(len(ZEROS)))
    return found


def is_hole(data: bytes | memoryview) -> bool:
    """Return whether the bytes stand for a hole."""
    return isinstance(data, memoryview) and data.obj is ZEROS.obj


class Run:
    """The CRCs of one run of a file's bytes.

    Parameters: start, of the run in the file; block_bytes, the size of the blocks.
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
