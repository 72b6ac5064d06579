"""The drain's own SQL, in the manner of gateway.db.statements."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import bindparam, delete, insert, literal_column, select, update

from gateway.db.statements import (
    Statement,
    b,
    deletion,
    dirent,
    inode,
    object_,
    rekey,
    upload,
)


class File(NamedTuple):
    """An inode as the drain needs it."""

    ino: int
    kind: int
    nlink: int
    content_version: int
    drained_version: int
    write_open: int
    drain_after_ns: int
    size: int
    epoch: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int

    @property
    def is_dirty(self) -> bool:
        return self.content_version > self.drained_version


class Stored(NamedTuple):
    """A row of ``object``."""

    ino: int
    key: str
    content_version: int
    size: int
    etag: str


class Intent(NamedTuple):
    """A row of ``upload``: bytes of this inode may be at the key without an ``object`` row."""

    ino: int
    content_version: int
    key: str
    upload_id: str | None


_FILE = [inode.c[name] for name in File._fields]
_STORED = [object_.c[name] for name in Stored._fields]
_INTENT = [upload.c[name] for name in Intent._fields]

FILE = Statement(select(*_FILE).where(inode.c.ino == b("ino")))
# The first two conditions are those of ix_inode_dirty, word for word, or SQLite would not use it.
DIRTY = Statement(
    select(*_FILE)
    .where(
        inode.c.kind == literal_column("1"),
        inode.c.content_version > inode.c.drained_version,
        inode.c.write_open == 0,
        inode.c.nlink > 0,
        inode.c.drain_after_ns <= b("now_ns"),
        inode.c.ino > b("after"),
    )
    .order_by(inode.c.ino)
    .limit(b("most"))
)
DRAINED = Statement(
    update(inode)
    .where(
        inode.c.ino == b("the_ino"),
        inode.c.content_version >= b("version"),
        inode.c.drained_version < b("version"),
    )
    .values(drained_version=b("version"))
)

OBJECT = Statement(select(*_STORED).where(object_.c.ino == b("ino")))
OBJECT_AT = Statement(select(*_STORED).where(object_.c.key == b("key")))
OBJECT_INSERT = Statement(insert(object_))
OBJECT_MOVE = Statement(
    update(object_)
    .where(object_.c.ino == b("the_ino"), object_.c.key == b("old_key"))
    .values(key=b("new_key"), etag=b("new_etag"))
)

UPLOADS = Statement(select(*_INTENT).order_by(upload.c.ino))
UPLOAD = Statement(select(*_INTENT).where(upload.c.ino == b("ino")))
UPLOAD_AT = Statement(
    select(*_INTENT).where(
        upload.c.key == b("key"), upload.c.ino != b("ino"), upload.c.upload_id.is_not(None)
    )
)
UPLOAD_INSERT = Statement(insert(upload))
UPLOAD_DELETE = Statement(delete(upload).where(upload.c.ino == b("the_ino")))
UPLOAD_ID = Statement(
    update(upload)
    .where(upload.c.ino == b("the_ino"))
    .values(upload_id=bindparam("new_id", type_=upload.c.upload_id.type))
)

DELETIONS = Statement(
    select(deletion.c.key)
    .where(deletion.c.key > b("after"))
    .order_by(deletion.c.key)
    .limit(b("most"))
)
DELETION_DELETE = Statement(delete(deletion).where(deletion.c.key == b("the_key")))

REKEYS = Statement(
    select(rekey.c.ino).where(rekey.c.ino > b("after")).order_by(rekey.c.ino).limit(b("most"))
)


def _objects_below() -> Any:
    below = select(bindparam("top", type_=inode.c.ino.type).label("ino")).cte(
        "below", recursive=True
    )
    below = below.union(
        select(dirent.c.ino).select_from(dirent.join(below, dirent.c.parent == below.c.ino))
    )
    return select(*_STORED).select_from(object_.join(below, object_.c.ino == below.c.ino))


OBJECTS_BELOW = Statement(_objects_below().order_by(object_.c.ino))
"""Of an inode itself and of everything below it."""
