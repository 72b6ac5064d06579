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
"""How long a thread keeps the interpreter's lock from another. A thread that is in a transaction
waits for it after each statement, and the NFS server waits for that transaction: with Python's 5 ms
names stood still for half a second while small files were sent."""


def main() -> int:
    """Returns the exit status: 0 stopped as asked, 1 a person must act first."""
    parser = argparse.ArgumentParser(prog="python -m gateway.drain", description=__doc__)
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG)
    arguments = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s")
    # No line tells of threads or processes; to find out which takes longer than the rest of a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Ours only: the libraries' notes are no events of the gateway.
    logging.getLogger("drain").setLevel(logging.INFO)
    sys.setswitchinterval(SWITCH_SECONDS)
    stop = threading.Event()
    drain: Drain | None = None

    def on_signal(_signal: int, _frame: object) -> None:
        stop.set()
        if drain is not None:
            drain.wake()
        # A request to a silent bucket can hang for its time-out; leaving is safe at every step.
        last = threading.Timer(2 * STOP_SECONDS, os._exit, (0,))
        last.daemon = True
        last.start()

    # Before the drain has a lease: a drain that a signal ended would leave the lease behind, and
    # no other machine could know that its holder is dead.
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
    # Not sys.exit: that would wait for threads whose requests have not ended.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
