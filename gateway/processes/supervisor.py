"""Supervisor of one child process: starts it, watches it, restarts it, ends it.

The module uses one thread on purpose: the owner calls ``tick`` when a signal, a line of output or a
deadline wakes it. The kernel ties a child's life to the *thread* that forked it (PR_SET_PDEATHSIG),
so only the main thread may call ``tick``.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

from gateway.common import clock

BACKOFF_FIRST_SECONDS = 0.5
BACKOFF_LAST_SECONDS = 30.0
HEALTHY_SECONDS = 60.0
"""After a child lived this long, its earlier deaths do not count for the next restart."""
PROBE_SECONDS = 0.1
LATE_SECONDS = 10.0
"""A child that runs for so long and is not ready is spoken of. Then twice as long, and so on."""
HOPELESS_DEATHS = 5
LINE_MAX_BYTES = 16_384
READS_MAX = 16
LOG_LINES = 6
LOG_MAX_BYTES = 1024 * 1024

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)

Say = Callable[[str, str], None]
"""Prints one line. The parameters are the process that says it, and the text."""


@dataclass(frozen=True)
class Command:
    """A program to run, and how to supervise it."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stop_seconds: float
    """The time that it has to end after SIGTERM."""
    advice: str
    """One line: what a person should look at when it cannot start."""
    ready: Callable[[], bool] | None = None
    """Returns whether it serves. None means that it serves as soon as it runs."""
    ready_text: str = ""
    log: Path | None = None
    """The file that it logs to, if it does not log to its output."""
    complaint: re.Pattern[str] | None = None
    """What a line of the log has that says what is wrong."""


class Phase(StrEnum):
    """The phase of a child's life."""

    STARTING = "starting"
    """The child runs and is not ready yet."""
    READY = "ready"
    WAITING = "waiting"
    """The child died. The next start is at the end of the back-off."""
    STOPPING = "stopping"
    """The child was told to end."""
    STOPPED = "stopped"


class ChildProcess:
    """One child process and its restarts.

    Args:
        say: prints lines.
    """

    def __init__(self, command: Command, say: Say) -> None:
        self.command = command
        self.phase = Phase.WAITING
        self.restarts = 0
        self.last_exit = ""
        self.started_ns = 0
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._line = b""
        self._output_ended = False
        self._retired = False
        self._deadline = clock.monotonic_seconds()
        """Time of the next action of this phase: start, probe or kill."""
        self._delay_seconds = 0.0
        self._up_since = 0.0
        self._late_at = 0.0
        """Time of the next line about a child that is not ready."""
        self._deaths_unready = 0
        self._log_start_bytes = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def output(self) -> IO[bytes] | None:
        """The pipe of its output, for the owner's select, or None if no output will come."""
        if self._process is None or self._output_ended:
            return None
        return self._process.stdout

    def due(self) -> float | None:
        """Return when ``tick`` must be called next, in monotonic seconds, or None."""
        timed = self.phase in (Phase.STARTING, Phase.WAITING, Phase.STOPPING)
        return self._deadline if timed else None

    def tick(self) -> None:
        """Notice a death, start or restart when due, probe, and kill a child that ends too late."""
        now = clock.monotonic_seconds()
        if self._process is not None and (status := self._process.poll()) is not None:
            self._died(status, now)
        if self.phase is Phase.WAITING and now >= self._deadline:
            self._start(now)
        if self.phase is Phase.STARTING and now >= self._deadline:
            self._probe(now)
        if self.phase is Phase.STOPPING and now >= self._deadline:
            self._event(f"did not stop within {self.command.stop_seconds:g} s: killing it")
            self.kill()
            self._deadline = now + BACKOFF_LAST_SECONDS

    def retire(self) -> None:
        """Stop restarting the child. When it ends, ``phase`` becomes STOPPED."""
        self._retired = True
        if self._process is None:
            self.phase = Phase.STOPPED

    def stop(self) -> None:
        """Tell the child to end, for good."""
        self.retire()
        if self._process is None:
            return
        if self.phase is not Phase.STOPPING:
            self.phase = Phase.STOPPING
            self._deadline = clock.monotonic_seconds() + self.command.stop_seconds
            self._process.terminate()

    def kill(self) -> None:
        """End the child and what it started, at once. ``tick`` notices its death."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Kill the child if it still runs, and wait until it is gone."""
        if self._process is not None:
            self.kill()
            self._process.wait()

    def read_output(self) -> None:
        """Pass on the lines that are there now, up to a limit, so that others get a turn."""
        for _ in range(READS_MAX):
            if (pipe := self.output) is None:
                return
            try:
                data = os.read(pipe.fileno(), 65_536)
            except BlockingIOError:
                return
            if not data:
                self._output_ended = True
                return
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._pass_on(line)
            if len(self._line) > LINE_MAX_BYTES:
                self._pass_on(self._line)
                self._line = b""

    def _event(self, text: str) -> None:
        self._say("spillway", f"{self.command.name} {text}")

    def _pass_on(self, line: bytes) -> None:
        self._say(self.command.name, line.decode(errors="replace").rstrip())

    def _start(self, now: float) -> None:
        command = self.command
        self._log_start_bytes = _size_bytes(command.log)
        self.started_ns = clock.now_ns()
        self._line = b""
        self._output_ended = False
        try:
            self._process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=command.environ,
                # The child has a group of its own: Ctrl-C must reach only this process, or the
                # children would not stop in order.
                process_group=0,
                preexec_fn=_die_with(os.getpid()),
            )
        except (OSError, subprocess.SubprocessError) as exc:
            self._fail(f"cannot start: {exc}", now)
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        if self._delay_seconds:
            self.restarts += 1
            self._event(
                f"restarted after {self._delay_seconds:g} s, pid {self.pid} "
                f"(restart {self.restarts})"
            )
        else:
            self._event(f"started, pid {self.pid}")
        self.phase = Phase.STARTING if command.ready is not None else Phase.READY
        self._up_since = now
        self._late_at = now + LATE_SECONDS
        self._deadline = now + PROBE_SECONDS

    def _probe(self, now: float) -> None:
        assert self.command.ready is not None
        if not self.command.ready():
            self._deadline = now + PROBE_SECONDS
            if now >= self._late_at:
                self._late(now)
            return
        self.phase = Phase.READY
        self._up_since = now
        self._deaths_unready = 0
        self._event(f"ready{self.command.ready_text}")

    def _late(self, now: float) -> None:
        """Say that the child runs and does not serve, and what it says itself."""
        lived_seconds = now - self._up_since
        self._late_at = now + lived_seconds
        self._event(f"runs for {lived_seconds:.0f} s and does not serve: {self.command.advice}")
        self._show_log()

    def _show_log(self) -> None:
        """Print what the child's log says since this start: first complaints, or else its end."""
        log, complaint = self.command.log, self.command.complaint
        if log is None:
            return
        lines = _lines(log, self._log_start_bytes)
        complaints = [line for line in lines if complaint is not None and complaint.search(line)]
        for line in complaints[:LOG_LINES] or lines[-LOG_LINES:]:
            self._say(log.name, line)

    def _died(self, status: int, now: float) -> None:
        assert self._process is not None
        self.read_output()
        if self._line:
            self._pass_on(self._line)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        if self._retired:
            self.phase = Phase.STOPPED
            self._event(f"stopped ({_describe(status)})")
            return
        self._fail(f"died: {_describe(status)}", now)

    def _fail(self, failure: str, now: float) -> None:
        """Say why the child is down, and plan the next start."""
        command = self.command
        unready = self.phase is not Phase.READY
        healthy = not unready and now - self._up_since >= HEALTHY_SECONDS
        if healthy:
            self._delay_seconds = 0.0
            self._deaths_unready = 0
        elif unready or command.ready is None:
            self._deaths_unready += 1
        self._delay_seconds = min(
            max(BACKOFF_FIRST_SECONDS, 2 * self._delay_seconds), BACKOFF_LAST_SECONDS
        )
        self.last_exit = failure.removeprefix("died: ")
        self.phase = Phase.WAITING
        self._deadline = now + self._delay_seconds
        self._event(f"{failure}; next start in {self._delay_seconds:g} s")
        if unready:
            self._show_log()
        if self._deaths_unready and self._deaths_unready % HOPELESS_DEATHS == 0:
            self._event(
                f"died {self._deaths_unready} times in a row without serving; "
                f"it is tried again, but a person should look: {command.advice}"
            )


def _die_with(parent: int) -> Callable[[], None]:
    """Return what a child runs before exec, so that it dies with this process, even on SIGKILL."""

    def prepare() -> None:
        failed = _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0
        # If the parent died before prctl took effect, no signal would ever come.
        if failed or os.getppid() != parent:
            os._exit(1)

    return prepare


def _describe(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _size_bytes(path: Path | None) -> int:
    if path is not None:
        with suppress(OSError):
            return path.stat().st_size
    return 0


def _lines(path: Path, start_bytes: int) -> list[str]:
    """Return the lines, of the last LOG_MAX_BYTES, that a log got since it had ``start_bytes``."""
    try:
        with path.open("rb") as file:
            end_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(min(start_bytes, end_bytes), end_bytes - LOG_MAX_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()
