"""Checkpoints that clients removed, and that the trash holds until a newer one is durable.

The NFS server puts them into the trash, file by file (gateway.namespace.rotation). ``why_due`` says
when one goes. ``TrashMerge`` brings its files back, each with a rename of its own, because the rest
of the checkpoint may still be at its path. Nothing is replaced, and a file whose name is taken
stays in the trash.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import select, update

from gateway.common.errors import TrashRefused
from gateway.common.text import printable
from gateway.common.types import GATEWAY_CRED, Attr, InodeKind, SetAttr
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.models import TRASH_INO
from gateway.db.statements import IS_DIRTY, dirent, inode, trash
from gateway.lifecycle.retention import store
from gateway.lifecycle.trash import rows
from gateway.lifecycle.trash.rows import TrashRow, TrashState
from gateway.namespace import fingerprint, lookup
from gateway.namespace.lookup import Browser
from gateway.namespace.rotation import newer_than
from gateway.rpc.frames import Op, RpcReply, RpcRequest

HELD = "held for a newer checkpoint"
NEWER = "a newer one is durable"
GRACE = "grace is over"
TOGETHER = 512
"""The renames that are asked for at a time."""
SHOWN = 5
"""The taken names that are told."""

HAS_NEWER = Statement(select(newer_than(b("run"), b("completion"))))
DIRTY_IN = Statement(
    select(dirent.c.name)
    .select_from(dirent.join(inode, inode.c.ino == dirent.c.ino))
    .where(dirent.c.parent == b("parent"), *IS_DIRTY)
)
RELEASE = Statement(
    update(trash)
    .where(
        trash.c.id == b("the_id"),
        trash.c.since_ns == b("since_ns"),
        trash.c.rotated.is_not(None),
        trash.c.released_by.is_(None),
    )
    .values(released_by=b("who"))
)


def why_due(session: Session, entry: TrashRow, now_ns: int) -> str | None:
    """Return why something in the trash is due to be removed, or None."""
    is_over = now_ns >= entry.expires_ns
    if entry.rotated is None:
        return GRACE if is_over or entry.state == TrashState.EXPIRING else None
    if entry.released_by is not None:
        return f"{entry.released_by} released it"
    if entry.run_ino is not None and session.one(sql.GET, ino=entry.run_ino) is None:
        return "its run was removed"
    if is_over or entry.state == TrashState.EXPIRING:
        return "its hours are over"
    return NEWER if _has_newer(session, entry) else None


def _has_newer(session: Session, entry: TrashRow) -> bool:
    """Return whether a newer checkpoint of its run is durable and can be trusted, and the bucket
    has what names it. Until then a file like ``latest`` in the bucket may name the one that is
    held."""
    row = session.one(HAS_NEWER, run=entry.run, completion=entry.completion)
    if row is None or not row[0] or entry.run_ino is None:
        return False
    waiting = session.all(DIRTY_IN, parent=entry.run_ino)
    return not any(_is_tracker(bytes(name)) for (name,) in waiting)


def _is_tracker(name: bytes) -> bool:
    return name.startswith(b"latest") or name == b"checkpoint"


def release(database: Database, entry: TrashRow, by: str) -> None:
    """Let a checkpoint go without a newer one. Raises TrashRefused if it is not held."""
    with database.writing() as session:
        if not session.run(RELEASE, the_id=entry.id, since_ns=entry.since_ns, who=by):
            raise TrashRefused(f"{entry.id} is not held for a newer checkpoint")
        action = store.begin(session, rows.RELEASE, entry, by, "a person released it")
        store.end(session, action, "it need not wait for a newer one")


class _Member(NamedTuple):
    """A file or link in the trash, or a directory."""

    parent: int
    name: bytes
    attr: Attr
    way: tuple[bytes, ...]
    """The directories below the checkpoint that lead to it."""


class TrashMerge:
    """Brings the files of one checkpoint back to a path, beside what is there.

    Args:
        run: asks over the control socket.
    """

    def __init__(
        self,
        browser: Browser,
        run: Callable[[Sequence[RpcRequest]], list[RpcReply]],
        entry: TrashRow,
    ) -> None:
        self._browser = browser
        self._run = run
        self._entry = entry
        members = list(self._below(entry.ino, ()))
        self._directories = [
            member for member in members if member.attr.kind == InodeKind.DIRECTORY
        ]
        self._members = [member for member in members if member.attr.kind != InodeKind.DIRECTORY]

    def require_free(self, session: Session, parts: Sequence[bytes]) -> None:
        """Require that no name of a file is taken, nor that of a directory by something else.
        Raises TrashRefused."""
        taken = [
            member
            for member in self._members
            if _is_taken(session, [*parts, *member.way], member.name)
        ]
        if taken:
            raise TrashRefused(_message(self._entry, taken, "their names are taken: --to PATH"))

    def run(self, number_of: Callable[[int], int], parent: int, name: bytes) -> list[_Member]:
        """Move what is there. Returns the members that stay, because their names were taken in this
        moment. Raises ControlSocketClosed, TryAgain.

        Args:
            number_of: returns the number of the fingerprint of an inode.
            parent, name: those of the checkpoint.
        """
        top = self._directory(parent, name, self._entry_attr())
        places: dict[tuple[bytes, ...], int | None] = {(): top}
        for directory in self._directories:
            above = places.get(directory.way)
            path = (*directory.way, directory.name)
            places[path] = (
                None if above is None else self._directory(above, directory.name, directory.attr)
            )
        left: list[_Member] = []
        for start in range(0, len(self._members), TOGETHER):
            some = self._members[start : start + TOGETHER]
            requests = [
                RpcRequest(
                    *(Op.RENAME, member.parent, member.name, places[member.way] or 0, member.name),
                    change=number_of(member.attr.ino),
                    cred=GATEWAY_CRED,
                )
                for member in some
            ]
            answers = self._run(requests)
            left += [
                member for member, answer in zip(some, answers, strict=True) if answer.errno != 0
            ]
        return left

    def end(self) -> None:
        """Remove the directories in the trash that are empty by now."""
        for directory in reversed(self._directories):
            self._empty(directory.parent, directory.name, directory.attr.ino)
        self._empty(TRASH_INO, self._entry.id.encode(), self._entry.ino)

    def _empty(self, parent: int, name: bytes, ino: int) -> None:
        self._run([RpcRequest(Op.REMOVE, parent, name, ino, cred=GATEWAY_CRED)])

    def _entry_attr(self) -> Attr:
        named_inode = self._browser.entry(TRASH_INO, self._entry.id.encode())
        if named_inode is None or named_inode.attr.ino != self._entry.ino:
            raise TrashRefused(f"{self._entry.id} is not in the trash any more")
        return named_inode.attr

    def _directory(self, parent: int, name: bytes, like: Attr) -> int | None:
        """Return the directory with a name, which is made if it is missing, or None if the name is
        another inode's."""
        named_inode = self._browser.entry(parent, name)
        if named_inode is None:
            wanted = SetAttr(mode=like.mode, uid=like.uid, gid=like.gid)
            request = RpcRequest(Op.MKDIR, parent, name, wanted=wanted, cred=GATEWAY_CRED)
            [answer] = self._run([request])
            if answer.errno not in (0, errno.EEXIST):
                raise TrashRefused(
                    f"{self._entry.id} stays: {printable(name)}: {os.strerror(answer.errno)}"
                )
            named_inode = self._browser.entry(parent, name)
        is_directory = named_inode is not None and named_inode.attr.kind == InodeKind.DIRECTORY
        return named_inode.attr.ino if named_inode is not None and is_directory else None

    def _below(self, ino: int, way: tuple[bytes, ...]) -> Iterator[_Member]:
        """Yield what is in a directory of the trash, each directory before what is in it."""
        for entry in self._browser.entries(ino):
            yield _Member(ino, entry.name, entry.attr, way)
            if entry.attr.kind == InodeKind.DIRECTORY:
                yield from self._below(entry.attr.ino, (*way, entry.name))


def _is_taken(session: Session, way: Sequence[bytes], name: bytes) -> bool:
    """Return whether a path is another inode's, or something on the way is no directory."""
    attrs = list(lookup.way_down(session, (*way, name)))
    return len(attrs) > len(way) or (bool(attrs) and attrs[-1].kind != InodeKind.DIRECTORY)


def _message(entry: TrashRow, members: Sequence[_Member], why: str) -> str:
    paths = ", ".join(
        printable(b"/".join((*member.way, member.name))) for member in members[:SHOWN]
    )
    more = f" and {len(members) - SHOWN} more" if len(members) > SHOWN else ""
    return f"{entry.id} stays in the trash: {paths}{more}: {why}"


def merge(
    database: Database,
    browser: Browser,
    run: Callable[[Sequence[RpcRequest]], list[RpcReply]],
    entry: TrashRow,
    parts: Sequence[bytes],
    parent: int,
    by: str,
) -> None:
    """Take a checkpoint back file by file, to a path where some of it may still be.

    Raises TrashRefused if something stays in the trash; ControlSocketClosed, TryAgain.

    Args:
        run: asks over the control socket.
        parts: parts of the path.
        parent: the directory of its last name.
        by: the person.
    """
    work = TrashMerge(browser, run, entry)
    with database.reading() as session:
        work.require_free(session, parts)
    with database.writing() as session:
        action = store.begin(session, rows.UNDELETE, entry, by, "a person took it back")
    result = "interrupted: some of it may be back"
    try:

        def number_of(ino: int) -> int:
            with database.reading() as session:
                return fingerprint.of(session, ino).number

        left = work.run(number_of, parent, parts[-1])
        work.end()
        result = "back" if not left else f"{len(left)} of its files stay in the trash"
    except TrashRefused as exc:
        result = f"not taken back: {exc}"
        raise
    finally:
        with database.writing() as session:
            store.end(session, action, result)
    if left:
        raise TrashRefused(_message(entry, left, "their names were taken a moment ago"))
