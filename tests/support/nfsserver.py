"""NFS server to test: ours, or as the reference the same Ganesha on a local file system.

Both get the configuration that the gateway renders. The reference differs only in the FSAL.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from gateway.config import loader
from gateway.config.settings import Settings
from gateway.nfs import ganesha_conf
from tests.support.gateway import PLUGINS_DIR, Values, resident_mib
from tests.support.ports import free_port
from tests.support.s3server import die_with_parent
from tests.support.volumes import make_volume
from tests.support.waiting import until

KINDS = ("spillway", "vfs")
EXPORT = "/export"
LEASE_SECONDS = 14
"""The lease. pynfs sleeps for this time minus 10 s, so less than 10 would be a negative sleep."""
GRACE_SECONDS = 13
"""The grace period. Ganesha checks for its end every half lease, so it ends after 14 s; pynfs
continues after 19 s."""
START_SECONDS = 30.0

_IN_SERVICE = "NFS Server Now NOT IN GRACE"


class Server:
    """One Ganesha on loopback; a context manager that is entered when grace is over.

    Args:
        kind: kind of ``KINDS``.
        directory: empty and its own, on the tested disk (for vfs on a file system with handles,
            such as ext4).
        log: the path of Ganesha's log, beside which its ``.stderr`` is made.
        values: further configuration by section and key.
    """

    def __init__(self, kind: str, directory: Path, log: Path, values: Values | None = None) -> None:
        self.port = free_port()
        self.log = log
        self._stderr = log.with_suffix(".stderr")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ours = kind == "spillway"
        self.settings = settings = _settings(directory, self.port, values or {})
        self._program = settings.nfs.ganesha
        self._conf = settings.ganesha_conf
        self._pid_file = settings.run_dir / "ganesha.pid"
        text = ganesha_conf.render(settings)
        if self._is_ours:
            make_volume(settings)
        else:
            (directory / "files").mkdir()
            text = _on_vfs(text, directory / "files")
        for made in (settings.recovery_dir, settings.run_dir):
            made.mkdir(parents=True, exist_ok=True)
        self._conf.write_text(text)
        for stale in (self.log, self._stderr):
            stale.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        try:
            self.start()
            self._until(self._in_service, "the end of grace", START_SECONDS + GRACE_SECONDS)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the server, and kill it if it does not stop in time."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def crash(self) -> None:
        """Kill the server with SIGKILL and start it again.

        Returns when the server accepts connections; it is in grace then.
        """
        self.kill()
        self.start()

    def wait(self) -> int:
        """Wait for the end of the server. Returns its exit status."""
        assert self._process is not None
        return self._process.wait(START_SECONDS)

    def require_alive(self) -> None:
        """Raise RuntimeError, with the end of the log, if the server has died."""
        status = None if self._process is None else self._process.poll()
        if self._process is None or status is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(
                f"the NFS server died with status {status}:\n{tail}\n"
                f"{self._stderr.read_text()[-4000:]}"
            )

    def errors(self) -> str:
        """Return what the server wrote to its standard error."""
        return self._stderr.read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def resident_mib(self) -> float:
        """Return the resident memory of the server."""
        return resident_mib(self.pid)

    def cpu_seconds(self) -> float:
        """Return the processor time of the server since its start, in user and kernel mode."""
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        ticks = stat.rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def until_idle(self, timeout_seconds: float = 20.0) -> None:
        """Wait until the server uses no processor time.

        Otherwise its remaining work would count for the next measurement.
        """
        seen = -1.0

        def unchanged() -> bool:
            nonlocal seen
            before, seen = seen, self.cpu_seconds()
            return seen == before

        until(unchanged, "an idle NFS server", timeout_seconds)

    def start(self) -> None:
        """Start the server. Returns when it accepts connections; it may be in grace then."""
        ours = ganesha_conf.environ() if self._is_ours else os.environ
        environ = {k: v for k, v in ours.items() if not k.startswith("SPILLWAY_")}
        with self._stderr.open("ab") as stderr:
            self._process = subprocess.Popen(
                [
                    *(self._program, "-F", "-f", self._conf, "-L", self.log),
                    *("-p", self._pid_file, "-N", "EVENT"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env=environ,
                preexec_fn=die_with_parent,
            )
        self._until(partial(accepts, self.port), "the NFS server's port", START_SECONDS)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _in_service(self) -> bool:
        return self.log.exists() and _IN_SERVICE in self.log.read_text(errors="replace")

    def _until(self, check: Callable[[], bool], what: str, timeout_seconds: float) -> None:
        def alive_and() -> bool:
            self.require_alive()
            return check()

        until(alive_and, what, timeout_seconds)


def _settings(directory: Path, port: int, values: Values) -> Settings:
    path = directory / "spillway.toml"
    ours: Values = {
        "gateway": {"data_dir": directory / "data"},
        "nfs": {
            "bind": "127.0.0.1",
            "port": port,
            "export": EXPORT,
            "lease_seconds": LEASE_SECONDS,
            "grace_seconds": GRACE_SECONDS,
            "plugins_dir": PLUGINS_DIR,
        },
        "bucket": {"name": "unused"},
    }
    sections = {**ours, **values}
    merged = {name: {**ours.get(name, {}), **keys} for name, keys in sections.items()}
    path.write_text(loader.render(merged))
    settings = loader.load(path, {})
    settings.data_dir.mkdir()
    return settings


def _on_vfs(text: str, directory: Path) -> str:
    """Return the configuration with Ganesha's FSAL_VFS on a directory. Raises ValueError."""
    for pattern, replacement in (
        (r"    Plugins_Dir = .*\n", ""),
        (r"PYTHON \{[^}]*\}\n", ""),
        (r"Name = PYTHON;\n *Directory = .*\n *Revision = .*\n", "Name = VFS;\n"),
        (rf'    Path = "{EXPORT}";', f'    Path = "{directory}";'),
    ):
        text, count = re.subn(pattern, replacement, text)
        if count != 1:
            raise ValueError(f"{pattern!r} is {count} times in the rendered ganesha.conf, not once")
    return text


def accepts(port: int) -> bool:
    """Return whether a process listens on a port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
