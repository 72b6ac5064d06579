"""Block digests: the same however the bytes were cut into runs, and holes are not computed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme
from hypothesis import given
from hypothesis import strategies as st

from gateway.objectstore import checksums
from gateway.objectstore.bodies import FileRange, digest
from gateway.objectstore.checksums import (
    BLOCK_BYTES,
    CRC_BYTES,
    DIGESTS_MAX_BYTES,
    BlockDigests,
    CrcRun,
    block_bytes_of,
    joined,
)
from gateway.objectstore.objects import MIB, OBJECT_MAX_BYTES

BLOCK = 7
"""Small enough that a few bytes are many blocks."""


def expected(data: bytes, block_bytes: int) -> bytes:
    blocks = [data[at : at + block_bytes] for at in range(0, len(data), block_bytes)]
    return b"".join(crc64nvme(block).to_bytes(8, "big") for block in blocks)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)), st.lists(st.integers(0, 60)))
def test_digests_are_the_same_however_the_bytes_come(
    data: bytes, ends: list[int], pieces: list[int]
) -> None:
    """The bytes come in runs (parts) of any length, each read in pieces of any length."""
    runs = []
    bounds = sorted({0, *(end for end in ends if end < len(data)), len(data)})
    for start, end in itertools.pairwise(bounds):
        run = CrcRun(start, BLOCK)
        cuts = sorted({start, *(cut for cut in pieces if start < cut < end), end})
        for at, until in itertools.pairwise(cuts):
            run.add(data[at:until])
        runs.append(run.crcs)
    assert joined(runs, BLOCK) == BlockDigests(BLOCK, expected(data, BLOCK))


@pytest.mark.parametrize(
    ("size", "block_bytes"),
    [
        (0, BLOCK_BYTES),
        (512 * 1024 * MIB, BLOCK_BYTES),
        (512 * 1024 * MIB + 1, 2 * BLOCK_BYTES),
        (OBJECT_MAX_BYTES, 512 * MIB),
    ],
)
def test_the_digests_of_one_file_are_at_most_a_mebibyte(size: int, block_bytes: int) -> None:
    assert block_bytes_of(size) == block_bytes
    assert -(-size // block_bytes) * CRC_BYTES <= DIGESTS_MAX_BYTES


def test_holes_cost_no_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole of a tebibyte would take a minute."""
    path = tmp_path / "sparse"
    size = 300 * MIB
    with path.open("wb") as file:
        file.seek(2 * MIB + 5)
        file.write(b"data")
        file.truncate(size)
    computed = 0

    def counting(data: memoryview, before: int = 0) -> int:
        nonlocal computed
        computed += len(data)
        found: int = honest(data, before)
        return found

    honest = crc64nvme
    monkeypatch.setattr(checksums, "crc64nvme", counting)
    with path.open("rb", buffering=0) as held_open:
        fd = held_open.fileno()
        run = CrcRun(0, BLOCK_BYTES)
        for piece in FileRange(fd, 0, size):
            run.add(piece)
        digests = joined([run.crcs], BLOCK_BYTES)
        part = digest(FileRange(fd, MIB, 8 * MIB))
    assert computed < 40 * MIB
    assert digests.crcs == expected(path.read_bytes(), BLOCK_BYTES)
    assert [crc.size for crc in part.crcs] == [3 * MIB, 4 * MIB, MIB]


def test_what_differs_is_told_in_ranges_of_blocks() -> None:
    digests = BlockDigests(BLOCK, expected(b"abcdefg" * 5, BLOCK))
    two = BlockDigests(BLOCK, expected(b"abcdefg" + b"x" * 14 + b"abcdefg" + b"y" * 7, BLOCK))
    assert digests.differing(digests) == []
    assert digests.differing(two) == [range(7, 21), range(28, 35)]
