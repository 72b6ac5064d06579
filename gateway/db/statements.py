"""SQL of the namespace. The drain has gateway.drain.statements in the same manner."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import (
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    union,
    update,
)

from gateway.common.types import Attr, InodeKind, Residency
from gateway.db import checkpoint_models, drain_models, models
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import RESERVED_INO, TRASH_INO

volume: Any = models.VolumeTable.__table__
directory_usage: Any = models.DirectoryUsageTable.__table__
owner_usage: Any = models.OwnerUsageTable.__table__
inode: Any = models.InodeTable.__table__
dirent: Any = models.DirentTable.__table__
xattr: Any = models.XattrTable.__table__
object_: Any = drain_models.ObjectTable.__table__
block_digest: Any = drain_models.BlockDigestTable.__table__
present_blocks: Any = models.PresentBlocksTable.__table__
eviction: Any = models.EvictionTable.__table__
warm_request: Any = models.WarmRequestTable.__table__
last_read: Any = models.LastReadTable.__table__
digest: Any = drain_models.DigestTable.__table__
scrub_pass: Any = drain_models.ScrubPassTable.__table__
endpoint: Any = drain_models.EndpointTable.__table__
bucket_owner: Any = drain_models.BucketOwnerTable.__table__
upload: Any = drain_models.UploadTable.__table__
tombstone: Any = drain_models.TombstoneTable.__table__
rekey: Any = drain_models.RekeyTable.__table__
transition: Any = drain_models.TransitionTable.__table__
lease: Any = drain_models.LeaseTable.__table__
claim: Any = drain_models.ClaimTable.__table__
retry: Any = drain_models.RetryTable.__table__
queue_order: Any = drain_models.QueueOrderTable.__table__
indeterminate_write: Any = drain_models.IndeterminateWriteTable.__table__
promotion: Any = checkpoint_models.PromotionTable.__table__
promotion_member: Any = checkpoint_models.PromotionMemberTable.__table__
pin: Any = models.PinTable.__table__
damage: Any = models.DamageTable.__table__
imported_prefix: Any = models.ImportedPrefixTable.__table__
imported_object: Any = models.ImportedObjectTable.__table__
journal: Any = models.JournalTable.__table__
reader: Any = models.ReaderTable.__table__
names_copy: Any = models.NamesCopyTable.__table__
checkpoint: Any = checkpoint_models.CheckpointTable.__table__
checkpoint_record: Any = checkpoint_models.CheckpointRecordTable.__table__
catalogue: Any = checkpoint_models.CatalogueTable.__table__
manifest: Any = checkpoint_models.ManifestTable.__table__
trash: Any = checkpoint_models.TrashTable.__table__
elapsed_time: Any = checkpoint_models.ElapsedTimeTable.__table__
superseded: Any = checkpoint_models.SupersededTable.__table__

# These are literals, in the words of the partial indexes: a parameter would not match an index.
IS_REGULAR = inode.c.kind == literal_column(f"{InodeKind.REGULAR:d}")
IS_DIRECTORY = inode.c.kind == literal_column(f"{InodeKind.DIRECTORY:d}")
IS_RESIDENT = inode.c.residency == literal_column(f"{Residency.RESIDENT:d}")
IS_ABSENT = inode.c.residency == literal_column(f"{Residency.ABSENT:d}")
IS_DIRTY = (IS_REGULAR, inode.c.content_version > inode.c.drained_version)
"""A regular file whose version the bucket does not have."""
IS_LISTED = inode.c.ino.not_in([literal_column(f"{ino}") for ino in (RESERVED_INO, TRASH_INO)])
"""An entry that listings show."""
IS_CLIENTS = inode.c.reserved == literal_column("0")
"""An inode that clients may change."""


def with_below(top: Any, *only: Any) -> Any:
    """Return the inodes of a selection and everything below them, as a table.

    Args:
        top: selects ``ino``. What it selects beside that comes with each inode below.
        only: conditions for the inodes below. Nothing below one that is left out is found.
    """
    cte = top.cte("below", recursive=True)
    inner = [dirent.c.ino if column.name == "ino" else column for column in cte.c]
    named = dirent.join(cte, dirent.c.parent == cte.c.ino)
    if only:
        named = named.join(inode, inode.c.ino == dirent.c.ino)
    return cte.union(select(*inner).select_from(named).where(*only))


_TOP = select(bindparam("top", type_=inode.c.ino.type).label("ino"))
TREE = with_below(_TOP)
"""An inode, ``top``, and everything below it."""
DIRECTORY_TREE = with_below(_TOP, IS_DIRECTORY)
"""An inode, ``top``, and the directories below it. Where files are many, SQLite reads it in half
the time of ``TREE``."""
LISTED_DIRECTORY_TREE = with_below(_TOP, IS_DIRECTORY, IS_LISTED)
"""The same without directories that listings do not show."""
HERE = union(_TOP, select(dirent.c.ino).where(dirent.c.parent == b("top"))).subquery("here")
"""An inode, ``top``, and what is directly in it."""
TRASH_TREE = with_below(select(inode.c.ino).where(inode.c.ino == literal_column(f"{TRASH_INO}")))
"""The trash and everything in it. There is none in a namespace without a trash."""

IS_IMPORTED = exists().where(
    imported_object.c.ino == inode.c.ino, imported_object.c.size == inode.c.size
)
"""A file whose bytes another bucket has (``imported_object``)."""

ATTR = [inode.c[name] for name in Attr._fields]
IMPORTED = Statement(select(imported_object.c.ino).where(imported_object.c.ino == b("ino")))
IMPORT_TOPS = Statement(select(imported_prefix.c.top))
IMPORT_TOP = Statement(select(imported_prefix.c.top).where(imported_prefix.c.top == b("top")))

# volume
VOLUME_INSERT = Statement(insert(volume))
VOLUME = Statement(select(volume.c.fs_id, volume.c.boot))
VOLUME_BOOT = Statement(update(volume).values(boot=volume.c.boot + 1))
IDENTITY = Statement(
    select(volume.c.fs_id, volume.c.gateway, volume.c.mark, volume.c.bucket, volume.c.prefix)
)
MARK = Statement(update(volume).values(gateway=b("gateway"), mark=b("mark")))
BUCKET = Statement(update(volume).values(bucket=b("bucket"), prefix=b("prefix")))
RESERVE = Statement(
    update(volume)
    .values(next_ino=volume.c.next_ino + b("inos"), next_cookie=volume.c.next_cookie + b("cookies"))
    .returning(volume.c.next_ino, volume.c.next_cookie)
)

# inode
GET = Statement(select(*ATTR).where(inode.c.ino == b("ino")))
PARENT = Statement(select(inode.c.parent).where(inode.c.ino == b("ino"), IS_DIRECTORY))
TARGET = Statement(select(inode.c.target, inode.c.kind).where(inode.c.ino == b("ino")))
VERIFIER = Statement(select(inode.c.verifier).where(inode.c.ino == b("ino")))
INODE_INSERT = Statement(insert(inode))
INODE_DELETE = Statement(delete(inode).where(inode.c.ino == b("the_ino"), inode.c.nlink == 0))
SETATTR = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(
        mode=b("mode"),
        uid=b("uid"),
        gid=b("gid"),
        atime_ns=b("atime_ns"),
        mtime_ns=b("mtime_ns"),
        ctime_ns=b("ctime_ns"),
        change=inode.c.change + 1,
    )
    .returning(*ATTR)
)
_names_change = (
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(nlink=inode.c.nlink + b("delta"), ctime_ns=b("now_ns"), change=inode.c.change + 1)
)
NLINK = Statement(_names_change.returning(*ATTR))
NAME_LOST = Statement(_names_change.returning(inode.c.nlink, inode.c.change))
"""NLINK with the two columns that an unlink needs. With all of them it takes a tenth longer."""
DIRECTORY_CHANGED = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(
        nlink=inode.c.nlink + b("delta"),
        mtime_ns=b("now_ns"),
        ctime_ns=b("now_ns"),
        change=inode.c.change + 1,
    )
    .returning(*ATTR)
)
REPARENT = Statement(
    update(inode).where(inode.c.ino == b("the_ino")).values(parent=b("new_parent"))
)
OPEN_WRITE = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"), IS_REGULAR, IS_RESIDENT, IS_CLIENTS)
    .values(
        write_open=1,
        content_version=inode.c.content_version + 1,
        change=inode.c.change + 1,
    )
    .returning(*ATTR)
)
SEAL = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(
        write_open=0,
        # A file that is not open was sealed before, and its version may be in the bucket. These
        # bytes are a new version.
        content_version=inode.c.content_version + 1 - inode.c.write_open,
        size=b("size"),
        used=b("used"),
        mtime_ns=b("mtime_ns"),
        # Clients can set mtime, also into the future. They can never set ctime.
        ctime_ns=case(
            (inode.c.ctime_ns < b("written_ns"), b("written_ns")), else_=inode.c.ctime_ns
        ),
        change=inode.c.change + b("writes"),
        drain_after_ns=b("drain_after_ns"),
    )
    .returning(*ATTR)
)
SEAL_UNCHANGED = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"), inode.c.write_open == 1)
    .values(write_open=0, drain_after_ns=b("drain_after_ns"))
    .returning(inode.c.drained_version, *ATTR)
)
SAME_CONTENT = Statement(
    update(inode)
    .where(
        inode.c.ino == b("the_ino"),
        inode.c.drained_version > 0,
        inode.c.drained_version == inode.c.content_version - 1,
    )
    .values(drained_version=inode.c.content_version)
)
SAME_CONTENT_OBJECT = Statement(
    update(object_)
    .where(object_.c.ino == b("the_ino"))
    .values(
        content_version=select(inode.c.content_version)
        .where(inode.c.ino == b("the_ino"), inode.c.drained_version == inode.c.content_version)
        .scalar_subquery()
    )
)
# The numbers are literals for the partial indexes, as above.
WRITE_OPEN = Statement(
    select(inode.c.ino, inode.c.epoch, inode.c.size, inode.c.mtime_ns).where(
        inode.c.write_open == literal_column("1"),
        ~exists().where(damage.c.ino == inode.c.ino),
    )
)
"""The files that a start may seal. A damaged file is none: its data file is not the truth."""
DAMAGED_OPEN = Statement(
    select(inode.c.ino).where(
        inode.c.write_open == literal_column("1"),
        exists().where(damage.c.ino == inode.c.ino),
    )
)
"""The files that were open for writing and that a start does not seal."""
STEP_CHANGE = Statement(
    update(inode).where(inode.c.ino == b("the_ino")).values(change=inode.c.change + b("step"))
)
# An orphan that owns an object is a contradiction: fsck reports it, and its bytes are kept.
ORPHANS = Statement(
    select(inode.c.ino, inode.c.epoch).where(
        inode.c.nlink == literal_column("0"),
        ~exists().where(object_.c.ino == inode.c.ino),
    )
)
FILES_WITH_BYTES = Statement(
    select(inode.c.ino, inode.c.epoch)
    .where(
        IS_REGULAR,
        IS_RESIDENT,
        inode.c.size > 0,
        inode.c.nlink > 0,
        inode.c.ino > 0,
    )
    .order_by(inode.c.ino)
    .limit(b("most"))
)
DIRTY_BYTES = Statement(
    select(
        func.coalesce(select(func.sum(inode.c.used)).where(*IS_DIRTY).scalar_subquery(), 0)
        - func.coalesce(select(func.sum(trash.c.dirty_used)).scalar_subquery(), 0)
    )
)
"""Selects the bytes on the disk that the drain will make free: what is in the trash is not sent."""

# elapsed_time
ELAPSED_TIME = Statement(
    select(
        elapsed_time.c.elapsed_ns,
        elapsed_time.c.boot,
        elapsed_time.c.uptime_ns,
        elapsed_time.c.clock_ns,
    )
)
ELAPSED_TIME_DELETE = Statement(delete(elapsed_time))
ELAPSED_TIME_INSERT = Statement(insert(elapsed_time))

# damage
CONTENT_VERSION = Statement(select(inode.c.content_version).where(inode.c.ino == b("ino")))
DAMAGES = Statement(
    select(damage.c.ino).where(damage.c.ino > b("after")).order_by(damage.c.ino).limit(b("most"))
)
DAMAGE_INSERT = Statement(insert(damage))
DAMAGE_DELETE = Statement(delete(damage).where(damage.c.ino == b("the_ino")))

# dirent
LOOKUP = Statement(
    select(*ATTR)
    .select_from(dirent.join(inode, dirent.c.ino == inode.c.ino))
    .where(dirent.c.parent == b("parent"), dirent.c.name == b("name"))
)
ENTRY = Statement(
    select(dirent.c.ino).where(dirent.c.parent == b("parent"), dirent.c.name == b("name"))
)
ANY_ENTRY = Statement(select(dirent.c.ino).where(dirent.c.parent == b("parent")).limit(1))
READDIR = Statement(
    select(dirent.c.cookie, dirent.c.name, *ATTR)
    .select_from(dirent.join(inode, dirent.c.ino == inode.c.ino))
    .where(dirent.c.parent == b("parent"), dirent.c.cookie > b("cookie"), IS_LISTED)
    .order_by(dirent.c.cookie)
    .limit(b("most"))
)
DIRENT_INSERT = Statement(insert(dirent))
DIRENT_DELETE = Statement(
    delete(dirent).where(dirent.c.parent == b("the_parent"), dirent.c.name == b("the_name"))
)
DIRENT_MOVE = Statement(
    update(dirent)
    .where(dirent.c.parent == b("the_parent"), dirent.c.name == b("the_name"))
    .values(parent=b("new_parent"), name=b("new_name"), cookie=b("new_cookie"))
)
DIRENT_REPLACE = Statement(
    update(dirent)
    .where(dirent.c.parent == b("the_parent"), dirent.c.name == b("the_name"))
    .values(ino=b("new_ino"))
)
NAMES = Statement(
    select(dirent.c.parent, dirent.c.name).where(dirent.c.ino == b("ino")).order_by(dirent.c.cookie)
)

# xattr
XATTR = Statement(select(xattr.c.value).where(xattr.c.ino == b("ino"), xattr.c.name == b("name")))
XATTRS = Statement(select(xattr.c.name).where(xattr.c.ino == b("ino")).order_by(xattr.c.name))
XATTR_INSERT = Statement(insert(xattr))
XATTR_UPDATE = Statement(
    update(xattr)
    .where(xattr.c.ino == b("the_ino"), xattr.c.name == b("the_name"))
    .values(value=b("value"))
)
XATTR_DELETE = Statement(
    delete(xattr).where(xattr.c.ino == b("the_ino"), xattr.c.name == b("the_name"))
)

# changes that the bucket must get
ANYTHING_DRAINED = Statement(
    select(literal_column("1")).where(
        or_(
            exists().where(object_.c.ino > 0),
            exists().where(upload.c.ino > 0),
            exists().where(tombstone.c.key > ""),
        )
    )
)
OBJECT_KEY = Statement(
    select(object_.c.key, object_.c.content_version, object_.c.etag).where(
        object_.c.ino == b("ino")
    )
)
OBJECT_DELETE = Statement(delete(object_).where(object_.c.ino == b("the_ino")))


class TombstoneRow(NamedTuple):
    """A row of ``tombstone``. What the inode had at the key up to this version is garbage."""

    key: str
    ino: int
    content_version: int
    etag: str | None
    generation: int
    """Generation of the inode. 0 means not known."""

    def with_earlier(self, before: TombstoneRow) -> TombstoneRow:
        """Return this tombstone, extended by an earlier one for the same inode and key."""
        if 0 not in (before.generation, self.generation) and before.generation != self.generation:
            # The number was given out again: the earlier one is of another file, whose object was
            # replaced.
            return self
        generation = self.generation or before.generation
        # The object at the key may come from an interrupted upload of a later version.
        newest = before if before.content_version > self.content_version else self
        return newest._replace(generation=generation)


TOMBSTONE = Statement(
    select(*[tombstone.c[name] for name in TombstoneRow._fields]).where(
        tombstone.c.key == b("key"), tombstone.c.ino == b("ino")
    )
)
TOMBSTONE_DELETE = Statement(
    delete(tombstone).where(tombstone.c.key == b("the_key"), tombstone.c.ino == b("the_ino"))
)
TOMBSTONE_INSERT = Statement(insert(tombstone))
REKEY = Statement(select(rekey.c.ino).where(rekey.c.ino == b("ino")))
REKEY_INSERT = Statement(insert(rekey))
REKEY_DELETE = Statement(delete(rekey).where(rekey.c.ino == b("the_ino")))


def add_tombstone(
    session: Session,
    now_ns: int,
    key: str,
    ino: int,
    content_version: int,
    etag: str | None,
    generation: int,
) -> None:
    """Record that what an inode had at a key, up to a version, is garbage.

    Args:
        generation: generation of the inode (0: not known).
    """
    tombstone = TombstoneRow(key, ino, content_version, etag, generation)
    if (before := session.one(TOMBSTONE, key=key, ino=ino)) is not None:
        tombstone = tombstone.with_earlier(TombstoneRow(*before))
    session.run(TOMBSTONE_DELETE, the_key=key, the_ino=ino)
    session.run(TOMBSTONE_INSERT, **tombstone._asdict(), deleted_ns=now_ns)
