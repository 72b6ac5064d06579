"""The life cycle of a regular file's bytes as the database sees it: open for write, sealed.

A version's number moves durably before the first byte of it is written, so an upload of the old
version can never be published as the new one.
"""

from __future__ import annotations

from gateway.db import statements as sql
from gateway.db.writer import Tx
from gateway.errors import InvalidArgument
from gateway.namespace.lookup import get
from gateway.types import Attr, Sealed

CRASH_CHANGE_STEP = 1 << 32
"""Added to ``change`` when a file is sealed after a crash: more than the writes it can have had,
so that the attribute a client saw before never comes back for other bytes."""


def open_write(tx: Tx, ino: int) -> Attr:
    """The first writer opens: from here on the data file is newer than anything in the bucket.

    Raises InvalidArgument for what is no regular file, Stale.
    """
    row = tx.change(sql.OPEN_WRITE, the_ino=ino)
    if row is None:
        get(tx, ino)
        raise InvalidArgument
    return Attr(*row)


def seal(tx: Tx, ino: int, data: Sealed, settle_ns: int) -> Attr:
    """The last writer closed; its bytes are on disk. Opened but never written: nothing changed.

    One that is not open for writing stays as it is. Raises Stale.
    """
    drain_after_ns = tx.now_ns + settle_ns
    if data.writes == 0:
        row = tx.change(sql.SEAL_UNCHANGED, the_ino=ino, drain_after_ns=drain_after_ns)
        if row is None:
            return get(tx, ino)
        drained_version, *attr = row
        if drained_version > 0 and tx.run(sql.SAME_CONTENT, the_ino=ino):
            tx.run(sql.SAME_CONTENT_OBJECT, the_ino=ino)
        return Attr(*attr)
    row = tx.change(
        sql.SEAL,
        the_ino=ino,
        size=data.size,
        used=data.used,
        mtime_ns=data.mtime_ns,
        written_ns=min(data.mtime_ns, tx.now_ns),
        writes=data.writes,
        drain_after_ns=drain_after_ns,
    )
    return get(tx, ino) if row is None else Attr(*row)


def damage(tx: Tx, ino: int, reason: str) -> None:
    """Record that the bytes of the present version are lost: it is never sealed or drained.

    Parameters: reason, one line for a person. The first reason stays.
    """
    if tx.one(sql.DAMAGE, ino=ino) is None:
        tx.run(sql.DAMAGE_DELETE, the_ino=ino)
        tx.run(sql.DAMAGE_INSERT, ino=ino, reason=reason, noted_ns=tx.now_ns)
