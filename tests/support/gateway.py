"""Whole gateway as a user runs it: ``spillway init``, ``spillway up``, ``spillway status``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from gateway.common.models import to_json
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.service import status
from tests.support.clisite import PROGRAM, Running
from tests.support.namespace import Namespace
from tests.support.owner import confirm
from tests.support.ports import free_port
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer
from tests.support.waiting import until

PLUGINS_DIR = Path(__file__).parents[2] / "build" / "lib"

BUCKET = "checkpoints"
"""The bucket of every gateway, in a server of its own."""

Values = Mapping[str, Mapping[str, Any]]


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


class Gateway:
    """A gateway in a directory of its own; a context manager that runs ``spillway up``.

    Args:
        directory: to be made.
        server: S3 server that has its bucket, which is made if missing.
        values: configuration by section and key.
        proxy: proxy by which it reaches the server.
        say: called with each line that ``up`` prints.
        process_group: process group of ``up`` (0: its own one; default: ours).
    """

    def __init__(
        self,
        directory: Path,
        server: RcloneServer,
        values: Values | None = None,
        *,
        proxy: S3Proxy | None = None,
        say: Callable[[str], None] = lambda line: None,
        process_group: int | None = None,
    ) -> None:
        self.server = server
        self.port = free_port()
        self.config = directory / "spillway.toml"
        self.data_dir = directory / "data"
        self.lines: list[str] = []
        self._proxy = proxy
        self._say = say
        self._process_group = process_group
        self._up: Running | None = None
        self._environ = {
            name: value for name, value in os.environ.items() if not name.startswith("AWS_")
        }
        directory.mkdir(parents=True, exist_ok=True)
        self._configure(server.url if proxy is None else proxy.url, values or {})
        (server.directory / BUCKET).mkdir(exist_ok=True)
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        self.spillway("init", environ=keys)
        confirm(loader.load(self.config))

    def _configure(self, endpoint_url: str, values: Values) -> None:
        merged: dict[str, dict[str, Any]] = {
            "gateway": {"data_dir": self.data_dir},
            "nfs": {
                "bind": "127.0.0.1",
                "port": self.port,
                "plugins_dir": PLUGINS_DIR,
                "lease_seconds": 10,
                "grace_seconds": 15,
            },
            "bucket": {"name": BUCKET, "endpoint_url": endpoint_url},
            # Its start takes a second of processor time, and few tests need it.
            # The machine of the tests is always busy.
            "admin": {"enabled": False, "busy_share": 1.0},
            # The disk of the tests may be full of other things.
            "cache": {"evict_from": 1.0},
            "drain": {"settle_seconds": 0.5, "poll_seconds": 0.2, "retry_max_seconds": 1.0},
        }
        for section, keys in values.items():
            merged.setdefault(section, {}).update(keys)
        self.config.write_text(loader.render(merged))

    @property
    def settings(self) -> Settings:
        return loader.load(self.config, {})

    @property
    def proxy(self) -> S3Proxy:
        """The proxy by which it reaches the server."""
        assert self._proxy is not None
        return self._proxy

    def prepare(self, change: Callable[[Namespace], None]) -> None:
        """Change the namespace before the gateway starts."""
        namespace = Namespace(self.settings)
        change(namespace)
        namespace.close()

    def stored(self, path: str) -> Path:
        """Return where the S3 server keeps an object."""
        return self.server.directory / BUCKET / path

    def objects(self) -> dict[str, bytes]:
        """Return the bucket's objects, without manifests, from the disk of the S3 server."""
        return {
            key: body
            for key, body in self.server.files(BUCKET).items()
            if not key.startswith(".spillway/checkpoints/")
        }

    def spillway(
        self,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        check: bool = True,
        timeout_seconds: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a ``spillway`` command to its end."""
        done = subprocess.run(
            [PROGRAM, arguments[0], "--config", self.config, *arguments[1:]],
            env={**self._environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"spillway {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done

    def status(self) -> dict[str, Any]:
        """Return the report of ``spillway status --json``.

        It is made in this process. The start of a command takes two seconds of processor time, and
        tests that wait for a state ask all the time.
        """
        made = status.gather(loader.load(self.config, self._environ))
        document: dict[str, Any] = json.loads(json.dumps(to_json(made)))
        return document

    def start(self) -> None:
        """Run ``spillway up`` in the background, and return before it is ready."""
        argv = [str(PROGRAM), "up", "--config", str(self.config)]
        self._up = Running(argv, self._environ, self._note, self._process_group)

    def _note(self, line: str) -> None:
        self.lines.append(line)
        self._say(line)

    @property
    def _process(self) -> subprocess.Popen[str]:
        assert self._up is not None
        return self._up.process

    def kill_all(self) -> None:
        """Kill ``up`` with SIGKILL. The kernel kills its children with it."""
        self._process.kill()
        self._process.wait()

    @property
    def has_ended(self) -> bool:
        """Whether ``up`` has ended."""
        return self._process.poll() is not None

    def require_up(self) -> None:
        """Raise AssertionError with the output of ``up`` if it has ended."""
        if self.has_ended:
            raise AssertionError("spillway up ended:\n" + "\n".join(self.lines))

    def __enter__(self) -> Self:
        before = self.said("ganesha ready")
        self.start()
        self.until_said("ganesha ready", before + 1)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(90)  # up gives its children 75 s in all
        finally:
            self._process.kill()

    def said(self, text: str) -> int:
        """Return how many lines of ``up`` contain a text."""
        return sum(text in line for line in self.lines)

    def until_said(self, text: str, times: int, timeout_seconds: float = 60.0) -> None:
        """Wait until this many lines of ``up`` contain a text."""

        def check() -> bool:
            self.require_up()
            return self.said(text) >= times

        try:
            until(check, f"{text!r} from spillway up", timeout_seconds)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n" + "\n".join(self.lines)) from None

    @property
    def files_dir(self) -> Path:
        """The directory of the data files."""
        return self.data_dir / "files"

    @property
    def up_pid(self) -> int:
        """The process id of ``spillway up``."""
        return self._process.pid

    def pid(self, name: str) -> int:
        """Return the pid of a child of ``up``: ganesha or drain."""
        up = json.loads((self.data_dir / "run" / "up.json").read_text())
        pid: int = up["children"][name]["pid"]
        return pid

    def resident_mib(self, name: str) -> float:
        """Return the resident memory of a child of ``up``: ganesha or drain."""
        return resident_mib(self.pid(name))

    def kill(self, name: str) -> None:
        """Kill a child of ``up`` with SIGKILL: ganesha or drain."""
        os.kill(self.pid(name), signal.SIGKILL)

    def evict(self, *paths: str) -> None:
        """Evict files and directories, as soon as the last reader has closed them.

        A client closes a file some time after its last read.
        """
        said = ""

        def check() -> bool:
            nonlocal said
            done = self.spillway("evict", *paths, check=False)
            said = done.stdout + done.stderr
            return done.returncode == 0 and "files skipped" not in said

        try:
            until(check, f"the eviction of {' '.join(paths)}", 120.0)
        except AssertionError as exc:
            raise AssertionError(f"{exc}: {said}") from None

    def until_drained(self, timeout_seconds: float = 60.0) -> None:
        """Wait until the bucket has everything and nothing is queued."""

        def check() -> bool:
            facts = self.status()
            return facts["dirty"]["files"] == 0 and not any(facts["queued"].values())

        try:
            until(check, "the drain", timeout_seconds)
        except AssertionError as exc:
            raise AssertionError(
                f"{exc}: {json.dumps(self.status())}\n" + "\n".join(self.lines)
            ) from None


@contextmanager
def running(
    directory: Path,
    values: Values | None = None,
    prepare: Callable[[Namespace], None] | None = None,
) -> Iterator[Gateway]:
    """Run an S3 server, a proxy and a gateway.

    Args:
        directory: directory of all their files.
        values: configuration by section and key.
        prepare: called with the namespace before the gateway starts.
    """
    with RcloneServer(directory / "s3") as server, S3Proxy(server.port) as proxy:
        # pytest shows what the gateway says when the test fails.
        gateway = Gateway(directory / "gateway", server, values, proxy=proxy, say=print)
        if prepare is not None:
            gateway.prepare(prepare)
        with gateway:
            yield gateway
