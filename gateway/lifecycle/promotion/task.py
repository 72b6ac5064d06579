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
        for one in pending:
            if self._stop.is_set():
                break
            try:
                # The disk may not be mounted, or the database be another one.
                identity.require_surroundings(self._settings)
                seconds = min(seconds, self._step(one))
            except PromotionEnded:
                seconds = 0.0
            except (UserError, StoreError, ControlSocketClosed, OSError) as exc:
                if isinstance(exc, StoreRefused):
                    self._context.reload()
                self._say(one, str(exc))
                seconds = RETRY_SECONDS
        return seconds

    def _say(self, one: PromotionRow, why: str) -> None:
        """Record why a promotion waits, for people."""
        if one.reason == why:
            return
        log.warning("promotion %s waits: %s", one.name, why)
        try:
            with self._context.writing(one) as view:
                now = store.one_named(view.session, one.name)
                if now is not None:
                    store.change(view.session, now._replace(reason=why))
        except PromotionEnded:
            return

    def _step(self, one: PromotionRow) -> float:
        if one.state == PromotionState.DONE:
            return self._describe_late(one)
        if one.state != PromotionState.COPYING:
            is_indeterminate = one.top in self._look_at or one.top not in self._known
            release = self._open_copier().release
            copies.remove(self._context, one, BATCH, self._etags, is_indeterminate, release)
            return 0.0
        with self._context.reading() as session:
            is_linked = copies.parent_of(session, one) == PROMOTED_INO
            is_blocked = store.is_blocked(session, self._settings.bucket.prefix, one.name)
        if is_linked:
            self._finish(one)
            return 0.0
        if one.begun_ns is None:
            if is_blocked:
                self._say(one, "the drain has yet to delete what had this name before")
                return WAIT_SECONDS
            from gateway.lifecycle.promotion.copier import lacks

            tagged = int(self._context.store.keeps_tags())
            if (why := lacks(self._context.store, one, tags=bool(tagged))) is not None:
                self._end(one, why)
                return 0.0
            self._known.add(one.top)
            begun = one._replace(begun_ns=clock.now_ns(), is_tagged=tagged, reason=None)
            one = self._context.change(begun, one)
        elif one.top not in self._known and one.top not in self._look_at:
            self._mark_indeterminate(one)
        return self._build(one)

    def _build(self, one: PromotionRow) -> float:
        if not self._make_names(one) or not self._copy_all(one):
            return 0.0
        now = clock.monotonic_seconds()
        if (wait_seconds := self._look_at.get(one.top, 0.0) - now) > 0:
            self._say(one, "a request that was given up may still reach the store")
            return min(wait_seconds, WAIT_SECONDS)
        if (backoff_seconds := self._backoff_until.get(one.top, 0.0) - now) > 0:
            return backoff_seconds
        if one.top in self._look_at and not self._is_as_recorded(one):
            return 0.0
        if self._describe(one):
            self._link(one)
        return 0.0

    def _describe(self, one: PromotionRow) -> bool:
        """Put the manifest, if it is not there. Returns False if that is to be done again. Raises
        UserError, StoreError, OSError."""
        if one.manifest_etag is not None:
            return True
        try:
            etag = copies.put(self._context, one, one.top in self._indeterminate)
        except ObjectRefused:
            self._back_off(one)
            raise
        except StoreError:
            self._mark_indeterminate(one)
            raise
        if etag is None:
            self._mark_indeterminate(one)
            return False
        now = self._as_it_is(one)
        self._context.change(now._replace(manifest_etag=etag, reason=None), now)
        return True

    def _describe_late(self, one: PromotionRow) -> float:
        """Put the manifest of a copy that clients see: an earlier Spillway made it, or the bucket
        is another one. Returns seconds until the next try."""
        if one.top not in self._known and one.top not in self._look_at:
            self._mark_indeterminate(one)
        until = max(self._look_at.get(one.top, 0.0), self._backoff_until.get(one.top, 0.0))
        if (seconds := until - clock.monotonic_seconds()) > 0:
            return seconds
        self._back_off(one)
        self._look_at.pop(one.top, None)
        self._known.add(one.top)
        self._describe(one)
        return 0.0

    def _mark_indeterminate(self, one: PromotionRow) -> None:
        """Mark a copy request as indeterminate: it was sent and no response was received."""
        late_seconds = self._settings.bucket.late_seconds
        self._look_at[one.top] = clock.monotonic_seconds() + late_seconds
        self._indeterminate.add(one.top)

    def _back_off(self, one: PromotionRow) -> None:
        self._backoff_until[one.top] = clock.monotonic_seconds() + BACKOFF_SECONDS

    def _make_names(self, one: PromotionRow) -> bool:
        """Make directories and links. Returns False if told to stop, or if it failed."""
        while not self._stop.is_set():
            with self._context.writing(one) as view:
                members = store.members(view.session, store.UNMADE_NAMES, one.name, most=NAMES)
                gone = copies.make(view.session, one, members) if members else None
            if gone is not None:
                self._fail(one, gone, "it was removed meanwhile")
                return False
            if not members:
                return True
        return False

    def _copy_all(self, one: PromotionRow) -> bool:
        """Copy all objects. Returns False if told to stop, or if it failed. Raises StoreError."""
        from gateway.lifecycle.promotion.copier import sources_of

        while not self._stop.is_set():
            with self._context.reading() as session:
                members = store.members(session, store.UNMADE_FILES, one.name, most=BATCH)
                sources = sources_of(session, members)
                volume = store.volume(session)
            if not members:
                return True
            changed = [member for member in members if member.ino not in sources]
            if changed:
                self._fail(one, changed[0], "it was changed or removed meanwhile")
                return False
            pairs = [(member, sources[member.ino]) for member in members]
            if not self._copy(one, volume, pairs):
                return False
        return False

    def _copy(
        self, one: PromotionRow, volume: str, pairs: list[tuple[PromotedMember, OriginalObject]]
    ) -> bool:
        """Copy some objects, and make their files. Returns False if the promotion failed."""
        from gateway.lifecycle.promotion.copier import Copied, sources_of

        is_resumed = one.top not in self._known
        results = self._open_copier().run(
            one, volume, pairs, is_resumed=is_resumed, tags=bool(one.is_tagged)
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
            self._record(one, copied)
        # A refusal of one file ends the promotion, and what is indeterminate of another stays so.
        if any(not isinstance(error, ObjectRefused) for *_, error in errors):
            self._mark_indeterminate(one)
        for member, source, error in errors:
            if not isinstance(error, ObjectRefused):
                raise error
            with self._context.reading() as session:
                is_same = sources_of(session, [member]).get(member.ino) == source
            if is_same:
                self._fail(one, member, str(error))
                return False
            # The drain moves it: its row names the new key in a moment.
            self._stop.wait(MOVED_SECONDS)
        return True

    def _record(
        self, one: PromotionRow, copied: list[tuple[PromotedMember, OriginalObject, Copied]]
    ) -> None:
        """Make the files of copies. One whose original changed is left out, and is found so by the
        next look at the originals."""
        with self._context.writing(one) as view:
            made = [(member, source.etag, result.etag) for member, source, result in copied]
            changed = copies.make_files(view.session, one, made)
            now = store.one_named(view.session, one.name)
            assert now is not None, "it was there a moment ago"
            is_tagged = now.is_tagged and all(result.is_tagged for _, _, result in copied)
            store.change(view.session, now._replace(is_tagged=int(bool(is_tagged)), reason=None))
        left = {member.copy for member in changed}
        for member, _source, _result in copied:
            if member.copy not in left:
                del self._etags[member.copy]

    def _is_as_recorded(self, one: PromotionRow) -> bool:
        """Look at all objects of a copy, and copy what is missing again. An ETag that a late copy
        of the same version gave is recorded. Returns False if told to stop. Raises UserError if an
        object is still missing, Ended if the promotion failed."""
        from gateway.lifecycle.promotion.copier import OBJECTS, CopiedObject

        after, missing = 0, None
        while not self._stop.is_set():
            with self._context.reading() as session:
                rows = session.all(OBJECTS, name=one.name, after=after, most=NAMES)
                volume = store.volume(session)
            page = [CopiedObject(*row) for row in rows]
            etags = self._open_copier().etags_of(one, volume, page)
            for stored, etag in zip(page, etags, strict=True):
                if etag is None:
                    missing = self._copy_again(one, volume, stored) or missing
                elif etag != stored.etag:
                    with self._context.writing(one) as view:
                        view.session.run(copies.NEW_ETAG, the_ino=stored.ino, new_etag=etag)
                after = stored.ino
            if len(rows) < NAMES:
                if missing is not None:
                    self._back_off(one)
                    raise UserError(missing)
                del self._look_at[one.top]
                self._known.add(one.top)
                return True
        return False

    def _copy_again(self, one: PromotionRow, volume: str, stored: CopiedObject) -> str | None:
        """Copy the object of a member again. Returns why it could not be copied. Raises Ended if
        the promotion failed, StoreError."""
        from gateway.lifecycle.promotion.copier import Copied, sources_of

        with self._context.reading() as session:
            members = store.members(session, store.OF_COPY, one.name, copy=stored.ino)
            sources = sources_of(session, members)
        why = f"{stored.key}: the bucket does not have the copy any more"
        if not sources:
            return f"{why}, and its original was changed or removed: put this object back"
        [member], [source] = members, sources.values()
        # Without is_resumed nothing is replaced that this copy did not put there.
        [result] = self._open_copier().run(
            one, volume, [(member, source)], is_resumed=False, tags=bool(one.is_tagged)
        )
        if result is None or isinstance(result, ObjectRefused):
            return why if result is None else f"{why}, and is not copied again: {result}"
        if not isinstance(result, Copied):
            self._mark_indeterminate(one)
            raise result
        with self._context.writing(one) as view:
            # Not all stores compare the ETag of what they copy.
            if is_same := bool(sources_of(view.session, members)):
                view.session.run(copies.NEW_ETAG, the_ino=stored.ino, new_etag=result.etag)
                if not result.is_tagged:
                    view.session.run(store.UNTAGGED, the_name=one.name)
        if not is_same:
            self._fail(one, member, "it was changed or removed while it was copied again")
            raise PromotionEnded(one.name)
        return None

    def _link(self, one: PromotionRow) -> None:
        """Let clients see the copy, whole."""
        name = one.name.encode()
        with self._context.reading() as session:
            is_taken = session.one(sql.ENTRY, parent=PROMOTED_INO, name=name) is not None
        if is_taken:
            raise UserError(
                "something has its name in .spillway/promoted: demote this, and choose another name"
            )
        staged = staged_name(one.top)
        self._context.ask(
            [RpcRequest(Op.RENAME, TRASH_INO, staged, PROMOTED_INO, name, cred=GATEWAY_CRED)]
        )
        self._finish(one)

    def _finish(self, one: PromotionRow) -> None:
        now = self._as_it_is(one)
        done = now._replace(state=PromotionState.DONE.value, reason=None, done_ns=clock.now_ns())
        self._context.change(done, now)
        log.info("promoted %s as %s", printable(one.path), one.name)

    def _as_it_is(self, one: PromotionRow) -> PromotionRow:
        """Return the row of a promotion. Raises Ended if a person has demoted it since."""
        with self._context.reading() as session:
            now = store.one_named(session, one.name)
        if now is None or (now.top, now.state) != (one.top, one.state):
            raise PromotionEnded(one.name)
        return now

    def _fail(self, one: PromotionRow, member: PromotedMember, why: str) -> None:
        path = b"/".join(part for part in (one.path, member.path) if part)
        kept = (
            f"what was copied stays until it is demoted: spillway promotion remove {one.name} --yes"
        )
        self._end(one, f"{printable(path)}: {why}; {kept}")

    def _end(self, one: PromotionRow, reason: str) -> None:
        with self._context.writing(one) as view:
            store.change(
                view.session, one._replace(state=PromotionState.FAILED.value, reason=reason)
            )
            if one.begun_ns is None:
                # Nothing was copied, so the name is free.
                view.session.run(store.MEMBERS_DELETE, the_name=one.name)
        log.error("promotion %s failed: %s", one.name, reason)

    def _open_copier(self) -> Copier:
        from gateway.lifecycle.promotion.copier import Copier

        if self._copier is None:
            self._copier = Copier(self._context.store, self._settings.bucket, self._stop.is_set)
        return self._copier
