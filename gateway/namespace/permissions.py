"""Who may do what: mode bits, groups, sticky directories. Pure.

Ganesha checks lookups, opens and setattr itself before it calls us; changes of a directory's
entries are left to the FSAL (fsal_helper.c fsal_create, fsal_remove, fsal_rename).
"""

from __future__ import annotations

from gateway.errors import AccessDenied, NotADirectory, NotPermitted
from gateway.types import Attr, Cred, Kind, SetAttr

READ, WRITE, EXECUTE = 4, 2, 1
SETUID, SETGID, STICKY = 0o4000, 0o2000, 0o1000


def allowed(attr: Attr, cred: Cred, wanted: int) -> bool:
    """Whether the mode bits grant all wanted rights (READ | WRITE | EXECUTE)."""
    if cred.uid == 0:
        return not wanted & EXECUTE or attr.kind == Kind.DIRECTORY or bool(attr.mode & 0o111)
    if cred.uid == attr.uid:
        bits = attr.mode >> 6
    elif cred.is_member(attr.gid):
        bits = attr.mode >> 3
    else:
        bits = attr.mode
    return bits & wanted == wanted


def without_privileges(mode: int) -> int:
    """The mode of a file without setuid and setgid; setgid without group execute means no privilege
    and stays."""
    kept = mode & ~SETUID
    return kept & ~SETGID if mode & EXECUTE << 3 else kept


def require_ownership(cred: Cred, wanted: SetAttr) -> None:
    """What is made belongs to its maker, unless that is root. Raises NotPermitted."""
    if cred.uid == 0:
        return
    if wanted.uid not in (None, cred.uid):
        raise NotPermitted
    if wanted.gid is not None and not cred.is_member(wanted.gid):
        raise NotPermitted


def require_entry_change(directory: Attr, cred: Cred) -> None:
    """Making or removing a name needs write and search permission. Raises AccessDenied."""
    if directory.kind != Kind.DIRECTORY:
        raise NotADirectory
    if not allowed(directory, cred, WRITE | EXECUTE):
        raise AccessDenied


def require_removal(directory: Attr, victim: Attr, cred: Cred) -> None:
    """In a sticky directory only owners may remove. Raises AccessDenied, NotPermitted."""
    require_entry_change(directory, cred)
    if directory.mode & STICKY and cred.uid not in (0, directory.uid, victim.uid):
        raise NotPermitted
