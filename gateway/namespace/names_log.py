"""Log of names: which client removed, renamed, made or opened what (``nfs.names_log``).

The path of a change is found in its transaction, because what is removed has none afterwards. The
line is written after the commit and before the answer, and is not synced: a power cut may take the
last lines. A change is never refused because its line cannot be written. The line of an open is
written once it has succeeded, if the client has the permission.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.common import clock
from gateway.common.text import text_of
from gateway.config.settings import Settings
from gateway.db.writer import Tx
from gateway.namespace.lookup import path_of

log = logging.getLogger("spillway.names")

FILE = "names.jsonl"
FORMER = "names.jsonl.1"
REMOVALS = ("remove", "rename")
CREATIONS = ("create", "mkdir", "symlink", "mknod", "link")
_NOTED: dict[str, tuple[str, ...]] = {
    "off": (),
    "removals": REMOVALS,
    "changes": (*REMOVALS, *CREATIONS),
    "opens": (*REMOVALS, *CREATIONS, "open"),
}
_TOLD_SECONDS = 60.0


@dataclass
class LoggedChange:
    """A change that the log gets, once it is done."""

    what: str
    client: str
    """The address. Empty: the gateway itself, for a command or a page."""
    uid: int
    names: Sequence[tuple[int, bytes]]
    """Directory and name, as it was asked for."""
    paths: list[bytes] = field(default_factory=list)
    """The paths below the export, from the transaction."""

    def find(self, tx: Tx) -> None:
        """Find the paths, before the change is made."""
        paths = ((path_of(tx, directory), name) for directory, name in self.names)
        self.paths = [above + b"/" + name if above else name for above, name in paths]


class NamesLog:
    """Writes the log. For one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        self.noted = _NOTED[settings.nfs.names_log]
        """What is logged."""
        self._most_bytes = settings.nfs.names_log_bytes
        self._directory = settings.log_dir
        self._export = os.fsencode(settings.nfs.export)
        self._fd: int | None = None
        self._told_seconds = float("-inf")

    def write(self, noted: LoggedChange | None, is_replaced: bool = False) -> None:
        """Write the line of a change that is done.

        Args:
            is_replaced: whether the new name was another inode's, which lost it.
        """
        if noted is None:
            return
        path, *new_path = (
            text_of(b"/".join([self._export, noted_path])) for noted_path in noted.paths
        )
        entry: dict[str, Any] = {
            "at": clock.iso(clock.now_ns()),
            "client": noted.client or None,
            "uid": noted.uid,
            "what": noted.what,
            "path": path,
        }
        if new_path:
            entry |= {"new_path": new_path[0], "replaced": is_replaced}
        try:
            self._append(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        except OSError as exc:
            self._close()
            now_seconds = clock.monotonic_seconds()
            if now_seconds - self._told_seconds >= _TOLD_SECONDS:
                self._told_seconds = now_seconds
                log.warning(
                    "cannot write %s: %s: what clients do is not in it",
                    self._directory / FILE,
                    exc.strerror,
                )

    def _append(self, line: bytes) -> None:
        path = self._directory / FILE
        if self._fd is not None and os.fstat(self._fd).st_size + len(line) > self._most_bytes:
            self._close()
            path.replace(self._directory / FORMER)
        if self._fd is None or not os.fstat(self._fd).st_nlink:
            self._close()
            self._fd = _opened(path)
        os.write(self._fd, line)

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _opened(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    size_bytes = os.fstat(fd).st_size
    # A server that was killed, or a full disk, may have left half a line.
    if size_bytes and os.pread(fd, 1, size_bytes - 1) != b"\n":
        os.write(fd, b"\n")
    return fd
