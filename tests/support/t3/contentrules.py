"""The rules for the bytes of files: clients write them, the drain stores them, the cache lets them
go and brings them back."""

from __future__ import annotations

import os
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from sqlalchemy import text

from gateway.common import clock
from gateway.common.types import InodeKind, Sealed
from gateway.db.engine import Database
from tests.support.t3.machine import Pair, Volumes, seldom
from tests.support.t3.node import Node

mistakes = st.sampled_from([0] * 4 + [-1, 1])
"""How far a version or an epoch is off, of a caller who missed a change."""
STORED_IN = ("block_digest", "object", "rekey")
"""The tables that say what the bucket has of a file, in the order of deletion."""


def is_stored(node: Node) -> bool:
    """Whether the bucket has some version of a file."""
    return node.object is not None


class ContentRules(Pair):
    """The life of files' bytes. Args: as of Pair."""

    def __init__(self, volumes: Volumes, step: Callable[[], object]) -> None:
        super().__init__(volumes, step)
        self._engine = Database(self._settings.database_url).engine()

    def teardown(self) -> None:
        self._engine.dispose()
        super().teardown()

    def sql(self, *statements: str) -> list[tuple[int, ...]]:
        """Run statements as another process does. Returns the rows of the last one."""
        with self._engine.begin() as connection:
            done = [connection.execute(text(statement)) for statement in statements]
            return [tuple(row) for row in done[-1]] if done[-1].returns_rows else []

    def a_file(self, data: st.DataObject, fits: Callable[[Node], bool]) -> int:
        """Return a regular file that fits, or seldom any inode."""
        files = [
            n.ino for n in self.model.nodes.values() if n.kind == InodeKind.REGULAR and fits(n)
        ]
        if not files or data.draw(seldom):
            return self.an_inode(data, InodeKind.REGULAR)
        return data.draw(st.sampled_from(files), label="file")

    def an_absent_file(self, data: st.DataObject) -> int:
        """Return an absent file, or seldom any inode. Without an absent file, evict one before."""
        if not any(node.is_absent for node in self.model.nodes.values()):
            self.evict_one(self.a_file(data, is_stored))
        return self.a_file(data, lambda node: node.is_absent)

    # ---- clients ----

    @rule(data=st.data())
    def open_write(self, data: st.DataObject) -> None:
        self.open_one(self.an_inode(data, InodeKind.REGULAR))

    def open_one(self, ino: int) -> None:
        if ino in self.model.nodes and self.model.nodes[ino].write_open:
            return  # the C side reports only the first writer
        node = self.same(lambda: self.model.open_write(ino), lambda: self.ns.open_write(ino))
        # The C side does this too: the data file has the row's mtime before the first write.
        if node and node.data is not None:
            mtime_ns = self.ns.getattr(ino).mtime_ns
            os.utime(self.data_file(node), ns=(mtime_ns, mtime_ns))

    @rule(data=st.data())
    def open_emptied(self, data: st.DataObject) -> None:
        """Open an absent file as OPEN with TRUNC does. Of others C empties the data file."""
        ino = self.an_absent_file(data)
        if ino in self.model.nodes and self.model.nodes[ino].is_absent:
            was = self.data_file(self.model.nodes[ino])
            self.same(lambda: self.model.open_emptied(ino), lambda: self.ns.open_emptied(ino))
            was.unlink(missing_ok=True)

    @rule(data=st.data(), size=st.integers(0, 9000))
    def write(self, data: st.DataObject, size: int) -> None:
        self.write_to(self.a_file(data, lambda node: node.write_open), size)

    def write_to(self, ino: int, size: int) -> None:
        node = self.model.nodes.get(ino)
        if node is not None and node.write_open:
            node.written_ns = clock.now_ns()
            self.put(node, size)
            os.utime(self.data_file(node), ns=(node.written_ns, node.written_ns))
            node.writes += 1

    def put(self, node: Node, size: int) -> None:
        self.data_file(node).write_bytes(b"x" * size)
        node.data = size

    def on_disk(self, node: Node) -> Sealed:
        stat = self.data_file(node).stat()
        return Sealed(stat.st_size, stat.st_blocks * 512, stat.st_mtime_ns, node.writes)

    @rule(data=st.data())
    def seal(self, data: st.DataObject) -> None:
        self.seal_one(self.a_file(data, lambda node: node.write_open))

    def seal_one(self, ino: int) -> None:
        node = self.model.nodes.get(ino)
        is_written = node is not None and node.writes > 0
        sealed = self.on_disk(node) if node and is_written else Sealed(0, 0, 0, 0)
        self.same(lambda: self.model.seal(ino, sealed), lambda: self.ns.seal(ino, sealed))

    # ---- the drain ----

    @rule(data=st.data(), size=st.sampled_from([5000, 5000, 0]), has_snapshot=st.booleans())
    def save_again(self, data: st.DataObject, size: int, has_snapshot: bool) -> None:
        """Write a file that the bucket has, and send a snapshot of the new bytes before they are
        sealed."""
        ino = self.a_file(data, lambda node: is_stored(node) and not node.is_absent)
        self.open_one(ino)
        self.every_inode_agrees()
        self.write_to(ino, size)
        if has_snapshot:
            self.drain_one(ino, is_closed=False)
        self.seal_one(ino)

    @rule(data=st.data(), is_closed=st.booleans())
    def drain(self, data: st.DataObject, is_closed: bool) -> None:
        """Send a file. One that is open for writing is sent as a snapshot, or closed before."""
        self.drain_one(self.a_file(data, lambda node: node.drained < node.version), is_closed)

    def drain_one(self, ino: int, is_closed: bool) -> None:
        if is_closed:
            self.seal_one(ino)
        node = self.model.nodes.get(ino)
        if (
            node is None
            or node.kind != InodeKind.REGULAR
            or node.is_absent
            or not self.model.nlink(node)
        ):
            return
        size = node.size if node.data is None else node.data
        self.model.stored(node, size)
        drained = "" if node.write_open else ", drained_version = content_version"
        self.sql(
            *(f"DELETE FROM {table} WHERE ino = {ino}" for table in STORED_IN),
            f"UPDATE inode SET ino = ino{drained} WHERE ino = {ino}",
            f"INSERT INTO object VALUES ({ino}, '{ino}', {node.version}, {size}, 'e', 'c', 1,"
            " NULL)",
            f"INSERT INTO block_digest VALUES ({ino}, 4194304, '12345678')",
        )

    # ---- the cache ----

    @rule(data=st.data(), mistake=mistakes, is_killed=seldom)
    def evict(self, data: st.DataObject, mistake: int, is_killed: bool) -> None:
        """Evict a file. A server that is killed leaves the data file of the epoch before."""
        self.evict_one(self.a_file(data, is_stored), mistake, is_killed)

    def evict_one(self, ino: int, mistake: int = 0, is_killed: bool = False) -> None:
        node = self.model.nodes.get(ino)
        version = mistake + (1 if node is None else node.version)
        was = None if node is None else self.data_file(node)
        if (
            self.same(lambda: self.model.evict(ino, version), lambda: self.ns.evict(ino, version))
            and was is not None
            and not is_killed
        ):
            was.unlink(missing_ok=True)

    @rule(data=st.data())
    def fetch(self, data: st.DataObject) -> None:
        """Put some verified blocks into the data file of an absent file."""
        node = self.model.nodes.get(self.an_absent_file(data))
        if node is not None and node.is_absent:
            self.put(node, node.size)
            node.has_blocks = True
            self.sql(
                f"DELETE FROM present_blocks WHERE ino = {node.ino}",
                f"INSERT INTO present_blocks VALUES ({node.ino}, {node.epoch}, 4194304, '1')",
            )

    @rule(data=st.data(), mistake=mistakes, late=mistakes)
    def arrive(self, data: st.DataObject, mistake: int, late: int) -> None:
        """Say that a file is whole, perhaps of the data file of another epoch."""
        ino = self.an_absent_file(data)
        node = self.model.nodes.get(ino)
        epoch, version = (0, 1) if node is None else (node.epoch + late, node.version + mistake)
        if node is not None and node.is_absent:
            self.put(node, node.size)
        self.same(
            lambda: self.model.arrived(ino, epoch, version),
            lambda: self.ns.arrived(ino, epoch, version),
        )

    @invariant()
    def every_version_agrees(self) -> None:
        rows = self.sql(
            "SELECT ino, content_version, drained_version, write_open,"
            " EXISTS (SELECT 1 FROM present_blocks p WHERE p.ino = i.ino)"
            f" FROM inode i WHERE kind = {InodeKind.REGULAR:d}",
        )
        assert {ino: tuple(map(int, rest)) for ino, *rest in rows} == {
            node.ino: (node.version, node.drained, node.write_open, node.has_blocks)
            for node in self.model.nodes.values()
            if node.kind == InodeKind.REGULAR
        }
        assert set(self.sql("SELECT ino, epoch FROM eviction")) == self.model.left
