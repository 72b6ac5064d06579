"""Real PostgreSQL server for tests: its own cluster, a private port on loopback, its own user."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.support.ports import free_port
from tests.support.s3server import die_with_parent
from tests.support.waiting import until

BIN = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/lib/postgresql/bin"))
OWNER = "postgres"


class PostgresServer:
    """A cluster in a directory of its own. It can be started again after a kill.

    The server refuses to run as root, so root gives the directory to the user that Debian's package
    made.

    Args:
        directory: made for it.
        primary_port: primary port of the primary if this server is a standby.
        fsync: whether commits survive a power cut (after a kill nothing is lost without it).
    """

    def __init__(
        self, directory: Path, primary_port: int | None = None, *, fsync: bool = False
    ) -> None:
        self._fsync = "on" if fsync else "off"
        self.port = free_port()
        self.data = directory / "cluster"
        self._log = directory / "postgres.log"
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._user: str | int | None = None
        if os.geteuid() == 0:
            self._user = pwd.getpwnam(OWNER).pw_uid
            shutil.chown(directory, OWNER)
            # The directories of pytest are private: without this the owner cannot enter them.
            for parent in list(directory.parents)[:-2]:
                parent.chmod(parent.stat().st_mode | 0o011)
        make: list[str | Path] = [
            BIN / "initdb",
            "--auth=trust",
            "--no-sync",
            "-U",
            OWNER,
            "-D",
            self.data,
        ]
        if primary_port is not None:
            make = [
                *(BIN / "pg_basebackup", "--no-sync", "-c", "fast", "-R", "-D", self.data),
                *("-h", "127.0.0.1", "-p", str(primary_port), "-U", OWNER),
            ]
        subprocess.run(
            make,
            check=True,
            user=self._user,
            cwd=directory,
            stdout=subprocess.DEVNULL,
        )

    def url(self, name: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        until(self._started, f"PostgreSQL; its log: {self._log}", 120.0)

    def _started(self) -> bool:
        # The server does not start while a backend of its killed predecessor is still dying.
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        *(BIN / "postgres", "-D", self.data, "-p", str(self.port)),
                        *("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="),
                        *("-c", f"fsync={self._fsync}"),
                    ],
                    user=self._user,
                    cwd=self.data,
                    stdout=log,
                    stderr=log,
                    preexec_fn=die_with_parent,
                )
        return self._answers()

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """Kill all processes of the server with SIGKILL: connections and memory are lost."""
        assert self._process is not None
        children = subprocess.run(
            ["pgrep", "-P", str(self._process.pid)], capture_output=True, text=True
        ).stdout.split()
        for pid in [self._process.pid, *map(int, children)]:
            with suppress(ProcessLookupError):  # a connection that ended meanwhile
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Stop the server at once, also with clients connected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
            self._process = None

    def promote(self) -> None:
        """Make a standby the primary, with the data that it has received."""
        self.ask("SELECT pg_promote()")

    def ask(self, statement: str, name: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser. Returns its rows."""
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def create_database(self) -> str:
        """Create an empty database. Returns its URL."""
        name = f"volume_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        return self.url(name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
