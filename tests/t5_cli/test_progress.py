"""The line of a long command; its rate and time to go, by a clock of the test."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest

from gateway.cli import output
from gateway.cli.output import RATE_SECONDS, ProgressLine, Transfer

MIB = 1024 * 1024


class Clock:
    """A clock that stands still until it is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def course(*points: tuple[float, int]) -> Transfer:
    """Return a transfer.

    Args:
        points: seconds since its begin and bytes that are done.
    """
    clock = Clock()
    transfer = Transfer(clock)
    for seconds, done_bytes in points:
        clock.now = 1000.0 + seconds
        transfer.note(done_bytes)
    return transfer


def test_the_rate_gives_the_time_to_go() -> None:
    text = course((0, 0), (5, 20 * MIB), (10, 50 * MIB)).text(200 * MIB, 8, 6)
    assert text == (
        "[######                  ]  25 %  50.0 MiB of 200.0 MiB, 6 files left, 5.0 MiB/s, "
        "30 s to go"
    )


def test_only_the_last_seconds_count() -> None:
    """What was fast before says nothing of the time to go."""
    points = ((0, 0), (10, 900 * MIB), (20, 900 * MIB), (10 + RATE_SECONDS, 930 * MIB))
    assert "1.0 MiB/s, 1.2 min to go" in course(*points).text(1000 * MIB, 10, 1)


def test_without_a_rate_the_time_to_go_is_not_known() -> None:
    assert course((0, 7)).text(10, 1, 1).endswith("0 B/s")
    assert course((0, 7), (5, 7)).text(10, 1, 1).endswith("0 B/s")
    # A file that is written again has fewer bytes done.
    assert course((0, 7), (5, 3)).text(10, 1, 1).endswith("0 B/s")


def test_files_without_bytes_are_counted() -> None:
    assert course((0, 0)).text(0, 4, 1).startswith("[##################      ]  75 %")
    assert course((0, 0)).text(0, 0, 0).startswith("[########################] 100 %")


class Stream(io.StringIO):
    """A stream that is a terminal, or not."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_terminal  # type: ignore[method-assign]


def shown(out: Stream, err: Stream, *texts: str, quiet: bool = False) -> tuple[str, str]:
    """Show lines. Returns what the standard output and standard error got."""
    with redirect_stdout(out), redirect_stderr(err):
        line = ProgressLine(quiet)
        for text in texts:
            line.show(text)
        line.end()
    return out.getvalue(), err.getvalue()


def test_a_terminal_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    erased = "\r" + 11 * " " + "\r"
    drawn = "\rlong line t\rshort      " + erased.replace(11 * " ", 5 * " ")
    texts = ("long line that is wrapped", "short")
    assert shown(Stream(True), Stream(False), *texts) == (drawn, "")
    # In `spillway rm -r PATH > file` a person sees the progress, and the file has the result.
    assert shown(Stream(False), Stream(True), *texts) == ("", drawn)
    assert shown(Stream(True), Stream(True), *texts, quiet=True) == ("", "")


def test_without_a_terminal_lines_are_few_and_on_standard_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(Stream(False), Stream(False), "a", "b") == ("", "")
    monkeypatch.setattr(output, "LINE_SECONDS", 0.0)
    assert shown(Stream(False), Stream(False), "a", "b") == ("", "a\nb\n")
