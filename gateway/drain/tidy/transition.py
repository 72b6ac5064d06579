"""Transitions of objects to another storage class: each is copied onto itself, inside the store.

A row of ``transition`` orders it, of one version of a file. The copy has the same bytes. It must
never replace other bytes:

1. The row names the key before the copy is requested, and as long as the request may be under way.
   What is put at the key meanwhile is looked at once more, when no request can arrive any more
   (``DrainView.mark_indeterminate``).
2. The store is told to copy only an object with the ETag of the ``object`` row.
3. One transaction records the class, and the ETag that the store tells. After a kill in between,
   the metadata says whether the object is the copy.

Of a file that was changed or removed, or whose rename has not reached the bucket, the row is
deleted, and nothing is copied. While a write to the key is indeterminate the row waits. The caller
holds the claims of the inode and of the key.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import bindparam, case, delete, select, update

from gateway.common import clock
from gateway.common.errors import LeaseLost, ObjectRefused, StoreRefused
from gateway.common.types import ARCHIVES
from gateway.db.compiled import Statement, b
from gateway.db.journal import STORED
from gateway.db.statements import object_, transition
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import JobOutcome
from gateway.drain.rows import File, ObjectRow
from gateway.drain.send import intent
from gateway.objectstore.metadata import origin_of
from gateway.objectstore.objects import Head

log = logging.getLogger("drain")


WITHDRAWN = ""
"""Stands in place of the class when nothing is to be copied: the object stays as it is."""


class Ordered(NamedTuple):
    """A row of ``transition``."""

    ino: int
    content_version: int
    storage_class: str
    key: str | None
    until_ns: int | None


_ROW = [transition.c[name] for name in Ordered._fields]
NEXT = Statement(
    select(*_ROW, object_.c.key, object_.c.size)
    .select_from(transition.outerjoin(object_, object_.c.ino == transition.c.ino))
    .where(transition.c.ino > b("after"))
    .order_by(transition.c.ino)
    .limit(b("most"))
)
"""Selects rows, each with the key and the size of the object that its inode has."""
ROW = Statement(select(*_ROW).where(transition.c.ino == b("ino")))
IS_COPIED = Statement(
    select(transition.c.ino).where(transition.c.key == b("key"), transition.c.until_ns.is_(None))
)
"""Selects the inode whose object at a key may have been copied, and another ETag not recorded."""
SET = Statement(
    update(transition)
    .where(transition.c.ino == b("the_ino"))
    .values(
        key=bindparam("new_key", type_=transition.c.key.type),
        until_ns=bindparam("new_until_ns", type_=transition.c.until_ns.type),
    )
)
DELETE = Statement(delete(transition).where(transition.c.ino == b("the_ino")))
KEPT_IN = Statement(
    update(object_)
    .where(
        object_.c.ino == b("the_ino"),
        object_.c.key == b("the_key"),
        object_.c.etag == b("old_etag"),
        object_.c.content_version == b("the_version"),
    )
    .values(
        etag=b("new_etag"),
        storage_class=bindparam("new_class", type_=object_.c.storage_class.type),
        # The manifest of an object with another ETag is written again.
        stored_ns=case((object_.c.etag == b("new_etag"), object_.c.stored_ns), else_=b("now_ns")),
    )
)


class _Begun(NamedTuple):
    """A transition whose row names the key."""

    ordered: Ordered
    """The row as it was before. If it had a key, an earlier request may be under way."""
    file: File
    stored: ObjectRow

    @property
    def is_again(self) -> bool:
        return self.ordered.key is not None


def is_over(context: Context, one: Ordered) -> bool:
    """Return whether no copy can arrive any more of a transition that is done."""
    late_ns = int(context.settings.bucket.late_seconds * clock.NS)
    return one.until_ns is not None and not clock.is_ahead(one.until_ns, late_ns)


def run_many(context: Context, planned: Sequence[Ordered]) -> list[JobOutcome | Exception]:
    """Carry out transitions, each of another inode. Returns the result of each, in order."""
    with context.writing() as view:
        begun = {
            begun_transition.ordered.ino: begun_transition
            for begun_transition in _begin(context, view, planned)
        }
        volume = view.volume
    results: dict[int, JobOutcome | Exception] = {}
    answers = list(context.copiers.map(partial(_result, context, volume), begun.values()))
    with context.writing() as view:
        for (ino, begun_transition), answer in zip(begun.items(), answers, strict=True):
            if isinstance(answer, Exception):
                results[ino] = answer
            elif answer is not None:
                results[ino] = _end(view, begun_transition, answer)
            else:
                # The store was not asked.
                view.session.run(
                    SET, the_ino=ino, new_key=begun_transition.ordered.key, new_until_ns=None
                )
    for ino, begun_transition in begun.items():
        if results.get(ino) is JobOutcome.DONE:
            log.info(
                "%s is kept in %s",
                begun_transition.stored.key,
                begun_transition.ordered.storage_class,
            )
    return [results.get(row.ino, JobOutcome.OUTDATED) for row in planned]


def _begin(context: Context, view: DrainView, planned: Sequence[Ordered]) -> list[_Begun]:
    """Have the rows name their keys. Returns the transitions that are still right."""
    keys = {
        ordered.ino: key
        for ordered in planned
        if (key := view.paths.key_of(ordered.ino)) is not None
    }
    standings = intent.standings(view, keys.items())
    begun = []
    for ordered in planned:
        row = view.session.one(ROW, ino=ordered.ino)
        if row is None or Ordered(*row) != ordered:
            continue
        if ordered.until_ns is not None:
            if is_over(context, ordered):
                view.session.run(DELETE, the_ino=ordered.ino)
            continue
        standing = standings.get(ordered.ino)
        if standing is None or not _is_right(standing, ordered, keys[ordered.ino]):
            _drop(view, ordered)
            continue
        assert standing.stored is not None
        key = standing.stored.key
        if ordered.key is None and view.session.one(own.INDETERMINATE_WRITE, key=key) is not None:
            continue
        view.session.run(SET, the_ino=ordered.ino, new_key=key, new_until_ns=None)
        begun.append(_Begun(ordered, standing.file, standing.stored))
    return begun


def _is_right(standing: intent.UploadRows, row: Ordered, key: str) -> bool:
    """Return whether the bucket has the version that was ordered, at the key of its file."""
    file, stored = standing.file, standing.stored
    return (
        not file.is_dirty
        and not file.write_open
        and stored is not None
        and stored.key == key
        and row.key in (None, key)
        and row.content_version == file.content_version == stored.content_version
    )


def _drop(view: DrainView, row: Ordered) -> None:
    """Delete the row of a file that is not what was ordered any more."""
    if row.key is not None:
        view.mark_indeterminate(row.key, row.ino)
    view.session.run(DELETE, the_ino=row.ino)


def _result(context: Context, volume: str, begun_transition: _Begun) -> Head | Exception | None:
    """Return the object after its copy, an error, or None if told to stop."""
    if context.stop.is_set():
        return None
    try:
        return _copied(context, volume, begun_transition)
    except LeaseLost:
        raise
    except Exception as exc:
        return exc


def _copied(context: Context, volume: str, begun_transition: _Begun) -> Head:
    stored, wanted = begun_transition.stored, begun_transition.ordered.storage_class
    key = stored.key
    head = context.store.head(key, with_sum=True)
    is_copy = (
        head is not None and begun_transition.is_again and _is_ours(head, begun_transition, volume)
    )
    if head is None or head.size != stored.size or (head.etag != stored.etag and not is_copy):
        raise ObjectRefused(f"{key}: the bucket does not have the object that was recorded")
    if wanted in (WITHDRAWN, head.storage_class):
        context.awaited.ended(key)
        return head
    if head.storage_class in ARCHIVES:
        raise ObjectRefused(f"{key}: a lifecycle rule of the bucket put it into an archive")
    with context.lasting(key):
        return context.store.keep_in(key, head, wanted)


def _is_ours(head: Head, begun_transition: _Begun, volume: str) -> bool:
    """Return whether an object is a copy of the one that is recorded, as its metadata says."""
    origin = origin_of(head.metadata)
    return (
        (origin.volume, origin.ino) == (volume, begun_transition.stored.ino)
        and origin.generation in (0, begun_transition.file.generation)
        and origin.content_version is not None
        and origin.content_version <= begun_transition.stored.content_version
    )


def _end(view: DrainView, begun_transition: _Begun, head: Head) -> JobOutcome | StoreRefused:
    """Record what the store tells of an object after its copy."""
    ino, stored, now_ns = begun_transition.ordered.ino, begun_transition.stored, clock.now_ns()
    count = view.session.run(
        KEPT_IN,
        the_ino=ino,
        the_key=stored.key,
        old_etag=stored.etag,
        the_version=stored.content_version,
        new_etag=head.etag,
        new_class=head.storage_class or None,
        now_ns=now_ns,
    )
    if not count:
        _drop(view, begun_transition.ordered._replace(key=stored.key))
        return JobOutcome.OUTDATED
    wanted = begun_transition.ordered.storage_class
    if wanted not in (WITHDRAWN, head.storage_class):
        view.session.run(SET, the_ino=ino, new_key=begun_transition.ordered.key, new_until_ns=None)
        return StoreRefused(
            f"the store keeps no storage class {wanted}: take storage_class out of the policy"
        )
    if begun_transition.is_again:
        until_ns = now_ns + view.late_ns
        view.session.run(SET, the_ino=ino, new_key=stored.key, new_until_ns=until_ns)
    else:
        view.session.run(DELETE, the_ino=ino)
    view.note((ino,), STORED)
    return JobOutcome.DONE
