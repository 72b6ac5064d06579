"""Tables of checkpoints, manifests, retention, the trash, promotions and exports.

``Base`` is that of all tables: a module that needs every table imports it from here.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, Index, Integer, LargeBinary, String

from gateway.db.drain_models import Base
from gateway.db.models import Mapped, mapped_column, partial_index

__all__ = ["Base"]


class CheckpointTable(Base):
    """A checkpoint. The row is made of the namespace alone (gateway.catalogue.store)."""

    __tablename__ = "checkpoint"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    """The inode of the directory, or of the file that it consists of."""
    parent: Mapped[int]
    """The directory that has its name."""
    path: Mapped[bytes]
    """Path below the export's root."""
    run: Mapped[bytes]
    """Path of the directory that has the steps, or what the user's pattern says."""
    step: Mapped[int | None]
    rule: Mapped[str] = mapped_column(String)
    """Name of the rule that recognised it."""
    extent: Mapped[int] = mapped_column(Integer)
    """Which members it has: see gateway.common.types."""
    state: Mapped[str] = mapped_column(String)
    """``writing``, ``complete``, ``draining``, ``durable`` or ``broken``."""
    reason: Mapped[str | None] = mapped_column(String)
    """Why it is not complete, for people."""
    files: Mapped[int]
    """The number of regular files among its members."""
    size: Mapped[int]
    """Bytes of them."""
    dirty_files: Mapped[int]
    """Those whose present version is not in the bucket at the key of their path."""
    dirty_size: Mapped[int]
    complete_ns: Mapped[int | None]
    """The newest change of a member. NULL: it is not complete."""
    durable_ns: Mapped[int | None]
    """The time when the last member was stored. NULL: it is not durable."""
    due_ns: Mapped[int | None]
    """The time when it is looked at again although nothing changed."""
    evidence: Mapped[str] = mapped_column(String)
    """A hash of the members as they were judged. While they are the same, an evicted one need not
    be read again."""
    dirty_since_ns: Mapped[int | None]
    """The time of the oldest change of a file that is not in the bucket. NULL: all are."""
    storage_class: Mapped[str | None] = mapped_column(String)
    """The storage class that policies moved the objects of all members to. NULL: not all of them,
    or to several."""
    grade: Mapped[str | None] = mapped_column(String)
    """What showed that it is complete: ``listed``, ``alike`` or ``marked``. NULL: it is not, or it
    is broken."""

    __table_args__ = (
        Index("ix_checkpoint_parent", "parent"),
        Index("ix_checkpoint_run", "run", "state", "complete_ns"),
        partial_index("ix_checkpoint_dirty", "run", where="dirty_files > 0"),
        partial_index("ix_checkpoint_storage_class", "state", where="storage_class IS NOT NULL"),
    )


class CheckpointRecordTable(Base):
    """What a checkpoint was when it became complete. Its members are compared with this from then
    on (gateway.catalogue.record). A rebuilt catalogue keeps it, and it goes with the inode."""

    __tablename__ = "checkpoint_record"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    """The inode of the checkpoint."""
    run: Mapped[bytes]
    """``checkpoint.run``, as last seen."""
    rule: Mapped[str] = mapped_column(String)
    step: Mapped[int | None]
    extent: Mapped[int] = mapped_column(Integer)
    """Like the columns of ``checkpoint``, as last seen."""
    grade: Mapped[str] = mapped_column(String)
    """``listed``, ``alike`` or ``marked``."""
    completion: Mapped[int | None]
    """The place in the order in which this gateway saw checkpoints become complete: a higher number
    is newer, whatever the clock said. NULL: it is numbered in a moment."""
    complete_ns: Mapped[int]
    """The newest change of a member then."""
    durable_ns: Mapped[int | None]
    """The time when the last of these members was stored in the bucket. NULL: the bucket never had
    all of them."""
    files: Mapped[int]
    size: Mapped[int]
    """Bytes of the files."""
    contents: Mapped[str] = mapped_column(String)
    """A hash of the names, inodes, sizes and content versions of the members."""
    shape: Mapped[str] = mapped_column(String)
    """A hash of the names of the members without the step: two checkpoints with one shape are
    alike."""
    members: Mapped[bytes | None]
    """The members, compressed. NULL: there are too many to keep."""

    __table_args__ = (
        Index("ix_checkpoint_record_run", "run", "completion"),
        partial_index("ix_checkpoint_record_unnumbered", "ino", where="completion IS NULL"),
    )


class CatalogueTable(Base):
    """The rules that the rows of ``checkpoint`` were made with, in one row. Without this row the
    whole namespace is read and all of those rows are made again."""

    __tablename__ = "catalogue"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    rules: Mapped[str] = mapped_column(String)
    """A hash of the configuration that says which places are checkpoints."""
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class ManifestTable(Base):
    """A manifest in the bucket, or what is known of its key. The row is there before the object is
    and as long as it can be: only a row permits to delete a manifest
    (gateway.catalogue.manifest_writer)."""

    __tablename__ = "manifest"
    key: Mapped[str] = mapped_column(String, primary_key=True)
    ino: Mapped[int]
    """The inode of the checkpoint. The row outlives it."""
    path: Mapped[bytes]
    """Path of the checkpoint when the manifest was made."""
    change: Mapped[int]
    """``inode.change`` of the checkpoint then."""
    evidence: Mapped[str] = mapped_column(String)
    """``checkpoint.evidence`` then."""
    durable_ns: Mapped[int]
    """``checkpoint.durable_ns`` then. An object that was sent once more is newer."""
    etag: Mapped[str | None] = mapped_column(String)
    """NULL: what is at the key is not known, because a request is under way or was interrupted."""
    written_ns: Mapped[int]
    check_after_ns: Mapped[int | None]
    """When the key is looked at: a request that was given up can then no longer arrive.
    NULL: no request was given up."""

    __table_args__ = (Index("ix_manifest_ino", "ino"),)


class TrashTable(Base):
    """A checkpoint in the trash, or on its way there. It goes with the inode.

    Of a checkpoint that clients removed, ``ino`` is the directory that has its files in the trash
    (gateway.namespace.rotation)."""

    __tablename__ = "trash"
    id: Mapped[str] = mapped_column(String, primary_key=True)
    """Its name in the trash."""
    ino: Mapped[int] = mapped_column(ForeignKey("inode.ino", ondelete="CASCADE"), unique=True)
    path: Mapped[bytes]
    """The path below the export's root that it had. Empty: not known."""
    run: Mapped[bytes]
    step: Mapped[int | None]
    files: Mapped[int]
    size: Mapped[int]
    """Bytes of the files."""
    dirty_used: Mapped[int]
    """Bytes on the disk of its files that the bucket does not have, as last counted. The drain
    leaves them alone, so they do not count for the dirty limit."""
    deleted_ns: Mapped[int]
    """When, by the wall clock, for people."""
    since_ns: Mapped[int]
    """When, as ``elapsed_time`` counts."""
    expires_ns: Mapped[int]
    """When it may be removed, as ``elapsed_time`` counts."""
    deleted_by: Mapped[str] = mapped_column(String)
    reason: Mapped[str] = mapped_column(String)
    state: Mapped[str] = mapped_column(String)
    """``putting``, ``kept``, ``expiring`` or ``returning``: see gateway.lifecycle.trash.rows."""
    complete_ns: Mapped[int | None]
    """``checkpoint.complete_ns`` then. NULL: not known."""
    stays: Mapped[str | None] = mapped_column(String)
    """Why it stays although its grace is over, for people. NULL: it does not."""
    rotated: Mapped[int | None]
    """The inode of the checkpoint, if clients removed it: it is held for a newer one. NULL: it was
    deleted as a whole."""
    completion: Mapped[int | None]
    """``checkpoint_record.completion`` then. NULL: it was deleted as a whole, or had no number."""
    run_ino: Mapped[int | None]
    """The directory of the run, if clients removed the checkpoint."""
    released_by: Mapped[str | None] = mapped_column(String)
    """Who said that it need not wait for a newer one. NULL: no one did."""

    __table_args__ = (partial_index("ix_trash_rotated", "rotated", where="rotated IS NOT NULL"),)


class ElapsedTimeTable(Base):
    """The elapsed time, by which graces are counted, in one row: see gateway.common.clock."""

    __tablename__ = "elapsed_time"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    elapsed_ns: Mapped[int]
    boot: Mapped[str] = mapped_column(String)
    uptime_ns: Mapped[int]
    clock_ns: Mapped[int]
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class PromotionTable(Base):
    """A copy of a checkpoint, or of another tree or file, that nothing changes or removes but a
    person (gateway.lifecycle.promotion)."""

    __tablename__ = "promotion"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    """Its name in ``.spillway/promoted``."""
    state: Mapped[str] = mapped_column(String)
    """``copying``, ``done``, ``failed`` or ``demoting``."""
    reason: Mapped[str | None] = mapped_column(String)
    """Why it failed, or what it waits for."""
    ino: Mapped[int]
    """The inode that was promoted."""
    path: Mapped[bytes]
    """Path of it below the export's root, as it was then."""
    run: Mapped[bytes | None]
    """The run and the step, if it was a checkpoint."""
    step: Mapped[int | None]
    note: Mapped[str] = mapped_column(String)
    asked_by: Mapped[str] = mapped_column(String)
    """Name of the user."""
    asked_ns: Mapped[int]
    begun_ns: Mapped[int | None]
    """The time when the first copy was requested. NULL: none was."""
    done_ns: Mapped[int | None]
    top: Mapped[int]
    """Inode of the copy."""
    generation: Mapped[int]
    """The generation of the inodes of the copy."""
    files: Mapped[int]
    size: Mapped[int]
    """Bytes of the files."""
    is_tagged: Mapped[int | None] = mapped_column(Integer)
    """Whether its objects have the tag. NULL: the store was not asked yet."""
    manifest_etag: Mapped[str | None] = mapped_column(String)
    """ETag of the manifest in the bucket. NULL: it is not known to be there."""
    legal_hold: Mapped[int] = mapped_column(Integer, server_default="0")
    """1: its objects are under a legal hold of the store."""
    tags: Mapped[str | None] = mapped_column(String)
    """A JSON object of the tags that a person wanted. NULL: none."""
    key_prefix: Mapped[str | None] = mapped_column(String)
    """The beginning of the keys of its objects. NULL: ``<prefix>/.spillway/promoted``."""


class PromotionMemberTable(Base):
    """A file, directory or link of a promotion, as it was when the person asked."""

    __tablename__ = "promotion_member"
    name: Mapped[str] = mapped_column(
        ForeignKey("promotion.name", ondelete="CASCADE"), primary_key=True
    )
    copy: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Inode of the copy. Directories have lower numbers than what is in them."""
    path: Mapped[bytes] = mapped_column(LargeBinary)
    """Path below what was promoted. Empty: that itself."""
    parent: Mapped[int]
    """Inode of the directory of the copy. 0: that of all copies."""
    kind: Mapped[int] = mapped_column(Integer)
    ino: Mapped[int]
    """Inode of the original."""
    content_version: Mapped[int]
    """The version of the original that is copied."""
    key: Mapped[str | None] = mapped_column(String)
    """Key of the copy's object."""
    is_made: Mapped[int] = mapped_column(Integer)
    """1: the copy has its rows in the namespace, and its object is in the bucket."""

    __table_args__ = (
        Index("ix_promotion_member_ino", "ino"),
        Index("ix_promotion_member_copy", "copy"),
    )


class PolicyTable(Base):
    """A version of a policy. Rows are only added: the highest version of a name is in force."""

    __tablename__ = "policy"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    document: Mapped[str | None] = mapped_column(String)
    """JSON: see gateway.lifecycle.retention.policy. NULL: the policy was removed."""
    enabled: Mapped[int] = mapped_column(Integer)
    """0: the policy neither keeps nor deletes anything."""
    created_ns: Mapped[int]
    author: Mapped[str] = mapped_column(String)

    __table_args__ = (
        CheckConstraint("version >= 1", name="version"),
        CheckConstraint("enabled IN (0, 1)", name="enabled"),
    )


class ActionTable(Base):
    """Something that was done to a checkpoint. The row is added before, and completed after."""

    __tablename__ = "action"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    began_ns: Mapped[int]
    finished_ns: Mapped[int | None]
    """NULL: it is under way, or was interrupted."""
    what: Mapped[str] = mapped_column(String)
    """``trash``, ``evict``, ``transition``, ``remove``, ``undelete`` or ``release``."""
    author: Mapped[str] = mapped_column(String)
    """The policies with their versions, or a person."""
    run: Mapped[bytes]
    step: Mapped[int | None]
    path: Mapped[bytes]
    ino: Mapped[int]
    evidence: Mapped[str] = mapped_column(String)
    """That of the checkpoint's row, for which it was decided. Empty: it was in the trash."""
    reason: Mapped[str] = mapped_column(String)
    result: Mapped[str | None] = mapped_column(String)
    """One line, shown to a person."""

    __table_args__ = (Index("ix_action_began_ns", "began_ns"),)


class PolicyApprovalTable(Base):
    """A version of a policy of which a person has once approved deletions."""

    __tablename__ = "policy_approval"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    approved_ns: Mapped[int]
    author: Mapped[str] = mapped_column(String)


class ApprovalTable(Base):
    """Deletions of a plan that a person must approve."""

    __tablename__ = "approval"
    plan: Mapped[str] = mapped_column(String, primary_key=True)
    """Hash of its deletions."""
    deletions: Mapped[str] = mapped_column(String)
    """A JSON array of a hash for each."""
    checkpoints: Mapped[int]
    """The number of its deletions."""
    size: Mapped[int]
    """Bytes of them."""
    asked_ns: Mapped[int]
    approved_ns: Mapped[int | None]
    """NULL: it is asked for."""
    author: Mapped[str | None] = mapped_column(String)
    policies: Mapped[str | None] = mapped_column(String)
    """A JSON array of the policies whose deletions these are, each with its version. NULL: an older
    release asked."""


class SupersededTable(Base):
    """A checkpoint whose files are held, because a policy deletes it when a newer one is durable.
    The next plan may take that back."""

    __tablename__ = "superseded"
    ino: Mapped[int] = mapped_column(
        ForeignKey("inode.ino", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    since_ns: Mapped[int]


class KnownTimeTable(Base):
    """A moment that is known to have passed, in one row: see gateway.common.clock."""

    __tablename__ = "known_time"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    known_ns: Mapped[int]
    boot: Mapped[str] = mapped_column(String)
    """The id of the start of the machine at which it was stored."""
    uptime_ns: Mapped[int]
    """The age of that start then."""

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class ExportTable(Base):
    """A version of an export. Rows are only added: the highest version of a name is in force."""

    __tablename__ = "export"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    """The path that clients mount."""
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int]
    """Ganesha's Export_Id. It belongs to one name and one directory for ever."""
    directory: Mapped[int]
    """The inode of its root, which may be gone."""
    document: Mapped[str | None] = mapped_column(String)
    """JSON: clients and squash. NULL: the export was removed."""
    created_ns: Mapped[int]
    author: Mapped[str] = mapped_column(String)

    __table_args__ = (
        CheckConstraint("version >= 1", name="version"),
        CheckConstraint("number >= 2 AND number <= 65535", name="number"),
    )
