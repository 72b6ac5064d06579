"""A disk that loses at a power cut what was not flushed to it, as a disk with a cache does.

Qemu alone would keep it: what a machine wrote is in the cache of this machine's files, which
outlives qemu. nbdkit keeps the writes in a file of its own until the machine asks for a flush.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.s3server import die_with_parent
from tests.support.waiting import until


class VolatileDisk:
    """Serves a file as a disk.

    Args:
        socket: to be made.
    """

    def __init__(self, file: Path, socket: Path) -> None:
        self._file = file
        self._socket = socket
        self._process: subprocess.Popen[bytes] | None = None
        self.drive = f"file=nbd+unix:///?socket={socket}"
        """How qemu finds it."""

    def start(self) -> None:
        """Serve it. Raises AssertionError."""
        self._socket.unlink(missing_ok=True)
        command = ["nbdkit", "--foreground", "--unix", str(self._socket), "--filter=cache", "file"]
        options = [f"file={self._file}", "cache=writeback"]
        self._process = subprocess.Popen([*command, *options], preexec_fn=die_with_parent)
        until(self._socket.exists, "the disk")

    def cut(self) -> None:
        """Lose what was not flushed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
