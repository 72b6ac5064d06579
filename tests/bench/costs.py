"""Measures parts of a change in two ways each: ``python -m tests.bench.costs DIRECTORY``.

Changes come to Python as C gives them, without NFS. The last rows are of a whole server and need
root. Printed is processor time, so a busy machine changes little; the disk only where it is named.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite_dialect

from fsal import bridge
from fsal.verbs import Verbs
from gateway.common.types import ROOT_CRED, Attr, InodeKind, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.compiled import Statement
from gateway.db.sqlite import Sqlite
from gateway.db.writer import Operation
from gateway.namespace import content, volume
from gateway.namespace import names as names_module
from gateway.namespace.facade import Namespace
from gateway.namespace.names_log import NamesLog
from gateway.namespace.server_reports import DiskTrouble, SharedNames, Space, UsageReport
from tests.bench import load, names, report, sites
from tests.bench.idle import fill
from tests.support.volumes import make_settings, make_volume

ROOT = 2
TOGETHER = 16
CREATES = 16_000
CALLS = 20_000
ROUNDS = 5
RECOVERED = 2000
DIRTY = 200_000
OVER_NFS = 8000
WRITTEN = Sealed(4096, 4096, 1, 1)
FULL_COLLECTION = 2
"""The generation of a garbage collection that looks at everything."""


class Creates:
    """Makes files in one directory, through the function that C calls, many to a call."""

    def __init__(self, settings: Settings) -> None:
        self.namespace = Namespace(settings)
        self._verbs = Verbs(
            self.namespace,
            Space(settings, self.namespace),
            DiskTrouble(settings),
            SharedNames(settings),
            NamesLog(settings),
            UsageReport(settings),
        )
        self._requests = (bridge.RequestStruct * TOGETHER)()
        self._replies = (bridge.ReplyStruct * TOGETHER)()
        self._items = (bridge.ItemStruct * TOGETHER)()
        self._numbers = itertools.count()
        for item, request, reply in zip(self._items, self._requests, self._replies, strict=True):
            item.op = bridge.OPERATIONS.index("create")
            item.request, item.reply = ctypes.pointer(request), ctypes.pointer(reply)
            request.ino = ROOT
            request.flags = bridge.FOR_WRITING

    def call(self) -> None:
        """Make TOGETHER files in one transaction."""
        texts = [ctypes.create_string_buffer(b"f%07d" % next(self._numbers)) for _ in self._items]
        for request, text in zip(self._requests, texts, strict=True):
            request.name, request.name_len = ctypes.addressof(text), len(text.value)
        self._verbs.batch(list(self._items))
        assert not any(reply.status for reply in self._replies)

    def micros(self, count: int = CREATES) -> float:
        """Return the µs of processor time for a file."""
        began = time.process_time()
        for _ in range(count // TOGETHER):
            self.call()
        return (time.process_time() - began) / count * 1e6


@contextmanager
def created(directory: Path, name: str) -> Iterator[Creates]:
    settings = make_settings(directory / name)
    make_volume(settings)
    creates = Creates(settings)
    try:
        yield creates
    finally:
        creates.namespace.close()


def least(ways: Sequence[Callable[[], float]], rounds: int = ROUNDS) -> list[float]:
    """Run ways in turn, some rounds. Returns the least value of each: others were disturbed."""
    values = [[way() for way in ways] for _ in range(rounds)]
    return [min(one) for one in zip(*values, strict=True)]


def each(call: Callable[[], object], count: int = CALLS) -> Callable[[], float]:
    """Return a function that measures the µs of processor time of a call."""

    def measure() -> float:
        began = time.process_time()
        for _ in range(count):
            call()
        return (time.process_time() - began) / count * 1e6

    return measure


def put_by_field(out: Any, attr: Attr) -> None:
    out.ino = attr.ino
    out.generation = attr.generation
    out.size = attr.size
    out.used = attr.used
    out.change = attr.change
    out.rdev = attr.rdev
    out.epoch = attr.epoch
    out.atime_ns = attr.atime_ns
    out.mtime_ns = attr.mtime_ns
    out.ctime_ns = attr.ctime_ns
    out.btime_ns = attr.btime_ns
    out.kind = attr.kind
    out.mode = attr.mode
    out.uid = attr.uid
    out.gid = attr.gid
    out.nlink = attr.nlink
    out.residency = attr.residency
    out.reserved = attr.reserved


def attributes(_directory: Path) -> Iterator[tuple[str, ...]]:
    reply = bridge.ReplyStruct()
    attr = Attr(*range(1, 1 + len(Attr._fields)))
    by_field, packed = least(
        (
            each(lambda: put_by_field(reply.attr, attr)),
            each(lambda: bridge.put_attr(reply.attr, attr)),
        )
    )
    yield "attributes into an answer: by field, packed", f"{by_field:.2f} µs", f"{packed:.2f} µs"


def parameters(directory: Path) -> Iterator[tuple[str, ...]]:
    """The statements of a create, with parameters by name and by position."""
    settings = make_settings(directory / "parameters")
    make_volume(settings)
    connection = sqlite3.connect(settings.data_dir / "namespace.db", isolation_level=None)
    numbers = itertools.count(10_000)
    attr = Attr(*[0] * len(Attr._fields))._replace(kind=InodeKind.REGULAR, nlink=1, residency=2)
    inode = {
        **attr._asdict(),
        **{"target": None, "verifier": None, "parent": None, "content_version": 1},
        **{"drained_version": 0, "write_open": 1, "drain_after_ns": 0},
    }

    def way(paramstyle: str) -> Callable[[], float]:
        dialect = sqlite_dialect(paramstyle=paramstyle)
        statements = (sql.LOOKUP, sql.DIRECTORY_CHANGED, sql.INODE_INSERT, sql.DIRENT_INSERT)
        look, change, insert, name = (
            Statement(statement.expression).compiled(dialect) for statement in statements
        )

        def create_one() -> None:
            ino = next(numbers)
            entry = {"parent": ROOT, "name": b"%d" % ino, "ino": ino, "cookie": ino}
            moved = {"the_ino": ROOT, "delta": 0, "now_ns": ino}
            for (text, order), values in (
                (look, {"parent": ROOT, "name": entry["name"]}),
                (change, moved),
                (insert, {**inode, "ino": ino}),
                (name, entry),
            ):
                connection.execute(text, order(values)).fetchall()

        def measure() -> float:
            connection.execute("BEGIN")
            micros = each(create_one)()
            connection.execute("ROLLBACK")
            return micros

        return measure

    named, placed = least((way("named"), way("qmark")))
    yield (
        "the four statements of a create: parameters by name, by position",
        f"{named:.1f} µs",
        f"{placed:.1f} µs",
    )
    connection.close()


def collections(directory: Path) -> Iterator[tuple[str, ...]]:
    """Creates, with and without what the start made in sight of the garbage collector."""
    spent: list[float] = []
    began = 0.0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if info["generation"] == FULL_COLLECTION and phase == "start":
            began = time.process_time()
        elif info["generation"] == FULL_COLLECTION:
            spent.append((time.process_time() - began) * 1000)

    with created(directory, "collections") as creates:
        creates.micros()
        gc.callbacks.append(note)
        found = []
        for prepare in (gc.unfreeze, gc.freeze):
            gc.collect()
            prepare()
            spent.clear()
            micros = creates.micros()
            gc.collect()
            found.append(f"{micros:.1f} µs a create; a full one takes {spent[-1]:.1f} ms")
        gc.callbacks.remove(note)
        gc.unfreeze()
    yield "garbage collection: after a start, after gc.freeze()", *found


def checkpoints(directory: Path) -> Iterator[tuple[str, ...]]:
    """Creates whose log is copied into the database after few pages, and after many."""
    found = []
    connect = Sqlite.connect
    for pages in (1000, 16_000):

        def connect_so(
            backend: Sqlite, for_writing: bool, pages: int = pages
        ) -> sqlite3.Connection:
            connection = connect(backend, for_writing)
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            return connection

        with (
            patch.object(Sqlite, "connect", connect_so),
            created(directory, f"checkpoints-{pages}") as creates,
        ):
            before = _writes()
            micros = creates.micros()
            writes = (_writes() - before) / CREATES
        found.append(f"{micros:.1f} µs and {writes:.2f} writes a create")
    yield "WAL checkpoints: after 1,000 pages, 16,000", *found


def _writes() -> int:
    """Return the system calls of this process that wrote."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["syscw"])


def known_absent(directory: Path) -> Iterator[tuple[str, ...]]:
    """Creates with and without the look-up of the name."""
    with created(directory, "absent") as creates:
        creates.micros()

        def without() -> float:
            with patch.object(names_module, "find", lambda *_: None):
                return creates.micros()

        asked, known = least((creates.micros, without))
    yield "a create that looks its name up, that does not", f"{asked:.1f} µs", f"{known:.1f} µs"


def usage_sums(directory: Path) -> Iterator[tuple[str, ...]]:
    """Creates and seals with and without the triggers that keep usage."""
    micros: dict[bool, Callable[[], tuple[float, float]]] = {}
    with ExitStack() as stack:
        for has_sums in (True, False):
            settings = make_settings(directory / f"sums-{has_sums}")
            make_volume(settings)
            if not has_sums:
                _drop_triggers(settings)
            namespace = Namespace(settings)
            stack.callback(namespace.close)
            micros[has_sums] = partial(_made, namespace, itertools.count())
        rounds = [(micros[True](), micros[False]()) for _ in range(ROUNDS)]
    for at, what in enumerate(("create", "close")):
        kept, left = (min(one[side][at] for one in rounds) for side in (0, 1))
        yield f"a {what} with the sums of usage, without", f"{kept:.1f} µs", f"{left:.1f} µs"


def _drop_triggers(settings: Settings) -> None:
    with closing(sqlite3.connect(settings.data_dir / "namespace.db")) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            database.execute(f"DROP TRIGGER {name}")


def _made(namespace: Namespace, numbers: Iterator[int]) -> tuple[float, float]:
    """Make files and close them. Returns the µs of processor time of each."""
    inos: list[int] = []
    began = time.process_time()
    for _ in range(CREATES // TOGETHER):
        made = [
            Operation(
                names_module.create, ROOT_CRED, ROOT, b"f%d" % number, SetAttr(), generation=1
            )
            for number in itertools.islice(numbers, TOGETHER)
        ]
        namespace.change(made)
        inos += [operation.outcome().ino for operation in made]
    created_at = time.process_time()
    for at in range(0, CREATES, TOGETHER):
        namespace.change(
            [Operation(content.seal, ino, WRITTEN, 0) for ino in inos[at : at + TOGETHER]]
        )
    ended = time.process_time()
    return (created_at - began) / CREATES * 1e6, (ended - created_at) / CREATES * 1e6


def recoveries(directory: Path) -> Iterator[tuple[str, ...]]:
    """A start after a crash with files open for writing."""
    found = []
    for together in (1, volume.RECOVERED_TOGETHER):
        name = f"recovered-{together}"
        with created(directory, name) as creates:
            creates.micros(RECOVERED)
        with patch.object(volume, "RECOVERED_TOGETHER", together):
            used, began = time.process_time(), time.perf_counter()
            namespace = Namespace(make_settings(directory / name))
            seconds, used = time.perf_counter() - began, time.process_time() - used
        assert namespace.recovered[0] == RECOVERED
        namespace.close()
        found.append(f"{used:.2f} s, with waits {seconds:.2f} s")
    yield f"recovery of {RECOVERED:,} files: one to a transaction, 256", *found


def dirty_sum(directory: Path) -> Iterator[tuple[str, ...]]:
    settings = make_settings(directory / "dirty")
    make_volume(settings)
    fill(settings.data_dir / "namespace.db", 0, DIRTY)
    namespace = Namespace(settings)
    [took] = least((each(namespace.dirty_bytes, 1),))
    namespace.close()
    yield f"the sum of {DIRTY:,} dirty files", f"{took / 1000:.0f} ms", ""


def old_directories(directory: Path) -> Iterator[tuple[str, ...]]:
    """Creates by a client, in a directory that the server made and in one older than its start."""
    options = ("--count", OVER_NFS, "--connections", 16)
    with ExitStack() as stack:
        server = sites.start(stack, "spillway", directory / "old", names.old_directories(ROUNDS))

        def way(name: str) -> Callable[[], float]:
            rounds = itertools.count()

            def measure() -> float:
                place = f"{name}{next(rounds)}"
                before = server.cpu_seconds()
                done = load.nfs(server.port, "create", "--dir", place, "--prefix", "o", *options)
                server.until_idle()
                return (server.cpu_seconds() - before) / done.ops * 1e6

            return measure

        new, old = least((way("new"), way("old")))
    yield (
        "a create over NFS: in a new directory, in one older than the start",
        f"{new:.0f} µs",
        f"{old:.0f} µs",
    )


PARTS: dict[str, Callable[[Path], Iterator[tuple[str, ...]]]] = {
    "attributes": attributes,
    "parameters": parameters,
    "collections": collections,
    "checkpoints": checkpoints,
    "absent": known_absent,
    "usage": usage_sums,
    "recovery": recoveries,
    "dirty": dirty_sum,
    "old": old_directories,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="on the disk to measure")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    args = parser.parse_args()
    print(report.machine())
    with tempfile.TemporaryDirectory(dir=args.directory.absolute()) as directory:
        for part in args.parts:
            for row in PARTS[part](Path(directory)):
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
