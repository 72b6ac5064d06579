"""Makes the rows of a copy in the namespace, where clients do not find them.

They are written beside the NFS server. It knows nothing of them: the copy is in the trash, of which
clients see nothing, until the server itself renames it. Inode numbers and cookies come from the
counters that the server reserves its own from, so none is given out twice.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, case, exists, insert, literal_column, or_, select, update

from gateway import clock
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import TRASH_INO
from gateway.db.statements import block_digest, dirent, inode, object_, xattr
from gateway.promotion import store
from gateway.promotion.places import staged_name
from gateway.promotion.store import Member, Promotion
from gateway.types import Kind, Residency

_KEPT = ("kind", "mode", "uid", "gid", "size", "used", "atime_ns", "mtime_ns", "btime_ns", "target")
"""What a copy has of its original."""
_IS_FILE = inode.c.kind == int(Kind.REGULAR)
_VALUES: dict[str, Any] = {
    "ino": bindparam("copy", type_=inode.c.ino.type),
    "generation": bindparam("generation", type_=inode.c.generation.type),
    "nlink": case((inode.c.kind == int(Kind.DIRECTORY), 2), else_=1),
    "ctime_ns": bindparam("now_ns", type_=inode.c.ctime_ns.type),
    "change": literal_column("1"),
    "rdev": literal_column("0"),
    "parent": bindparam("parent", type_=inode.c.parent.type),
    "content_version": case((_IS_FILE, 1), else_=0),
    "drained_version": case((_IS_FILE, 1), else_=0),
    "write_open": literal_column("0"),
    "drain_after_ns": literal_column("0"),
    "epoch": literal_column("0"),
    # A file without bytes needs none from the bucket.
    "residency": case(
        (or_(~_IS_FILE, inode.c.size == 0), int(Residency.RESIDENT)), else_=int(Residency.ABSENT)
    ),
    "reserved": literal_column("1"),
}
INODE = Statement(
    insert(inode).from_select(
        [*_KEPT, *_VALUES],
        select(*(inode.c[name] for name in _KEPT), *_VALUES.values()).where(
            inode.c.ino == b("ino"),
            inode.c.nlink > 0,
            inode.c.content_version == b("content_version"),
            or_(
                ~_IS_FILE,
                exists().where(
                    object_.c.ino == inode.c.ino,
                    object_.c.content_version == inode.c.content_version,
                    object_.c.size == inode.c.size,
                    object_.c.etag == bindparam("etag", type_=object_.c.etag.type),
                ),
            ),
        ),
    )
)
"""Makes the inode of a copy, if the original still is what was copied: the same version, with the
object that was read."""
OBJECT = Statement(
    insert(object_).from_select(
        ["ino", "key", "content_version", "size", "etag", "checksum", "stored_ns"],
        select(
            bindparam("copy", type_=object_.c.ino.type),
            bindparam("key", type_=object_.c.key.type),
            literal_column("1"),
            object_.c.size,
            bindparam("new_etag", type_=object_.c.etag.type),
            object_.c.checksum,
            bindparam("now_ns", type_=object_.c.stored_ns.type),
        ).where(object_.c.ino == b("ino")),
    )
)
BLOCKS = Statement(
    insert(block_digest).from_select(
        ["ino", "block_bytes", "crcs"],
        select(
            bindparam("copy", type_=block_digest.c.ino.type),
            block_digest.c.block_bytes,
            block_digest.c.crcs,
        ).where(block_digest.c.ino == b("ino")),
    )
)
XATTRS = Statement(
    insert(xattr).from_select(
        ["ino", "name", "value"],
        select(bindparam("copy", type_=xattr.c.ino.type), xattr.c.name, xattr.c.value).where(
            xattr.c.ino == b("ino")
        ),
    )
)
ONE_MORE = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(nlink=inode.c.nlink + 1, change=inode.c.change + 1)
)
NEW_ETAG = Statement(
    update(object_).where(object_.c.ino == b("the_ino")).values(etag=b("new_etag"))
)
PARENT_OF = Statement(select(dirent.c.parent).where(dirent.c.ino == b("ino")))


def make(session: Session, of: Promotion, members: list[Member]) -> Member | None:
    """Make directories and links. Returns the first one whose original is gone, or None."""
    cookie = _cookies(session, len(members))
    for number, member in enumerate(members):
        if not _inode(session, of, member, None):
            return member
        _finish(session, of, member, cookie + number)
    return None


def make_files(
    session: Session, of: Promotion, copied: list[tuple[Member, str, str]]
) -> list[Member]:
    """Make files whose objects are copied. Returns those that are not what was copied any more.

    Parameters: copied, each with the ETags of what was read, and of the copy.
    """
    cookie = _cookies(session, len(copied))
    changed = []
    for number, (member, etag, new_etag) in enumerate(copied):
        if not _inode(session, of, member, etag):
            changed.append(member)
            continue
        copy, ino = member.copy, member.ino
        now_ns = clock.now_ns()
        session.run(OBJECT, copy=copy, ino=ino, key=member.key, new_etag=new_etag, now_ns=now_ns)
        session.run(BLOCKS, copy=copy, ino=ino)
        _finish(session, of, member, cookie + number)
    return changed


def parent_of(session: Session, of: Promotion) -> int | None:
    """Return the directory that a copy is in, or None if it is in none."""
    row = session.one(PARENT_OF, ino=of.top)
    return None if row is None else row[0]


def _inode(session: Session, of: Promotion, member: Member, etag: str | None) -> bool:
    made = session.run(
        INODE,
        copy=member.copy,
        generation=of.generation,
        now_ns=clock.now_ns(),
        parent=_parent(member) if member.kind == Kind.DIRECTORY else None,
        ino=member.ino,
        content_version=member.content_version,
        etag=etag,
    )
    return made > 0


def _finish(session: Session, of: Promotion, member: Member, cookie: int) -> None:
    """Give an inode its name and what belongs to it, and note that it is made."""
    parent = _parent(member)
    name = member.path.rpartition(b"/")[2] if member.parent else staged_name(of.top)
    session.run(XATTRS, copy=member.copy, ino=member.ino)
    session.run(sql.DIRENT_INSERT, parent=parent, name=name, ino=member.copy, cookie=cookie)
    if member.kind == Kind.DIRECTORY:
        session.run(ONE_MORE, the_ino=parent)
    session.run(store.MADE, the_name=of.name, the_copy=member.copy)


def _parent(member: Member) -> int:
    return member.parent or TRASH_INO


def _cookies(session: Session, count: int) -> int:
    """Reserve cookies. Returns the first."""
    row = session.one(sql.RESERVE, inos=0, cookies=count)
    assert row is not None, "the volume row is missing"
    first: int = row[1] - count
    return first
