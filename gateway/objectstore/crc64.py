"""CRC-64/NVME of the blocks of a file, from its bytes as they pass. Pure.

The bytes come in runs (the parts of an upload), each in order, several at a time. A run gives the
CRC of each block it touches, cut where blocks begin in the file; ``joined`` combines the two halves
of a block that two runs share. So the parts need not be whole blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from awscrt.checksums import combine_crc64nvme, crc64nvme

MIB = 1024 * 1024
BLOCK_BYTES = 4 * MIB
DIGESTS_MAX_BYTES = MIB
"""Of one file: of larger files the blocks are larger."""
CRC_BYTES = 8
ZEROS = memoryview(bytes(MIB))
"""What is given of a hole is a slice of this, so that nothing has to read it."""


class Crc(NamedTuple):
    """Of some bytes that follow each other."""

    value: int = 0
    size: int = 0
    """Bytes."""

    def then(self, following: Crc) -> Crc:
        """Of these bytes and those that follow them."""
        value: int = combine_crc64nvme(self.value, following.value, following.size)
        return Crc(value, self.size + following.size)

    @property
    def bytes(self) -> bytes:
        """As S3 writes it, and as it is recorded: the most significant byte first."""
        return self.value.to_bytes(CRC_BYTES, "big")


class BlockDigests(NamedTuple):
    """The digests of one version of a file."""

    block_bytes: int
    crcs: bytes
    """One CRC after the other, ``CRC_BYTES`` each."""

    def differing(self, other: BlockDigests) -> list[range]:
        """The bytes of which two differ, in whole blocks of one size."""
        found: list[range] = []
        for at in range(0, len(self.crcs), CRC_BYTES):
            if self.crcs[at : at + CRC_BYTES] != other.crcs[at : at + CRC_BYTES]:
                start = at // CRC_BYTES * self.block_bytes
                if found and found[-1].stop == start:
                    start = found.pop().start
                found.append(range(start, (at // CRC_BYTES + 1) * self.block_bytes))
        return found


def block_bytes_of(size: int) -> int:
    """Size of the blocks of a file of so many bytes."""
    block_bytes = BLOCK_BYTES
    while -(-size // block_bytes) * CRC_BYTES > DIGESTS_MAX_BYTES:
        block_bytes *= 2
    return block_bytes


def is_hole(data: bytes | memoryview) -> bool:
    """Whether the bytes were given for a hole."""
    return isinstance(data, memoryview) and data.obj is ZEROS.obj


class Run:
    """The CRCs of one run of a file's bytes.

    Parameters: start, of the run in the file; block_bytes, size of the blocks.
    """

    def __init__(self, start: int, block_bytes: int) -> None:
        self.crcs: list[Crc] = []
        """Of each block, or of what the run has of it."""
        self._at = start
        self._block_bytes = block_bytes

    def add(self, data: bytes | memoryview) -> None:
        """The next bytes of the run."""
        rest = memoryview(data)
        while rest:
            within = self._at % self._block_bytes
            part = rest[: self._block_bytes - within]
            before = self.crcs.pop() if within and self.crcs else Crc()
            self.crcs.append(_after(before, part))
            self._at += len(part)
            rest = rest[len(part) :]


def joined(runs: Iterable[Sequence[Crc]], block_bytes: int) -> BlockDigests:
    """The digests of a file from the runs that make it up, in order."""
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
