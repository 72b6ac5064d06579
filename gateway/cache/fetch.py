"""Fetches blocks of one file from the bucket, and verifies each before it is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from awscrt.checksums import crc64nvme

from gateway.cache.datafile import DataFile
from gateway.cache.rows import Source
from gateway.errors import WrongBytes
from gateway.objectstore.crc64 import CRC_BYTES
from gateway.objectstore.incoming import Incoming
from gateway.objectstore.objects import MIB
from gateway.objectstore.pace import Goes
from gateway.objectstore.ranges import Place, Ranges

BUFFER_BYTES = MIB


def fetch(
    store: Ranges,
    source: Source,
    place: Place,
    data: DataFile,
    blocks: range,
    report: Callable[[int], bool],
    goes_first: Goes,
    buffer: bytearray,
) -> None:
    """Fetch blocks that follow each other, with one request. A block is written while it comes.

    Blocks that the data file has already (an earlier run was killed before it could record them)
    are verified and not fetched: the NFS server may be serving them, so nothing is written there
    that was not verified.

    Parameters: place, where the object is; report, called with each block that is verified and
    written, in order, which returns whether to continue; goes_first, for the pace; buffer, of
    BUFFER_BYTES. Raises WrongBytes for the first block whose digest differs; OSError of the data
    file; and as ``Ranges.get``.
    """
    for run in _absent(data, blocks, report, buffer):
        start = run.start * source.block_bytes
        end = min(run.stop * source.block_bytes, source.size)
        with store.get(place, start, end - start, goes_first) as body:
            for block in run:
                crc = _receive(body, source, data, block, buffer)
                if crc != source.crc(block):
                    at = block * source.block_bytes
                    raise WrongBytes(
                        f"{place.key}: bytes {at} to {at + source.bytes_of(block) - 1} are not "
                        "those that were stored"
                    )
                if not report(block):
                    return


def _receive(
    body: Incoming, source: Source, data: DataFile, block: int, buffer: bytearray
) -> bytes:
    """Write the next block of a body. Returns its digest."""
    at, left, crc = block * source.block_bytes, source.bytes_of(block), 0
    while left:
        view = memoryview(buffer)[: min(left, len(buffer))]
        count = body.readinto(view)
        crc = crc64nvme(view[:count], crc)
        data.write(buffer, count, at)
        at, left = at + count, left - count
        if count < len(view):
            break  # its digest cannot be right
    found: bytes = crc.to_bytes(CRC_BYTES, "big")
    return found


def _absent(
    data: DataFile, blocks: range, report: Callable[[int], bool], buffer: bytearray
) -> Iterator[range]:
    """Yield the runs of blocks that must be fetched. Report the others."""
    if not data.was_there:
        yield blocks
        return
    start = blocks.start
    for block in blocks:
        if data.has(block, buffer):
            if start < block:
                yield range(start, block)
            start = block + 1
            if not report(block):
                return
    if start < blocks.stop:
        yield range(start, blocks.stop)
