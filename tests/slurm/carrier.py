"""Plays the mount: carries files and receipts between a tmpfs and a gateway, over NFSv4."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from tests.support.nfs4 import NOENT, READLINK, Client, Status, op, putfh

ROUND_SECONDS = 0.2
READ_BYTES = 4096
"""A receipt is shorter."""
EXPORT = "checkpoints"


class Carrier:
    """Brings each closed file from the directory to the gateway, and its receipts back.

    Args:
        directory: where the prolog mounts. Nothing is carried while nothing is mounted there.
        port: of the NFS server.
        run: its path, below which files are.
    """

    def __init__(self, directory: Path, port: int, run: str) -> None:
        self._directory = directory
        self._port = port
        self._run = run
        self._sent: set[tuple[Path, int]] = set()

    def carry(self, stop: threading.Event) -> None:
        """Carry until told to stop."""
        with Client(self._port) as client:
            while not stop.wait(ROUND_SECONDS):
                if self._directory.is_mount():
                    self._send(client)
                    self._receive(client, "runs")
                    self._receive(client, "checkpoints")

    def _send(self, client: Client) -> None:
        """Send what has its final name, and of each directory what shows that it is whole last."""
        found = (self._directory / self._run).rglob("*")
        files = [path for path in found if path.is_file() and path.suffix != ".tmp"]
        for path in sorted(files, key=lambda path: (path.parent, path.name.startswith("."))):
            file = path, path.stat().st_mtime_ns
            if file not in self._sent:
                above = self._made(client, path.parent)
                with client.opened(above, path.name, empties=True) as opened:
                    opened.write(path.read_bytes())
                self._sent.add(file)

    def _made(self, client: Client, directory: Path) -> bytes:
        """Return the handle of a directory, which is made if missing."""
        names = directory.relative_to(self._directory).parts
        handle = client.handle(EXPORT)
        for count, name in enumerate(names, 1):
            with suppress(Status):
                client.mkdir(handle, name, 0o755)
            handle = client.handle(EXPORT, *names[:count])
        return handle

    def _receive(self, client: Client, kind: str) -> None:
        """Have the directory hold the receipts that the gateway has now.

        Args:
            kind: runs or checkpoints.
        """
        place = (".spillway", kind, *self._run.split("/"))
        below = self._directory.joinpath(*place)
        below.mkdir(parents=True, exist_ok=True)
        there = set()
        for name in _names(client, place):
            try:
                handle = client.handle(EXPORT, *place, name)
                text = _target(client, handle) if kind == "runs" else _text(client, handle)
            except Status as exc:
                if exc.number == NOENT:
                    continue  # it was replaced meanwhile
                raise
            there.add(name)
            new = below / f"{name}.new"
            if kind == "runs":
                new.symlink_to(text)
            else:
                new.write_bytes(text.encode())
            new.replace(below / name)
        for gone in {path.name for path in below.iterdir()} - there:
            (below / gone).unlink()


def _names(client: Client, place: tuple[str, ...]) -> list[str]:
    try:
        return client.names(client.handle(EXPORT, *place))
    except Status as exc:
        if exc.number == NOENT:
            return []
        raise


def _target(client: Client, link: bytes) -> str:
    reply = client.call(putfh(link), op(READLINK))
    reply.unpack("IIII")
    return reply.opaque().decode()


def _text(client: Client, file: bytes) -> str:
    return client.read(file, 0, READ_BYTES).decode()
