"""Writes a file whose bytes are sent to the server and not committed; then waits, then fsyncs.

unsynced.py PATH MIB GO      waits until the file GO exists (in the guest). Prints JSON.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path

SYNC_FILE_RANGE_WRITE = 2
PERIODIC_WRITEBACK = Path("/proc/sys/vm/dirty_writeback_centisecs")
CHUNK_BYTES = 1024 * 1024


def sent_writes() -> int:
    """WRITE requests of all NFS mounts so far (/proc/self/mountstats)."""
    lines = Path("/proc/self/mountstats").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.split()[:1] == ["WRITE:"])


def main() -> None:
    path, mib, go = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    digest = hashlib.sha256()
    libc = ctypes.CDLL(None, use_errno=True)
    # Or the kernel would commit by itself after some seconds.
    interval = PERIODIC_WRITEBACK.read_text()
    PERIODIC_WRITEBACK.write_text("0")
    before = sent_writes()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for index in range(mib):
        block = random.Random(index).randbytes(CHUNK_BYTES)
        digest.update(block)
        os.write(fd, block)
    offset = ctypes.c_int64(0)
    if libc.sync_file_range(fd, offset, offset, SYNC_FILE_RANGE_WRITE) != 0:
        raise OSError(ctypes.get_errno(), "sync_file_range")
    Path(f"{go}.ready").touch()
    deadline = time.monotonic() + 120
    while not go.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(go)
        time.sleep(0.05)
    os.fsync(fd)
    os.close(fd)
    PERIODIC_WRITEBACK.write_text(interval)
    print(json.dumps({"sha256": digest.hexdigest(), "writes": sent_writes() - before}))


if __name__ == "__main__":
    main()
