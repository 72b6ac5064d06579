"""first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "deletion",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("deleted_ns", BIG, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_deletion")),
    )
    op.create_table(
        "inode",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("generation", BIG, nullable=False),
        sa.Column("kind", sa.Integer(), nullable=False),
        sa.Column("mode", sa.Integer(), nullable=False),
        sa.Column("uid", BIG, nullable=False),
        sa.Column("gid", BIG, nullable=False),
        sa.Column("nlink", sa.Integer(), nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("used", BIG, nullable=False),
        sa.Column("atime_ns", BIG, nullable=False),
        sa.Column("mtime_ns", BIG, nullable=False),
        sa.Column("ctime_ns", BIG, nullable=False),
        sa.Column("btime_ns", BIG, nullable=False),
        sa.Column("change", BIG, nullable=False),
        sa.Column("rdev", BIG, nullable=False),
        sa.Column("target", sa.LargeBinary(), nullable=True),
        sa.Column("verifier", sa.LargeBinary(), nullable=True),
        sa.Column("parent", BIG, nullable=True),
        sa.Column("content_version", BIG, nullable=False),
        sa.Column("drained_version", BIG, nullable=False),
        sa.Column("write_open", sa.Integer(), nullable=False),
        sa.Column("drain_after_ns", BIG, nullable=False),
        sa.Column("residency", sa.Integer(), nullable=False),
        sa.Column("epoch", BIG, nullable=False),
        sa.CheckConstraint(
            "(kind = 4) = (target IS NOT NULL)", name=op.f("ck_inode_symlink_has_target")
        ),
        sa.CheckConstraint(
            "(kind = 7) = (parent IS NOT NULL)", name=op.f("ck_inode_directory_has_parent")
        ),
        sa.CheckConstraint(
            "drained_version <= content_version", name=op.f("ck_inode_drained_not_ahead")
        ),
        sa.CheckConstraint("kind BETWEEN 1 AND 7", name=op.f("ck_inode_kind")),
        sa.CheckConstraint("mode BETWEEN 0 AND 4095", name=op.f("ck_inode_mode")),
        sa.CheckConstraint("nlink >= 0 AND nlink <= 2000000000", name=op.f("ck_inode_nlink")),
        sa.CheckConstraint(
            "residency <> 0 OR drained_version = content_version", name=op.f("ck_inode_dirty_stays")
        ),
        sa.CheckConstraint("residency BETWEEN 0 AND 2", name=op.f("ck_inode_residency")),
        sa.CheckConstraint("size >= 0 AND used >= 0", name=op.f("ck_inode_size")),
        sa.CheckConstraint(
            "write_open = 0 OR residency = 2", name=op.f("ck_inode_written_is_resident")
        ),
        sa.CheckConstraint("write_open IN (0, 1)", name=op.f("ck_inode_write_open")),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_inode")),
    )
    with op.batch_alter_table("inode") as batch_op:
        batch_op.create_index(
            "ix_inode_dirty",
            ["ino"],
            unique=False,
            sqlite_where=sa.text("kind = 1 AND content_version > drained_version"),
            postgresql_where=sa.text("kind = 1 AND content_version > drained_version"),
        )
        batch_op.create_index(
            "ix_inode_orphan",
            ["ino"],
            unique=False,
            sqlite_where=sa.text("nlink = 0"),
            postgresql_where=sa.text("nlink = 0"),
        )
        batch_op.create_index(
            "ix_inode_write_open",
            ["ino"],
            unique=False,
            sqlite_where=sa.text("write_open = 1"),
            postgresql_where=sa.text("write_open = 1"),
        )

    op.create_table(
        "rekey",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("renamed_ns", BIG, nullable=False),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_rekey")),
    )
    op.create_table(
        "upload",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("content_version", BIG, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("upload_id", sa.String(), nullable=True),
        sa.Column("started_ns", BIG, nullable=False),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_upload")),
    )
    op.create_table(
        "volume",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fs_id", sa.LargeBinary(), nullable=False),
        sa.Column("boot", BIG, nullable=False),
        sa.Column("next_ino", BIG, nullable=False),
        sa.Column("next_cookie", BIG, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_volume_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_volume")),
    )
    op.create_table(
        "dirent",
        sa.Column("parent", BIG, nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("ino", BIG, nullable=False),
        sa.Column("cookie", BIG, nullable=False),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 255", name=op.f("ck_dirent_name_length")),
        sa.ForeignKeyConstraint(["ino"], ["inode.ino"], name=op.f("fk_dirent_ino")),
        sa.ForeignKeyConstraint(["parent"], ["inode.ino"], name=op.f("fk_dirent_parent")),
        sa.PrimaryKeyConstraint("parent", "name", name=op.f("pk_dirent")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("dirent") as batch_op:
        batch_op.create_index("ix_dirent_ino", ["ino"], unique=False)
        batch_op.create_index("uq_dirent_cookie", ["parent", "cookie"], unique=True)

    op.create_table(
        "object",
        sa.Column("ino", BIG, autoincrement=False, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("content_version", BIG, nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("etag", sa.String(), nullable=False),
        sa.Column("checksum", sa.String(), nullable=False),
        sa.Column("stored_ns", BIG, nullable=False),
        sa.ForeignKeyConstraint(["ino"], ["inode.ino"], name=op.f("fk_object_ino")),
        sa.PrimaryKeyConstraint("ino", name=op.f("pk_object")),
        sa.UniqueConstraint("key", name=op.f("uq_object_key")),
    )
