"""Namespace for tests, with a method for each change. Each change is a batch of one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from gateway.common.types import Attr, Cred, DataFileOnDisk, RemovedName, Sealed, SetAttr
from gateway.db.writer import Operation, Tx
from gateway.namespace import content, facade, names, rename, residency
from gateway.namespace.attributes import setattr_
from tests.support.waiting import until

P = ParamSpec("P")
T = TypeVar("T")


class Namespace(facade.Namespace):
    """A namespace whose changes go through ``run_together``, as those of the NFS server do. Links
    to checkpoints go before the checkpoints change, as there."""

    def run(
        self, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **named: P.kwargs
    ) -> T:
        """Make one change. Raises what the function raises."""
        operation = Operation(function, *args, **named)
        self.change([operation])
        return operation.outcome()

    def create(
        self,
        cred: Cred,
        parent: int,
        name: bytes,
        wanted: SetAttr,
        verifier: bytes | None = None,
        for_writing: bool = True,
    ) -> Attr:
        return self.run(
            names.create,
            cred,
            parent,
            name,
            wanted,
            generation=self.boot.generation,
            verifier=verifier,
            for_writing=for_writing,
        )

    def crash(self) -> None:
        """End as by a kill, without a last move of the mark."""
        self._release()

    def keep_mark_now(self) -> None:
        """Move the mark if it is due, and wait until that is done."""
        self.keep_mark()
        until(lambda: "mark" not in {thread.name for thread in threading.enumerate()}, "the mark")

    def mkdir(self, *args: Any) -> Attr:
        return self.run(names.mkdir, *args, generation=self.boot.generation)

    def symlink(self, *args: Any) -> Attr:
        return self.run(names.symlink, *args, generation=self.boot.generation)

    def mknod(self, *args: Any) -> Attr:
        return self.run(names.mknod, *args, generation=self.boot.generation)

    def link(self, *args: Any) -> Attr:
        return self.run(names.link, *args)

    def rename(
        self, cred: Cred, parent: int, name: bytes, new_parent: int, new_name: bytes
    ) -> tuple[Attr, RemovedName | None]:
        return self.run(rename.rename, cred, parent, name, new_parent, new_name, 0)

    def remove(self, *args: Any) -> RemovedName:
        return self.run(names.remove, *args)

    def setattr(self, ino: int, wanted: SetAttr) -> Attr:
        return self.run(setattr_, ino, wanted)

    def setxattr(self, cred: Cred, ino: int, name: bytes, value: bytes, how: int = 0) -> Attr:
        return self.run(names.setxattr, cred, ino, name, value, how)

    def removexattr(self, *args: Any) -> Attr:
        return self.run(names.removexattr, *args)

    def open_write(self, ino: int) -> Attr:
        """Open an inode for writing. The data file gets the row's mtime, as writer.c sets it."""
        attr = self.run(content.open_write, ino)
        path = self.files.path(attr.ino, attr.epoch)
        if path.exists():
            os.utime(path, ns=(attr.mtime_ns, attr.mtime_ns))
        return attr

    def open_emptied(self, ino: int) -> Attr:
        """Open an inode for a writer that empties it, as OPEN with TRUNC does."""
        return self.run(content.open_write, ino, True)

    def evict(self, ino: int, content_version: int, found: DataFileOnDisk | None = None) -> Attr:
        """Make a file absent. The caller deletes the data file of the epoch before.

        Args:
            found: the data file as the server finds it (default: as the row has it).
        """
        return self.run(residency.evict, ino, content_version, found)

    def arrived(self, ino: int, epoch: int, content_version: int) -> Attr:
        return self.run(residency.arrived, ino, epoch, content_version)

    def note_reads(self, reads: Sequence[tuple[int, int]]) -> None:
        self.run(residency.note_reads, reads)

    def seal(self, ino: int, data: Sealed) -> Attr:
        return self.run(content.seal, ino, data, self.settle_ns)

    def damaged(self, ino: int, reason: str) -> None:
        self.run(content.damaged, ino, reason)

    def lost(self, ino: int, reason: str) -> Attr:
        """Give up the data file of a file. The caller moves the one of the epoch before aside."""
        return self.run(content.lost, ino, reason)

    def whole(self, ino: int) -> None:
        self.run(content.whole, ino)

    def reclaim(self, ino: int, epoch: int) -> None:
        """Delete an orphan without opens as seal.c does: first the row, then the bytes."""
        if self.run(names.reclaim, ino):
            self.files.remove(ino, epoch)
