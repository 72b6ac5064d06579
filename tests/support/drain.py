"""Drain that works only when a test tells it to."""

from __future__ import annotations

import math

from gateway.drain import worker


class Drain(worker.Drain):
    """The drain, which makes one pass over all sweeps at a time."""

    def cycle(self) -> int:
        """Make one pass and wait for its jobs. Returns how many of them changed something."""
        before = self._runner.done
        self._restart()
        for sweep in self._dispatcher.sweeps:
            if sweep.kind.asks_bucket and not self._is_bucket_ready():
                break
            # The sweep of unfinished uploads must see the rows as the last run left them.
            self._threads.wait()
            sweep.after, sweep.next_at = None, 0.0
            while sweep.planned or sweep.claimed or sweep.next_at < math.inf:
                if not self.health.admits(sweep.kind):
                    break
                self._dispatcher.advance(self._context, sweep, math.inf)
                self._threads.wait()
        self._forget_at = 0.0
        self._forget_gone()
        self._status.write()
        return self._runner.done - before
