"""Removes the copy of a promotion that a person demoted: first from the sight of clients, then file
by file. The drain deletes the objects, as of all files that were removed. Before all that, the
manifest is deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import select

from gateway.db import statements as sql
from gateway.db.compiled import Statement, b
from gateway.db.models import PROMOTED_INO, TRASH_INO
from gateway.db.statements import promotion_member
from gateway.door.frames import Op, Request
from gateway.door.removal import GONE
from gateway.promotion import build, manifest, store
from gateway.promotion.places import manifest_key, staged_name
from gateway.promotion.store import Hold, Member, Promotion, State
from gateway.promotion.work import Work
from gateway.types import GATEWAY_CRED

log = logging.getLogger("checkpoints")

PAGE = 512
KEYS = Statement(
    select(promotion_member.c.copy, promotion_member.c.key)
    .where(
        promotion_member.c.name == b("name"),
        promotion_member.c.copy > b("after"),
        promotion_member.c.key.is_not(None),
    )
    .order_by(promotion_member.c.copy)
    .limit(b("most"))
)
"""Selects the keys of a copy."""


def remove(
    work: Work,
    of: Promotion,
    unmade_most: int,
    etags: Mapping[int, str],
    is_doubtful: bool,
    release: Callable[[Sequence[str]], None],
) -> None:
    """Remove a copy, as far as it was made. It can be repeated after any interruption.

    Parameters: unmade_most, the number of copies that may have been requested and not recorded;
    etags of such copies, as far as they are known, by inode; is_doubtful, whether a copy may still
    be under way; release, which ends the legal hold of what is at keys. Raises UserError,
    StoreError, DoorClosed, Ended, TryAgain, OSError.
    """
    if of.is_held:
        # Only a person who names the hold ends it.
        state = State.FAILED if of.done_ns is None else State.DONE
        work.change(of._replace(state=state.value, reason=store.held(of.name)), of)
        return
    if of.begun_ns is not None and of.legal_hold != Hold.NONE:
        _release(work, of, release)
    if of.begun_ns is not None:
        # What the bucket has is not called whole any more before any of it goes.
        manifest.delete(work, of, is_doubtful and of.manifest_etag is None)
        _bury(work, of, unmade_most, etags, is_doubtful)
    with work.reading() as session:
        is_visible = build.parent_of(session, of) == PROMOTED_INO
    if is_visible:
        staged = staged_name(of.top)
        name = of.name.encode()
        work.ask([Request(Op.RENAME, PROMOTED_INO, name, TRASH_INO, staged, cred=GATEWAY_CRED)])
    before = 1 << 62
    while True:
        with work.reading() as session:
            page = store.members(session, store.LAST_MADE, of.name, before=before, most=PAGE)
        work.ask([_removal(of, member) for member in page], GONE)
        if len(page) < PAGE:
            break
        before = page[-1].copy
    with work.reading() as session:
        if build.parent_of(session, of) is not None:
            # A rename that was given up has shown the copy meanwhile: the next turn hides it again.
            return
    with work.writing(of) as view:
        view.session.run(store.MEMBERS_DELETE, the_name=of.name)
        view.session.run(store.DELETE, the_name=of.name)
    log.info("promotion %s: the copy is removed", of.name)


def _release(work: Work, of: Promotion, release: Callable[[Sequence[str]], None]) -> None:
    release([manifest_key(work.settings.bucket.prefix, of.name)])
    after = 0
    while True:
        with work.reading() as session:
            rows = session.all(KEYS, name=of.name, after=after, most=PAGE)
        release([key for _copy, key in rows])
        if len(rows) < PAGE:
            return
        after = rows[-1][0]


def _removal(of: Promotion, member: Member) -> Request:
    if member.parent:
        parent, name = member.parent, member.path.rpartition(b"/")[2]
    else:
        parent, name = TRASH_INO, staged_name(of.top)
    return Request(Op.REMOVE, parent, name, member.copy, cred=GATEWAY_CRED)


def _bury(
    work: Work, of: Promotion, most: int, etags: Mapping[int, str], is_doubtful: bool
) -> None:
    """Add tombstones for the copies that may be in the bucket without a row. A request that was
    given up may still make one, so the drain looks at the keys again."""
    with work.writing(of) as view:
        unmade = store.members(view.session, store.UNMADE_FILES, of.name, most=most)
        view.add_tombstones(
            [
                sql.Tombstone(one.key, one.copy, 1, etags.get(one.copy), of.generation)
                for one in unmade
                if one.key is not None
            ]
        )
        for one in unmade if is_doubtful else ():
            if one.key is not None:
                view.doubt_later(one.key, one.copy)
