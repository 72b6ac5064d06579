"""Which NFS-Ganesha is installed. Releases differ in what they can do and in their options."""

from __future__ import annotations

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
