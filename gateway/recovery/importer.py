"""Import of the objects of other programs: files that clients read and only the gateway changes.

The bucket is listed page by page, and some of what was listed becomes files in one transaction,
which also saves the key after which the listing continues. So a process that is killed is followed
by one that makes the rest. After each transaction the NFS server is told which directories have
other names now, before the next one begins: it keeps names, and does not see what others write. The
row of the import has these directories, in case the process is killed in between.

The first listing adds files. A later one also compares: files of new objects are added, one whose
object changed is replaced (gateway.recovery.import_rows), and one whose object was not listed is
noted as gone, and stays. That needs a whole listing, so a later listing that was killed begins
again; it writes nothing of what is as it was. Nothing depends on the order of keys.
"""

from __future__ import annotations

import errno
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from gateway.common import clock, failpoints
from gateway.common.errors import (
    ControlSocketClosed,
    NamespaceError,
    SpillwayError,
    StoreError,
    StoreRefused,
    UserError,
)
from gateway.common.text import shown
from gateway.common.types import GATEWAY_CRED, InodeKind, Residency
from gateway.config.settings import Settings
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.models import TRASH_INO
from gateway.db.writer import Effects, Ids, Tx
from gateway.namespace import identity, names, rotation
from gateway.namespace.lookup import Browser, find
from gateway.objectstore.imported import ImportedStore, settings_of
from gateway.objectstore.objects import Etag, ListedObject
from gateway.objectstore.s3 import S3Store
from gateway.recovery import import_keys, import_rows
from gateway.recovery.bucket_scan import InodeSet
from gateway.recovery.import_keys import KeyPath
from gateway.recovery.import_rows import (
    EXAMPLES_MAX,
    Advance,
    ImportedRow,
    ImportRow,
    ImportState,
    staged_name,
)
from gateway.rpc import control
from gateway.rpc.control import ControlSocket
from gateway.rpc.frames import Op, RpcRequest
from gateway.rpc.removal import TreeRemoval

log = logging.getLogger("recovery")

TOGETHER = 250
"""The objects of one transaction, for which the NFS server waits."""
DIRECTORIES_MAX = 10_000
"""The directories whose numbers are remembered."""
ROWS_AT_ONCE = 1000
POLL_SECONDS = 1.0
RETRY_SECONDS = 5.0

OpenControl = Callable[[], AbstractContextManager[ControlSocket]]


class _Ended(SpillwayError):
    """A person wants something else of the import, or it is stopped."""


@dataclass
class _Listing:
    """A listing that is under way."""

    row: ImportRow
    """The import, as it was when the listing began."""
    store: S3Store
    after: str
    """The last key whose object is done."""
    is_whole: bool
    """Whether it began with the first key. Only then it shows what is gone."""
    left_out: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)
    untold: Collection[int] = ()
    """The directories that the NFS server has to be told of."""
    waiting: list[ListedObject] = field(default_factory=list)
    """What was listed and is not done."""
    pages: Iterator[list[ListedObject]] | None = None
    seen: InodeSet = field(default_factory=InodeSet)
    """The files whose objects were listed."""
    directories: OrderedDict[tuple[bytes, ...], int] = field(default_factory=OrderedDict)
    """Some of the directories of the import, by path."""

    @property
    def is_first(self) -> bool:
        return self.row.ended_ns is None


class _Judged(NamedTuple):
    """What is to be done about some listed objects."""

    new: list[tuple[ListedObject, KeyPath]]
    directories: list[KeyPath]
    changed: list[tuple[ListedObject, ImportedRow]]
    """Each with the file that is replaced."""
    replacing: list[tuple[int, ImportedRow]]
    """Files that an earlier process has made, each with the one that it replaces."""
    unwanted: list[int]
    """Files that were to replace others, and are of a version that is not there any more."""
    back: list[int]
    """The files that were gone."""
    left_out: list[tuple[str, str]]

    @property
    def is_nothing(self) -> bool:
        return not any(self[:-1])


class Importer:
    """The imports of one gateway, one after the other. Not safe to use from several threads.

    Args:
        settings: of the gateway.
        database: of the gateway.
        stop: ends a step early.
        open_control: connects to the control socket.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        stop: threading.Event,
        open_control: OpenControl | None = None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._stop = stop
        self._open_control = open_control or partial(
            control.opened, settings, control.BACKGROUND_SECONDS
        )
        self._listings: dict[int, _Listing] = {}
        """Those that are under way, by the directory of the import."""
        self._not_before: dict[int, float] = {}
        """Monotonic seconds before which an import waits that failed."""
        self._ids = Ids()
        self._generation = secrets.randbits(62)

    def step(self) -> float:
        """Do some of what is to be done. Returns after how many seconds there may be more."""
        with self._database.reading() as session:
            rows = import_rows.every(session)
        tops = {row.top for row in rows}
        self._listings = {top: one for top, one in self._listings.items() if top in tops}
        now = clock.monotonic_seconds()
        for row in rows:
            if row.state == ImportState.WHOLE or self._not_before.get(row.top, now) > now:
                continue
            try:
                identity.require_surroundings(self._settings)
                if self._work(row):
                    return 0.0
            except _Ended:
                self._listings.pop(row.top, None)
                return 0.0
            except (UserError, StoreError, ControlSocketClosed, NamespaceError, OSError) as exc:
                self._failed(row, exc)
        return POLL_SECONDS

    def _work(self, row: ImportRow) -> bool:
        """Do some work of an import. Returns whether there was any."""
        match row.state:
            case ImportState.LISTING:
                self._list(row)
            case ImportState.REMOVING:
                self._remove(row)
            case _:
                return False
        return True

    def _failed(self, row: ImportRow, exc: Exception) -> None:
        """Say why an import waits. What was listed and is not done is done later."""
        self._ids.forget()
        self._not_before[row.top] = clock.monotonic_seconds() + RETRY_SECONDS
        listing = self._listings.get(row.top)
        if listing is not None:
            listing.pages = None
            listing.waiting = []
            if isinstance(exc, StoreRefused):
                listing.store.reload()
        if row.error != str(exc):
            log.warning("the import of %s waits: %s", row.url, exc)
        try:
            with self._database.writing() as session:
                import_rows.set_error(session, row.top, str(exc))
        except NamespaceError as database_exc:
            log.warning("the import of %s waits for the database: %s", row.url, database_exc)

    # Listings.

    def _list(self, row: ImportRow) -> None:
        listing = self._listing_of(row)
        if listing.untold:
            self._tell(listing)
        objects = self._next(listing)
        if not objects:
            self._end(listing)
            return
        self._take(listing, objects)

    def _listing_of(self, row: ImportRow) -> _Listing:
        """Return the listing of an import: that under way, or another one."""
        if (found := self._listings.get(row.top)) is not None:
            return found
        after = (row.last_key or "") if row.ended_ns is None else ""
        store = ImportedStore(settings_of(self._settings, row.bucket))
        listing = _Listing(row, store, after, is_whole=not after, untold=row.untold_inos)
        if after:
            listing.left_out, listing.examples = row.left_out, row.left_out_first
        self._listings[row.top] = listing
        return listing

    def _next(self, listing: _Listing) -> list[ListedObject]:
        """Return the next objects. None are left if it is empty. Raises StoreError."""
        below = import_keys.below(listing.row.prefix)
        while not listing.waiting:
            if listing.pages is None:
                listing.pages = listing.store.pages(below, listing.after)
            page = next(listing.pages, None)
            if page is None:
                return []
            listing.waiting = page
        return listing.waiting[:TOGETHER]

    def _take(self, listing: _Listing, objects: Sequence[ListedObject]) -> None:
        """Make files of some objects, and tell the NFS server."""
        judged = self._judge(listing, objects)
        last_key = objects[-1].key
        renames = list(judged.replacing)
        if listing.is_first or not judged.is_nothing:
            renames += self._write(listing, judged, last_key)
        if renames:
            self._replace(renames)
        listing.left_out += len(judged.left_out)
        listing.examples += judged.left_out[: EXAMPLES_MAX - len(listing.examples)]
        listing.after = last_key
        listing.waiting = listing.waiting[len(objects) :]
        if listing.untold:
            self._tell(listing)

    def _judge(self, listing: _Listing, objects: Sequence[ListedObject]) -> _Judged:
        judged = _Judged([], [], [], [], [], [], [])
        paths: list[tuple[ListedObject, KeyPath]] = []
        for listed in objects:
            path = import_keys.path_of(listing.row.prefix, listed)
            if isinstance(path, str):
                judged.left_out.append((shown(listed.key), path))
            elif path.is_directory:
                judged.directories.append(path)
            else:
                paths.append((listed, path))
        with self._database.reading() as session:
            keys = [listed.key for listed, _path in paths]
            rows = import_rows.rows_at(session, listing.row.top, keys)
        for listed, path in paths:
            found = rows.get(listed.key, ())
            placed = next((row for row in found if not row.is_staged), None)
            staged = next((row for row in found if row.is_staged), None)
            if placed is None:
                judged.new.append((listed, path))
            else:
                self._compare(listing, judged, listed, placed, staged)
        return judged

    def _compare(
        self,
        listing: _Listing,
        judged: _Judged,
        listed: ListedObject,
        placed: ImportedRow,
        staged: ImportedRow | None,
    ) -> None:
        """Compare an object with its file.

        Args:
            placed: the file.
            staged: one that an earlier process made to replace it.
        """
        listing.seen.add(placed.ino)
        if _is_same(placed, listed):
            judged.unwanted.extend([] if staged is None else [staged.ino])
            judged.back.extend([] if placed.gone_ns is None else [placed.ino])
        elif staged is not None and _is_same(staged, listed):
            listing.seen.add(staged.ino)
            judged.replacing.append((staged.ino, placed))
        else:
            judged.unwanted.extend([] if staged is None else [staged.ino])
            judged.changed.append((listed, placed))

    def _write(
        self, listing: _Listing, judged: _Judged, last_key: str
    ) -> list[tuple[int, ImportedRow]]:
        """Write what was judged, in one transaction. Returns the files that are to replace others,
        each with that one."""
        effects = Effects()
        try:
            with self._database.reader() as connection, self._database.transaction(connection):
                tx = Tx(connection, self._database.dialect, self._ids, "import", effects)
                made = _Rows(tx, self._ids, listing, self._generation)
                for path in judged.directories:
                    made.directory(path.parts, path)
                for listed, path in judged.new:
                    made.file(listed, path)
                import_rows.delete_staged(tx, judged.unwanted)
                import_rows.mark_back(tx, judged.back)
                renames = [(made.stage(listed), old) for listed, old in judged.changed]
                made.write()
                judged.left_out.extend(made.left_out)
                known = [*listing.examples, *judged.left_out][:EXAMPLES_MAX]
                advanced = import_rows.advance(
                    tx,
                    listing.row.top,
                    Advance(
                        last_key if listing.is_first else None,
                        made.untold,
                        made.files,
                        made.size,
                        listing.left_out + len(judged.left_out),
                        known,
                    ),
                )
                if not advanced:
                    raise _Ended
                journal.note(tx, effects.touched)
                failpoints.hit_counted(failpoints.IMPORT.format(when="rows"))
        except BaseException:
            self._ids.forget()
            listing.directories.clear()
            raise
        listing.untold = made.untold
        return renames

    def _replace(self, renames: Sequence[tuple[int, ImportedRow]]) -> None:
        """Put files in the places of older ones. Raises UserError, ControlSocketClosed."""
        failpoints.hit_counted(failpoints.IMPORT.format(when="changed"))
        requests = [
            RpcRequest(
                *(Op.RENAME, TRASH_INO, staged_name(ino), old.parent, old.name),
                cred=GATEWAY_CRED,
            )
            for ino, old in renames
        ]
        with self._open_control() as opened:
            answers = opened.run(requests)
        for answer in answers:
            # Nothing is left of one that an earlier request moved whose answer was lost.
            if answer.errno not in (0, errno.ENOENT):
                raise UserError(
                    f"the NFS server does not replace a file that changed (errno {answer.errno}): "
                    "look at its log"
                )

    def _tell(self, listing: _Listing) -> None:
        """Have the NFS server forget what it knows of directories that changed. Raises UserError,
        ControlSocketClosed."""
        requests = [RpcRequest(Op.GETATTR, ino) for ino in listing.untold]
        with self._open_control() as opened:
            answers = opened.run(requests)
        for answer in answers:
            if answer.errno not in (0, errno.ESTALE):
                raise UserError(
                    f"the NFS server does not look at new names (errno {answer.errno}): look at "
                    "its log"
                )
        listing.untold = ()
        failpoints.hit_counted(failpoints.IMPORT.format(when="told"))

    def _end(self, listing: _Listing) -> None:
        """End a listing: note which files are gone, and count."""
        failpoints.hit_counted(failpoints.IMPORT.format(when="listed"))
        top = listing.row.top
        if listing.is_whole and not listing.is_first:
            after = 0
            while True:
                with self._database.reading() as session:
                    rows = import_rows.rows_after(session, top, after, ROWS_AT_ONCE)
                gone = [ino for ino, since in rows if since is None and ino not in listing.seen]
                if gone:
                    with self._database.writing() as session:
                        import_rows.mark_gone(session, gone, clock.now_ns())
                if len(rows) < ROWS_AT_ONCE:
                    break
                after = rows[-1][0]
        with self._database.writing() as session:
            import_rows.end(
                session, listing.row, clock.now_ns(), listing.left_out, listing.examples
            )
        del self._listings[listing.row.top]

    # Removals.

    def _remove(self, row: ImportRow) -> None:
        """Remove the files of an import, after the directory has left the clients' sight."""
        with self._database.reading() as session:
            entry = import_rows.entry_of(session, row.top)
        if entry is None:
            raise UserError(f"the directory of {row.url} has no name: run: spillway fsck --repair")
        name = staged_name(row.top)
        with self._open_control() as opened:
            if entry != (TRASH_INO, name):
                [answer] = opened.run(
                    [RpcRequest(Op.RENAME, *entry, TRASH_INO, name, cred=GATEWAY_CRED)]
                )
                if answer.errno != 0:
                    raise UserError(
                        f"the NFS server does not take {row.url} out of the clients' sight "
                        f"(errno {answer.errno}): look at its log"
                    )
            with Browser(self._settings) as browser:
                removal = TreeRemoval(browser, opened.run, self._on_removed, GATEWAY_CRED)
                removal.tree(TRASH_INO, name, row.top)
        if removal.failures:
            path, why = removal.failures[0]
            raise UserError(f"{path} of {row.url} is not removed (errno {why}): look at the log")

    def _on_removed(self, _count: int) -> None:
        if self._stop.is_set():
            raise _Ended


class _Rows:
    """New rows of one transaction.

    Args:
        tx: the transaction.
        ids: its numbers.
        listing: whose files are made.
        generation: of new inodes.
    """

    def __init__(self, tx: Tx, ids: Ids, listing: _Listing, generation: int) -> None:
        self._tx = tx
        self._ids = ids
        self._listing = listing
        self._top = listing.row.top
        self._generation = generation
        self._names: dict[tuple[int, bytes], int] = {}
        """The files that are to get names, by these."""
        self._objects: list[dict[str, object]] = []
        self._changed: dict[int, int] = {}
        """The directories that get names, and how many of these are directories."""
        self._made: set[int] = set()
        """The new directories, of which the NFS server knows nothing."""
        self.files = self.size = 0
        self.left_out: list[tuple[str, str]] = []

    @property
    def untold(self) -> list[int]:
        """The directories of which the NFS server must be told."""
        return [ino for ino in self._changed if ino not in self._made]

    def file(self, listed: ListedObject, path: KeyPath) -> None:
        """Make a file with its name."""
        parent = self.directory(path.parts[:-1], listed)
        if parent is None:
            return
        name = path.parts[-1]
        if self._is_taken(parent, name):
            self._leave_out(listed.key, "a directory has this name")
            return
        self._changed.setdefault(parent, 0)
        self._names[parent, name] = self._insert(listed)

    def stage(self, listed: ListedObject) -> int:
        """Make a file that is to replace another one. Returns its inode."""
        ino = self._insert(listed)
        self._names[TRASH_INO, staged_name(ino)] = ino
        return ino

    def write(self) -> None:
        """Write what was not written at once."""
        tx = self._tx
        tx.run_each(
            sql.DIRENT_INSERT,
            [
                {"parent": parent, "name": name, "ino": ino, "cookie": tx.new_cookie()}
                for (parent, name), ino in self._names.items()
            ],
        )
        tx.run_each(import_rows.OBJECT_INSERT, self._objects)
        for ino, links in self._changed.items():
            names.directory_changed(tx, ino, links)

    def directory(self, parts: tuple[bytes, ...], of: ListedObject | KeyPath) -> int | None:
        """Return the directory of a path, or None if a file has a name on it. What is missing is
        made.

        Args:
            parts: the path.
            of: what is left out if it cannot be made.
        """
        known = self._listing.directories
        if not parts:
            return self._top
        if (ino := known.get(parts)) is not None:
            known.move_to_end(parts)
            return ino
        above = self.directory(parts[:-1], of)
        if above is None:
            return None
        name = parts[-1]
        there = None if (above, name) in self._names else find(self._tx, above, name)
        if (above, name) in self._names or (
            there is not None and there.kind != InodeKind.DIRECTORY
        ):
            key = of.key if isinstance(of, ListedObject) else f"{_text(of.parts)}/"
            self._leave_out(key, "a file has the name of a directory of it")
            return None
        ino = self._make_directory(above, name) if there is None else there.ino
        known[parts] = ino
        if len(known) > DIRECTORIES_MAX:
            known.popitem(last=False)
        return ino

    def _make_directory(self, parent: int, name: bytes) -> int:
        ino = self._inode(kind=InodeKind.DIRECTORY, mode=0o555, nlink=2, parent=parent)
        names.add_name(self._tx, parent, name, ino)
        self._changed[parent] = self._changed.get(parent, 0) + 1
        self._made.add(ino)
        return ino

    def _insert(self, listed: ListedObject) -> int:
        """Make a file without a name. Returns its inode."""
        ino = self._inode(
            kind=InodeKind.REGULAR,
            mode=0o444,
            nlink=1,
            size=listed.size,
            used=listed.size,
            atime_ns=listed.modified_ns,
            mtime_ns=listed.modified_ns,
            drained_version=1,
            # A file without bytes needs none from the bucket.
            residency=Residency.ABSENT if listed.size else Residency.RESIDENT,
        )
        self._objects.append(
            {
                "ino": ino,
                "top": self._top,
                "key": listed.key,
                "size": listed.size,
                "etag": str(listed.etag),
                "gone_ns": None,
                "block_bytes": None,
                "crcs": None,
            }
        )
        self._listing.seen.add(ino)
        self.files += 1
        self.size += listed.size
        return ino

    def _inode(self, **values: Any) -> int:
        """Make a reserved inode. Returns its number.

        Args:
            values: of ``rotation.insert_inode``.
        """
        tx = self._tx
        tx.reserve(1)
        self._ids.spent(1)
        ino = tx.new_ino()
        rotation.insert_inode(
            tx, tx.now_ns, ino=ino, generation=self._generation, reserved=1, **values
        )
        tx.touch(ino)
        return ino

    def _is_taken(self, parent: int, name: bytes) -> bool:
        return (parent, name) in self._names or find(self._tx, parent, name) is not None

    def _leave_out(self, key: str, why: str) -> None:
        self.left_out.append((shown(key), why))


def _is_same(row: ImportedRow, listed: ListedObject) -> bool:
    return (row.size, Etag(row.etag)) == (listed.size, listed.etag)


def _text(parts: Sequence[bytes]) -> str:
    return b"/".join(parts).decode("utf-8", "backslashreplace")
