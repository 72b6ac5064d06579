"""Tables at a terminal of any width, and in a pipe. Scripts take ``--json``."""

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

from gateway.cli import output
from gateway.cli.main import main
from tests.support.clisite import PROGRAM, Site, environ, spillway
from tests.support.direct import answering

LONG = "/checkpoints/" + "a-long-name-" * 6
RUN = f"""
import sys
from gateway.cli import queue
from gateway.service.queue import WaitingFile
file = dict(bumped=False, error="[bold]no[/bold]", next_try_seconds=5, size_bytes=2048,
            age_seconds=60, waits_for=None)
files = [WaitingFile(**file, path="{LONG}", state="failing", tries=2),
         WaitingFile(**file, path="/checkpoints/b[red]", state="waiting", tries=0)]
queue._show(files, True, [], "json" in sys.argv)
print("imported" if "rich" in sys.modules else "not imported")
"""


STATISTICS = """
from gateway.cli.status import show_operations
from gateway.rpc.statistics import Histogram, Operations, Statistics

times = Histogram((0.001, 0.1), (9, 1, 0), 0.05)
none = Histogram((1.0,), (0, 0), 0.0)
kinds = {
    "write": Operations(latency=times, bytes=4096, delayed=3, errors={"no_space": 2, "io": 0}),
    "read": Operations(latency=none, bytes=0, delayed=0, errors={}),
}
show_operations(Statistics(1, kinds, times, times), False)
"""


def at_terminal(columns: int, *words: str) -> str:
    """Run the program of a queue at a terminal. Returns what it printed."""
    return shown(columns, sys.executable, "-c", RUN, *words)


def shown(columns: int, *argv: str) -> str:
    """Run a program at a terminal of this width. Returns what it printed."""
    above, below = pty.openpty()
    fcntl.ioctl(below, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {**environ(), "TERM": "xterm", "NO_COLOR": "1"}
    for name in ("COLUMNS", "LINES", "FORCE_COLOR"):
        variables.pop(name, None)
    with subprocess.Popen(argv, stdin=below, stdout=below, stderr=below, env=variables):
        os.close(below)
        data = b""
        try:
            while chunk := os.read(above, 4096):
                data += chunk
        except OSError:
            pass  # the other end is closed
    os.close(above)
    return re.sub(r"\x1b\[[0-9;]*m", "", data.decode().replace("\r\n", "\n"))


@pytest.mark.parametrize("columns", [40, 100])
def test_a_table_fits_the_terminal_and_shows_names_as_they_are(columns: int) -> None:
    text = at_terminal(columns)
    lines = text.splitlines()
    # What follows the table is a sentence, which a terminal wraps by itself.
    assert max(map(len, lines[:-2])) <= columns, text
    assert "state" in lines[1] and "size" in lines[1]
    squeezed = "".join(text.split())
    assert "failing2.0KiB1.0min/checkpoints/" in squeezed or columns < 100
    assert "b[red]" in squeezed and "imported" in lines[-1]
    assert "... and more: --limit N" in text


def test_a_pipe_gets_headings_too_and_json_no_table() -> None:
    piped = subprocess.check_output([sys.executable, "-c", RUN], text=True).splitlines()
    assert piped == [
        "state       size      age  file",
        f"failing  2.0 KiB  1.0 min  {LONG}: 2 tries, next in 5 s: [bold]no[/bold]",
        "waiting  2.0 KiB  1.0 min  /checkpoints/b[red]",
        "... and more: --limit N shows N",
        "not imported",
    ]
    assert at_terminal(80, "json").splitlines()[-1] == "not imported"


def test_statistics_are_a_table_at_a_terminal() -> None:
    text = shown(100, sys.executable, "-c", STATISTICS)
    _since, _blank, head, _rule, write, _blank, commits = text.splitlines()
    assert head.split() == [
        *("operation", "answered", "delayed", "mean", "99", "%", "in", "bytes", "errors")
    ]
    assert write.split()[:3] == ["write", "10", "3"]
    assert write.rstrip().endswith("no_space 2")
    assert commits.startswith("10 commits of the namespace, ")
    piped = subprocess.check_output([sys.executable, "-c", STATISTICS], text=True).splitlines()
    assert [line.split()[0] for line in piped[1:]] == ["operation", "write", "10"]
    assert piped[1].split() == head.split()


def test_long_lists_are_a_table_at_a_terminal(site: Site) -> None:
    where = ["--config", str(site.config)]
    with answering():
        assert main(["mkdir", *where, "d", "e[red]"]) == 0
    assert spillway("checkpoint", "pin", *where, "d").returncode == 0
    text = shown(100, str(PROGRAM), "ls", "-l", *where)
    head, *rows = [line.split() for line in text.splitlines() if line.strip("─ ")]
    assert head == ["mode", "names", "uid", "gid", "size", "modified", "name"]
    assert [row[0] for row in rows] == ["drwxr-xr-x", "drwxr-xr-x"]
    assert [row[7:] for row in rows] == [["d", "(pinned)"], ["e[red]"]]
    narrow = shown(40, str(PROGRAM), "ls", "-l", *where)
    assert max(map(len, narrow.splitlines())) <= 40, narrow
    titles, *piped = spillway("ls", *where, "-l").stdout.splitlines()
    assert titles.split() == head
    assert [line.split()[7:] for line in piped] == [["d", "(pinned)"], ["e[red]"]]
    assert spillway("ls", *where).stdout.splitlines() == ["d", "e[red]"]
    assert spillway("ls", *where, "-l", "none", "d").returncode == 1


def test_orders_are_a_table_at_a_terminal(site: Site) -> None:
    where = ["--config", str(site.config)]
    with answering():
        assert main(["mkdir", *where, "d"]) == 0
    assert spillway("queue", *where, "hold", "d").returncode == 0
    text = shown(80, str(PROGRAM), "queue", *where)
    assert "nothing waits for the bucket" in text
    assert "order" in text and "file or directory" in text
    told, titles, row = spillway("queue", *where).stdout.splitlines()
    assert told == "nothing waits for the bucket"
    assert titles.split() == ["order", "file", "or", "directory"]
    assert row.split() == ["hold", "/checkpoints/d"]


def test_very_long_lists_are_not_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the terminal's width is laid out only when all its rows are known."""
    printed: list[str] = []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.print", printed.append)
    count = output.ROWS_MAX + 1
    output.show_table((">number", "text"), ((str(n), "a longer text"[:n]) for n in range(count)))
    assert printed[:2] == ["number  text", "     0"]
    assert printed[-1] == f"  {count - 1}  a longer text"
    assert len(printed) == count + 1


def test_a_table_without_rows_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(("a", ">b"), [], title="title")
    assert capsys.readouterr().out == ""
    output.show_table(("a", ">b"), [("long", "1")], title="title")
    assert capsys.readouterr().out.splitlines() == ["title", "  a     b", "  long  1"]
