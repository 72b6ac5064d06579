"""Service for files and directories: what is known of them, their names, work on their bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from sqlalchemy import and_, select

from gateway.catalogue.statements import IS_STORED
from gateway.common import clock
from gateway.common.errors import NotPossible
from gateway.common.models import Model, Nanoseconds, values_of
from gateway.common.text import encoded
from gateway.common.types import InodeKind, SetAttr
from gateway.config.settings import Settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.schema import reading
from gateway.db.statements import REKEY, inode, object_
from gateway.drain import queue
from gateway.drain.context import view_of
from gateway.lifecycle.retention import store
from gateway.namespace.lookup import Browser, NamedInode
from gateway.namespace.residency import HAS_CONTENT
from gateway.rpc.control import ControlSocket
from gateway.service import durability, paths
from gateway.service import queue as waiting_files
from gateway.service.jobs import Tell
from gateway.service.names import (
    Guard,
    Guarded,
    Names,
    RemovedTree,
    RpcCaller,
    below,
    is_a_directory,
    require_not_hidden,
    unguarded,
)
from gateway.service.paths import Child, PathInfo, path_of, resolve
from gateway.service.queue import WaitingFile
from gateway.service.residency import Evicted, Requested, Warmed, Warming, evicting

OBJECT = Statement(
    select(
        object_.c.key,
        object_.c.etag,
        object_.c.size,
        object_.c.checksum,
        object_.c.stored_ns,
    ).where(object_.c.ino == b("ino"))
)
STORED = Statement(
    select(IS_STORED, and_(*HAS_CONTENT))
    .select_from(inode.join(object_, object_.c.ino == inode.c.ino))
    .where(inode.c.ino == b("ino"))
)
ACTIONS_READ = 1000
"""The last actions of policies that are searched for those about a path."""
ACTIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class StoredObject(Model):
    """The object of a file in the bucket."""

    key: str = field(metadata={"examples": ["jobs/a/step-1/model.pt"]})
    etag: str
    size_bytes: int
    checksum: str | None = field(metadata={"examples": ["crc64nvme:0123456789abcdef"]})
    stored_ns: Nanoseconds


@dataclass(frozen=True, slots=True)
class Act(Model):
    """Something that a policy or a person did."""

    began_ns: Nanoseconds
    what: str = field(metadata={"examples": ["evict"]})
    author: str
    reason: str
    result: str | None
    """None: it is under way."""


@dataclass(frozen=True, slots=True)
class FileInfo(PathInfo):
    """A file, a directory, a link or a special file, with everything that is known of it."""

    waiting: WaitingFile | None
    """What the drain does with it, until it is done."""
    is_moving: bool
    """Whether its object has not followed a rename yet."""
    object: StoredObject | None
    """What the bucket has of it."""
    history: list[Act]
    """What was done lately with its checkpoint."""


@dataclass(frozen=True, slots=True)
class ChangedPath(Model):
    """What was made, changed or moved. It is not read again: if that failed, the change would seem
    to have failed too."""

    path: str
    """Where it is now."""


class Files(Protocol):
    """Files and directories. Symbolic links are followed only where that is said.

    Paths are those of the command line. Each method that takes one raises NotThere, NotPossible;
    those that change names raise ControlSocketClosed too: what was done before stays done. Long
    work tells how far it is (``progress``).
    """

    def get(self, path: str) -> FileInfo:
        """Return everything that is known of a file or directory."""

    def children(self, path: str, *, details: bool) -> Iterator[Child]:
        """Yield what is in a directory, in any order. Args: details, also what takes a query for
        each name."""

    def make(self, path: str, wanted: SetAttr, *, parents: bool) -> ChangedPath:
        """Make a directory.

        Args:
            wanted: mode and owner. None: root.
            parents: also make those that lead to it, and it may be there.
        """

    def set_attributes(self, path: str, wanted: SetAttr) -> ChangedPath:
        """Set mode, user or group of a file or directory."""

    def move(self, path: str, target: str, *, is_alone: bool, force: bool) -> ChangedPath:
        """Rename a file or directory, or move it into a directory.

        Args:
            target: a new name, or a directory.
            is_alone: whether nothing else is moved to the target, which may then be a new name.
            force: also to a name that the drain holds.
        """

    def remove(self, path: str, progress: Tell, *, recursive: bool, force: bool) -> RemovedTree:
        """Remove a file or directory.

        Args:
            recursive: also a directory, with everything in it.
            force: also the newest checkpoint of a run.
        """

    def evict(self, paths: Sequence[str], progress: Tell) -> Evicted:
        """Free the local disk of files that are in the bucket. Directories: of all files below.
        Symbolic links are followed here, and by the methods below."""

    def request(self, paths: Sequence[str]) -> Requested:
        """Ask for evicted files to be brought back, and do not wait for them."""

    def warm(self, paths: Sequence[str], progress: Tell) -> Warmed:
        """Bring evicted files back to the local disk. Directories: all files below."""

    def wait(self, path: str, progress: Tell, *, timeout_seconds: float | None = None) -> None:
        """Wait until the bucket alone could restore a file or a tree.

        Raises:
            NotPossible: it is not there or was removed meanwhile, or the time is over.
        """


class LocalFiles:
    """The files of this machine's gateway (``Files``).

    Args:
        author: of removals, for the record.
        open_control: returns the control socket, which changes names.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        browser: Browser,
        author: str,
        open_control: Callable[[], ControlSocket],
    ) -> None:
        self._settings = settings
        self._database = database
        self._browser = browser
        self._author = author
        self._open_control = open_control

    def get(self, path: str) -> FileInfo:
        with reading(self._database) as session:
            return read(self._settings, session, self._browser, path)

    def children(self, path: str, *, details: bool) -> Iterator[Child]:
        place = resolve(self._browser, self._settings, path)
        if not place.is_directory:
            raise NotPossible(f"{place.path}: it is no directory")
        above = path_of(self._settings, below(self._settings, path))
        browser = self._browser if details else None
        entries = self._browser.entries(place.found().attr.ino)
        return (paths.child(above, entry, browser) for entry in entries)

    def make(self, path: str, wanted: SetAttr, *, parents: bool) -> ChangedPath:
        names = self._names()
        (names.make_all if parents else names.make)(path, wanted)
        return changed_path(self._settings, path)

    def set_attributes(self, path: str, wanted: SetAttr) -> ChangedPath:
        self._names().set_attributes(path, wanted)
        return changed_path(self._settings, path)

    def move(self, path: str, target: str, *, is_alone: bool, force: bool) -> ChangedPath:
        guard = partial(require_not_hidden, self._settings, self._database, insists=force)
        made = self._names(guard).move(path, target, is_alone=is_alone)
        return changed_path(self._settings, made)

    def remove(self, path: str, progress: Tell, *, recursive: bool, force: bool) -> RemovedTree:
        names = self._names()
        place = names.find(path)
        if not place.is_directory:
            names.remove(place)
            return RemovedTree(encoded(path), False, 1, [], {})
        if not recursive:
            raise is_a_directory(path)
        trees = Guarded(self._settings, self._database, self._browser, names, self._open_control())
        return trees.remove(path, place, progress, author=self._author, insists=force)

    def _names(self, guard: Guard = unguarded) -> Names:
        return Names(self._settings, self._browser, RpcCaller(self._open_control()), guard)

    def evict(self, paths: Sequence[str], progress: Tell) -> Evicted:
        control = self._open_control()
        with evicting(self._settings, self._database, self._browser, control) as eviction:
            return eviction.run(paths, progress)

    def request(self, paths: Sequence[str]) -> Requested:
        return self._asked(paths).requested()

    def warm(self, paths: Sequence[str], progress: Tell) -> Warmed:
        return self._asked(paths).wait(progress, time.sleep)

    def _asked(self, paths: Sequence[str]) -> Warming:
        warming = Warming(self._settings, self._database)
        warming.ask(self._browser, paths)
        return warming

    def wait(self, path: str, progress: Tell, *, timeout_seconds: float | None = None) -> None:
        until = None if timeout_seconds is None else clock.monotonic_seconds() + timeout_seconds
        top = durability.find(self._settings, path)
        with waiting_files.opened(self._settings) as context:

            def rest(seconds: float) -> None:
                left_seconds = seconds if until is None else until - clock.monotonic_seconds()
                if timeout_seconds is not None and left_seconds <= 0:
                    raise durability.late(path, timeout_seconds, durability.why(context, top))
                time.sleep(min(seconds, max(left_seconds, 0.01)))

            durability.wait(context, top, path, progress, rest)


def changed_path(settings: Settings, path: str) -> ChangedPath:
    """Return what is answered to a change of a path of the command line."""
    return ChangedPath(path_of(settings, below(settings, path)))


def read(settings: Settings, session: Session, browser: Browser, path: str) -> FileInfo:
    """Return everything that is known of a path of the command line. Raises NotThere, NotPossible,
    TryAgain."""
    entry = resolve(browser, settings, path).found()
    return model(settings, session, browser, entry, below(settings, path))


def model(
    settings: Settings, session: Session, browser: Browser, entry: NamedInode, below: bytes
) -> FileInfo:
    """Return everything that is known of an entry. Args: below, its path below the export. Raises
    TryAgain."""
    ino = entry.attr.ino
    waiting = None
    if entry.attr.kind == InodeKind.REGULAR:
        queue_entry = queue.of_file(view_of(settings, session), ino, settings.drain_ahead_ns)
        if queue_entry is not None:
            waiting = waiting_files.model(settings, queue_entry, clock.now_ns())
    return FileInfo(
        **values_of(paths.path_info(browser, path_of(settings, below), entry)),
        waiting=waiting,
        is_moving=session.one(REKEY, ino=ino) is not None,
        object=_object(session, ino),
        history=_history(session, below),
    )


def in_bucket(session: Session, ino: int) -> str | None:
    """Return what the bucket has of a file: its ``present`` version, the same ``unsettled`` (a move
    or an indeterminate write is left), an ``older`` one, or nothing."""
    row = session.one(STORED, ino=ino)
    if row is None:
        return None
    is_stored, has_content = row
    return "present" if is_stored else "unsettled" if has_content else "older"


def _object(session: Session, ino: int) -> StoredObject | None:
    row = session.one(OBJECT, ino=ino)
    return None if row is None else StoredObject(*row)


def _history(session: Session, below: bytes) -> list[Act]:
    """Return what policies and people did lately with the checkpoint that has a path."""
    return [
        Act(action.began_ns, action.what, action.author, action.reason, action.result)
        for action in store.actions(session, ACTIONS_READ)
        if (below + b"/").startswith(action.path + b"/")
    ][:ACTIONS_SHOWN]
