"""Checks of keys where the bucket may have more than the rows say.

- A multipart upload whose start got no answer may be there, and no row has its id. It is found by
  listing the key, and aborted.
- A drain may have lost its lease in the middle of its work. Such a drain publishes nothing, but a
  request that was under way in that moment may have reached the store after the new holder's.
- A request that was not answered in time may reach the store after the next version was published.

The keys are noted, and the drain that claims one compares the object with its row. A file whose
object is not what was recorded is dirty again, and is sent again. Every key is looked at once more
when no request can be under way any more (``DrainView.mark_indeterminate``): a look before that
proves nothing. The wall clock may be set meanwhile. So each process measures the wait by the
monotonic clock, from the moment in which it first saw the row.
"""

from __future__ import annotations

import logging

from gateway.common import clock
from gateway.common.errors import ObjectRefused, StoreRefused
from gateway.db.journal import CHANGED, STORED
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.job import JobOutcome
from gateway.drain.paths import file_of, object_at
from gateway.drain.rows import IndeterminateRow
from gateway.drain.tidy.transition import IS_COPIED
from gateway.objectstore.metadata import origin_of
from gateway.objectstore.objects import Head

log = logging.getLogger("drain")


class IndeterminateWaits:
    """Time for which this process has known each indeterminate write. Only the thread that plans
    uses it."""

    def __init__(self) -> None:
        self._since_ns: dict[IndeterminateRow, int] = {}
        """Monotonic nanoseconds at which each row was first seen. Rows that are gone are
        forgotten."""

    def __len__(self) -> int:
        return len(self._since_ns)

    def due(self, view: DrainView) -> list[tuple[IndeterminateRow, bool]]:
        """Return the indeterminate writes that are due for a look, each with whether the look may
        end it.

        An indeterminate write that this process did not know is looked at early if its time is
        past, or further ahead than it can have been set: the request may have been carried out
        already.
        """
        monotonic_ns, before = clock.monotonic_ns(), self._since_ns
        rows = (IndeterminateRow(*row) for row in view.session.all(own.INDETERMINATE_WRITES))
        self._since_ns = {row: before.get(row, monotonic_ns) for row in rows}
        due_rows = []
        for row, since_ns in self._since_ns.items():
            is_over = row.check_after_ns != 0 and monotonic_ns - since_ns >= view.late_ns
            if row.check_after_ns == 0 or (
                (is_over or row not in before)
                and not clock.is_ahead(row.check_after_ns, view.late_ns)
            ):
                due_rows.append((row, is_over))
        return due_rows


def look(context: Context, planned: IndeterminateRow, is_over: bool) -> JobOutcome:
    """Compare an object with its row. The caller holds the claim of the key. Raises StoreError.

    Otherwise the row stays.

    Args:
        is_over: whether no request for the key can be under way any more.
    """
    key, ino, check_after_ns = planned
    with context.reading() as view:
        stored = object_at(view.session, key)
        recorded = {upload_id for _ino, upload_id in view.session.all(own.UPLOADS_AT, key=key)}
    _abort_unknown(context, key, recorded)
    head = context.store.head(key)
    is_lost = False
    with context.writing() as view:
        row = view.session.one(own.INDETERMINATE_WRITE, key=key)
        if (
            row is None
            or IndeterminateRow(key, *row) != planned
            or object_at(view.session, key) != stored
        ):
            return JobOutcome.OUTDATED
        if stored is None:
            _bury(view, key, head, ino)
        elif head is None or (head.size, head.etag) != (stored.size, stored.etag):
            if view.session.one(IS_COPIED, key=key) is not None:
                # The job of the copy knows whether its ETag is another one.
                return JobOutcome.OUTDATED
            if view.session.run(own.NOT_DRAINED, the_ino=stored.ino):
                view.note((stored.ino,), CHANGED | STORED)
                log.warning("%s is not what was recorded: it will be sent again", key)
            else:
                # While a write to the key is indeterminate, the key that the object had before
                # keeps its bytes.
                is_lost = True
                log.error(
                    "%s is not what was recorded, and its bytes are not on the local disk: restore "
                    "the version %s of the object",
                    key,
                    stored.etag,
                )
        if is_lost or check_after_ns == 0 or is_over:
            view.session.run(own.INDETERMINATE_DELETE, the_key=key)
        if is_lost or check_after_ns == 0:
            view.mark_indeterminate(key, ino)
        elif is_over and stored is not None:
            view.note((stored.ino,), STORED)
    return JobOutcome.DONE


def _abort_unknown(context: Context, key: str, recorded: set[str | None]) -> None:
    try:
        for upload in list(context.store.uploads(key)):
            if upload.key == key and upload.upload_id not in recorded:
                context.store.abort(key, upload.upload_id)
                log.info("aborted an unfinished upload of %s", key)
    except (StoreRefused, ObjectRefused) as exc:
        # Not every server can list uploads. The look only frees space.
        log.warning("cannot look for unfinished multipart uploads of %s: %s", key, exc)


def _bury(view: DrainView, key: str, head: Head | None, ino: int) -> None:
    """Add a tombstone for what this gateway put at a key where nothing should be. Anything else is
    kept. While its file is there, the tombstone is carried out only if the bucket has the object
    that is recorded for that file (``garbage.delete_many``)."""
    if head is None or not ino:
        return
    origin = origin_of(head.metadata)
    if origin.ino != ino or origin.volume not in (None, view.volume):
        return
    file, version = file_of(view.session, ino), origin.content_version or 0
    if file is not None and version > file.content_version:
        # The database is older than the object. The deletion would take the newest bytes.
        log.warning("kept %s: the object there is of a newer version than its file", key)
        return
    # An interrupted upload still names the object, and settles it.
    if not view.session.one(own.UPLOADS_AT, key=key):
        view.add_tombstone(key, ino, version, head.etag, generation=origin.generation or 0)
