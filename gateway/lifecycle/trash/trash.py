"""Trash: puts checkpoints in and takes them back, each with one rename by the NFS server.

A checkpoint goes with its directory, so its files keep their inodes, their bytes and their objects.
First all of it is reserved (gateway.namespace.reserved), and then it is looked at once more:
nothing goes that differs in anything from what was looked at before
(gateway.namespace.fingerprint), and nothing can change any more. What comes back is given back to
clients after its rename. So the transaction of a rename is short, whatever the size of the tree.
Nothing is replaced by it.

The row is written before all this and completed after it. A rename needs it, with the state that is
meant and the number of this put, so a request that is carried out late does nothing. What a kill
leaves is put right by ``reconcile``: the directory of the trash says what is in it, and rows say
what that was and what is not given back yet.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial

from gateway.catalogue.display_state import CheckpointRow
from gateway.catalogue.store import catalogue_of
from gateway.common import clock, failpoints, files
from gateway.common.errors import RESTART, ControlSocketClosed, TrashRefused, UserError
from gateway.common.failpoints import TRASH_STEP
from gateway.common.text import printable
from gateway.common.types import GATEWAY_CRED, Extent, InodeKind
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import RESERVED_NAME, ROOT_INO, TRASH_INO
from gateway.lifecycle.retention import store
from gateway.lifecycle.trash import held, rows
from gateway.lifecycle.trash.rows import Totals, TrashRow, TrashState
from gateway.namespace import fingerprint, lookup, reserved
from gateway.namespace.fingerprint import TreeFingerprint
from gateway.namespace.lookup import Browser, way_up
from gateway.rpc import control
from gateway.rpc.control import ControlSocket
from gateway.rpc.frames import Op, RpcReply, RpcRequest
from gateway.rpc.removal import TreeRemoval

CHANGED = "it changed a moment ago"


def look(session: Session, ino: int, own: tuple[int, bytes]) -> TreeFingerprint:
    """Return the fingerprint of a checkpoint into which no client would write in the trash.

    Raises TrashRefused.

    Args:
        own: its directory and name.
    """
    seen = fingerprint.of(session, ino)
    if seen.open_files:
        raise TrashRefused(f"{seen.open_files} of its files are open for writing")
    if seen.linked_files and (shared_name := fingerprint.shared(session, ino, own)):
        inside, outside = (_path(session, *name) for name in shared_name)
        raise TrashRefused(
            f"its file {inside} is also {outside}, by which clients could change it in the trash: "
            "remove one of the two names"
        )
    return seen


def require_same(
    session: Session, ino: int, own: tuple[int, bytes], before: TreeFingerprint
) -> None:
    """Require that a checkpoint is reserved, and is as it was before. Raises TrashRefused.

    Args:
        own: its directory and name.
        before: its fingerprint.
    """
    now = look(session, ino, own)
    if now.number != before.number or not now.is_reserved:
        raise TrashRefused(CHANGED)


def _path(session: Session, parent: int, name: bytes) -> str:
    above = [directory_name for _at, _parent, directory_name in way_up(session, parent)]
    return printable(b"/".join((*reversed(above), name)))


def free_name(settings: Settings, session: Session, parts: Sequence[bytes]) -> int:
    """Return the directory in which a new name is free. Raises TrashRefused."""
    at = directory_of(settings, session, parts)
    if lookup.find(session, at, parts[-1]) is not None:
        shown = printable(b"/".join(parts))
        raise TrashRefused(f"{shown} is there already: give another path: --to PATH")
    return at


def directory_of(settings: Settings, session: Session, parts: Sequence[bytes]) -> int:
    """Return the directory that has, or gets, the last name of a path. Raises TrashRefused."""
    if not any(parts) or parts[0] == RESERVED_NAME:
        raise TrashRefused("its path is not known, or reserved: give another one: --to PATH")
    attrs = lookup.way_down(session, parts[:-1])
    way = [attr.ino for attr in attrs if attr.kind == InodeKind.DIRECTORY]
    if len(way) < len(parts) - 1:
        above = f"{settings.nfs.export}/{printable(b'/'.join(parts[: len(way) + 1]))}"
        raise TrashRefused(f"there is no directory {above}: make it: spillway mkdir -p")
    return way[-1] if way else ROOT_INO


LOCK = "trash.lock"
LOOK_SECONDS = 60.0
"""Actions that were cut off are looked for so often: it reads all actions."""
UNKNOWN = "it was found in the trash without a record"
_REASONS = {
    errno.EBUSY: CHANGED,
    errno.EEXIST: "the name is taken",
    errno.ENOENT: "it was moved or deleted a moment ago",
}
"""Refusals of a rename, in words."""
_FAILED = (0, errno.EIO, errno.EAGAIN)
"""No refusals: no answer came, or the database was away."""

Parts = tuple[bytes, ...]


class Trash:
    """The trash of one gateway. Each thread that uses it needs one of its own.

    Args:
        open_control: connects to the control socket.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        open_control: Callable[[], AbstractContextManager[ControlSocket]] | None = None,
    ) -> None:
        self.settings = settings
        self._database = database
        self._open_control = open_control or partial(control.opened, settings)
        self._catalogue = catalogue_of(settings, database)
        self._look_at = 0.0
        """Monotonic seconds at which actions that were cut off are looked for next."""

    # What people and policies ask for.

    def put(self, ino: int, path: bytes, evidence: str, by: str, reason: str) -> str:
        """Put a checkpoint into the trash. Returns its id there.

        Raises TrashRefused if the checkpoint is not what the caller saw, or has a file that is open
        for writing or has another name outside of it; UserError, ControlSocketClosed,
        NamespaceError, OSError.

        Args:
            ino, path: those below the export's root and evidence, as the catalogue has them.
            by: the policy or person.
            reason: for people.
        """
        parts = tuple(path.split(b"/"))
        with self._alone():
            row, seen, parent = self._seen_as(ino, parts, evidence)
            entry = self._begin(row, seen, by, reason)
            self._hit("put")
            try:
                reserved.reserve(self._database, ino, partial(self._hit, "mark"))
                with self._database.reading() as session:
                    require_same(session, ino, (parent, parts[-1]), seen)
                self._hit("put")
                answer = self._ask(entry, parent, parts[-1], TRASH_INO, entry.id.encode())
                self._hit("put")
            except BaseException:
                self._settle(entry)
                raise
            if self._settle(entry):
                self._hit("put")
                return entry.id
            if answer.errno in _FAILED:
                raise TrashRefused(f"the NFS server failed: {os.strerror(answer.errno)}")
            raise TrashRefused(_REASONS.get(answer.errno) or os.strerror(answer.errno))

    def undelete(self, trash_id: str, to: Sequence[bytes] | None = None, *, by: str) -> bytes:
        """Take a checkpoint back. Returns the path below the export's root that it has now.

        Raises TrashRefused; UserError, ControlSocketClosed, NamespaceError, OSError.

        Args:
            to: the names of another path than the one that it had.
            by: the person.
        """
        self.reconcile()
        with self._alone():
            entry = self.entry(trash_id)
            if entry is None or not entry.is_there:
                raise TrashRefused(f"{trash_id} is not in the trash: see spillway trash list")
            if entry.state == TrashState.EXPIRING:
                raise TrashRefused(f"{trash_id} is being removed: it is too late")
            parts = tuple(entry.path.split(b"/") if to is None else to)
            if entry.rotated not in (None, entry.ino):
                return self._merge(entry, parts, by)
            with self._database.reading() as session:
                parent = free_name(self.settings, session, parts)
            with self._database.writing() as session:
                rows.move_on(session, entry, TrashState.RETURNING)
                action = store.begin(session, rows.UNDELETE, entry, by, "a person took it back")
            entry = entry._replace(state=TrashState.RETURNING)
            self._hit("undelete")
            try:
                answer = self._ask(entry, TRASH_INO, trash_id.encode(), parent, parts[-1])
                self._hit("undelete")
                stays = self._settle(entry)
            except (UserError, OSError) as exc:
                self._settle(entry)
                with self._database.writing() as session:
                    store.end(session, action, f"failed: {exc}")
                raise
            why = _REASONS.get(answer.errno) or os.strerror(answer.errno)
            place = f"{self.settings.nfs.export}/{_shown(parts)}"
            with self._database.writing() as session:
                store.end(
                    session, action, f"not taken back: {why}" if stays else f"back at {place}"
                )
            self._hit("undelete")
            if stays:
                raise TrashRefused(f"{trash_id} stays in the trash: {why}: try again")
        return b"/".join(parts)

    def release(self, entry: TrashRow, *, by: str) -> None:
        """Let a checkpoint go that is held for a newer one. Raises TrashRefused if it is not
        held."""
        held.release(self._database, entry, by)

    def remove(
        self,
        entry: TrashRow,
        on_removed: Callable[[int], None] = lambda _count: None,
        *,
        by: str,
        reason: str,
        only_closed: bool = False,
    ) -> None:
        """Remove an entry for good. What a kill leaves of it is removed by the next call.

        Raises TrashRefused if it stays, is not in the trash any more, or if something of it is
        left; UserError, ControlSocketClosed, NamespaceError, OSError.

        Args:
            on_removed: called now and then with the number of names that are removed.
            by: the policy or person.
            reason: for people.
            only_closed: whether it stays while one of its files is open for writing.
        """
        with self._database.reading() as session:
            open_files = fingerprint.of(session, entry.ino).open_files
        if only_closed and open_files:
            raise TrashRefused(f"{open_files} of its files are open for writing")
        with self._alone(), self._database.writing() as session:
            there = rows.in_trash(session) or {}
            if there.get(entry.id) != entry.ino or not rows.move_on(
                session, entry, TrashState.EXPIRING
            ):
                raise TrashRefused(f"{entry.id} is not in the trash any more")
            action = rows.begin_removal(session, entry, by, reason)
        self._hit("remove")
        with Browser(self.settings) as browser, self._open_control() as opened:
            removal = TreeRemoval(browser, opened.run, on_removed, GATEWAY_CRED)
            inode = browser.entry(TRASH_INO, entry.id.encode())
            if inode is not None and inode.attr.ino == entry.ino:
                removal.tree(TRASH_INO, inode.name, inode.attr.ino)
        self._hit("remove")
        for below, why in removal.failures:
            raise TrashRefused(f"{entry.id}{below} is left: {os.strerror(why)}")
        with self._database.writing() as session:
            store.end(session, action, rows.REMOVED)
        self._hit("remove")

    def entries(self) -> list[TrashRow]:
        """Return what is in the trash, the oldest first."""
        with self._database.reading() as session:
            entries = rows.entries(session)
        hours_ns = int(self.settings.retention.rotation_hours * 3600 * clock.NS)
        return [
            entry if entry.rotated is None else entry._replace(expires_ns=entry.since_ns + hours_ns)
            for entry in entries
            if entry.is_there
        ]

    def totals(self, entries: Sequence[TrashRow]) -> dict[str, Totals]:
        """Return what entries take, by id. It reads all their inodes.

        Args:
            entries: follow each other in ``entries()``.
        """
        if not entries:
            return {}
        with self._database.reading() as session:
            return rows.totals(session, entries[0].since_ns, entries[-1].since_ns)

    def wanted(self) -> set[int]:
        """Return the inodes of what is pinned or being copied, and of the directories above it."""
        with self._database.reading() as session:
            return rows.wanted(session)

    def reasons(self, entries: Sequence[TrashRow], now_ns: int) -> dict[str, str]:
        """Return why entries are due, by id. Those that are missing are not due."""
        with self._database.reading() as session:
            reason_by_id = {entry.id: held.why_due(session, entry, now_ns) for entry in entries}
        return {id: why for id, why in reason_by_id.items() if why is not None}

    def entry(self, trash_id: str) -> TrashRow | None:
        """Return a row, whatever its state."""
        with self._database.reading() as session:
            return next((entry for entry in rows.entries(session) if entry.id == trash_id), None)

    # What the gateway does by itself.

    def reconcile(self) -> None:
        """Make the rows say what is in the trash, and end actions that were cut off. Raises
        NamespaceError, OSError."""
        now = clock.monotonic_seconds()
        with self._database.reading() as session:
            there, known = rows.in_trash(session), rows.entries(session)
            is_due = there is not None and now >= self._look_at
            is_cut_off = is_due and any(rows.cut_off(session, there or {}, known))
        if is_due and not is_cut_off:
            self._look_at = now + LOOK_SECONDS
        if there is None or not (_differ(there, known) or is_cut_off):
            return
        with self._alone():
            # No other process is on its way with a checkpoint now.
            with self._database.reading() as session:
                there, known = rows.in_trash(session) or {}, rows.entries(session)
            for entry in known:
                if not _fits(there, entry):
                    self._settle(entry)
            with self._database.writing() as session:
                there, known = rows.in_trash(session) or {}, rows.entries(session)
                for name in there.keys() - {entry.id for entry in known}:
                    self._add(session, _found(name, there[name]))
                if is_cut_off:
                    for action, result in rows.cut_off(session, there, known):
                        store.end(session, action.id, result)

    def now_ns(self) -> int:
        """Return the time that has passed for certain, as ``Entry.expires_ns`` counts. Raises
        OSError."""
        with self._database.reading() as session:
            return rows.elapsed_time(session).elapsed_ns

    def tick(self, entries: Sequence[TrashRow]) -> int:
        """Store the present moment, and count again what the drain leaves alone. Returns what
        ``now_ns`` returns. Raises OSError."""
        with self._database.reading() as session:
            # What was being sent when the entry came may have arrived.
            used = {
                entry: fingerprint.of(session, entry.ino).dirty_used
                for entry in entries
                if entry.dirty_used
            }
        with self._database.writing() as session:
            for row, dirty_used in used.items():
                if dirty_used != row.dirty_used:
                    session.run(rows.COUNTED, the_id=row.id, used=dirty_used)
            return rows.tick(session).elapsed_ns

    def note_stay(self, entry: TrashRow, why: str | None) -> None:
        """Record why an entry stays although its grace is over, or that it does not."""
        with self._database.writing() as session:
            session.run(rows.STAYS, the_id=entry.id, since_ns=entry.since_ns, why=why)

    # Steps.

    def _seen_as(
        self, ino: int, parts: Parts, evidence: str
    ) -> tuple[CheckpointRow, TreeFingerprint, int]:
        """Return the row, the fingerprint and the directory of a checkpoint. All are of one
        moment."""
        with self._catalogue.viewing() as view:
            row, now = self._catalogue.row(view, ino), self._catalogue.as_is(view, ino)
            if row is None or now is None:
                raise TrashRefused("it is no checkpoint any more")
            if now.node.parts != parts:
                raise TrashRefused(f"it is {_shown(now.node.parts)} now")
            if not evidence or (row.evidence, now.evidence) != (evidence, evidence):
                raise TrashRefused("it is not as it was when that was decided: look, and try again")
            if now.found.extent is Extent.FILES and rows.has_directories(view.session, ino):
                raise TrashRefused("it has directories that are no part of it")
            if rows.in_trash(view.session) is None:
                raise TrashRefused(f"there is no trash yet: {RESTART}")
            seen = look(view.session, ino, (now.node.parent, parts[-1]))
        return row, seen, now.node.parent

    def _begin(self, row: CheckpointRow, seen: TreeFingerprint, by: str, reason: str) -> TrashRow:
        with self._database.writing() as session:
            entry = TrashRow(
                id=rows.id_of(row.ino),
                ino=row.ino,
                path=row.path,
                run=row.run,
                step=row.step,
                files=row.files,
                size=row.size,
                dirty_used=seen.dirty_used,
                deleted_ns=clock.now_ns(),
                since_ns=0,
                expires_ns=0,
                deleted_by=by,
                reason=reason,
                state=TrashState.PUTTING,
                complete_ns=row.complete_ns,
            )
            return self._add(session, entry)

    def _add(self, session: Session, entry: TrashRow) -> TrashRow:
        """Add a row, in place of one of the same inode. Its grace begins."""
        since_ns = rows.tick(session).elapsed_ns
        grace_ns = int(self.settings.retention.trash_seconds * clock.NS)
        made = entry._replace(since_ns=since_ns, expires_ns=since_ns + grace_ns)
        session.run(rows.DELETE_OF, the_ino=made.ino)
        session.run(rows.INSERT, **made._asdict())
        return made

    def _settle(self, entry: TrashRow) -> bool:
        """Complete the row of what is in the trash by now, and return True. What is not there is
        given back to clients, and its row goes. Raises TryAgain."""
        with self._database.writing() as session:
            is_there = (rows.in_trash(session) or {}).get(entry.id) == entry.ino
            # From here on no request for a rename that came late is carried out.
            rows.move_on(session, entry, TrashState.KEPT if is_there else TrashState.RETURNING)
        if not is_there:
            reserved.give_back(self._database, entry.ino, partial(self._hit, "mark"))
            with self._database.writing() as session:
                session.run(rows.DELETE, the_id=entry.id)
        return is_there

    def _merge(self, entry: TrashRow, parts: Parts, by: str) -> bytes:
        with self._database.reading() as session:
            parent = directory_of(self.settings, session, parts)
        with Browser(self.settings) as browser, self._open_control() as opened:
            held.merge(self._database, browser, opened.run, entry, parts, parent, by)
        return b"/".join(parts)

    def _ask(self, entry: TrashRow, parent: int, name: bytes, to: int, new_name: bytes) -> RpcReply:
        """Have a checkpoint moved that its row lets pass."""
        request = RpcRequest(Op.RENAME, parent, name, to, new_name, entry.since_ns + 1)
        with self._open_control() as opened, suppress(ControlSocketClosed):
            return opened.run([request._replace(cred=GATEWAY_CRED)])[0]
        # It is not known whether the request was carried out, or will be.
        return RpcReply(errno.EIO, None)

    def _alone(self) -> AbstractContextManager[None]:
        """Keep other processes from the rows, between the row and the rename too."""
        return files.held(files.open_lock(self.settings.run_dir / LOCK))

    def _hit(self, step: str) -> None:
        failpoints.hit_counted(TRASH_STEP.format(what=step))


def _fits(there: Mapping[str, int], entry: TrashRow) -> bool:
    """Return whether a row needs no change.

    Args:
        there: inodes in the trash, by name.
    """
    return entry.is_there and there.get(entry.id) == entry.ino


def _differ(there: Mapping[str, int], known: Sequence[TrashRow]) -> bool:
    """Return whether a row must be changed, made or deleted.

    Args:
        there: as above.
    """
    is_new = there.keys() - {row.id for row in known}
    return bool(is_new) or any(not _fits(there, row) for row in known)


def _found(name: str, ino: int) -> TrashRow:
    """Return the row of something that is in the trash without one."""
    now_ns = clock.now_ns()
    return TrashRow(name, ino, b"", b"", None, 0, 0, 0, now_ns, 0, 0, "-", UNKNOWN, TrashState.KEPT)


def _shown(parts: Sequence[bytes]) -> str:
    return printable(b"/".join(parts))
