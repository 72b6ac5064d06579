"""Inserts the rows of new inodes."""

from __future__ import annotations

from typing import Any

from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.writer import Tx
from gateway.types import Attr, Kind


def insert(
    session: Session | Tx,
    now_ns: int,
    *,
    ino: int,
    generation: int,
    kind: int,
    mode: int,
    nlink: int,
    uid: int = 0,
    gid: int = 0,
    reserved: int = 0,
    **more: Any,
) -> Attr:
    """Insert an inode. The caller gives it its name.

    Parameters: now_ns, all of its times that are not given; more, other attributes and columns of
    ``inode`` that differ from those of an empty directory or file.
    """
    attributes: dict[str, Any] = {
        **dict.fromkeys(("atime_ns", "mtime_ns", "ctime_ns", "btime_ns"), now_ns),
        **{"size": 0, "used": 0, "rdev": 0},
        **{name: more.pop(name) for name in Attr._fields if name in more},
    }
    attr = Attr(
        ino=ino,
        generation=generation,
        kind=kind,
        mode=mode,
        uid=uid,
        gid=gid,
        nlink=nlink,
        change=1,
        epoch=0,
        reserved=reserved,
        **attributes,
    )
    columns = {
        **{"target": None, "verifier": None, "parent": None, "write_open": 0, "drain_after_ns": 0},
        **{"content_version": int(kind == Kind.REGULAR), "drained_version": 0},
    }
    session.run(sql.INODE_INSERT, **attr._asdict(), **(columns | more))
    return attr
