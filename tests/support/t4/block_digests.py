"""Expected and recorded block digests, for tests of them."""

from __future__ import annotations

from awscrt.checksums import crc64nvme

from gateway.objectstore.checksums import BLOCK_BYTES
from tests.support.drainsite import Site


def of(data: bytes) -> tuple[int, bytes]:
    blocks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
    return BLOCK_BYTES, b"".join(crc64nvme(block).to_bytes(8, "big") for block in blocks)


def found(site: Site) -> dict[str, tuple[int, bytes]]:
    """Return the recorded digests, by key below the prefix."""
    rows = site.rows("SELECT key, block_bytes, crcs FROM object NATURAL JOIN block_digest")
    return {key.rpartition("/")[2]: (size, bytes(crcs)) for key, size, crcs in rows}
