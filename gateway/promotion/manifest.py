"""The manifest of a copy: the last object of it that is put, and the first that is deleted.

So the bucket alone tells a whole copy from one that is being made or removed. The text is made of
the rows of the copy, which do not change, so that each try puts the same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.models import RESERVED_NAME
from gateway.errors import StoreUnavailable, UserError
from gateway.manifests import rows
from gateway.manifests import statements as manifests
from gateway.manifests.document import Member, Promoted, Subject, lines
from gateway.promotion import origin, store
from gateway.promotion.places import PROMOTED, manifest_key
from gateway.promotion.store import Promotion
from gateway.promotion.work import Work
from gateway.text import printable
from gateway.types import Extent, Kind

if TYPE_CHECKING:
    # The import is for types only: awscrt takes time to import.
    from gateway.objectstore.objects import Head


def put(work: Work, of: Promotion, is_resumed: bool) -> str | None:
    """Put the manifest of a copy whose objects are all verified. Returns its ETag, or None if an
    earlier try of the request may still reach the store.

    Parameters: is_resumed, whether an earlier try may have put it. Raises UserError if the bucket
    may not have all of the copy, StoreError, TryAgain, OSError.
    """
    # The import is here because awscrt takes time to import.
    from gateway.promotion.copier import label

    key = manifest_key(work.settings.bucket.prefix, of.name)
    with tempfile.TemporaryFile(dir=work.settings.run_dir) as file:
        with work.reading() as session:
            file.writelines(text(session, of))
            volume = store.volume(session)
        file.flush()

        def is_ours(head: Head) -> bool:
            return origin.is_ours(head, of, volume, of.top, is_resumed)

        described = origin.described(of, volume, of.top)
        stored = work.manifests.put(key, file, described, is_ours, origin.REMEDY)
        label(work.store, of, key, tags=bool(of.is_tagged))
    return None if stored.is_doubtful else stored.head.etag


def delete(work: Work, of: Promotion, is_doubtful: bool) -> None:
    """Delete the manifest of a copy that is to be removed. It can be repeated.

    Parameters: is_doubtful, whether a request for it may still be under way. Raises Ended,
    StoreError, TryAgain.
    """
    key = manifest_key(work.settings.bucket.prefix, of.name)
    with work.writing(of) as view:
        # What a late request brings is deleted by the drain.
        buried = sql.Tombstone(key, of.top, origin.VERSION, of.manifest_etag, of.generation)
        view.add_tombstones([buried])
        if is_doubtful:
            view.doubt_later(key, of.top)
        volume = view.volume

    def is_ours(head: Head) -> bool:
        return origin.is_ours(head, of, volume, of.top, head.etag == of.manifest_etag)

    work.manifests.delete(key, is_ours, _deleting(work, of, key))


@contextmanager
def _deleting(work: Work, of: Promotion, key: str) -> Iterator[None]:
    try:
        yield
    except StoreUnavailable:
        with work.writing(of) as view:
            view.doubt_later(key, of.top)
        raise


def text(session: Session, of: Promotion) -> Iterator[bytes]:
    """Yield the text of a manifest. Raises UserError if the bucket may not have all of the copy."""
    top = session.one(manifests.TOP, ino=of.top)
    if top is None:
        raise UserError("a part of the copy is missing: look with spillway fsck")
    is_file = rows.only(session, of.top, b"").kind == Kind.REGULAR
    subject = Subject(
        path=b"/".join((RESERVED_NAME, PROMOTED, of.name.encode())),
        run=of.run,
        step=of.step,
        rule=None,
        extent=(Extent.FILE if is_file else Extent.TREE).name.lower(),
        files=of.files,
        size=of.size,
        complete_ns=None,
        durable_ns=None,
        mode=top[0],
        promotion=Promoted(of.name, of.note, of.asked_by, of.asked_ns, of.path),
    )
    yield from lines(subject, _members(session, of, is_file))


def _members(session: Session, of: Promotion, is_file: bool) -> Iterator[Member]:
    files = 0
    name = of.name.encode()
    for one in [rows.only(session, of.top, name)] if is_file else rows.below(session, of.top):
        if one.kind == Kind.REGULAR:
            files += 1
            if one.stored is None:
                raise UserError(f"the bucket may not have {printable(one.path)} of the copy")
        yield one
    if files != of.files:
        raise UserError(f"{files} of {of.files} files of the copy are there: see spillway fsck")
