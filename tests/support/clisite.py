"""Gateway in a temporary directory, and its command line as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gateway.config import loader
from gateway.config.settings import Settings
from tests.support.waiting import until

DEADLINE_SECONDS = 30.0
PROGRAM = Path(sys.executable).with_name("spillway")


def environ(**more: str) -> dict[str, str]:
    """Return our environment without variables that the command line reads, and with ``more``."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SPILLWAY_"))}
    return {**kept, **more}


def spillway(
    *args: str | Path, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, without a terminal."""
    return subprocess.run(
        [*prefix, str(PROGRAM), *map(str, args)],
        env=environ(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )


def assert_refused(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Require exit status 2, no traceback, and one line on stderr that has all the parts."""
    assert result.returncode == 2, result
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("spillway: ")
    for part in parts:
        assert part in lines[0], lines[0]
    assert "Traceback" not in result.stdout + result.stderr


@dataclass(frozen=True)
class Site:
    """The directory and the port of a test's gateway, after ``init``."""

    directory: Path
    port: int

    @property
    def config(self) -> Path:
        return self.directory / "spillway.toml"

    @property
    def settings(self) -> Settings:
        return loader.load(self.config, {})

    def edit(self, section: str, key: str, value: str) -> None:
        """Set a key in the TOML file to a value in TOML's syntax."""
        lines = self.config.read_text().splitlines()
        start = lines.index(f"[{section}]")
        for number in range(start, len(lines)):
            if lines[number].removeprefix("# ").startswith(f"{key} = "):
                lines[number] = f"{key} = {value}"
                break
        else:
            raise AssertionError(f"no key {key}")
        self.config.write_text("\n".join(lines) + "\n")


def _hear_hangups() -> None:
    """Reset SIGHUP. Under nohup the child would inherit that it is ignored, and `up` keeps that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Running:
    """A running command, as ``spillway up``, and the lines that it has printed.

    Args:
        say: called with each line.
        process_group: its process group (0: its own one; default: ours).
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        say: Callable[[str], None] = lambda _line: None,
        process_group: int | None = None,
    ) -> None:
        self.lines: list[str] = []
        self._say = say
        self.process = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=process_group,
            preexec_fn=_hear_hangups,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.append(line.rstrip("\n"))
                self._say(self.lines[-1])

    def expect(self, part: str, after: int = 0) -> str:
        """Wait for a line that contains a part, from line number ``after`` on. Returns the line."""

        def find() -> str | None:
            return next((line for line in self.lines[after:] if part in line), None)

        try:
            return until(find, f"a line with {part!r}")
        except AssertionError as exc:
            raise AssertionError(f"{exc}; there are:\n" + "\n".join(self.lines)) from None

    def wait(self) -> int:
        """Wait for the end and for all lines. Returns the exit status."""
        status = self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.wait()
