"""Real S3 servers for tests. They listen on loopback and end with the test process.

``RcloneServer`` checks signatures and Content-MD5, and keeps objects as files. A restart loses its
metadata and its multipart uploads. ``MotoServer`` checks neither, but it answers multipart ETags,
part copies and conditions as AWS does. ``WeedServer`` (SeaweedFS) checks signatures, and heeds
conditions of all requests.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.ports import free_port

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

ACCESS_KEY = "AKIASPILLWAYTEST"
SECRET_KEY = "not/a+secret-but-tests-look-for-it"
START_DEADLINE_SECONDS = 120.0

# rclone, cmd/serve/s3/backend.go: tempObjectPrefix, and the name that v1.75.0 gave to multipart.
_TEMPORARY = re.compile(r"\.rclone_(temp|multipart_upload)_")
_OWNER = ".spillway/owner.json"
_OURS, _COPIES = ".spillway", ("names", "settings")

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Make the kernel kill this process with its parent; for preexec_fn.

    Otherwise a killed test run leaves processes behind.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def credentials(secret_key: str = SECRET_KEY) -> str:
    """Return the text of an AWS credentials file."""
    return f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {secret_key}\n"


class Server(ABC):
    """A server process that keeps its port across restarts."""

    def __init__(self, log_path: Path) -> None:
        self.port = free_port()
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def command(self) -> list[str]:
        """Return the server's program and arguments."""

    def start(self) -> None:
        """Start the server and wait until it accepts connections.

        Raises RuntimeError with the server's log.
        """
        environment = {**os.environ, "HOME": str(self._log_path.parent)}
        with self._log_path.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=output,
                env=environment,
                preexec_fn=die_with_parent,
                # Ctrl-C at a terminal must not end it before those that use it have ended.
                process_group=0,
            )
        deadline = time.monotonic() + START_DEADLINE_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        self.stop()
        raise RuntimeError(f"server did not start: {self._log_path.read_text()}")

    def stop(self) -> None:
        """End the server at once; ``start`` starts it again on the same port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def processor_seconds(self) -> float:
        """Return the processor time that the running server has used so far."""
        assert self._process is not None
        stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def client(self) -> S3Client:
        """Return a client that asks the server directly, through no proxy."""
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class RcloneServer(Server):
    """``rclone serve s3`` over a local directory; a bucket is a subdirectory of it.

    Args:
        directory: made if missing.
        options: further options of rclone.
    """

    def __init__(self, directory: Path, options: tuple[str, ...] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory.with_suffix(".log"))
        self.directory = directory
        self._options = options

    def command(self) -> list[str]:
        return [
            str(Path(sys.executable).with_name("rclone")),
            *("--config", ""),
            *("serve", "s3"),
            *("--addr", f"127.0.0.1:{self.port}"),
            *("--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"),
            # Otherwise rclone removes a directory with its last object. An upload into it at that
            # moment fails, or later listings lack its object.
            "--no-cleanup",
            *self._options,
            str(self.directory),
        ]

    def files(self, below: str) -> dict[str, bytes]:
        """Return the objects below a bucket, or a directory of it, by path from there.

        They are read from the disk, so this works while the server is stopped. What a gateway has
        for itself is left out (its owner object, the copies of names and settings), and what is
        deleted meanwhile, and the temporary files of uploads, as in the server's listings. While an
        object is replaced, its file is missing for some milliseconds.
        """
        root = self.directory / below
        files = {}
        for directory, below_it, names in os.walk(root):
            if Path(directory).name == _OURS:
                below_it[:] = [name for name in below_it if name not in _COPIES]
            for path in (Path(directory, name) for name in names if not _TEMPORARY.match(name)):
                if path.match(_OWNER):
                    continue
                with suppress(FileNotFoundError):
                    files[str(path.relative_to(root))] = path.read_bytes()
        return files


def flip(path: Path, offset: int) -> None:
    """Flip a byte of an object. The time stays, of which rclone makes the ETag: only the digest can
    tell."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        [byte] = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


class MotoServer(Server):
    """moto's S3, in memory.

    Args:
        directory: for its log.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory / "moto.log")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]


class WeedServer(Server):
    """SeaweedFS: a master, a volume server, a filer and its S3 gateway in one process.

    Args:
        directory: for all of it.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory / "weed.log")
        self._directory = directory
        self._ports = [free_port() for _ in range(7)]
        keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        known = {"identities": [{"name": "test", "credentials": [keys], "actions": actions}]}
        (directory / "s3.json").write_text(json.dumps(known))

    def command(self) -> list[str]:
        master, volume, filer, *grpc = map(str, self._ports)
        return [
            str(Path(sys.executable).with_name("weed")),
            *("server", "-dir", str(self._directory), "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1"),
            *("-master.port", master, "-volume.port", volume, "-filer", "-filer.port", filer),
            *("-master.port.grpc", grpc[0], "-volume.port.grpc", grpc[1]),
            *("-filer.port.grpc", grpc[2], "-master.volumeSizeLimitMB", "64"),
            # Each bucket has seven.
            *("-volume.max", "5000"),
            *("-s3", "-s3.port", str(self.port), "-s3.config", str(self._directory / "s3.json")),
            # By default these have ports of their own, which a second server would find taken.
            *("-s3.port.grpc", grpc[3], "-s3.port.iceberg", "0", "-s3.port.lance", "0"),
        ]

    def start(self) -> None:
        """Start it, and wait until it can store something. Raises RuntimeError with its log."""
        super().start()
        client = self.client()
        deadline = time.monotonic() + START_DEADLINE_SECONDS
        while True:
            try:
                client.create_bucket(Bucket="started")
                client.put_object(Bucket="started", Key="k", Body=b"data")
            except (ClientError, BotoCoreError) as exc:
                if time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"SeaweedFS did not start: {exc}") from exc
                time.sleep(0.1)
            else:
                break
        client.close()
