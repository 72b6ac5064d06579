"""Permission checks (mode bits, groups, sticky directories), and SETATTR except the size.

The checks are pure. Ganesha checks lookups, opens and setattr itself before it calls the FSAL. It
leaves changes of a directory's entries to the FSAL (fsal_helper.c fsal_create, fsal_remove,
fsal_rename). The size belongs to the data file. SETATTR: RFC 8881 section 18.30.
"""

from __future__ import annotations

from gateway.common.errors import AccessDenied, NotADirectory, NotPermitted, ReadOnly
from gateway.common.types import Attr, Cred, InodeKind, SetAttr
from gateway.db import statements as sql
from gateway.db.models import FIRST_FREE_INO
from gateway.db.writer import Tx
from gateway.namespace.lookup import get

READ, WRITE, EXECUTE = 4, 2, 1
SETUID, SETGID, STICKY = 0o4000, 0o2000, 0o1000


def allowed(attr: Attr, cred: Cred, wanted: int) -> bool:
    """Return whether the mode bits grant all wanted rights (READ | WRITE | EXECUTE)."""
    if cred.uid == 0:
        return not wanted & EXECUTE or attr.kind == InodeKind.DIRECTORY or bool(attr.mode & 0o111)
    if cred.uid == attr.uid:
        bits = attr.mode >> 6
    elif cred.is_member(attr.gid):
        bits = attr.mode >> 3
    else:
        bits = attr.mode
    return bits & wanted == wanted


def without_privileges(mode: int) -> int:
    """Return the mode of a file without setuid and setgid.

    Setgid without group execute is no privilege, so it stays.
    """
    kept = mode & ~SETUID
    return kept & ~SETGID if mode & EXECUTE << 3 else kept


def require_ownership(cred: Cred, wanted: SetAttr) -> None:
    """Require that a new inode belongs to its maker, unless root makes it. Raises NotPermitted."""
    if cred.uid == 0:
        return
    if wanted.uid not in (None, cred.uid):
        raise NotPermitted
    if wanted.gid is not None and not cred.is_member(wanted.gid):
        raise NotPermitted


def require_entry_change(directory: Attr, cred: Cred) -> None:
    """Require write and search permission, to make or remove a name.

    Raises AccessDenied, ReadOnly, NotADirectory.
    """
    if directory.kind != InodeKind.DIRECTORY:
        raise NotADirectory
    if directory.reserved and not cred.is_gateway:
        raise ReadOnly
    if not allowed(directory, cred, WRITE | EXECUTE):
        raise AccessDenied


def require_removal(directory: Attr, victim: Attr, cred: Cred) -> None:
    """Require the right to remove: in a sticky directory only owners have it.

    The directories that every namespace has are never removed. Those of imports, which may be
    empty, are removed by the gateway only. Raises AccessDenied, NotPermitted, ReadOnly.
    """
    is_kept = victim.kind == InodeKind.DIRECTORY and victim.reserved and not cred.is_gateway
    if victim.ino < FIRST_FREE_INO or is_kept:
        raise ReadOnly
    require_entry_change(directory, cred)
    if directory.mode & STICKY and cred.uid not in (0, directory.uid, victim.uid):
        raise NotPermitted


def setattr_(tx: Tx, ino: int, wanted: SetAttr, loses_privileges: bool = False) -> Attr:
    """Set each attribute that is not None. Ganesha checked permissions (fsal_setattr).

    Raises ReadOnly, Stale.

    Args:
        loses_privileges: whether a user other than root changed the bytes, so that suid and sgid go
            (POSIX write).
    """
    old = get(tx, ino)
    if old.reserved:
        raise ReadOnly
    mode = old.mode if wanted.mode is None else wanted.mode & 0o7777
    is_given_away = wanted.uid is not None or wanted.gid is not None
    if old.kind == InodeKind.REGULAR and (loses_privileges or is_given_away):
        # Linux does this for root too: the new owner did not ask for the old owner's privileges.
        mode = without_privileges(mode)
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
