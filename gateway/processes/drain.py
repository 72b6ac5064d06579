"""``python -m gateway.processes.drain --config PATH``: runs the drain until SIGTERM or SIGINT."""

from __future__ import annotations

import sys

from gateway.drain.worker import STOP_SECONDS, Drain
from gateway.processes.daemon import SWITCH_SECONDS, Daemon


def main() -> int:
    """Run the drain. Returns the exit status if it was told to stop."""
    # This comes before the drain has a lease: a drain that a signal ended would leave the lease
    # behind, and no other machine could know that its holder is dead.
    process = Daemon("drain", __doc__, 2 * STOP_SECONDS)
    sys.setswitchinterval(SWITCH_SECONDS)
    with process.starting():
        settings = process.settings()
        drain = Drain(settings, stop=process.stop)
    process.on_stop = drain.wake
    process.watched(settings, lambda: drain.rounds)
    drain.run()
    drain.report_stopped()
    return process.end()


if __name__ == "__main__":
    sys.exit(main())
