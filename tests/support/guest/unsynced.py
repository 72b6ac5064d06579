"""Guest program that writes a file into the client's cache, waits for a signal, then fsyncs it.

    unsynced.py PATH MIB GO

It makes the file GO.ready, waits for the file GO, and prints the sha256.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from pathlib import Path

CHUNK_BYTES = 1024 * 1024


def main() -> None:
    path, mib, go = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    digest = hashlib.sha256()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for index in range(mib):
        block = random.Random(index).randbytes(CHUNK_BYTES)
        digest.update(block)
        os.write(fd, block)
    Path(f"{go}.ready").touch()
    deadline = time.monotonic() + 120
    while not go.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(go)
        time.sleep(0.05)
    os.fsync(fd)
    os.close(fd)
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
