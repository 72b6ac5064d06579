"""Reads the receipts that are there, and changes them through the door of the NFS server.

Each change is one that clients see as a whole: a link is made under another name and renamed over
the old one, and a document is installed in its place.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from sqlalchemy import select

from gateway.data.layout import DataFiles
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.models import CHECKPOINTS_INO, RESERVED_INO, RESERVED_NAME, ROOT_INO, RUNS_INO
from gateway.door.door import Door
from gateway.door.frames import Op, Request
from gateway.errors import SpillwayError
from gateway.receipts.wanted import Document, Link, Path, Receipt
from gateway.text import printable
from gateway.types import GATEWAY_CRED, Attr, Kind, SetAttr

TOPS: dict[Path, int] = {(b"runs",): RUNS_INO, (b"checkpoints",): CHECKPOINTS_INO}
_NEW = b".new~"
"""Begins the name of a link that is about to replace another one."""
_IN = Statement(
    select(
        sql.dirent.c.name, sql.inode.c.ino, sql.inode.c.kind, sql.inode.c.target, sql.inode.c.epoch
    )
    .select_from(sql.dirent.join(sql.inode, sql.dirent.c.ino == sql.inode.c.ino))
    .where(sql.dirent.c.parent == b("parent"))
)


_LINK = Statement(
    select(sql.inode.c.target)
    .select_from(sql.dirent.join(sql.inode, sql.dirent.c.ino == sql.inode.c.ino))
    .where(sql.dirent.c.parent == b("parent"), sql.dirent.c.name == b("name"))
)


class Refused(SpillwayError):
    """The door did not do what was asked. Parameters: what; number, an errno."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: {os.strerror(number)}")
        self.errno = number


class Tree:
    """The receipts of one namespace.

    Parameters: database; files.
    """

    def __init__(self, database: Database, files: DataFiles) -> None:
        self._database = database
        self._files = files
        self._directories = {(): RESERVED_INO, **TOPS}

    def is_ours(self) -> bool:
        """Return whether the namespace has the gateway's own directory. Raises TryAgain."""
        with self._session() as session:
            row = session.one(sql.ENTRY, parent=ROOT_INO, name=RESERVED_NAME)
        return row is not None and row[0] == RESERVED_INO

    def read(self) -> dict[Path, Receipt]:
        """Return all receipts of checkpoints, and remember their directories. Raises TryAgain."""
        self._directories = {(): RESERVED_INO, **TOPS}
        found: dict[Path, Receipt] = {}
        waiting = list(TOPS.items())
        while waiting:
            above, directory = waiting.pop()
            with self._session() as session:
                rows = session.all(_IN, parent=directory)
            for name, ino, kind, target, epoch in rows:
                path = (*above, bytes(name))
                if kind == Kind.DIRECTORY:
                    self._directories[path] = ino
                    waiting.append((path, ino))
                elif kind == Kind.SYMLINK:
                    found[path] = Link(bytes(target))
                else:
                    found[path] = Document(self._text(ino, epoch))
        return found

    def links(self, paths: Sequence[Path]) -> dict[Path, Receipt]:
        """Return the links that are there. Raises TryAgain.

        Parameters: paths of the links that a run can have. If its directory has none of them, the
        first one is returned without a target, so that the directory is removed with it.
        """
        parent = self._directories.get(paths[0][:-1])
        if parent is None:
            return {}
        with self._session() as session:
            rows = {path: session.one(_LINK, parent=parent, name=path[-1]) for path in paths}
        found: dict[Path, Receipt] = {
            path: Link(bytes(row[0])) for path, row in rows.items() if row is not None
        }
        return found or {paths[0]: Link(b"")}

    def text(self, name: bytes) -> bytes:
        """Return the text of a document directly in ``/.spillway``, or b"". Raises TryAgain."""
        with self._session() as session:
            row = session.one(sql.LOOKUP, parent=RESERVED_INO, name=name)
        if row is None:
            return b""
        attr = Attr(*row)
        return self._text(attr.ino, attr.epoch)

    def _text(self, ino: int, epoch: int) -> bytes:
        with suppress(FileNotFoundError):
            return self._files.path(ino, epoch).read_bytes()
        return b""  # as if it had another text: it is written again

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with self._database.reader() as connection:
            yield Session(connection, self._database.dialect)

    def put(self, door: Door, receipts: Iterable[tuple[Path, Receipt]]) -> list[Refused]:
        """Make or replace receipts. The server does it at once for all of them, so they share its
        commits. Returns why some were refused. Raises DoorClosed, OSError."""
        refused: list[Refused] = []
        requests: list[Request] = []
        seen: dict[tuple[int, bytes], int] = {}
        with ExitStack() as prepared:
            for path, receipt in receipts:
                try:
                    parent = self._directory(door, path[:-1])
                except Refused as exc:
                    refused.append(exc)
                    continue
                if isinstance(receipt, Document):
                    requests.append(self._install(prepared, parent, path[-1], receipt.text))
                else:
                    requests.append(_symlink(parent, path[-1], receipt.target))
                    seen[parent, requests[-1].name] = receipt.seen
            made = [one for one in _done(door, requests, refused) if one.op is Op.SYMLINK]
        renames = [_renamed(one, seen[one.ino, one.name]) for one in made]
        done = _done(door, renames, refused)
        for one in renames:
            if one not in done:
                _ask(door, one._replace(op=Op.REMOVE, ino2=0, change=0), errno.ENOENT)
        return refused

    def _install(self, prepared: ExitStack, parent: int, name: bytes, text: bytes) -> Request:
        """Prepare a document. Returns the request that gives it its name."""
        self._files.incoming.mkdir(mode=0o700, exist_ok=True)
        path = self._files.incoming / secrets.token_hex(8)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        prepared.callback(path.unlink, missing_ok=True)
        with os.fdopen(fd, "wb") as file:
            file.write(text)
        wanted = SetAttr(mode=0o444)
        return Request(Op.INSTALL, parent, name, 0, os.fsencode(path.name), 0, wanted, GATEWAY_CRED)

    def remove(self, door: Door, path: Path) -> None:
        """Remove a receipt, and then the directories above that are empty. Raises Refused,
        DoorClosed."""
        parent = self._directories.get(path[:-1])
        if parent is None:
            return
        _ask(door, Request(Op.REMOVE, parent, path[-1], cred=GATEWAY_CRED), errno.ENOENT)
        for depth in range(len(path) - 1, 1, -1):
            above = self._directories.get(path[: depth - 1])
            if above is None:
                return
            request = Request(Op.REMOVE, above, path[depth - 1], cred=GATEWAY_CRED)
            if _ask(door, request, errno.ENOENT, errno.ENOTEMPTY) == errno.ENOTEMPTY:
                return
            self._directories.pop(path[:depth], None)

    def _directory(self, door: Door, path: Path) -> int:
        if (known := self._directories.get(path)) is not None:
            return known
        above = self._directory(door, path[:-1])
        wanted = SetAttr(mode=0o555)
        make = Request(Op.MKDIR, above, path[-1], wanted=wanted, cred=GATEWAY_CRED)
        look = Request(Op.LOOKUP, above, path[-1], cred=GATEWAY_CRED)
        for request in (make, look):
            [answer] = door.run([request])
            if answer.errno == 0 and answer.attr is not None:
                self._directories[path] = answer.attr.ino
                return answer.attr.ino
            if answer.errno != errno.EEXIST:
                break
        raise Refused(_shown(path), answer.errno)


def _symlink(parent: int, name: bytes, target: bytes) -> Request:
    # What a crash left under this name was removed by the comparison that came first.
    return Request(Op.SYMLINK, parent, _NEW + name, name2=target, cred=GATEWAY_CRED)


def _renamed(made: Request, seen: int) -> Request:
    """Return the request that puts a new link in its place, while it leads to what was seen."""
    name = made.name.removeprefix(_NEW)
    return Request(Op.RENAME, made.ino, made.name, made.ino, name, seen, cred=GATEWAY_CRED)


def _done(door: Door, requests: Sequence[Request], refused: list[Refused]) -> list[Request]:
    """Have requests done at once. Returns those that were, and adds the others to ``refused``.
    Raises DoorClosed."""
    done: list[Request] = []
    for request, answer in zip(requests, door.run(requests), strict=True):
        if answer.errno:
            refused.append(_refusal(request, answer.errno))
        else:
            done.append(request)
    return done


def _ask(door: Door, request: Request, *accepted: int) -> int:
    """Have a request done. Returns 0, or an errno that is accepted. Raises Refused, DoorClosed."""
    [answer] = door.run([request])
    if answer.errno and answer.errno not in accepted:
        raise _refusal(request, answer.errno)
    return answer.errno


def _refusal(request: Request, number: int) -> Refused:
    return Refused(f"{request.op.name} {_shown((request.name,))}", number)


def _shown(path: Path) -> str:
    return printable(b"/".join(path))
