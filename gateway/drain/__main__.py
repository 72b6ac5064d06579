"""``python -m gateway.drain --config PATH``: runs the drain until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from gateway import config
from gateway.drain.worker import STOP_SECONDS, Drain
from gateway.errors import NamespaceError, UserError
from gateway.namespace import identity
from gateway.settings import DEFAULT_CONFIG

SWITCH_SECONDS = 0.0005
"""The time for which a thread keeps the interpreter's lock. A thread inside a transaction waits for
the lock after each statement, and the NFS server waits for that transaction. With Python's 5 ms,
changes of names took half a second while small files were sent."""


def main() -> int:
    """Run the drain. Returns the exit status: 0 if it was told to stop, 1 if a person must act
    first."""
    parser = argparse.ArgumentParser(prog="python -m gateway.drain", description=__doc__)
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG)
    arguments = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s")
    # No line shows threads or processes, and finding them takes longer than the rest of a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Only the drain's own logger: notes of libraries are no events of the gateway.
    logging.getLogger("drain").setLevel(logging.INFO)
    sys.setswitchinterval(SWITCH_SECONDS)
    stop = threading.Event()
    drain: Drain | None = None

    def on_signal(_signal: int, _frame: object) -> None:
        stop.set()
        if drain is not None:
            drain.wake()
        # A request to a silent bucket can hang until its time-out. Exiting is safe at every step.
        last = threading.Timer(2 * STOP_SECONDS, os._exit, (0,))
        last.daemon = True
        last.start()

    # This comes before the drain has a lease: a drain that a signal ended would leave the lease
    # behind, and no other machine could know that its holder is dead.
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    try:
        settings = config.load(arguments.config)
        identity.require_surroundings(settings)
        drain = Drain(settings, stop=stop)
    except (UserError, NamespaceError) as exc:
        print(exc, file=sys.stderr)
        return 1
    drain.run()
    drain.report_stopped()
    sys.stdout.flush()
    # sys.exit would wait for threads whose requests have not ended.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
