"""Starts and ends a process that works until SIGTERM or SIGINT, like the drain and the cache."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from gateway import clock, config, filelock, logs, notify, services
from gateway.errors import InUse
from gateway.namespace import identity
from gateway.settings import DEFAULT_CONFIG, Settings

SWITCH_SECONDS = 0.0005
"""The time for which a thread keeps the interpreter's lock while others want it, in processes that
set it. With Python's 5 ms, each wait for the lock beside a busy thread takes so long. Changes of
names took half a second while the drain sent small files, because its transactions waited. An
answer of the admin API of 6 ms took up to 120 ms while retention was planned; it takes 30 ms."""
LOCK_SECONDS = 10.0
"""The time that another process of the same kind has to end."""


class Daemon:
    """A process that a signal stops: ``python -m MODULE --config PATH``.

    Parameters: name of its logger; about, the text of its help; stop_seconds, the time after a
    signal in which it has to end by itself; module, its package, if that is not gateway.NAME.
    """

    def __init__(
        self, name: str, about: str | None, stop_seconds: float, module: str | None = None
    ) -> None:
        program = f"python -m {module or f'gateway.{name}'}"
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
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def settings(self) -> Settings:
        """Load the settings, and check that schema, data files and bucket are those of the
        namespace. Raises UserError, NamespaceError."""
        settings = self.configuration()
        identity.require_surroundings(settings)
        return settings

    def configuration(self) -> Settings:
        """Load the settings. Lines then have the form that they say. Raises UserError."""
        settings = config.load(self._config)
        logs.install(settings.gateway.log_format, self._name)
        return settings

    def alone(self, settings: Settings, lock: str) -> None:
        """Take the lock of this kind of process, for its life. Raises InUse.

        Parameters: lock, the name of the file in ``run/``.
        """
        fd = filelock.open_lock(settings.run_dir / lock)
        until = clock.monotonic_seconds() + LOCK_SECONDS
        while not filelock.try_lock(fd):
            if clock.monotonic_seconds() >= until or self.stop.wait(0.1):
                what = f"spillway {self._name}"
                raise InUse(settings.data_dir, what, filelock.holder(fd) or "?")
        filelock.sign(fd)

    def watched(self, settings: Settings, rounds: Callable[[], int]) -> None:
        """Let the service manager, if there is one, watch the loop of this process.

        Parameters: rounds, which returns how many rounds the loop has made.
        """
        notify.keep_telling(
            notify.Rounds(rounds).go_on, lambda: services.ready(settings, self._name)
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
