"""Daemon: a process that runs until a signal, below ``spillway up`` or as a service of systemd.

Services run each process by itself, in place of ``spillway up``, and hold the data directory
together. So no ``up``, no migration and no change without a server runs beside one of them, and
each lock ends with the process that has it. run/up.json names them, as it names the children of
``up``.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from gateway.common import clock, files, logs, process
from gateway.common.errors import InUse, NamespaceError, UserError
from gateway.common.process import start_ticks
from gateway.config import datadir, loader
from gateway.config.settings import DEFAULT_CONFIG, Settings
from gateway.namespace import identity

JOIN_SECONDS = 10.0
"""The time to wait for a command that changes names in place of the server."""
SUCCESS = "success"
"""What systemd calls the end of a service that was stopped (SERVICE_RESULT, systemd.exec(5))."""


def join(settings: Settings, name: str) -> None:
    """Make this process, and the program that it becomes, a service of the gateway.

    Args:
        name: of the process, as in ``status``.

    Raises:
        InUse: ``up`` or another command has the data directory.
        UserError: this service runs already.
    """
    datadir.share(settings, JOIN_SECONDS)
    _be_the_only_one(settings, name)

    def note(entries: dict[str, Any]) -> None:
        before = entries.get(name, {})
        failed = before.get("phase") == "waiting"
        entries[name] = {
            "pid": os.getpid(),
            "start_ticks": start_ticks(os.getpid()),
            "phase": "starting",
            "restarts": before.get("restarts", 0) + 1 if failed else 0,
            "started_ns": clock.now_ns(),
            "last_exit": before.get("last_exit", "") if failed else "",
        }

    _change(settings, note)


def ready(settings: Settings, name: str) -> None:
    """Note that a service serves."""

    def note(entries: dict[str, Any]) -> None:
        if name in entries:
            entries[name]["phase"] = "ready"

    _change(settings, note)


def ended(settings: Settings, name: str, result: Mapping[str, str]) -> None:
    """Note how a service ended, after its end.

    Args:
        result: the environment with SERVICE_RESULT, EXIT_CODE and EXIT_STATUS (systemd.exec(5)).
    """
    how = result.get("SERVICE_RESULT", SUCCESS)
    status = result.get("EXIT_STATUS", "?")
    died = f"exit code {status}" if result.get("EXIT_CODE") == "exited" else f"killed by {status}"

    def note(entries: dict[str, Any]) -> None:
        if name in entries:
            entries[name]["phase"] = "stopped" if how == SUCCESS else "waiting"
            entries[name]["last_exit"] = "" if how == SUCCESS else f"{died} ({how})"

    _change(settings, note)


def _be_the_only_one(settings: Settings, name: str) -> None:
    """Take the lock of a kind of service, for the life of this process. Raises UserError."""
    fd = files.open_lock(settings.run_dir / f"service-{name}.lock")
    os.set_inheritable(fd, True)
    if not files.try_lock(fd):
        raise UserError(
            f"this service of {settings.data_dir} runs already: systemctl status 'spillway-*'"
        )


def _change(settings: Settings, note: Callable[[dict[str, Any]], None]) -> None:
    """Change the entries of the services in up.json. Those of an ``up`` that ended are dropped."""
    with files.held(files.open_lock(settings.run_dir / "services.lock")):
        report = datadir.read(settings, datadir.UP)
        entries = datadir.reported_children(report) if datadir.is_of_services(report) else {}
        note(entries)
        if not entries:
            return  # the file may be that of an ``up``
        facts = {"services": True, "config": str(settings.source), "children": entries}
        text = json.dumps(facts, indent=2)
        files.replace(settings.run_dir / datadir.UP, text, 0o644, durable=False)


SWITCH_SECONDS = 0.0005
"""The time for which a thread keeps the interpreter's lock while others want it, in processes that
set it. With Python's 5 ms, each wait for the lock beside a busy thread takes so long. Changes of
names took half a second while the drain sent small files, because its transactions waited. An
answer of the admin API of 6 ms took up to 120 ms while retention was planned; it takes 30 ms."""
LOCK_SECONDS = 10.0
"""The time that another process of the same kind has to end."""


class Daemon:
    """A process that a signal stops: ``python -m MODULE --config PATH``.

    Args:
        name: of its logger.
        about: text of its help.
        stop_seconds: time after a signal in which it has to end by itself.
        module: what runs it. None: gateway.processes.NAME.
    """

    def __init__(
        self, name: str, about: str | None, stop_seconds: float, module: str | None = None
    ) -> None:
        program = f"python -m {module or f'gateway.processes.{name}'}"
        parser = argparse.ArgumentParser(prog=program, description=about)
        parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG)
        self._config: Path = parser.parse_args().config
        logging.basicConfig(stream=sys.stdout)
        logs.install(logs.HUMAN, name)
        # No line shows threads or processes, and finding them takes longer than the rest of a line.
        logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
        # Only the process's own logger: notes of libraries are no events of the gateway.
        logging.getLogger(name).setLevel(logging.INFO)
        self._name = name
        self._stop_seconds = stop_seconds
        self.stop = threading.Event()
        """A signal sets it."""
        self.on_stop: Callable[[], None] | None = None
        """A signal calls it after it has set stop."""
        # What was imported stays. Every full collection would look at all of it: that was a third
        # of the processor time of a copy of names.
        gc.freeze()
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """End the process with exit status 1 if a person must act first."""
        try:
            yield
        except (UserError, NamespaceError) as exc:
            print(exc, file=sys.stderr)
            sys.exit(1)

    def repeat(
        self, step: Callable[[], float], first_seconds: float, after_failure_seconds: float
    ) -> None:
        """Work until a signal. What is not foreseen is logged, and does not end the work.

        Args:
            step: does what is due. Returns after how many seconds something may be due again.
            first_seconds: the time until the first step.
            after_failure_seconds: the time until the next one after a failure.
        """
        seconds = first_seconds
        while not self.stop.wait(seconds):
            try:
                seconds = step()
            except Exception:
                logging.getLogger(self._name).exception("unexpected")
                seconds = after_failure_seconds

    def settings(self) -> Settings:
        """Load the settings, and check that schema, data files and bucket are those of the
        namespace. Raises UserError, NamespaceError."""
        settings = self.configuration()
        identity.require_surroundings(settings)
        return settings

    def configuration(self) -> Settings:
        """Load the settings. Lines then have the form that they say. Raises UserError."""
        settings = loader.load(self._config)
        logs.install(settings.gateway.log_format, self._name)
        return settings

    def alone(self, settings: Settings, lock: str) -> None:
        """Take the lock of this kind of process, for its life. Raises InUse.

        Args:
            lock: the name of the file in ``run/``.
        """
        fd = files.open_lock(settings.run_dir / lock)
        until = clock.monotonic_seconds() + LOCK_SECONDS
        while not files.try_lock(fd):
            if clock.monotonic_seconds() >= until or self.stop.wait(0.1):
                holder = f"spillway {self._name}"
                raise InUse(settings.data_dir, holder, files.holder(fd) or "?")
        files.sign(fd)

    def watched(self, settings: Settings, rounds: Callable[[], int]) -> None:
        """Let the service manager, if there is one, watch the loop of this process.

        Args:
            rounds: returns how many rounds the loop has made.
        """
        process.keep_telling(
            process.LoopProgress(rounds).go_on, lambda: ready(settings, self._name)
        )

    def end(self) -> NoReturn:
        """End the process with exit status 0. No thread is waited for."""
        sys.stdout.flush()
        # sys.exit would wait for threads whose requests have not ended.
        os._exit(0)

    def _on_signal(self, _signal: int, _frame: object) -> None:
        # A request to a silent bucket, or a sync of a slow disk, can hang until its time-out.
        # Exiting is safe at every step. The timer starts first: the main thread may have been
        # interrupted while it held the lock of ``stop``, and then the next line never ends.
        last = threading.Timer(self._stop_seconds, os._exit, (0,))
        last.daemon = True
        last.start()
        self.stop.set()
        if self.on_stop is not None:
            self.on_stop()
