"""Inserts the rows of new inodes."""

from __future__ import annotations

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
    size: int = 0,
    used: int = 0,
    atime_ns: int | None = None,
    mtime_ns: int | None = None,
    rdev: int = 0,
    reserved: int = 0,
    parent: int | None = None,
    target: bytes | None = None,
    verifier: bytes | None = None,
    drained_version: int = 0,
    write_open: int = 0,
) -> Attr:
    """Insert an inode of version 0, or 1 if it is a file. The caller gives it its name.

    Parameters: now_ns, its times that are not given; parent, of a directory; the others are the
    columns of ``inode``.
    """
    attr = Attr(
        ino=ino,
        generation=generation,
        kind=kind,
        mode=mode,
        uid=uid,
        gid=gid,
        nlink=nlink,
        size=size,
        used=used,
        atime_ns=now_ns if atime_ns is None else atime_ns,
        mtime_ns=now_ns if mtime_ns is None else mtime_ns,
        ctime_ns=now_ns,
        btime_ns=now_ns,
        change=1,
        rdev=rdev,
        epoch=0,
        reserved=reserved,
    )
    session.run(
        sql.INODE_INSERT,
        **attr._asdict(),
        target=target,
        verifier=verifier,
        parent=parent,
        content_version=int(kind == Kind.REGULAR),
        drained_version=drained_version,
        write_open=write_open,
        drain_after_ns=0,
    )
    return attr
