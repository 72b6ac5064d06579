"""Ports for the servers of a test, each of its own."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir

PORTS = range(20_000, 32_768)
"""By default, Linux gives none of these by itself: ``ip_local_port_range`` begins after them."""
LAST = Path(gettempdir(), f"spillway-test-port-{os.getuid()}")
"""The file that has the port that was given last."""


def free_port() -> int:
    """Return a TCP port of loopback on which no process listens now.

    The next call gives another one, in this process and in those that run beside it: a server often
    starts to listen seconds after its test got the port.
    """
    with LAST.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        port = int(file.read() or random.choice(PORTS))
        while True:
            port = port + 1 if port + 1 in PORTS else PORTS[0]
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                break
        file.truncate(0)
        file.write(str(port))
    return port
