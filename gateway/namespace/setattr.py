"""SETATTR of everything but size, which belongs to the data file."""

from __future__ import annotations

from gateway.db import statements as sql
from gateway.db.writer import Tx
from gateway.namespace.lookup import get
from gateway.types import Attr, SetAttr


def setattr_(tx: Tx, ino: int, wanted: SetAttr) -> Attr:
    """Apply what is not None; permissions were checked by Ganesha (fsal_setattr). Raises Stale."""
    old = get(tx, ino)
    row = tx.change(
        sql.SETATTR,
        the_ino=ino,
        mode=old.mode if wanted.mode is None else wanted.mode & 0o7777,
        uid=old.uid if wanted.uid is None else wanted.uid,
        gid=old.gid if wanted.gid is None else wanted.gid,
        atime_ns=old.atime_ns if wanted.atime_ns is None else wanted.atime_ns,
        mtime_ns=old.mtime_ns if wanted.mtime_ns is None else wanted.mtime_ns,
        ctime_ns=tx.now_ns,
    )
    assert row is not None, "an inode went away in its own transaction"
    return Attr(*row)
