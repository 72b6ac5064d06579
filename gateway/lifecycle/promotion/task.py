"""Background task that carries promotions out, and removes the copies that were demoted.

1. The members were fixed by the command. Directories and links are made in the trash, where clients
   do not find them.
2. Each file's object is copied inside the store, and only the version that was fixed. Then one
   transaction makes the file, absent, with its object: if the original is not the same version any
   more, the promotion fails. What was copied before does not depend on the original. From the
   moment at which all files are made nothing fails the promotion: it waits, and says for what.
3. When all are made, their manifest is put into the bucket.
4. The server renames the copy into ``.spillway/promoted``. That is the only moment at which clients
   see anything of it.

Only a person removes a copy, also one that failed: if the database is an older one, the copy may be
whole in the bucket, and all that is left. A removal begins with the manifest.

Every step is found in the tables, so a process that is killed is followed by one that continues. A
copy whose request was given up may reach the store later, and give the object another ETag. So the
objects are looked at before the manifest is put, when no such request can be under way any more.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from gateway.common import clock
from gateway.common.errors import (
    ControlSocketClosed,
    ObjectRefused,
    StoreError,
    StoreRefused,
    UserError,
)
from gateway.common.text import printable
from gateway.common.types import GATEWAY_CRED
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.models import PROMOTED_INO, TRASH_INO
from gateway.lifecycle.promotion import copies, store
from gateway.lifecycle.promotion.context import OpenControl, PromotionContext, PromotionEnded
from gateway.lifecycle.promotion.store import (
    PromotedMember,
    PromotionRow,
    PromotionState,
    staged_name,
)
from gateway.namespace import identity
from gateway.rpc.frames import Op, RpcRequest

if TYPE_CHECKING:
    from gateway.lifecycle.promotion.copier import Copied, CopiedObject, Copier, OriginalObject

log = logging.getLogger("checkpoints")

BATCH = 32
"""The copies that are recorded together."""
NAMES = 256
"""The directories and links of one transaction, for which the NFS server waits."""
POLL_SECONDS = 1.0
WAIT_SECONDS = 0.5
RETRY_SECONDS = 5.0
MOVED_SECONDS = 0.2
BACKOFF_SECONDS = 60.0
"""The time after which a copy is tried again that lacks an object, or its manifest."""


class Promoter:
    """Carries the promotions of one gateway out. A background task of the process of the catalogue.

    Args:
        open_control: connects to the control socket.
        stop: after which it ends between two steps.
    """

    name = "promotions"

    def __init__(
        self,
        settings: Settings,
        database: Database,
        open_control: OpenControl,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._context = PromotionContext(settings, database, open_control)
        self._stop = stop
        self._copier: Copier | None = None
        self._known: set[int] = set()
        """Those of which no request is under way that this process does not know of, by top."""
        self._look_at: dict[int, float] = {}
        """Monotonic seconds after which no request is under way that was given up, by top."""
        self._etags: dict[int, str] = {}
        """ETags of copies that are not recorded, by inode."""
        self._indeterminate: set[int] = set()
        """Those of which a request may have been made whose answer is not known, by top."""
        self._backoff_until: dict[int, float] = {}
        """Monotonic seconds until which copies wait that lack something in the bucket, by top."""

    def run_once(self) -> float:
        """Carry out what is to be done. Returns seconds until the next pass."""
        with self._context.reading() as session:
            pending = store.pending(session)
        if not pending:
            return POLL_SECONDS
        seconds = POLL_SECONDS
        for row in pending:
            if self._stop.is_set():
                break
            try:
                # The disk may not be mounted, or the database be another one.
                identity.require_surroundings(self._settings)
                seconds = min(seconds, self._step(row))
            except PromotionEnded:
                seconds = 0.0
            except (UserError, StoreError, ControlSocketClosed, OSError) as exc:
                if isinstance(exc, StoreRefused):
                    self._context.reload()
                self._say(row, str(exc))
                seconds = RETRY_SECONDS
        return seconds

    def _say(self, row: PromotionRow, why: str) -> None:
        """Record why a promotion waits, for people."""
        if row.reason == why:
            return
        log.warning("promotion %s waits: %s", row.name, why)
        try:
            with self._context.writing(row) as view:
                now = store.one_named(view.session, row.name)
                if now is not None:
                    store.change(view.session, now._replace(reason=why))
        except PromotionEnded:
            return

    def _step(self, row: PromotionRow) -> float:
        if row.state == PromotionState.DONE:
            return self._describe_late(row)
        if row.state != PromotionState.COPYING:
            is_indeterminate = row.top in self._look_at or row.top not in self._known
            release = self._open_copier().release
            copies.remove(self._context, row, BATCH, self._etags, is_indeterminate, release)
            return 0.0
        with self._context.reading() as session:
            is_linked = copies.parent_of(session, row) == PROMOTED_INO
            is_blocked = store.is_blocked(session, self._settings.bucket.prefix, row.name)
        if is_linked:
            self._finish(row)
            return 0.0
        if row.begun_ns is None:
            if is_blocked:
                self._say(row, "the drain has yet to delete what had this name before")
                return WAIT_SECONDS
            from gateway.lifecycle.promotion.copier import lacks

            tagged = int(self._context.store.keeps_tags())
            if (why := lacks(self._context.store, row, tags=bool(tagged))) is not None:
                self._end(row, why)
                return 0.0
            self._known.add(row.top)
            begun = row._replace(begun_ns=clock.now_ns(), is_tagged=tagged, reason=None)
            row = self._context.change(begun, row)
        elif row.top not in self._known and row.top not in self._look_at:
            self._mark_indeterminate(row)
        return self._build(row)

    def _build(self, row: PromotionRow) -> float:
        if not self._make_names(row) or not self._copy_all(row):
            return 0.0
        now = clock.monotonic_seconds()
        if (wait_seconds := self._look_at.get(row.top, 0.0) - now) > 0:
            self._say(row, "a request that was given up may still reach the store")
            return min(wait_seconds, WAIT_SECONDS)
        if (backoff_seconds := self._backoff_until.get(row.top, 0.0) - now) > 0:
            return backoff_seconds
        if row.top in self._look_at and not self._is_as_recorded(row):
            return 0.0
        if self._describe(row):
            self._link(row)
        return 0.0

    def _describe(self, row: PromotionRow) -> bool:
        """Put the manifest, if it is not there. Returns False if that is to be done again. Raises
        UserError, StoreError, OSError."""
        if row.manifest_etag is not None:
            return True
        try:
            etag = copies.put(self._context, row, row.top in self._indeterminate)
        except ObjectRefused:
            self._back_off(row)
            raise
        except StoreError:
            self._mark_indeterminate(row)
            raise
        if etag is None:
            self._mark_indeterminate(row)
            return False
        now = self._as_it_is(row)
        self._context.change(now._replace(manifest_etag=etag, reason=None), now)
        return True

    def _describe_late(self, row: PromotionRow) -> float:
        """Put the manifest of a copy that clients see: an earlier Spillway made it, or the bucket
        is another one. Returns seconds until the next try."""
        if row.top not in self._known and row.top not in self._look_at:
            self._mark_indeterminate(row)
        until = max(self._look_at.get(row.top, 0.0), self._backoff_until.get(row.top, 0.0))
        if (seconds := until - clock.monotonic_seconds()) > 0:
            return seconds
        self._back_off(row)
        self._look_at.pop(row.top, None)
        self._known.add(row.top)
        self._describe(row)
        return 0.0

    def _mark_indeterminate(self, row: PromotionRow) -> None:
        """Mark a copy request as indeterminate: it was sent and no response was received."""
        late_seconds = self._settings.bucket.late_seconds
        self._look_at[row.top] = clock.monotonic_seconds() + late_seconds
        self._indeterminate.add(row.top)

    def _back_off(self, row: PromotionRow) -> None:
        self._backoff_until[row.top] = clock.monotonic_seconds() + BACKOFF_SECONDS

    def _make_names(self, row: PromotionRow) -> bool:
        """Make directories and links. Returns False if told to stop, or if it failed."""
        while not self._stop.is_set():
            with self._context.writing(row) as view:
                members = store.members(view.session, store.UNMADE_NAMES, row.name, most=NAMES)
                gone = copies.make(view.session, row, members) if members else None
            if gone is not None:
                self._fail(row, gone, "it was removed meanwhile")
                return False
            if not members:
                return True
        return False

    def _copy_all(self, row: PromotionRow) -> bool:
        """Copy all objects. Returns False if told to stop, or if it failed. Raises StoreError."""
        from gateway.lifecycle.promotion.copier import sources_of

        while not self._stop.is_set():
            with self._context.reading() as session:
                members = store.members(session, store.UNMADE_FILES, row.name, most=BATCH)
                sources = sources_of(session, members)
                volume = store.volume(session)
            if not members:
                return True
            changed = [member for member in members if member.ino not in sources]
            if changed:
                self._fail(row, changed[0], "it was changed or removed meanwhile")
                return False
            pairs = [(member, sources[member.ino]) for member in members]
            if not self._copy(row, volume, pairs):
                return False
        return False

    def _copy(
        self, row: PromotionRow, volume: str, pairs: list[tuple[PromotedMember, OriginalObject]]
    ) -> bool:
        """Copy some objects, and make their files. Returns False if the promotion failed."""
        from gateway.lifecycle.promotion.copier import Copied, sources_of

        is_resumed = row.top not in self._known
        results = self._open_copier().run(
            row, volume, pairs, is_resumed=is_resumed, tags=bool(row.is_tagged)
        )
        copied: list[tuple[PromotedMember, OriginalObject, Copied]] = []
        errors: list[tuple[PromotedMember, OriginalObject, StoreError]] = []
        for (member, source), result in zip(pairs, results, strict=True):
            if isinstance(result, Copied):
                self._etags[member.copy] = result.etag
                copied.append((member, source, result))
            elif result is not None:
                errors.append((member, source, result))
        if copied:
            self._record(row, copied)
        # A refusal of one file ends the promotion, and what is indeterminate of another stays so.
        if any(not isinstance(error, ObjectRefused) for *_, error in errors):
            self._mark_indeterminate(row)
        for member, source, error in errors:
            if not isinstance(error, ObjectRefused):
                raise error
            with self._context.reading() as session:
                is_same = sources_of(session, [member]).get(member.ino) == source
            if is_same:
                self._fail(row, member, str(error))
                return False
            # The drain moves it: its row names the new key in a moment.
            self._stop.wait(MOVED_SECONDS)
        return True

    def _record(
        self, row: PromotionRow, copied: list[tuple[PromotedMember, OriginalObject, Copied]]
    ) -> None:
        """Make the files of copies. One whose original changed is left out, and is found so by the
        next look at the originals."""
        with self._context.writing(row) as view:
            made = [(member, source.etag, result.etag) for member, source, result in copied]
            changed = copies.make_files(view.session, row, made)
            now = store.one_named(view.session, row.name)
            assert now is not None, "it was there a moment ago"
            is_tagged = now.is_tagged and all(result.is_tagged for _, _, result in copied)
            store.change(view.session, now._replace(is_tagged=int(bool(is_tagged)), reason=None))
        left = {member.copy for member in changed}
        for member, _source, _result in copied:
            if member.copy not in left:
                del self._etags[member.copy]

    def _is_as_recorded(self, promotion_row: PromotionRow) -> bool:
        """Look at all objects of a copy, and copy what is missing again. An ETag that a late copy
        of the same version gave is recorded. Returns False if told to stop. Raises UserError if an
        object is still missing, Ended if the promotion failed."""
        from gateway.lifecycle.promotion.copier import OBJECTS, CopiedObject

        after, missing = 0, None
        while not self._stop.is_set():
            with self._context.reading() as session:
                rows = session.all(OBJECTS, name=promotion_row.name, after=after, most=NAMES)
                volume = store.volume(session)
            page = [CopiedObject(*row) for row in rows]
            etags = self._open_copier().etags_of(promotion_row, volume, page)
            for stored, etag in zip(page, etags, strict=True):
                if etag is None:
                    missing = self._copy_again(promotion_row, volume, stored) or missing
                elif etag != stored.etag:
                    with self._context.writing(promotion_row) as view:
                        copies.set_etag(view.session, stored.ino, etag)
                after = stored.ino
            if len(rows) < NAMES:
                if missing is not None:
                    self._back_off(promotion_row)
                    raise UserError(missing)
                del self._look_at[promotion_row.top]
                self._known.add(promotion_row.top)
                return True
        return False

    def _copy_again(self, row: PromotionRow, volume: str, stored: CopiedObject) -> str | None:
        """Copy the object of a member again. Returns why it could not be copied. Raises Ended if
        the promotion failed, StoreError."""
        from gateway.lifecycle.promotion.copier import Copied, sources_of

        with self._context.reading() as session:
            members = store.members(session, store.OF_COPY, row.name, copy=stored.ino)
            sources = sources_of(session, members)
        why = f"{stored.key}: the bucket does not have the copy any more"
        if not sources:
            return f"{why}, and its original was changed or removed: put this object back"
        [member], [source] = members, sources.values()
        # Without is_resumed nothing is replaced that this copy did not put there.
        [result] = self._open_copier().run(
            row, volume, [(member, source)], is_resumed=False, tags=bool(row.is_tagged)
        )
        if result is None or isinstance(result, ObjectRefused):
            return why if result is None else f"{why}, and is not copied again: {result}"
        if not isinstance(result, Copied):
            self._mark_indeterminate(row)
            raise result
        with self._context.writing(row) as view:
            # Not all stores compare the ETag of what they copy.
            if is_same := bool(sources_of(view.session, members)):
                copies.set_etag(view.session, stored.ino, result.etag)
                if not result.is_tagged:
                    view.session.run(store.UNTAGGED, the_name=row.name)
        if not is_same:
            self._fail(row, member, "it was changed or removed while it was copied again")
            raise PromotionEnded(row.name)
        return None

    def _link(self, row: PromotionRow) -> None:
        """Let clients see the copy, whole."""
        name = row.name.encode()
        with self._context.reading() as session:
            is_taken = session.one(sql.ENTRY, parent=PROMOTED_INO, name=name) is not None
        if is_taken:
            raise UserError(
                "something has its name in .spillway/promoted: demote this, and choose another name"
            )
        staged = staged_name(row.top)
        self._context.ask(
            [RpcRequest(Op.RENAME, TRASH_INO, staged, PROMOTED_INO, name, cred=GATEWAY_CRED)]
        )
        self._finish(row)

    def _finish(self, row: PromotionRow) -> None:
        now = self._as_it_is(row)
        done = now._replace(state=PromotionState.DONE.value, reason=None, done_ns=clock.now_ns())
        self._context.change(done, now)
        log.info("promoted %s as %s", printable(row.path), row.name)

    def _as_it_is(self, row: PromotionRow) -> PromotionRow:
        """Return the row of a promotion. Raises Ended if a person has demoted it since."""
        with self._context.reading() as session:
            now = store.one_named(session, row.name)
        if now is None or (now.top, now.state) != (row.top, row.state):
            raise PromotionEnded(row.name)
        return now

    def _fail(self, row: PromotionRow, member: PromotedMember, why: str) -> None:
        path = b"/".join(part for part in (row.path, member.path) if part)
        kept = (
            f"what was copied stays until it is demoted: spillway promotion remove {row.name} --yes"
        )
        self._end(row, f"{printable(path)}: {why}; {kept}")

    def _end(self, row: PromotionRow, reason: str) -> None:
        with self._context.writing(row) as view:
            store.change(
                view.session, row._replace(state=PromotionState.FAILED.value, reason=reason)
            )
            if row.begun_ns is None:
                # Nothing was copied, so the name is free.
                store.delete_members(view.session, row.name)
        log.error("promotion %s failed: %s", row.name, reason)

    def _open_copier(self) -> Copier:
        from gateway.lifecycle.promotion.copier import Copier

        if self._copier is None:
            self._copier = Copier(self._context.store, self._settings.bucket, self._stop.is_set)
        return self._copier
