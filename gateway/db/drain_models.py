"""Tables of the drain: what the bucket has, and the work on it."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, Index, Integer, String

from gateway.db.models import Base, Mapped, mapped_column

__all__ = ["Base"]


class ObjectTable(Base):
    """An object in the bucket, recorded only after the store confirmed it."""

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
    """When it was stored. Of a snapshot (content_version > the inode's drained_version) it is the
    moment that the snapshot shows."""
    storage_class: Mapped[str | None] = mapped_column(String)
    """The one that the store told after a transition. NULL: it has the one in which it was sent."""


class BlockDigestTable(Base):
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


class DigestTable(Base):
    """The checksum of a sealed version, as the drain read its bytes soon after the seal."""

    __tablename__ = "digest"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    content_version: Mapped[int]
    checksum: Mapped[str] = mapped_column(String)
    """The same form as in ``object``."""
    computed_ns: Mapped[int]


class UploadTable(Base):
    """An intent: an upload that was started. It outlives its inode, so that after a crash every
    upload has a row."""

    __tablename__ = "upload"
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    content_version: Mapped[int]
    key: Mapped[str] = mapped_column(String)
    upload_id: Mapped[str | None] = mapped_column(String)
    """Id of the multipart upload. NULL for a single PUT."""
    part_bytes: Mapped[int | None]
    """A restart resumes with this part size. NULL means that the upload is never resumed."""
    started_ns: Mapped[int]
    generation: Mapped[int] = mapped_column(server_default="0")
    """Generation of the inode. 0 means not known (a row older than this column)."""

    __table_args__ = (Index("ix_upload_key", "key"),)


class TombstoneTable(Base):
    """An object whose file a client deleted. Only a tombstone permits a deletion in the bucket.

    It covers what the inode had at the key up to a version, and nothing that was written since.
    """

    __tablename__ = "tombstone"
    key: Mapped[str] = mapped_column(String, primary_key=True)
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """0 means not known (a row older than this column)."""
    content_version: Mapped[int]
    etag: Mapped[str | None] = mapped_column(String)
    """ETag of the object, if it was recorded."""
    deleted_ns: Mapped[int]
    generation: Mapped[int] = mapped_column(server_default="0")
    """Generation of the inode. 0 means not known (a row older than this column)."""

    __table_args__ = (Index("ix_tombstone_ino", "ino"),)


class TransitionTable(Base):
    """An object that is to be copied onto itself, into another storage class. The row outlives its
    inode, so that a copy which was requested always has a row."""

    __tablename__ = "transition"
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    content_version: Mapped[int]
    """The version that is moved, and no other."""
    storage_class: Mapped[str] = mapped_column(String)
    """Empty: the order was taken back after a copy was requested."""
    action: Mapped[int]
    """The row of ``action`` that this is a part of."""
    key: Mapped[str | None] = mapped_column(String)
    """The key at which a copy was requested. NULL: none was."""
    until_ns: Mapped[int | None]
    """The order is carried out, and a copy that was given up may reach the store until then. NULL:
    it is not."""

    __table_args__ = (Index("ix_transition_key", "key"),)


class RekeyTable(Base):
    """A renamed file or directory. Objects at or below it may have the wrong key."""

    __tablename__ = "rekey"
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    renamed_ns: Mapped[int]


class EndpointTable(Base):
    """What was found out about a store."""

    __tablename__ = "endpoint"
    url: Mapped[str] = mapped_column(String, primary_key=True)
    """The URL as the configuration has it. Empty: AWS."""
    bucket: Mapped[str] = mapped_column(String, primary_key=True)
    checksum: Mapped[str] = mapped_column(String)
    """Which checksum it verifies: ``md5``, ``crc64nvme`` or ``crc32c``."""
    asked_ns: Mapped[int]


class BucketOwnerTable(Base):
    """What this gateway knows of its claim to the bucket and prefix, in one row. The bucket has the
    other half (gateway.objectstore.ownership)."""

    __tablename__ = "bucket_owner"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    url: Mapped[str] = mapped_column(String)
    """The URL of the store, as the configuration has it. Empty: AWS."""
    bucket: Mapped[str] = mapped_column(String)
    prefix: Mapped[str] = mapped_column(String)
    conditions: Mapped[str | None] = mapped_column(String)
    """Which conditions of requests the store heeds: ``none``, ``create`` or ``replace``. NULL: it
    was not asked yet."""
    epoch: Mapped[int]
    """The highest epoch that this gateway has written, 0 before the first claim."""
    token: Mapped[str | None] = mapped_column(String)
    """The random text that the owner object has, if it is this gateway's. NULL: there was no
    claim."""
    former: Mapped[str | None] = mapped_column(String)
    """The text that it may have instead, while it moves."""

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class LeaseTable(Base):
    """The right of one run of a drain to work. Its claims are deleted with it."""

    __tablename__ = "lease"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """A random number. A takeover deletes the row, and writes under the lease fail from then on."""
    owner: Mapped[str] = mapped_column(String)
    """The process of the drain (gateway.drain.admission.lease)."""
    expires_ns: Mapped[int]


class ClaimTable(Base):
    """An inode or a key that one drain works on. Other drains leave it alone."""

    __tablename__ = "claim"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    """``i<ino>`` or ``k<key>``."""
    lease: Mapped[int] = mapped_column(ForeignKey("lease.id", ondelete="CASCADE"))

    __table_args__ = (Index("ix_claim_lease", "lease"),)


HYDRATE = "hydrate"
"""The work of the hydrator in ``retry``. All other rows are the drain's."""


class RetryTable(Base):
    """A job of the drain, or a hydration, that failed. The next success deletes the row."""

    __tablename__ = "retry"
    work: Mapped[str] = mapped_column(String, primary_key=True)
    """The kind of work. With ino and key it is the job's id (gateway.drain.job)."""
    ino: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key: Mapped[str] = mapped_column(String, primary_key=True)
    tries: Mapped[int]
    error: Mapped[str] = mapped_column(String)
    """The error of the last try, in one line."""
    next_ns: Mapped[int]
    """The job is not tried again before this time."""
    request_id: Mapped[str | None] = mapped_column(String)
    """The request of the admin API by which a person had it tried again."""
    since_ns: Mapped[int] = mapped_column(server_default="0")
    """When it failed first since it last worked. 0 means not known (a hydration, or a row older
    than this column)."""


class QueueOrderTable(Base):
    """A person's order about a file, or about a directory and everything below it."""

    __tablename__ = "queue_order"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    hold: Mapped[int] = mapped_column(Integer)
    """1 keeps the file from the drain. 0 puts the file before all others."""
    set_ns: Mapped[int]
    request_id: Mapped[str | None] = mapped_column(String)
    """The request of the admin API by which the person said so."""

    __table_args__ = (CheckConstraint("hold IN (0, 1)", name="hold"),)


class IndeterminateWriteTable(Base):
    """A key with a request that was given up. The store may still carry it out, so the drain looks
    at the key later."""

    __tablename__ = "indeterminate_write"
    key: Mapped[str] = mapped_column(String, primary_key=True)
    ino: Mapped[int]
    """The file whose bytes the request may have put at the key. 0 means none."""
    noted_ns: Mapped[int]
    check_after_ns: Mapped[int] = mapped_column(server_default="0")
    """The key is not looked at before this time."""


class ScrubPassTable(Base):
    """A pass of the scrub over all files or objects. Of each kind there are two rows at most: the
    pass that is under way, and the last one that ended."""

    __tablename__ = "scrub_pass"
    kind: Mapped[str] = mapped_column(String, primary_key=True)
    """``local``, ``objects`` or ``deep``."""
    is_whole: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """1: it ended."""
    number: Mapped[int]
    """Its number, from 1."""
    began_ns: Mapped[int]
    ended_ns: Mapped[int | None]
    ino: Mapped[int]
    """All files with smaller numbers are done. A restart continues with this one."""
    content_version: Mapped[int]
    """The version of that file of which ``done_bytes`` are done."""
    done_bytes: Mapped[int]
    files: Mapped[int]
    """How many were compared so far. The counts below are of this pass too."""
    bytes: Mapped[int]
    """The bytes that were read."""
    found: Mapped[int]
    """The files whose bytes, or whose objects, were not what they should be."""
    healed: Mapped[int]
    """Those of them that are fetched or sent again."""
    damaged: Mapped[int]
    """The rest of them."""

    __table_args__ = (CheckConstraint("is_whole IN (0, 1)", name="is_whole"),)
