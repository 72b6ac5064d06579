"""Shows the progress of a long command."""

from __future__ import annotations

import sys

from gateway import clock

LINE_SECONDS = 5.0
"""The time between two lines where there is no terminal."""


class Line:
    """One line that is rewritten at a terminal, or else a new line every few seconds."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stdout.isatty()
        self._next_at = 0.0
        self._length = 0

    def show(self, text: str) -> None:
        if self._quiet:
            return
        if self._is_terminal:
            sys.stdout.write("\r" + text.ljust(self._length))
            self._length = len(text)
            sys.stdout.flush()
        elif clock.monotonic_seconds() >= self._next_at:
            print(text, flush=True)
            self._next_at = clock.monotonic_seconds() + LINE_SECONDS

    def end(self) -> None:
        if self._length:
            sys.stdout.write("\r" + " " * self._length + "\r")
