"""Output of commands: lines and tables for people, one JSON document for scripts, progress.

Tables have headings, at a terminal and in a pipe. Scripts take JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Self, TypeVar

from gateway.common import clock
from gateway.common.models import Model, to_json
from gateway.common.text import shown
from gateway.common.units import duration, size
from gateway.service.jobs import Progress, Tell

Found = Model | Mapping[str, Any]

HELP = "what was done, as JSON"


def option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json`` of a command that changes something."""
    parser.add_argument("--json", action="store_true", help=HELP)


def print_json(found: Found | Sequence[Found]) -> None:
    """Print what was found or done, for a script."""
    print(json.dumps(to_json(found), indent=2))


def show(found: Found, text: str, as_json: bool) -> None:
    """Print what was found or done.

    Args:
        found: for a script.
        text: for a person.
    """
    if as_json:
        print_json(found)
    else:
        print(text)


class Results:
    """Tells what was done with each of several paths or names. A context manager.

    A person is told at once. A script gets a list at the end, also if an error ended the command
    after something was done.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._found: list[Found] = []

    def add(self, found: Found, text: str | None = None) -> None:
        """Tell what was done with one.

        Args:
            text: for a person, or None to say nothing.
        """
        if self.as_json:
            self._found.append(found)
        elif text is not None:
            print(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.as_json and (self._found or kind is None):
            print_json(self._found)


F = TypeVar("F", bound=Found)

STYLES = {
    "durable": "green",
    "archived": "green",
    "done": "green",
    "enabled": "green",
    "valid": "green",
    "keep": "green",
    "writing": "yellow",
    "uploading": "cyan",
    "running": "cyan",
    "draining": "cyan",
    "failing": "red",
    "failed": "red",
    "damaged": "red",
    "broken": "red",
    "delete": "red",
}
"""The colour of a cell that is a state. NO_COLOR switches all of them off."""
ROWS_MAX = 2000
"""More rows are not laid out to the width of the terminal: that takes a third of a millisecond for
each. The columns are as wide as the first rows need."""


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    plain: Iterable[str] | None = None,
) -> None:
    """Print rows as a table with headings. A terminal gets one of its width. Without rows nothing
    is printed.

    Args:
        columns: their headings, those of numbers with a > before.
        rows: rows of cells.
        title: title of the table.
        plain: lines in place of the table where the output is no terminal.
    """
    following = iter(rows)
    first = list(islice(following, ROWS_MAX))
    more = list(islice(following, 1))
    if not first:
        return
    if sys.stdout.isatty() and not more:
        _show_fitted(columns, first, title)
        return
    lines = _lines(columns, first, chain(more, following), title) if plain is None else plain
    for line in lines:
        print(line)


def _lines(
    columns: Sequence[str],
    first: Sequence[Sequence[str]],
    more: Iterable[Sequence[str]],
    title: str | None,
) -> Iterator[str]:
    """Yield the lines of a table of any width.

    Args:
        first: rows that decide how wide the columns are.
        more: rows after these.
        title: title of the table, below which its lines are indented.
    """
    is_number = [column.startswith(">") for column in columns]
    headings = [column.lstrip(">") for column in columns]
    widths = [max(map(len, cells)) for cells in zip(headings, *first, strict=True)]
    # Nothing follows the last column, so no blanks do.
    widths[-1] = widths[-1] if is_number[-1] else 0
    indent = "" if title is None else "  "
    if title is not None:
        yield title
    for cells in chain([headings], first, more):
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(cells, widths, is_number, strict=True)
        )
        yield f"{indent}{'  '.join(padded)}".rstrip()


def _show_fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> None:
    """Print a table of the width of the terminal: long cells are wrapped."""
    # The imports are here because rich takes a twentieth of a second, and scripts do not need it.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # A Text is shown as it is: a name with brackets is no markup.
    made = Table(
        box=SIMPLE_HEAD,
        title=None if title is None else Text(title),
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    for heading in columns:
        is_number = heading.startswith(">")
        made.add_column(
            heading.lstrip(">"),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    for cells in rows:
        made.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
    Console().print(made)


def show_facts(
    found: Sequence[F],
    as_json: bool,
    columns: Sequence[str],
    cells: Callable[[F], Sequence[str]],
    nothing: str,
) -> int:
    """Print facts as JSON or as a table. Returns exit status 0.

    Args:
        columns: as ``show_table`` takes them.
        cells: shows one of the facts as a row.
        nothing: which is printed to a person if there are none.
    """
    if as_json:
        print_json(found)
    elif found:
        show_table(columns, map(cells, found))
    else:
        print(nothing)
    return 0


BAR = 24
RATE_SECONDS = 30.0
"""The time over which a rate is measured."""
LINE_SECONDS = 5.0
"""The time between two lines where there is no terminal."""


class ProgressLine:
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
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            columns = 0
        return columns or shutil.get_terminal_size().columns

    def end(self) -> None:
        if self._length:
            self._stream.write("\r" + " " * self._length + "\r")
            self._stream.flush()
            self._length = 0


def bar(share: float) -> str:
    """Return a bar, and the share in per cent."""
    return f"[{'#' * int(share * BAR):<{BAR}}] {100 * share:3.0f} %"


class Transfer:
    """The course of a transfer of files.

    Args:
        seconds: a clock that never goes back.
    """

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
        """Return the share, the rate and the time to go of all files, as of the last ``note``.

        Without a rate no time is told.

        Args:
            total_bytes: total bytes of all files.
            files: the number of all.
            left_files: left files of those that are not transferred.
        """
        done, pace = self._figures(total_bytes, 1 - left_files / max(1, files))
        return f"{done}, {left_files} files left, {pace}"

    def line_of(self, total_bytes: int, what: str) -> str:
        """Return the same with another text about what is left, which may be long."""
        done, pace = self._figures(total_bytes, 0.0)
        return f"{done}, {pace}; {what}"

    def _figures(self, total_bytes: int, share: float) -> tuple[str, str]:
        """Return how much is done, and how fast.

        Args:
            share: which is done if no file has bytes.
        """
        (since, before), (now, done) = self._points[0], self._points[-1]
        rate = max(0, done - before) / (now - since) if now > since else 0.0
        share = done / total_bytes if total_bytes else share
        pace = f"{size(rate)}/s"
        if rate:
            pace += f", {duration((total_bytes - done) / rate)} to go"
        return f"{bar(share)}  {size(done)} of {size(total_bytes)}", pace


@contextmanager
def showing(quiet: bool) -> Iterator[Tell]:
    """Show in one line how far long work is, as it tells that. The line is taken away at the end.

    Args:
        quiet: nothing is shown.
    """
    line, transfer = ProgressLine(quiet), Transfer()

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
    return transfer.line_of(total, text)
