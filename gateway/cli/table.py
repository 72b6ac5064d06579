"""Tables for people at a terminal. Scripts, and whatever reads a pipe, get plain lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from gateway.cli.result import Found, print_json

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
"""More rows are printed as plain lines: the widths of a table are known only when all rows are, and
it takes a third of a millisecond for each."""


def show(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    plain: Iterable[str],
    *,
    title: str | None = None,
) -> None:
    """Print rows as a table at a terminal, and otherwise, or if they are many, as plain lines.

    Parameters: columns, their headings, those of numbers with a > before; rows, of cells; plain,
    the lines; title, of the table.
    """
    found = list(islice(rows, ROWS_MAX + 1)) if sys.stdout.isatty() else []
    if not 0 < len(found) <= ROWS_MAX:
        for line in plain:
            print(line)
        return
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
    for cells in found:
        made.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
    Console().print(made)


def show_facts(
    found: Sequence[F],
    as_json: bool,
    columns: Sequence[str],
    cells: Callable[[F], Sequence[str]],
    line: Callable[[F], str],
    nothing: str,
) -> int:
    """Print facts as JSON, as a table, or as plain lines. Returns exit status 0.

    Parameters: columns, as ``show`` takes them; cells and line, which show one of the facts;
    nothing, which is printed to a person if there are none.
    """
    if as_json:
        print_json(found)
    elif found:
        show(columns, map(cells, found), map(line, found))
    else:
        print(nothing)
    return 0
