"""The tables: the authority on every column. Laws that must hold are constraints here.

Times are nanoseconds since 1970. Names are bytes. Schema changes are Alembic migrations
(``migrations/versions``); a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

ROOT_INO = 2
RESERVED_NAME = b".spillway"
"""In the root: no client can make it. Its place is kept for what the gateway itself shows there."""
FIRST_FREE_INO = 16
FIRST_COOKIE = 16
"""Cookies 0 to 2 are reserved by NFS (RFC 8881 section 18.23)."""

Big = BigInteger().with_variant(Integer, "sqlite")
"""64 bits on every engine; SQLite takes only INTEGER as an alias of the row id."""


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
    type_annotation_map = {int: Big, bytes: LargeBinary}


class Volume(Base):
    """One row: identity and counters of this namespace."""

    __tablename__ = "volume"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    fs_id: Mapped[bytes]
    """16 random bytes; part of every file handle, so a handle of another volume is stale here."""
    boot: Mapped[int]
    """Counts starts of the NFS server; the NFSv4 write verifier is made of it."""
    next_ino: Mapped[int]
    """Numbers below are handed out or lost; reserved in blocks so that a crash reuses none."""
    next_cookie: Mapped[int]
    bucket: Mapped[str | None] = mapped_column(String)
    """Name of the bucket that has this namespace's objects. NULL: nothing was drained yet."""
    prefix: Mapped[str | None] = mapped_column(String)
    """Of the keys in that bucket."""
    gateway: Mapped[bytes | None]
    """16 random bytes: the gateway that has the data files. NULL: none was started yet."""
    mark: Mapped[int] = mapped_column(server_default="0")
    """Moves at each start and every minute in which something changed. The stamp of the data files
    has the same number, so an older copy of either is recognised (gateway.data.stamp)."""
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class Inode(Base):
    """A file, directory, link or device. A row with nlink 0 is an orphan: open, but nameless."""

    __tablename__ = "inode"
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    generation: Mapped[int]
    """Random per start of the server: a handle from before a restored backup stays stale."""
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
    """What a symlink points to."""
    verifier: Mapped[bytes | None]
    """Of the exclusive create that made the file (RFC 8881 section 18.16.3)."""
    parent: Mapped[int | None]
    """Of a directory: the directory that names it (the root names itself)."""
    content_version: Mapped[int]
    """Counts openings for write; moved durably before the first byte of a version is written."""
    drained_version: Mapped[int]
    """The newest version known to be in the bucket. Dirty is: content_version > this."""
    write_open: Mapped[int] = mapped_column(Integer)
    """1 from the first writer's open until the seal at the last writer's close."""
    drain_after_ns: Mapped[int]
    """The drain leaves the file alone before this time (settling, or clients reclaiming)."""
    residency: Mapped[int] = mapped_column(Integer)
    epoch: Mapped[int]

    __table_args__ = (
        CheckConstraint("kind BETWEEN 1 AND 7", name="kind"),
        CheckConstraint("mode BETWEEN 0 AND 4095", name="mode"),
        CheckConstraint("nlink >= 0 AND nlink <= 2000000000", name="nlink"),
        CheckConstraint("size >= 0 AND used >= 0", name="size"),
        CheckConstraint("(kind = 4) = (target IS NOT NULL)", name="symlink_has_target"),
        CheckConstraint("(kind = 7) = (parent IS NOT NULL)", name="directory_has_parent"),
        CheckConstraint("drained_version <= content_version", name="drained_not_ahead"),
        CheckConstraint("write_open IN (0, 1)", name="write_open"),
        CheckConstraint("residency BETWEEN 0 AND 2", name="residency"),
        CheckConstraint("residency <> 0 OR drained_version = content_version", name="dirty_stays"),
        CheckConstraint("write_open = 0 OR residency = 2", name="written_is_resident"),
        Index(
            "ix_inode_dirty_drain_after",
            "drain_after_ns",
            "ino",
            sqlite_where=text("kind = 1 AND content_version > drained_version"),
            postgresql_where=text("kind = 1 AND content_version > drained_version"),
        ),
        Index(
            "ix_inode_orphan",
            "ino",
            sqlite_where=text("nlink = 0"),
            postgresql_where=text("nlink = 0"),
        ),
        Index(
            "ix_inode_write_open",
            "ino",
            sqlite_where=text("write_open = 1"),
            postgresql_where=text("write_open = 1"),
        ),
    )


class Dirent(Base):
    """A name in a directory."""

    __tablename__ = "dirent"
    parent: Mapped[int] = mapped_column(ForeignKey("inode.ino"), primary_key=True)
    name: Mapped[bytes] = mapped_column(primary_key=True)
    ino: Mapped[int] = mapped_column(ForeignKey("inode.ino"))
    cookie: Mapped[int]
    """Drawn again when a name is made or renamed, so none names two entries of a listing."""

    __table_args__ = (
        CheckConstraint("length(name) BETWEEN 1 AND 255", name="name_length"),
        Index("uq_dirent_cookie", "parent", "cookie", unique=True),
        Index("ix_dirent_ino", "ino"),
        {"sqlite_with_rowid": False},
    )


class Xattr(Base):
    """An extended attribute of the user namespace; goes with its inode."""

    __tablename__ = "xattr"
    ino: Mapped[int] = mapped_column(ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True)
    name: Mapped[bytes] = mapped_column(primary_key=True)
    """Without ``user.``."""
    value: Mapped[bytes]

    __table_args__ = (
        CheckConstraint("length(name) BETWEEN 1 AND 255", name="name_length"),
        CheckConstraint("length(value) <= 65536", name="value_length"),
        {"sqlite_with_rowid": False},
    )


class Object(Base):
    """What the bucket holds, written only after the store confirmed it."""

    __tablename__ = "object"
    ino: Mapped[int] = mapped_column(ForeignKey("inode.ino"), primary_key=True, autoincrement=False)
    key: Mapped[str] = mapped_column(String, unique=True)
    content_version: Mapped[int]
    size: Mapped[int]
    etag: Mapped[str] = mapped_column(String)
    checksum: Mapped[str | None] = mapped_column(String)
    """``md5:<hex>`` of a single PUT, ``md5-parts:<part bytes>:<hex>`` of a multipart upload;
    ``crc64nvme:<hex>``, ``crc32c:<hex>`` of the whole, however it was sent. NULL: the object was
    made by another program."""
    stored_ns: Mapped[int]
    """Of a snapshot (content_version > the inode's drained_version): the moment it shows."""


class BlockDigest(Base):
    """What the blocks of an object are: of the same version as its row, and gone with it."""

    __tablename__ = "block_digest"
    ino: Mapped[int] = mapped_column(
        ForeignKey("object.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    block_bytes: Mapped[int]
    """Size of the blocks; the last one may be shorter."""
    crcs: Mapped[bytes]
    """CRC-64/NVME of each block in order, 8 bytes each, the most significant first; at most 1 MiB.
    Of a block in a hole it is that of zeros."""


class Digest(Base):
    """What a sealed version's bytes were, as the drain read them soon after the seal."""

    __tablename__ = "digest"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    content_version: Mapped[int]
    checksum: Mapped[str] = mapped_column(String)
    """As in ``object``."""
    computed_ns: Mapped[int]


class Upload(Base):
    """Intent: an upload that was started. Outlives its inode, so a crash leaves nothing unnamed."""

    __tablename__ = "upload"
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    content_version: Mapped[int]
    key: Mapped[str] = mapped_column(String)
    upload_id: Mapped[str | None] = mapped_column(String)
    """Of the multipart upload; None for a single PUT."""
    part_bytes: Mapped[int | None]
    """A restart resumes with this part size. NULL means: never resume."""
    started_ns: Mapped[int]
    generation: Mapped[int] = mapped_column(server_default="0")
    """Of the inode. 0: not known (a row older than this column)."""

    __table_args__ = (Index("ix_upload_key", "key"),)


class Tombstone(Base):
    """An object whose file a client deleted. The only permission to delete anything in the bucket.

    It covers what the inode had at the key up to a version, and nothing that was written since.
    """

    __tablename__ = "tombstone"
    key: Mapped[str] = mapped_column(String, primary_key=True)
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """0: not known (of a database older than this column)."""
    content_version: Mapped[int]
    etag: Mapped[str | None] = mapped_column(String)
    """Of the object, where it was recorded."""
    deleted_ns: Mapped[int]
    generation: Mapped[int] = mapped_column(server_default="0")
    """Of the inode. 0: not known (a row older than this column)."""


class Rekey(Base):
    """A file or directory that was renamed: objects at or below it may have the wrong key."""

    __tablename__ = "rekey"
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    renamed_ns: Mapped[int]


class Endpoint(Base):
    """What was found out about a store."""

    __tablename__ = "endpoint"
    url: Mapped[str] = mapped_column(String, primary_key=True)
    """As in the configuration; empty: AWS."""
    bucket: Mapped[str] = mapped_column(String, primary_key=True)
    checksum: Mapped[str] = mapped_column(String)
    """Which checksum it verifies: ``md5``, ``crc64nvme`` or ``crc32c``."""
    asked_ns: Mapped[int]


class Lease(Base):
    """The right of one run of a drain to work. Its claims hang on it and go with it."""

    __tablename__ = "lease"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Random. A takeover deletes the row; writes under the lease are refused from then on."""
    owner: Mapped[str] = mapped_column(String)
    """The process: see gateway.drain.process."""
    expires_ns: Mapped[int]


class Claim(Base):
    """An inode or a key that one drain works on; the others leave it alone."""

    __tablename__ = "claim"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    """``i<ino>`` or ``k<key>``."""
    lease: Mapped[int] = mapped_column(ForeignKey("lease.id", ondelete="CASCADE"))

    __table_args__ = (Index("ix_claim_lease", "lease"),)


class Retry(Base):
    """A job of the drain that failed. The next success takes the row away."""

    __tablename__ = "retry"
    job: Mapped[str] = mapped_column(String, primary_key=True)
    """See gateway.drain.job.Job."""
    tries: Mapped[int]
    error: Mapped[str] = mapped_column(String)
    """One line, of the last try."""
    next_ns: Mapped[int]
    """Not tried again before."""
    ino: Mapped[int] = mapped_column(server_default="0")
    """Of the file that the job is about; 0: none."""


class Override(Base):
    """What a person said of a file, or of a directory and everything below it."""

    __tablename__ = "override"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    hold: Mapped[int] = mapped_column(Integer)
    """1: is not drained; 0: goes before everything else."""
    set_ns: Mapped[int]

    __table_args__ = (CheckConstraint("hold IN (0, 1)", name="hold"),)


class Doubt(Base):
    """A key at which a drain was at work that had lost its lease: to be looked at."""

    __tablename__ = "doubt"
    key: Mapped[str] = mapped_column(String, primary_key=True)
    ino: Mapped[int]
    """Of the file whose bytes may have been put there; 0: none."""
    noted_ns: Mapped[int]
    look_ns: Mapped[int] = mapped_column(server_default="0")
    """The key is not looked at before this time."""


class Damage(Base):
    """A file whose local bytes are known to be lost or incomplete. It is neither sealed nor drained
    until it is truncated to nothing."""

    __tablename__ = "damage"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    content_version: Mapped[int]
    """The version in which the damage was found."""
    reason: Mapped[str] = mapped_column(String)
    """One line, shown to a person."""
    noted_ns: Mapped[int]
