"""`spillway up` with a stand-in for the drain: ``up_with_fakes.py <config> <drain program>``."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from gateway import config
from gateway.cli import up


def main() -> int:
    settings = config.load(Path(sys.argv[1]))
    stop_seconds = float(sys.argv[3])
    server = dataclasses.replace(up.ganesha(settings), stop_seconds=stop_seconds)
    drain = dataclasses.replace(
        up.drain(settings), argv=(sys.executable, sys.argv[2]), stop_seconds=stop_seconds
    )
    with up.prepared(settings):
        up.Supervisor(settings, [server, drain]).run()
    return 0


sys.exit(main())
