"""Reserved inodes: ``/.spillway``, and trees that the gateway builds or takes from clients.

Clients read ``/.spillway`` and only the gateway changes it. It is made of inodes like all others,
so lookups, reads, symlinks and cold reads need nothing of their own. The root's listing lacks it,
and clients do not find the trash. A change asks for the right to it with ``Cred.is_gateway``
(attributes.py).

The five directories have numbers of their own, below the first that is handed out. The link counts
of root and ``/.spillway`` leave out what their listings leave out.

A reserved file is never open for writing. What the gateway makes is never dirty: its version counts
as drained. A file in the trash may be dirty.

A tree is reserved, and given back to clients, a few inodes in a transaction, so no other change
waits for a large tree. It is reserved from the top down: clients change no name in a reserved
directory, and move nothing that is reserved, so what is done stays below the top. When it is done,
only the gateway changes anything in the tree. It is given back from the bottom up: nothing that is
still reserved can leave the tree meanwhile. What a kill cuts off is done by another call, of either
function. Neither moves ``change``: whether an inode is reserved is no attribute that clients see.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import exists, select, update

from gateway.common.errors import (
    RESTART,
    AccessDenied,
    InvalidArgument,
    IsADirectory,
    NotFound,
    ReadOnly,
)
from gateway.common.types import Attr, Cred, InodeKind, RemovedName, SetAttr
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.engine import Database
from gateway.db.models import (
    CHECKPOINTS_INO,
    PROMOTED_INO,
    RESERVED_INO,
    RESERVED_NAME,
    ROOT_INO,
    RUNS_INO,
    TRASH_INO,
)
from gateway.db.statements import dirent, imported_prefix, inode
from gateway.db.writer import Operation, Tx, Writer
from gateway.namespace import attributes, names, rotation
from gateway.namespace.data_files import DataFiles
from gateway.namespace.lookup import check_name, check_new_name, find, get_directory
from gateway.namespace.names import add_name, count_name, directory_changed, lose_name

log = logging.getLogger("spillway.reserved")

T = TypeVar("T")

CHILDREN = {
    b"trash": (TRASH_INO, 0o700),
    b"promoted": (PROMOTED_INO, 0o555),
    b"runs": (RUNS_INO, 0o555),
    b"checkpoints": (CHECKPOINTS_INO, 0o555),
}
"""Number and mode of the directories in ``/.spillway``."""


def ensure(tx: Tx, generation: int) -> None:
    """Make the directories that are missing. An entry of a client with the name stays."""
    attr = find(tx, ROOT_INO, RESERVED_NAME)
    if attr is not None and attr.ino != RESERVED_INO:
        log.warning(
            "/%s was made by a client of an early version: there are no receipts, no promotion and "
            "no trash: let a client give it another name, then: %s",
            RESERVED_NAME.decode(),
            RESTART,
        )
        return
    if attr is None:
        # The trash is not counted.
        links = 2 + len(CHILDREN) - 1
        _make(tx, ROOT_INO, RESERVED_NAME, RESERVED_INO, 0o555, generation, links)
    for name, (ino, mode) in CHILDREN.items():
        if find(tx, RESERVED_INO, name) is None:
            _make(tx, RESERVED_INO, name, ino, mode, generation)


def _make(
    tx: Tx, parent: int, name: bytes, ino: int, mode: int, generation: int, links: int = 2
) -> None:
    rotation.insert_inode(
        tx,
        tx.now_ns,
        ino=ino,
        generation=generation,
        kind=InodeKind.DIRECTORY,
        mode=mode,
        nlink=links,
        reserved=1,
        parent=parent,
    )
    # As the number is below the first that is handed out, so is the cookie.
    tx.run(sql.DIRENT_INSERT, parent=parent, name=name, ino=ino, cookie=ino)
    tx.touch(parent)
    tx.touch(ino)


class Installed(NamedTuple):
    """The result of an installation."""

    attr: Attr
    removed: RemovedName | None
    """What had the name before."""
    directory: Attr


class Install:
    """Gives a name in a reserved directory to a file that another process prepared.

    A first transaction makes the inode as an orphan. Then the prepared file becomes its data file,
    and is synced. A second transaction gives it the name. So a crash in between leaves an orphan,
    which the next start reclaims with its bytes, and no name ever leads to missing bytes.

    The transactions of files that are installed at the same time are one. Safe to use from several
    threads.

    Args:
        generation: generation of new inodes.
    """

    def __init__(self, writer: Writer, files: DataFiles, generation: int) -> None:
        self._writer = writer
        self._waiting: deque[Operation[Any]] = deque()
        self._running = threading.Lock()
        self._files = files
        self._generation = generation

    def run(
        self, cred: Cred, parent: int, name: bytes, prepared: bytes, wanted: SetAttr
    ) -> Installed:
        """Install a file, in place of what has the name.

        Raises NotFound when the prepared file is gone, as after a restart; AccessDenied when it
        belongs to another user than the server; ReadOnly, IsADirectory, Stale and what a directory
        change raises; OSError.

        Args:
            prepared: its name in ``incoming``.
            wanted: mode and owner.
        """
        check_name(prepared)
        path = self._files.incoming / os.fsdecode(prepared)
        try:
            status = path.lstat()
        except FileNotFoundError:
            raise NotFound from None
        if not stat.S_ISREG(status.st_mode):
            raise InvalidArgument
        if not os.access(path, os.R_OK | os.W_OK):
            raise AccessDenied
        orphan = Operation(make_orphan, cred, parent, status, wanted, self._generation)
        made = self._transact(orphan)
        try:
            self._files.take(path.name, made.ino, made.epoch)
            operation = Operation(name_orphan, cred, parent, name, made.ino)
            attr, removed = self._transact(operation)
        except BaseException:
            # Without an answer of the database it stays, and the next start reclaims it.
            if self._writer.run(names.reclaim, made.ino):
                self._files.remove(made.ino, made.epoch)
            raise
        return Installed(attr, removed, operation.directories[-1])

    def _transact(self, operation: Operation[T]) -> T:
        """Run an operation together with those of other threads that wait. Raises what it
        raised."""
        self._waiting.append(operation)
        with self._running:
            # Another thread may have run it while this one waited.
            operations = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if operations:
                self._writer.run_together(operations)
        return operation.outcome()


def make_orphan(
    tx: Tx, cred: Cred, parent: int, found: os.stat_result, wanted: SetAttr, generation: int
) -> Attr:
    """Make the inode of a prepared file. Raises ReadOnly, AccessDenied, NotADirectory, Stale."""
    _require(get_directory(tx, parent), cred)
    return rotation.insert_inode(
        tx,
        tx.now_ns,
        ino=tx.new_ino(),
        generation=generation,
        kind=InodeKind.REGULAR,
        mode=0o444 if wanted.mode is None else wanted.mode & 0o7777,
        nlink=0,
        uid=wanted.uid or 0,
        gid=wanted.gid or 0,
        reserved=1,
        size=found.st_size,
        used=found.st_blocks * 512,
        mtime_ns=found.st_mtime_ns,
        drained_version=1,
    )


def name_orphan(
    tx: Tx, cred: Cred, parent: int, name: bytes, ino: int
) -> tuple[Attr, RemovedName | None]:
    """Give an orphan a name, and take it from what has it. Raises as ``Install.run``."""
    check_new_name(parent, name)
    replaced = find(tx, parent, name)
    if replaced is not None and replaced.kind == InodeKind.DIRECTORY:
        raise IsADirectory
    directory = directory_changed(tx, parent)
    _require(directory, cred)
    if replaced is None:
        add_name(tx, parent, name, ino)
        removed = None
    else:
        # The name keeps its cookie, so a listing in progress shows the name once.
        tx.run(sql.DIRENT_REPLACE, the_parent=parent, the_name=name, new_ino=ino)
        removed = lose_name(tx, replaced)
    return count_name(tx, ino, 1), removed


def _require(directory: Attr, cred: Cred) -> None:
    """Require a reserved directory, and the gateway itself. Raises ReadOnly, NotADirectory."""
    attributes.require_entry_change(directory, cred)
    if not directory.reserved:
        raise ReadOnly


AT_ONCE = 256
"""The inodes of a transaction: 1 ms of a processor, and a wait for the disk."""
LOOK_COST = 4
"""A look into a directory takes as long as so many inodes."""

_PAGE = Statement(
    select(dirent.c.cookie, inode.c.ino, inode.c.kind)
    .select_from(dirent.join(inode, inode.c.ino == dirent.c.ino))
    .where(
        dirent.c.parent == b("parent"),
        dirent.c.cookie > b("after"),
        # What is in an import stays the gateway's own.
        ~exists().where(imported_prefix.c.top == inode.c.ino),
    )
    .order_by(dirent.c.cookie)
    .limit(b("most"))
)
_inos = given_numbers("inos")
_MARK = Statement(
    update(inode)
    .where(inode.c.ino.in_(select(_inos.c.value)), inode.c.reserved != b("wanted"))
    .values(reserved=b("wanted"))
)


def reserve(database: Database, top: int, on_page: Callable[[], None] = lambda: None) -> None:
    """Have only the gateway change an inode and what is below it. A file that has another name
    elsewhere is reserved there too.

    Raises TryAgain.

    Args:
        on_page: called after each transaction.
    """
    _sweep(database, top, True, on_page)


def give_back(database: Database, top: int, on_page: Callable[[], None] = lambda: None) -> None:
    """Let clients change an inode and what is below it. Parameters and errors as ``reserve``."""
    directories = _sweep(database, top, False, on_page)
    # Those further down were found later.
    directories.reverse()
    for at in range(0, len(directories), AT_ONCE):
        with database.writing() as session:
            _mark(session, directories[at : at + AT_ONCE], False)
        on_page()


def _sweep(database: Database, top: int, wanted: bool, on_page: Callable[[], None]) -> list[int]:
    """Mark what is below an inode: all of it and the inode itself to reserve it, or else all but
    the directories. Returns the inode and the directories below it."""
    directories = [top]
    at = after = 0
    inos = [top] if wanted else []
    while at < len(directories):
        room = AT_ONCE
        with database.writing() as session:
            while at < len(directories) and room > 0:
                rows = session.all(_PAGE, parent=directories[at], after=after, most=room)
                directories += (ino for _cookie, ino, kind in rows if kind == InodeKind.DIRECTORY)
                inos += (
                    ino for _cookie, ino, kind in rows if wanted or kind != InodeKind.DIRECTORY
                )
                if len(rows) < room:
                    at, after = at + 1, 0
                else:
                    after = rows[-1][0]
                room -= len(rows) + LOOK_COST
            _mark(session, inos, wanted)
        inos = []
        on_page()
    return directories


def _mark(session: Session, inos: list[int], wanted: bool) -> None:
    if session.run(_MARK, inos=numbers_of(inos), wanted=int(wanted)):
        journal.note(session, dict.fromkeys(inos, journal.CHANGED))
