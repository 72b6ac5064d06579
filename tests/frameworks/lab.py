"""A client VM with launchers, a gateway, and a thread that polls the catalogue all the time."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.frameworks.cases import Case, Moment
from tests.support.client import MOUNT
from tests.support.vm.client import HOST_ADDRESS, ClientVm, Command
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build" / "frameworks" / "bin" / "python"
GUEST_ROOT = Path("/run/host")
IMPORT_SECONDS = 1500.0
LAUNCHER_SECONDS = 3600.0
CALL_SECONDS = 600.0
POLL_SECONDS = 0.01
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "GLOO_SOCKET_IFNAME": "lo",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    # A model or a tokenizer must come from the test itself.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "DS_ACCELERATOR": "cpu",
}


class Outcome(NamedTuple):
    """How a call ended."""

    status: int
    """The exit status; minus the signal's number if a signal ended it."""
    result: str
    """The digest. Empty: the call did not end."""
    files: dict[str, int]
    """The sizes of the files of the checkpoint, by paths in it."""
    log: str


class Launcher:
    """A process in the VM that has imported a library, and runs calls in forks.

    It imports in the background.

    Args:
        name: name of ``libraries.MODULES``.
    """

    def __init__(self, vm: ClientVm, name: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(IMPORT_SECONDS)
        argv = [GUEST_ROOT / PYTHON.relative_to("/"), "-m", "tests.frameworks.launcher"]
        port = self._listener.getsockname()[1]
        environment = {**ENVIRONMENT, "PYTHONPATH": str(GUEST_ROOT / ROOT.relative_to("/"))}
        self._command: Command = vm.start(
            [*map(str, argv), HOST_ADDRESS, str(port), name],
            env=environment,
            timeout_seconds=LAUNCHER_SECONDS,
        )
        self._name = name
        self._lines: Any = None
        self._opened = ExitStack()
        self._opened.enter_context(self._listener)

    def close(self) -> None:
        """End the process."""
        self._opened.close()

    def call(self, name: str, *arguments: object, moment: Moment | None = None) -> Outcome:
        """Run a call to its end, or until it is killed at a moment."""
        if self._lines is None:
            self._connect()
        request = {
            "call": name,
            "arguments": arguments,
            "moment": None if moment is None else moment._asdict(),
        }
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        return Outcome(**json.loads(self._lines.readline()))

    def _connect(self) -> None:
        self._listener.settimeout(1.0)
        deadline = time.monotonic() + IMPORT_SECONDS
        while self._lines is None:
            assert time.monotonic() < deadline, f"{self._name} was not imported in time"
            if self._command.done:
                self._command.wait()
            try:
                link, _ = self._listener.accept()
            except TimeoutError:
                continue
            link.settimeout(CALL_SECONDS)
            self._opened.enter_context(link)
            self._lines = self._opened.enter_context(link.makefile("rw"))
        greeting = json.loads(self._lines.readline())
        print(f"{greeting['name']} was imported in {greeting['seconds']:.0f} s")


class Seen(NamedTuple):
    """A row of the catalogue, as a poll saw it."""

    state: str
    rule: str
    run: str
    step: int | None
    files: int
    size: int
    reason: str | None


class Watch:
    """Polls the catalogue in a thread, and keeps each state of each checkpoint. A context manager.

    Args:
        database: database of the gateway (SQLite).
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self.seen: dict[str, list[Seen]] = {}
        """What was seen of each path, without repetitions."""
        self.now: Mapping[str, Seen] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def states(self, paths: Iterable[str]) -> set[str]:
        """Return all states that paths ever had."""
        return {sighting.state for path in paths for sighting in self.seen.get(path, [])}

    def until(self, path: str, *states: str, timeout_seconds: float = 120.0) -> Seen:
        """Wait until a checkpoint is in one of some states."""

        def look() -> Seen | None:
            sighting = self.now.get(path)
            return sighting if sighting is not None and sighting.state in states else None

        try:
            return until(look, f"{path} to be {' or '.join(states)}", timeout_seconds)
        except AssertionError as exc:
            raise AssertionError(f"{exc}: {self.now.get(path)}") from None

    def _poll(self) -> None:
        link = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)
        statement = "SELECT path, state, rule, run, step, files, size, reason FROM checkpoint"
        while not self._stop.wait(POLL_SECONDS):
            now = {}
            for path, state, rule, run, *rest in link.execute(statement):
                now[os.fsdecode(path)] = Seen(state, rule, os.fsdecode(run), *rest)
            for path, sighting in now.items():
                kept = self.seen.setdefault(path, [])
                if not kept or kept[-1] != sighting:
                    kept.append(sighting)
            self.now = now
        link.close()


def guest_path(path: str) -> str:
    return str(MOUNT / path)


def save(launcher: Launcher, case: Case, step: int, moment: Moment | None = None) -> Outcome:
    """Save a checkpoint, or begin to."""
    if moment is not None:
        name = guest_path(f"{case.directory}/{moment.name.format(step=step)}")
        moment = moment._replace(name=name)
    return launcher.call(case.save, guest_path(case.at(step)), step, moment=moment)


def load_on_host(call: str, path: Path) -> str:
    """Load a checkpoint from a directory of this machine. Returns its digest."""
    done = subprocess.run(
        [PYTHON, "-m", "tests.frameworks.libraries", call, path],
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CALL_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]
