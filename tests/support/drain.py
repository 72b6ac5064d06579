"""A drain that works when it is told to."""

from __future__ import annotations

import math

from gateway.drain import worker


class Drain(worker.Drain):
    """The drain, with one pass over everything at a time."""

    def cycle(self) -> int:
        """One pass over everything. Returns when its jobs ended, with how many did something."""
        before = self._runner.done
        self._restart()
        for sweep in self._dispatcher.sweeps:
            if sweep.kind.asks_bucket and not self._is_bucket_ready():
                break
            # The look for unfinished uploads: it sees the rows as the last run left them.
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
