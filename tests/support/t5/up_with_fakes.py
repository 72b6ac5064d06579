"""`spillway up` with stand-ins: ``up_with_fakes.py <config> <program> <seconds to stop>``.

The program stands in for the drain and for the cache. The stand-in for the NFS server answers no
call, so it is ready when its port accepts.
"""

from __future__ import annotations

import dataclasses
import socket
import sys
from functools import partial
from pathlib import Path

from gateway.cli import up
from gateway.common import logs
from gateway.config import loader


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def main() -> int:
    settings = loader.load(Path(sys.argv[1]))
    stop_seconds = float(sys.argv[3])
    server = dataclasses.replace(
        up.ganesha(settings), stop_seconds=stop_seconds, ready=partial(accepts, settings.nfs.port)
    )
    others = [
        dataclasses.replace(command, argv=(sys.executable, sys.argv[2]), stop_seconds=stop_seconds)
        for command in up.commands(settings)[1:]
    ]
    with up.prepared(settings):
        up.Supervisor(settings, [server, *others], logs.Output().say).run()
    return 0


sys.exit(main())
