"""Sets attributes (SETATTR), except the size, which belongs to the data file."""

from __future__ import annotations

from gateway.db import statements as sql
from gateway.db.writer import Tx
from gateway.errors import ReadOnly
from gateway.namespace import permissions
from gateway.namespace.lookup import get
from gateway.types import Attr, Kind, SetAttr


def setattr_(tx: Tx, ino: int, wanted: SetAttr, loses_privileges: bool = False) -> Attr:
    """Set each attribute that is not None. Ganesha checked permissions (fsal_setattr).

    Parameters: loses_privileges, whether a user other than root changed the bytes, so that suid and
    sgid go (POSIX write). Raises ReadOnly, Stale.
    """
    old = get(tx, ino)
    if old.reserved:
        raise ReadOnly
    mode = old.mode if wanted.mode is None else wanted.mode & 0o7777
    is_given_away = wanted.uid is not None or wanted.gid is not None
    if old.kind == Kind.REGULAR and (loses_privileges or is_given_away):
        # Linux does this for root too: the new owner did not ask for the old owner's privileges.
        mode = permissions.without_privileges(mode)
    row = tx.change(
        sql.SETATTR,
        the_ino=ino,
        mode=mode,
        uid=old.uid if wanted.uid is None else wanted.uid,
        gid=old.gid if wanted.gid is None else wanted.gid,
        atime_ns=old.atime_ns if wanted.atime_ns is None else wanted.atime_ns,
        mtime_ns=old.mtime_ns if wanted.mtime_ns is None else wanted.mtime_ns,
        ctime_ns=tx.now_ns,
    )
    assert row is not None, "an inode went away in its own transaction"
    tx.touch(ino)
    return Attr(*row)
