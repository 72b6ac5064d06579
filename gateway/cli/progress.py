"""Shows the progress of a long command."""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway import clock
from gateway.control.progress import Progress, Tell
from gateway.text import shown
from gateway.units import duration, size

BAR = 24
RATE_SECONDS = 30.0
"""The time over which a rate is measured."""
LINE_SECONDS = 5.0
"""The time between two lines where there is no terminal."""


class Line:
    """One line that is rewritten at a terminal, or else a new line every few seconds.

    If the standard output is no terminal, it gets the result and nothing else: then the lines are
    on standard error.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._stream = sys.stdout if sys.stdout.isatty() else sys.stderr
        self._is_terminal = self._stream.isatty()
        self._next_at = clock.monotonic_seconds() + LINE_SECONDS
        self._length = 0

    def show(self, text: str) -> None:
        if self._quiet:
            return
        if self._is_terminal:
            # A line that is wrapped could not be rewritten.
            text = text[: self._columns() - 1]
            self._stream.write("\r" + text.ljust(self._length))
            self._length = len(text)
            self._stream.flush()
        elif clock.monotonic_seconds() >= self._next_at:
            print(text, file=self._stream, flush=True)
            self._next_at = clock.monotonic_seconds() + LINE_SECONDS

    def _columns(self) -> int:
        try:
            found = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            found = 0
        return found or shutil.get_terminal_size().columns

    def end(self) -> None:
        if self._length:
            self._stream.write("\r" + " " * self._length + "\r")
            self._stream.flush()
            self._length = 0


def bar(share: float) -> str:
    """Return a bar, and the share in per cent."""
    return f"[{'#' * int(share * BAR):<{BAR}}] {100 * share:3.0f} %"


class Transfer:
    """The course of a transfer of files. Parameters: seconds, a clock that never goes back."""

    def __init__(self, seconds: Callable[[], float] = clock.monotonic_seconds) -> None:
        self._seconds = seconds
        self._points: deque[tuple[float, int]] = deque()

    def note(self, done_bytes: int) -> None:
        """Note how many bytes are transferred by now."""
        now = self._seconds()
        self._points.append((now, done_bytes))
        while now - self._points[0][0] > RATE_SECONDS:
            self._points.popleft()

    def text(self, total_bytes: int, files: int, left_files: int) -> str:
        """Return the share, the rate and the time to go, as of the last ``note``.

        Parameters: total_bytes of all files; files, the number of all; left_files, of those that
        are not transferred.
        """
        done, pace = self._figures(total_bytes, 1 - left_files / max(1, files))
        return f"{done}, {left_files} files left, {pace}"

    def told(self, total_bytes: int, what: str) -> str:
        """Return the same with another text about what is left, which may be long."""
        done, pace = self._figures(total_bytes, 0.0)
        return f"{done}, {pace}; {what}"

    def _figures(self, total_bytes: int, share: float) -> tuple[str, str]:
        """Return how much is done, and how fast. Parameters: share, which is done if no file has
        bytes."""
        (since, before), (now, done) = self._points[0], self._points[-1]
        rate = max(0, done - before) / (now - since) if now > since else 0.0
        share = done / total_bytes if total_bytes else share
        left = duration((total_bytes - done) / rate) if rate else "?"
        pace = f"{size(rate)}/s, {left} to go"
        return f"{bar(share)}  {size(done)} of {size(total_bytes)}", pace


@contextmanager
def showing(quiet: bool) -> Iterator[Tell]:
    """Show in one line how far long work is, as it tells that. The line is taken away at the end.

    Args:
        quiet: nothing is shown.
    """
    line, transfer = Line(quiet), Transfer()

    def tell(progress: Progress) -> None:
        line.show(_text(transfer, progress))

    try:
        yield tell
    finally:
        line.end()


def _text(transfer: Transfer, progress: Progress) -> str:
    """Return one line: with a bar if it is known how much there is to do."""
    done, total, text = progress.done, progress.total, shown(progress.text)
    if not total:
        return text
    if not progress.in_bytes:
        return f"{bar(min(1.0, done / total))}  {text}"
    transfer.note(done)
    return transfer.told(total, text)
