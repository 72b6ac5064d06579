"""Which NFS-Ganesha is installed, and in which environment it runs.

Releases differ in what they can do and in their options.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

TELLS_OF_READ_PLUS = 6
"""From this release on clients read rightly with NFSv4.2: the plugin sees READ_PLUS and refuses it
(fsal/native/io.c), and the client asks with READ. Ganesha 4.3 answers READ_PLUS with empty data and
does not tell the plugin (Protocols/NFS/nfs4_op_read.c); so do 6.0 and 6.1, which no Debian has."""

MUST_FLUSH_IO = 6
"""From this release on the server ends unless it may call PR_SET_IO_FLUSHER, which needs
CAP_SYS_RESOURCE, or is told to run without (MainNFSD/nfs_main.c)."""

KEEPS_EXPIRED = 6
"""From this release on the server keeps the opens of a client whose lease has ended for a day, or
until another client wants them, unless it is told not to (SAL/nfs4_clientid.c)."""

_ANSWER_SECONDS = 10.0

_KEPT_BLOCK_BYTES = 4 << 20
"""Larger blocks go back to the kernel as soon as they are freed."""
_KEPT_END_BYTES = 16 << 20
"""What an arena keeps at its end. malloc_trim(3) shortens only the first arena, so this much of
each other one may stay resident when no client reads."""
_ARENAS_MIN = 8
_ARENAS_PER_PROCESSOR = 4
"""Each arena keeps what its threads used at most. By default there may be eight for a processor.
With two for a processor, threads wait for each other: stat and unlink are 4 percent slower."""


def release(program: Path) -> int:
    """Return the major number of a server program's release: 6 of "V6.5". 0: it does not tell."""
    try:
        said = subprocess.run(
            [program, "-v"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(rb"Release = V(\d+)", said)
    return int(found[1]) if found else 0


def environ() -> dict[str, str]:
    """Return the environment of the server: that of this process, without the keys of the bucket.

    The C library keeps the memory of the buffers of READs and WRITEs. By default it goes back to
    the kernel at once, and the next READ waits until the kernel has cleared other pages for it.
    When there was no READ or WRITE for a while, the plugin gives it back (fsal/native/main.c).

    Returns:
        The variables. What is set in GLIBC_TUNABLES already has the last word.
    """
    arenas = max(_ARENAS_MIN, _ARENAS_PER_PROCESSOR * (os.cpu_count() or 1))
    tunables = (
        f"glibc.malloc.mmap_threshold={_KEPT_BLOCK_BYTES}",
        f"glibc.malloc.trim_threshold={_KEPT_END_BYTES}",
        f"glibc.malloc.arena_max={arenas}",
        *filter(None, [os.environ.get("GLIBC_TUNABLES")]),
    )
    # The server never talks to the bucket.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, "GLIBC_TUNABLES": ":".join(tunables)}
