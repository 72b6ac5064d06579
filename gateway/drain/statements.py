"""SQL of the drain, built like gateway.db.statements."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    tuple_,
    update,
)

from gateway.common.types import InodeKind
from gateway.db.compiled import Statement, b, given, given_numbers
from gateway.db.statements import (
    IS_DIRTY,
    IS_REGULAR,
    IS_RESIDENT,
    TREE,
    TombstoneRow,
    checkpoint,
    claim,
    damage,
    digest,
    dirent,
    indeterminate_write,
    inode,
    lease,
    object_,
    queue_order,
    rekey,
    superseded,
    tombstone,
    transition,
    upload,
)
from gateway.drain.rows import File, IndeterminateRow, Intent, ObjectRow

_FILE = [inode.c[name] for name in File._fields]
_OBJECT = [object_.c[name] for name in ObjectRow._fields]
_UPLOAD = [upload.c[name] for name in Intent._fields]

FILE = Statement(select(*_FILE).where(inode.c.ino == b("ino")))

_INOS = given("inos", ino=int)
NAMES_OF = Statement(
    select(dirent.c.ino, dirent.c.parent, dirent.c.name)
    .select_from(_INOS.join(dirent, dirent.c.ino == _INOS.c.ino))
    .order_by(dirent.c.ino, dirent.c.cookie)
)
"""Selects the names of inodes."""


def _any(column: Any, *conditions: Any) -> Any:
    # With EXISTS, PostgreSQL would read the whole table once instead of looking for each row.
    return select(column).where(*conditions).limit(1).scalar_subquery().is_not(None)


_WANTED = given("wanted", ino=int, key=str)
_AT_KEY = object_.alias("at_key")
_OTHER = upload.alias("other")
BEFORE_UPLOAD = Statement(
    select(
        *_FILE,
        damage.c.ino,
        upload.c.ino,
        *_UPLOAD[1:],
        object_.c.ino,
        *_OBJECT[1:],
        _AT_KEY.c.ino,
        _any(
            _OTHER.c.ino,
            _OTHER.c.key == _WANTED.c.key,
            _OTHER.c.ino != _WANTED.c.ino,
            _OTHER.c.upload_id.is_not(None),
        ),
        _any(tombstone.c.ino, tombstone.c.key == _WANTED.c.key),
        _any(transition.c.ino, transition.c.key == _WANTED.c.key),
    ).select_from(
        _WANTED.join(inode, inode.c.ino == _WANTED.c.ino)
        .outerjoin(damage, damage.c.ino == inode.c.ino)
        .outerjoin(upload, upload.c.ino == inode.c.ino)
        .outerjoin(object_, object_.c.ino == inode.c.ino)
        .outerjoin(_AT_KEY, _AT_KEY.c.key == _WANTED.c.key)
    )
)
"""Selects files, each with all that an upload to its key must know (``intent.Standing``)."""


def _of_first_name(column: Any) -> Any:
    first = select(column).where(dirent.c.ino == inode.c.ino).order_by(dirent.c.cookie).limit(1)
    return first.scalar_subquery()


_IS_WHOLE = ~exists().where(damage.c.ino == inode.c.ino)
_SEALED = (*IS_DIRTY, inode.c.write_open == 0, inode.c.nlink > 0, _IS_WHOLE)
_SEALED_AFTER = (
    *_SEALED,
    tuple_(inode.c.drain_after_ns, inode.c.ino) > tuple_(b("after_ns"), b("after_ino")),
)
_DIRTY = (
    inode.c.ino,
    inode.c.drain_after_ns,
    _of_first_name(dirent.c.parent),
    _of_first_name(dirent.c.name),
    inode.c.size,
)
DIRTY = Statement(
    select(*_DIRTY)
    .where(
        *_SEALED_AFTER,
        inode.c.drain_after_ns <= b("until_ns"),
    )
    .order_by(inode.c.drain_after_ns, inode.c.ino)
    .limit(b("most"))
)
"""Selects inode, time of the seal, directory and name of the first name, and size, the oldest
first."""
_NUMBERS = given_numbers("inos")
DIRTY_OF = Statement(
    select(*_DIRTY)
    .select_from(_NUMBERS.join(inode, inode.c.ino == _NUMBERS.c.value))
    .where(*_SEALED)
    .order_by(inode.c.drain_after_ns, inode.c.ino)
)
"""Selects the columns of ``DIRTY`` for given inodes. It leaves out inodes that are not such
files."""
SEALED = Statement(
    select(*_FILE, digest.c.content_version)
    .select_from(inode.outerjoin(digest, digest.c.ino == inode.c.ino))
    .where(
        *_SEALED_AFTER,
        inode.c.drain_after_ns <= b("until_ns"),
    )
    .order_by(inode.c.drain_after_ns, inode.c.ino)
    .limit(b("most"))
)
"""Selects files that are not in the bucket, settled or not, each with the version that has a
digest."""
OPEN = Statement(
    select(*_FILE)
    .where(
        inode.c.write_open == literal_column("1"),
        inode.c.nlink > 0,
        inode.c.ino > b("after_ino"),
        _IS_WHOLE,
    )
    .order_by(inode.c.ino)
    .limit(b("most"))
)
"""Selects files that are open for writing."""

_DRAINED = given("files", ino=int, version=int)
DRAINED = Statement(
    update(inode)
    .where(
        inode.c.ino == _DRAINED.c.ino,
        inode.c.content_version >= _DRAINED.c.version,
        inode.c.drained_version < _DRAINED.c.version,
    )
    .values(drained_version=_DRAINED.c.version)
)
"""Records that the bucket has these versions of files."""

NOT_DRAINED = Statement(
    update(inode).where(inode.c.ino == b("the_ino"), IS_RESIDENT).values(drained_version=0)
)
"""Records that the bucket's object is useless. With 0, an open and close without a write does not
make the file clean."""
DAMAGED = Statement(select(damage.c.ino, damage.c.reason))
"""Selects files whose bytes are known to be damaged."""

OBJECT = Statement(select(*_OBJECT).where(object_.c.ino == b("ino")))
_KEYS = given("keys", key=str)
OBJECTS_AT = Statement(
    select(*_OBJECT).select_from(_KEYS.join(object_, object_.c.key == _KEYS.c.key))
)
"""Selects the objects that are recorded at keys."""
OBJECT_CHECKSUM = Statement(select(object_.c.checksum).where(object_.c.ino == b("ino")))
STORED_NS = Statement(
    select(object_.c.stored_ns).where(
        object_.c.ino == b("ino"), object_.c.content_version == b("version")
    )
)
_OBJECT_INSERT = given(
    "objects",
    ino=int,
    key=str,
    content_version=int,
    size=int,
    etag=str,
    checksum=str,
    stored_ns=int,
)
OBJECT_INSERT = Statement(
    insert(object_).from_select(_OBJECT_INSERT.c.keys(), select(_OBJECT_INSERT))
)
OBJECTS_DELETE = Statement(delete(object_).where(object_.c.ino.in_(select(_INOS.c.ino))))
_MOVED = given("moves", ino=int, old_key=str, new_key=str, etag=str)
OBJECT_MOVE = Statement(
    update(object_)
    .where(object_.c.ino == _MOVED.c.ino, object_.c.key == _MOVED.c.old_key)
    .values(key=_MOVED.c.new_key, etag=_MOVED.c.etag)
    .returning(object_.c.ino)
)
"""Records that objects are at other keys now. Returns the inodes of those whose row had the old
key."""

DIGEST = Statement(
    select(digest.c.checksum).where(
        digest.c.ino == b("ino"), digest.c.content_version == b("version")
    )
)
DIGEST_INSERT = Statement(insert(digest))
DIGEST_DELETE = Statement(delete(digest).where(digest.c.ino == b("the_ino")))

UPLOADS = Statement(select(*_UPLOAD).order_by(upload.c.ino))
UPLOAD = Statement(select(*_UPLOAD).where(upload.c.ino == b("ino")))
UPLOADS_AT = Statement(select(upload.c.ino, upload.c.upload_id).where(upload.c.key == b("key")))
_UPLOAD_INSERT = given(
    "uploads", ino=int, content_version=int, key=str, started_ns=int, generation=int
)
UPLOAD_INSERT = Statement(
    insert(upload).from_select(_UPLOAD_INSERT.c.keys(), select(_UPLOAD_INSERT))
)
UPLOAD_DELETE = Statement(delete(upload).where(upload.c.ino.in_(select(_INOS.c.ino))))
UPLOAD_ID = Statement(
    update(upload)
    .where(upload.c.ino == b("the_ino"))
    .values(
        upload_id=bindparam("new_id", type_=upload.c.upload_id.type),
        part_bytes=bindparam("new_part_bytes", type_=upload.c.part_bytes.type),
    )
)

TOMBSTONES = Statement(
    select(tombstone.c.key)
    .where(tombstone.c.key > b("after"))
    .distinct()
    .order_by(tombstone.c.key)
    .limit(b("most"))
)
TOMBSTONES_AT = Statement(
    select(*[tombstone.c[name] for name in TombstoneRow._fields]).select_from(
        _KEYS.join(tombstone, tombstone.c.key == _KEYS.c.key)
    )
)
"""Selects all tombstones for keys."""
TOMBSTONE_BELOW = Statement(
    select(tombstone.c.key)
    .where(
        tombstone.c.ino == b("ino"),
        tombstone.c.key > b("first_key"),
        tombstone.c.key < b("end_key"),
    )
    .limit(1)
)
"""Selects a tombstone of an inode between two keys."""
TOMBSTONES_DROP = Statement(
    delete(tombstone).where(tombstone.c.key.in_(select(_KEYS.c.key))).returning(tombstone.c.ino)
)
_BURIED = given(
    "tombstones",
    key=str,
    ino=int,
    content_version=int,
    etag=str,
    generation=int,
    deleted_ns=int,
)
_OF_SAME = and_(tombstone.c.key == _BURIED.c.key, tombstone.c.ino == _BURIED.c.ino)
TOMBSTONES_BEFORE = Statement(
    select(*[tombstone.c[name] for name in TombstoneRow._fields]).select_from(
        _BURIED.join(tombstone, _OF_SAME)
    )
)
"""Selects the tombstones of the same inodes and keys."""
TOMBSTONES_DELETE = Statement(
    delete(tombstone).where(
        tuple_(tombstone.c.key, tombstone.c.ino).in_(select(_BURIED.c.key, _BURIED.c.ino))
    )
)
TOMBSTONES_INSERT = Statement(insert(tombstone).from_select(_BURIED.c.keys(), select(_BURIED)))

REKEYS = Statement(
    select(rekey.c.ino, inode.c.kind, *_OBJECT)
    .select_from(
        rekey.outerjoin(inode, inode.c.ino == rekey.c.ino).outerjoin(
            object_, object_.c.ino == rekey.c.ino
        )
    )
    .where(rekey.c.ino > b("after"))
    .order_by(rekey.c.ino)
    .limit(b("most"))
)
"""Selects what was renamed: inode, its kind (NULL if it is gone) and its object."""
REKEYS_DELETE = Statement(delete(rekey).where(rekey.c.ino.in_(select(_INOS.c.ino))))

NAME = Statement(
    select(dirent.c.parent, dirent.c.name, dirent.c.cookie)
    .where(dirent.c.ino == b("ino"))
    .order_by(dirent.c.cookie)
    .limit(1)
)
CHILDREN = Statement(
    select(dirent.c.cookie, inode.c.ino, inode.c.kind, *_OBJECT)
    .select_from(
        dirent.join(inode, inode.c.ino == dirent.c.ino).outerjoin(
            object_, object_.c.ino == dirent.c.ino
        )
    )
    .where(dirent.c.parent == b("parent"), dirent.c.cookie > b("cookie"))
    .order_by(dirent.c.cookie)
    .limit(b("most"))
)
"""Selects the names in a directory, each with its object."""

LEASES = Statement(select(lease.c.id, lease.c.owner, lease.c.expires_ns))
LEASE = Statement(select(lease.c.id).where(lease.c.id == b("lease")))
LEASE_INSERT = Statement(insert(lease))
LEASE_RENEW = Statement(
    update(lease).where(lease.c.id == b("the_lease")).values(expires_ns=b("until_ns"))
)
LEASE_DELETE = Statement(delete(lease).where(lease.c.id == b("the_lease")))

CLAIM = Statement(select(claim.c.lease).where(claim.c.name == b("key")))
_CLAIMED = given("names", name=str)
CLAIM_INSERT = Statement(
    insert(claim).from_select(
        ["name", "lease"],
        select(_CLAIMED.c.name, b("the_lease")).where(
            ~exists().where(claim.c.name == _CLAIMED.c.name)
        ),
    )
)
"""Claims the names that no drain has claimed yet."""
CLAIMED_BY_OTHERS = Statement(
    select(claim.c.name).where(
        claim.c.name.in_(select(_CLAIMED.c.name)), claim.c.lease != b("the_lease")
    )
)
CLAIMED_TOMBSTONES = Statement(
    select(tombstone.c.key, func.max(tombstone.c.ino))
    .join(claim, tombstone.c.key == func.substr(claim.c.name, 2))
    .where(
        claim.c.lease == b("the_lease"), func.substr(claim.c.name, 1, 1) == literal_column("'k'")
    )
    .group_by(tombstone.c.key)
)
"""Selects the keys of a lease that may have been asked to be deleted, each with an inode."""
CLAIM_DELETE = Statement(
    delete(claim).where(claim.c.name.in_(select(_CLAIMED.c.name)), claim.c.lease == b("the_lease"))
)

QUEUE_ORDERS = Statement(select(queue_order.c.ino, queue_order.c.hold))
HOLDS = Statement(
    select(queue_order.c.ino, queue_order.c.hold, queue_order.c.request_id).union_all(
        select(superseded.c.ino, literal_column("1"), literal_column("NULL")).where(
            ~exists().where(queue_order.c.ino == superseded.c.ino)
        )
    )
)
"""Selects what is held or bumped: by people, or, if they said nothing, by retention."""
QUEUE_ORDER_INSERT = Statement(insert(queue_order))
QUEUE_ORDER_DELETE = Statement(delete(queue_order).where(queue_order.c.ino == b("the_ino")))

INDETERMINATE_WRITES = Statement(
    select(*[indeterminate_write.c[name] for name in IndeterminateRow._fields])
)
INDETERMINATE_WRITE = Statement(
    select(indeterminate_write.c.ino, indeterminate_write.c.check_after_ns).where(
        indeterminate_write.c.key == b("key")
    )
)
INDETERMINATE_INSERT = Statement(insert(indeterminate_write))
INDETERMINATE_DELETE = Statement(
    delete(indeterminate_write).where(indeterminate_write.c.key == b("the_key"))
)


def claim_name(name: int | str) -> str:
    """Return the name of the claim of an inode or of a key."""
    return f"i{name}" if isinstance(name, int) else f"k{name}"


FILES_BELOW = Statement(
    select(inode.c.ino)
    .select_from(inode.join(TREE, inode.c.ino == TREE.c.ino))
    .where(IS_REGULAR, inode.c.nlink > 0)
)
"""Selects the regular files among an inode and everything below it."""
DIRECTORIES_BELOW = Statement(
    select(inode.c.ino)
    .select_from(inode.join(TREE, inode.c.ino == TREE.c.ino))
    .where(inode.c.kind == int(InodeKind.DIRECTORY))
)
"""Selects the directories among an inode and everything below it."""
COMPLETE = Statement(
    select(checkpoint.c.ino, checkpoint.c.path, checkpoint.c.evidence)
    .where(
        *(checkpoint.c.dirty_files > 0, checkpoint.c.complete_ns.is_not(None)),
        ~exists().where(superseded.c.ino == checkpoint.c.ino),
    )
    .order_by(checkpoint.c.complete_ns.desc(), checkpoint.c.ino.desc())
    .limit(b("most"))
)
"""Selects the checkpoints that are to be uploaded, the newest first."""
