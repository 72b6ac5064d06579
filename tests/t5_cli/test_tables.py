"""Tables at a terminal of any width. Pipes and ``--json`` get what scripts read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

LONG = "/checkpoints/" + "a-long-name-" * 6
RUN = f"""
import sys
from gateway.cli import queue, table
file = dict(bumped=False, tries=2, error="[bold]no[/bold]", next_try_seconds=5, size_bytes=2048,
            age_seconds=60)
files = [dict(file, path="{LONG}", state="failing"), dict(file, path="/checkpoints/b[red]", tries=0,
                                                        state="waiting")]
queue.show(files, 3, [], "json" in sys.argv)
print("imported" if "rich" in sys.modules else "not imported")
"""


def at_terminal(columns: int, *words: str) -> str:
    """Run a program at a terminal of this width. Returns what it printed."""
    above, below = pty.openpty()
    fcntl.ioctl(below, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    for name in ("COLUMNS", "LINES", "FORCE_COLOR"):
        environ.pop(name, None)
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *words], stdin=below, stdout=below, stderr=below, env=environ
    ):
        os.close(below)
        found = b""
        try:
            while chunk := os.read(above, 4096):
                found += chunk
        except OSError:
            pass  # the other end is closed
    os.close(above)
    return re.sub(r"\x1b\[[0-9;]*m", "", found.decode().replace("\r\n", "\n"))


@pytest.mark.parametrize("columns", [40, 100])
def test_a_table_fits_the_terminal_and_shows_names_as_they_are(columns: int) -> None:
    text = at_terminal(columns)
    lines = text.splitlines()
    assert max(map(len, lines)) <= columns, text
    assert "state" in lines[1] and "size" in lines[1]
    squeezed = "".join(text.split())
    assert "failing2.0KiB1.0min/checkpoints/" in squeezed or columns < 100
    assert "b[red]" in squeezed and "imported" in lines[-1]
    assert "... and 3 more: --limit 5" in text


def test_pipes_and_json_get_plain_lines() -> None:
    piped = subprocess.check_output([sys.executable, "-c", RUN], text=True).splitlines()
    assert piped == [
        f"failing       2.0 KiB   1.0 min  {LONG}: 2 tries, next in 5 s: [bold]no[/bold]",
        "waiting       2.0 KiB   1.0 min  /checkpoints/b[red]",
        "... and 3 more: --limit 5",
        "not imported",
    ]
    assert at_terminal(80, "json").splitlines()[-1] == "not imported"
