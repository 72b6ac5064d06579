"""Fills the database of a namespace with many files, as a long training leaves them, and that of
the admin API with what it keeps of a month."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from admin_api.dashboard import FIGURES
from gateway.common.types import InodeKind

ROOT = 2
FIRST_INO = 1000
RUNS = 100
DIRTY = 5000
"""Files that wait for the bucket."""
STEP_SECONDS = 600
HOUR_NS = 3600 * 10**9
MINUTE_NS = 60 * 10**9
SAMPLES = 30 * 24 * 60
CALLS = 10_000
JOBS = 1000

_INODE = (
    "INSERT INTO inode (ino, generation, kind, mode, uid, gid, nlink, size, used, atime_ns,"
    " mtime_ns, ctime_ns, btime_ns, change, rdev, parent, content_version, drained_version,"
    " write_open, drain_after_ns, residency, epoch)"
    " VALUES (:ino, 1, :kind, 420, 0, 0, :links, 0, 0, :ns, :ns, :ns, :ns, 1, 0, :parent,"
    " :version, :drained, 0, :after, 2, 0)"
)
_DIRENT = "INSERT INTO dirent (parent, name, ino, cookie) VALUES (?, ?, ?, ?)"
_OBJECT = (
    "INSERT INTO object (ino, key, content_version, size, etag, stored_ns)"
    " VALUES (?, ?, 1, 0, 'e', 1)"
)

_ORDERS = "/api/v1/queue/orders"
_EVICTED = json.dumps({"paths": ["/checkpoints/run007/step-7"]})


def fill(database: Path, steps: int, files: int) -> None:
    """Make runs of so many steps, each a directory of so many files, and files that wait."""
    filler = _Filler(sqlite3.connect(database, isolation_level=None))
    filler.fill(steps, files)


def fill_store(database: Path) -> None:
    """Give the admin API a sample of each minute of 30 days, calls in its audit, and jobs."""
    now_ns = time.time_ns()
    figures = (123456789.5,) * len(FIGURES)
    change = json.dumps({"path": "/checkpoints/run007/step-7", "order": "bump"})
    with closing(sqlite3.connect(database)) as store, store:
        store.executemany(
            f"INSERT INTO sample VALUES (?{', ?' * len(FIGURES)})",
            [(now_ns - number * MINUTE_NS, *figures) for number in range(1, SAMPLES + 1)],
        )
        store.executemany(
            "INSERT INTO audit (at_ns, who, token_id, address, request_id, method, path, status,"
            " before, after) VALUES (?, 'ci', 't', '127.0.0.1', ?, 'PUT', ?, 200, ?, ?)",
            [
                (now_ns - number * MINUTE_NS, f"{number:032x}", _ORDERS, change, change)
                for number in range(CALLS, 0, -1)
            ],
        )
        store.executemany(
            "INSERT INTO job (id, kind, arguments, state, done, total, text, asked_by, token_id,"
            " request_id, created_ns, updated_ns, ended_ns, cancel_asked, result)"
            " VALUES (:id, 'evict', :arguments, 'done', 9, 9, '9 files evicted', 'ci', 't', 'r',"
            " :ns, :ns, :ns, 0, '{}')",
            [
                {
                    "id": f"{number:016x}",
                    "arguments": _EVICTED,
                    "ns": now_ns - number * HOUR_NS // 2,
                }
                for number in range(JOBS)
            ],
        )


class _Filler:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._next = FIRST_INO
        self._now_ns = time.time_ns()

    def fill(self, steps: int, files: int) -> None:
        self._connection.execute("BEGIN")
        for run in range(RUNS):
            above = self._directory(ROOT, b"run%03d" % run, steps, self._now_ns)
            for step in range(steps):
                made_ns = self._now_ns - (steps - step) * STEP_SECONDS * 10**9
                parent = self._directory(above, b"step-%d" % step, 0, made_ns)
                for number in range(files):
                    # The files are empty, which those of tensors must not be.
                    ino = self._file(parent, b"rank-%05d" % number, made_ns, 1, 0)
                    key = f"run{run:03}/step-{step}/rank-{number:05}"
                    self._connection.execute(_OBJECT, (ino, key))
        waiting = self._directory(ROOT, b"waiting", 0, self._now_ns)
        for number in range(DIRTY):
            after_ns = self._now_ns + 2 * HOUR_NS + number
            self._file(waiting, b"shard-%05d.pt" % number, self._now_ns, 0, after_ns)
        self._connection.execute(
            "UPDATE inode SET nlink = nlink + ? WHERE ino = ?", (RUNS + 1, ROOT)
        )
        values = (self._next, self._next)
        self._connection.execute("UPDATE volume SET next_ino = ?, next_cookie = ?", values)
        self._connection.execute("COMMIT")
        self._connection.close()

    def _directory(self, parent: int, name: bytes, below: int, ns: int) -> int:
        return self._inode(
            parent, name, kind=InodeKind.DIRECTORY, links=2 + below, ns=ns, above=parent
        )

    def _file(self, parent: int, name: bytes, ns: int, drained: int, after_ns: int) -> int:
        kind = InodeKind.REGULAR
        return self._inode(parent, name, kind=kind, ns=ns, drained=drained, after=after_ns)

    def _inode(
        self,
        parent: int,
        name: bytes,
        *,
        kind: int,
        ns: int,
        links: int = 1,
        above: int | None = None,
        drained: int = 0,
        after: int = 0,
    ) -> int:
        ino, self._next = self._next, self._next + 1
        version = int(kind == InodeKind.REGULAR)
        self._connection.execute(
            _INODE,
            {
                "ino": ino,
                "kind": kind,
                "links": links,
                "ns": ns,
                "parent": above,
                "version": version,
                "drained": drained,
                "after": after or ino,
            },
        )
        self._connection.execute(_DIRENT, (parent, name, ino, ino))
        return ino
