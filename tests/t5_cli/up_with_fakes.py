"""`spillway up` with stand-ins: ``up_with_fakes.py <config> <program> <seconds to stop>``.

The program stands in for the drain and for the cache.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from gateway import config, logs
from gateway.cli import up


def main() -> int:
    settings = config.load(Path(sys.argv[1]))
    stop_seconds = float(sys.argv[3])
    server = dataclasses.replace(up.ganesha(settings), stop_seconds=stop_seconds)
    others = [
        dataclasses.replace(one, argv=(sys.executable, sys.argv[2]), stop_seconds=stop_seconds)
        for one in up.commands(settings)[1:]
    ]
    with up.prepared(settings):
        up.Supervisor(settings, [server, *others], logs.Output().say).run()
    return 0


sys.exit(main())
