"""Tables of the namespace: the authority on every column. Invariants are constraints.

Times are nanoseconds since 1970. Names are bytes. Schema changes are Alembic migrations
(``migrations/versions``). A test compares migrations and tables.

Tables are declared as classes, with an attribute for each column, in the words of SQLAlchemy's ORM.
The ORM itself is not used: its import and its mapping were a fifth of the time that a command, or a
process of ``spillway up``, takes to start.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    text,
)
from sqlalchemy.types import TypeEngine

from gateway.common.types import InodeKind, Residency

T = TypeVar("T")


class Mapped(Generic[T]):
    """The annotation of a column. It gives the type, and allows NULL if it names None."""


def mapped_column(*arguments: Any, **options: Any) -> Any:
    """Declare more of a column: the arguments and options of ``sqlalchemy.Column``."""
    return arguments, options


def partial_index(name: str, *columns: str, where: str) -> Index:
    """Declare an index of some rows, the same on both engines. SQLite uses it for a statement that
    has the same words as ``where``."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


class DeclarativeBase:
    """The base of all tables of one schema. A subclass with a ``__tablename__`` is a table."""

    metadata: ClassVar[MetaData]
    type_annotation_map: ClassVar[dict[type, Any]]
    """The column's type, by the type in its annotation."""
    __tablename__: ClassVar[str]
    __table_args__: ClassVar[tuple[Any, ...]] = ()
    """Constraints and indexes, and at the end perhaps a dict of the table's options."""
    __table__: ClassVar[Table]

    def __init_subclass__(cls) -> None:
        if "__tablename__" not in vars(cls):
            return
        columns = [cls._column(*item) for item in cls.__annotations__.items()]
        rest = list(cls.__table_args__)
        options = rest.pop() if rest and isinstance(rest[-1], dict) else {}
        cls.__table__ = Table(cls.__tablename__, cls.metadata, *columns, *rest, **options)

    @classmethod
    def _column(cls, name: str, annotation: str) -> Column[Any]:
        """Make a column. The annotation is text: ``Mapped[int]``, ``Mapped[str | None]``."""
        arguments, options = vars(cls).get(name, ((), {}))
        kind, _, null = annotation.removeprefix("Mapped[").removesuffix("]").partition(" | ")
        if not any(isinstance(argument, (type, TypeEngine)) for argument in arguments):
            types = {class_.__name__: made for class_, made in cls.type_annotation_map.items()}
            arguments = (types[kind], *arguments)
        return Column(name, *arguments, **{"nullable": null == "None", **options})


ROOT_INO = 2
RESERVED_NAME = b".spillway"
"""A name in the root that no client can make: it is the gateway's own directory's."""
RESERVED_INO, TRASH_INO, PROMOTED_INO, RUNS_INO, CHECKPOINTS_INO = range(3, 8)
"""That directory, and those in it (gateway.namespace.reserved)."""
FIRST_FREE_INO = 16
FIRST_COOKIE = 16
"""Cookies 0 to 2 are reserved by NFS (RFC 8881 section 18.23)."""

Big = BigInteger().with_variant(Integer, "sqlite")
"""64 bits on every engine. SQLite accepts only INTEGER as an alias of the row id."""


_DIRTY = f"kind = {InodeKind.REGULAR:d} AND content_version > drained_version"
"""The same words as ``IS_DIRTY`` (gateway.db.statements): else SQLite would not use the index."""


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {int: Big, bytes: LargeBinary, str: String}


class VolumeTable(Base):
    """Identity and counters of this namespace, in one row."""

    __tablename__ = "volume"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    fs_id: Mapped[bytes]
    """16 random bytes. They are part of every file handle: a handle of another volume is stale."""
    boot: Mapped[int]
    """Counts starts of the NFS server. The NFSv4 write verifier is made of it."""
    next_ino: Mapped[int]
    """Lower numbers are handed out or lost. Blocks are reserved, so a crash reuses no number."""
    next_cookie: Mapped[int]
    bucket: Mapped[str | None] = mapped_column(String)
    """Name of the bucket that has this namespace's objects. NULL before anything was drained."""
    prefix: Mapped[str | None] = mapped_column(String)
    """Prefix of the keys in that bucket."""
    gateway: Mapped[bytes | None]
    """16 random bytes of the gateway that has the data files. NULL before the first start."""
    mark: Mapped[int] = mapped_column(server_default="0")
    """Moves at each start and stop, and in every minute in which something changed. The stamp of
    the data files has the same number, so an older copy of either is recognised
    (gateway.namespace.data_files)."""
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class FenceTable(Base):
    """One row, which only the NFS server on PostgreSQL writes, in each of its transactions
    (gateway.db.fence)."""

    __tablename__ = "fence"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(server_default="0")
    """Counts these transactions. A database with a smaller number than the server has answered
    lacks changes."""
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class InodeTable(Base):
    """A file, directory, link or device. A row with nlink 0 is an orphan: open, but nameless."""

    __tablename__ = "inode"
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    generation: Mapped[int]
    """Random for each start of the server: a handle from before a restored backup stays stale."""
    kind: Mapped[int] = mapped_column(Integer)
    mode: Mapped[int] = mapped_column(Integer)
    uid: Mapped[int]
    gid: Mapped[int]
    nlink: Mapped[int] = mapped_column(Integer)
    size: Mapped[int]
    """Bytes. While write_open = 1 the data file's fstat is the truth, not this column."""
    used: Mapped[int]
    atime_ns: Mapped[int]
    mtime_ns: Mapped[int]
    ctime_ns: Mapped[int]
    btime_ns: Mapped[int]
    change: Mapped[int]
    rdev: Mapped[int]
    target: Mapped[bytes | None]
    """Target of a symlink."""
    verifier: Mapped[bytes | None]
    """Verifier of the exclusive create that made the file (RFC 8881 section 18.16.3)."""
    parent: Mapped[int | None]
    """For a directory, the directory that has its name. The root is its own parent."""
    content_version: Mapped[int]
    """Counts openings for writing. It moves durably before a version's first byte is written."""
    drained_version: Mapped[int]
    """The newest version known to be in the bucket. Dirty means that content_version is higher."""
    write_open: Mapped[int] = mapped_column(Integer)
    """1 from the first writer's open until the seal at the last writer's close."""
    drain_after_ns: Mapped[int]
    """The drain leaves the file alone before this time: it settles, or clients may reclaim it."""
    epoch: Mapped[int]
    """Suffix of the data file's name. Each eviction moves it."""
    residency: Mapped[int] = mapped_column(Integer)
    reserved: Mapped[int] = mapped_column(Integer, server_default="0")
    """1: only the gateway changes it (gateway.namespace.reserved). What is made in a reserved
    directory is reserved, and so is what the gateway puts there, until it takes it back."""
    charged_to: Mapped[int | None]
    """The directory whose usage has it: one that has a name of it. Directories, and what has no
    name, are charged to none."""

    __table_args__ = (
        CheckConstraint("reserved IN (0, 1)", name="reserved"),
        CheckConstraint(f"kind BETWEEN {min(InodeKind):d} AND {max(InodeKind):d}", name="kind"),
        CheckConstraint("mode BETWEEN 0 AND 4095", name="mode"),
        CheckConstraint("nlink >= 0 AND nlink <= 2000000000", name="nlink"),
        CheckConstraint("size >= 0 AND used >= 0", name="size"),
        CheckConstraint(
            f"(kind = {InodeKind.SYMLINK:d}) = (target IS NOT NULL)", name="symlink_has_target"
        ),
        CheckConstraint(
            f"(kind = {InodeKind.DIRECTORY:d}) = (parent IS NOT NULL)", name="directory_has_parent"
        ),
        CheckConstraint("drained_version <= content_version", name="drained_not_ahead"),
        CheckConstraint("write_open IN (0, 1)", name="write_open"),
        CheckConstraint(
            f"residency BETWEEN {min(Residency):d} AND {max(Residency):d}", name="residency"
        ),
        CheckConstraint(
            f"residency <> {Residency.ABSENT:d} OR drained_version = content_version",
            name="dirty_stays",
        ),
        CheckConstraint(
            f"write_open = 0 OR residency = {Residency.RESIDENT:d}", name="written_is_resident"
        ),
        partial_index("ix_inode_dirty_drain_after", "drain_after_ns", "ino", where=_DIRTY),
        partial_index("ix_inode_orphan", "ino", where="nlink = 0"),
        partial_index("ix_inode_write_open", "ino", where="write_open = 1"),
    )


class DirentTable(Base):
    """A name in a directory."""

    __tablename__ = "dirent"
    parent: Mapped[int] = mapped_column(ForeignKey("inode.ino"), primary_key=True)
    name: Mapped[bytes] = mapped_column(primary_key=True)
    ino: Mapped[int] = mapped_column(ForeignKey("inode.ino"))
    cookie: Mapped[int]
    """A made or renamed name gets a new cookie, so no cookie names two entries of a listing."""

    __table_args__ = (
        CheckConstraint("length(name) BETWEEN 1 AND 255", name="name_length"),
        Index("uq_dirent_cookie", "parent", "cookie", unique=True),
        Index("ix_dirent_ino", "ino"),
        {"sqlite_with_rowid": False},
    )


class DirectoryUsageTable(Base):
    """What is charged to a directory, without what is below its subdirectories. Triggers keep the
    sums (migration 0037), whatever changes a row."""

    __tablename__ = "directory_usage"
    directory: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    files: Mapped[int]
    """All but directories."""
    size: Mapped[int]
    """Bytes of the files as they were when they were closed last."""
    used: Mapped[int]
    """Bytes on the local disk."""
    unsaved: Mapped[int]
    """Bytes of files whose version the bucket does not have."""


class OwnerUsageTable(Base):
    """What is charged to an owner. The sums are as those of a directory."""

    __tablename__ = "owner_usage"
    uid: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    reserved: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """1: what the gateway keeps of it: in the trash, and copies of promotions."""
    files: Mapped[int]
    size: Mapped[int]
    used: Mapped[int]
    unsaved: Mapped[int]


class XattrTable(Base):
    """An extended attribute of the user namespace. It is deleted with its inode."""

    __tablename__ = "xattr"
    ino: Mapped[int] = mapped_column(ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True)
    name: Mapped[bytes] = mapped_column(primary_key=True)
    """Name without the prefix ``user.``."""
    value: Mapped[bytes]

    __table_args__ = (
        CheckConstraint("length(name) BETWEEN 1 AND 255", name="name_length"),
        CheckConstraint("length(value) <= 65536", name="value_length"),
        {"sqlite_with_rowid": False},
    )


class PresentBlocksTable(Base):
    """The blocks of an absent file that are in its data file, verified and on stable storage."""

    __tablename__ = "present_blocks"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    epoch: Mapped[int]
    """The epoch of the data file. A row with another epoch than the inode's says nothing."""
    block_bytes: Mapped[int]
    """The size of a block, as in ``block_digest``."""
    blocks: Mapped[bytes]
    """A bit for each block, the first in the lowest bit of the first byte."""


class EvictionTable(Base):
    """A data file that no row needs any more. The row is deleted after the file: a start deletes
    the files that a crash left."""

    __tablename__ = "eviction"
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class WarmRequestTable(Base):
    """A request of a person, or of a process of the gateway, for the whole of an absent file. The
    arrival of the file deletes the row."""

    __tablename__ = "warm_request"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    asked_ns: Mapped[int]


class PinTable(Base):
    """A file, or a directory with everything below it, that a person keeps on the local disk and
    from all policies. A rename keeps the pin, and the removal of the last name ends it."""

    __tablename__ = "pin"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    note: Mapped[str] = mapped_column(String)
    pinned_by: Mapped[str] = mapped_column(String)
    """Name of the user."""
    pinned_ns: Mapped[int]


class LastReadTable(Base):
    """The time of a file's last read, to the minute, or of its arrival. Files that were never read
    and never absent have no row."""

    __tablename__ = "last_read"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    read_ns: Mapped[int]


class DamageTable(Base):
    """A file whose local bytes are known to be lost or incomplete. It is neither sealed nor drained
    until it is truncated to 0 bytes."""

    __tablename__ = "damage"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    content_version: Mapped[int]
    """The version in which the damage was found."""
    reason: Mapped[str] = mapped_column(String)
    """One line, shown to a person."""
    noted_ns: Mapped[int]


class ImportedPrefixTable(Base):
    """A prefix of a bucket whose objects are files below a directory, which only the gateway
    changes (gateway.recovery.imports). Nothing is ever written to that bucket."""

    __tablename__ = "imported_prefix"
    top: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    """The directory."""
    bucket: Mapped[str] = mapped_column(String)
    """Its endpoint is that of the gateway's own bucket."""
    prefix: Mapped[str] = mapped_column(String)
    """The beginning of the keys, without a slash at its end. Empty: the whole bucket."""
    state: Mapped[str] = mapped_column(String)
    """``placing``, ``listing``, ``whole`` or ``removing``."""
    last_key: Mapped[str | None] = mapped_column(String)
    """The first listing continues after this key. NULL: the listing begins at the first key."""
    untold: Mapped[str] = mapped_column(String)
    """A JSON array of the directories that the last transaction changed: the NFS server may not
    have been told."""
    asked_ns: Mapped[int]
    """When a person asked for the listing."""
    ended_ns: Mapped[int | None]
    """The end of the last listing. NULL: none has ended."""
    files: Mapped[int]
    size: Mapped[int]
    """Bytes of all files."""
    gone: Mapped[int]
    """The files whose objects the last listing did not have."""
    left_out: Mapped[int]
    """The objects of the present or last listing whose keys cannot be names."""
    examples: Mapped[str] = mapped_column(String)
    """The first of them: a JSON array of pairs of key and reason."""
    error: Mapped[str | None] = mapped_column(String)
    """Why the listing waits."""


class ImportedObjectTable(Base):
    """Where the bytes of a file of an imported prefix are, in place of a row of ``object``: the
    object is another program's, and nothing may move or delete it."""

    __tablename__ = "imported_object"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    top: Mapped[int] = mapped_column(ForeignKey("imported_prefix.top", ondelete="CASCADE"))
    key: Mapped[str] = mapped_column(String)
    size: Mapped[int]
    etag: Mapped[str] = mapped_column(String)
    gone_ns: Mapped[int | None]
    """Since when a listing has not had the object. NULL: the last one had it."""
    block_bytes: Mapped[int | None]
    """The size of its blocks, as in ``block_digest``. NULL: the object was not read whole yet."""
    crcs: Mapped[bytes | None]

    __table_args__ = (Index("ix_imported_object_top_key", "top", "key"),)


class JournalTable(Base):
    """Inodes that a transaction touched: see gateway.db.journal. The last row is never pruned,
    because SQLite takes the next number from it."""

    __tablename__ = "journal"
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    """The order of the commits. Numbers of transactions that were rolled back are missing."""
    what: Mapped[int] = mapped_column(Integer)
    """Flags: see gateway.db.journal."""
    inos: Mapped[str] = mapped_column(String)
    """A JSON array of numbers, some of which may be gone since. A row for each inode would cost a
    transaction of 32 inodes four times as much."""


class ReaderTable(Base):
    """A reader of the journal. While there is none, no row is added."""

    __tablename__ = "reader"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    position: Mapped[int]
    """Rows before this number are not needed by it any more."""
    lease: Mapped[int | None] = mapped_column(ForeignKey("lease.id", ondelete="CASCADE"))
    """The lease of a drain: its reader goes with it. NULL: the reader outlives its process."""


class NamesCopyTable(Base):
    """How far the copy of the names in the bucket has come, in one row
    (gateway.recovery.names_copy)."""

    __tablename__ = "names_copy"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    series: Mapped[str] = mapped_column(String)
    """Name of the series. Another one begins when the journal was not kept."""
    number: Mapped[int]
    """The number of the last segment of the log."""
    base_after: Mapped[int | None]
    """The row of the journal after which the log continues the newest whole base. NULL: the series
    has none."""
    base_ns: Mapped[int | None]
    """When that base was whole."""
    base_bytes: Mapped[int]
    log_bytes: Mapped[int]
    """The size of the segments since that base began."""
    log_segments: Mapped[int]
    copied_ns: Mapped[int]
    """The bucket has every name as it was at this time."""
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)
