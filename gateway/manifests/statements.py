"""The SQL of manifests, built like gateway.db.statements."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, delete, exists, insert, literal_column, or_, select, update

from gateway.checkpoints.facts import State
from gateway.checkpoints.statements import IS_STORED
from gateway.db.compiled import Statement, b
from gateway.db.statements import (
    TREE,
    catalogue,
    checkpoint,
    dirent,
    inode,
    manifest,
    object_,
    trash,
)

_MEMBER = (
    inode.c.ino,
    inode.c.kind,
    inode.c.mode,
    inode.c.uid,
    inode.c.gid,
    inode.c.mtime_ns,
    inode.c.size,
    inode.c.target,
    IS_STORED.label("is_stored"),
    object_.c.key,
    object_.c.etag,
    object_.c.content_version,
    object_.c.checksum,
)
MEMBERS = Statement(
    select(dirent.c.name, *_MEMBER)
    .select_from(
        dirent.join(inode, inode.c.ino == dirent.c.ino).outerjoin(
            object_, object_.c.ino == inode.c.ino
        )
    )
    .where(dirent.c.parent == b("parent"), dirent.c.name > b("after"))
    .order_by(dirent.c.name)
    .limit(b("most"))
)
MEMBER = Statement(
    select(literal_column("NULL"), *_MEMBER)
    .select_from(inode.outerjoin(object_, object_.c.ino == inode.c.ino))
    .where(inode.c.ino == b("ino"))
)
TOP = Statement(select(inode.c.mode, inode.c.change).where(inode.c.ino == b("ino")))

_IS_DURABLE = checkpoint.c.state == literal_column(f"'{State.DURABLE}'")
_other: Any = manifest.alias("other")
MISSING = Statement(
    select(checkpoint.c.ino)
    .select_from(
        checkpoint.outerjoin(
            manifest,
            and_(
                manifest.c.ino == checkpoint.c.ino,
                manifest.c.evidence == checkpoint.c.evidence,
                manifest.c.durable_ns == checkpoint.c.durable_ns,
                manifest.c.etag.is_not(None),
            ),
        )
    )
    .where(_IS_DURABLE, manifest.c.key.is_(None))
    .order_by(checkpoint.c.durable_ns.desc(), checkpoint.c.ino)
)
"""Selects the durable checkpoints whose manifest the bucket does not have, the newest first."""
UNTRUE = Statement(
    select(manifest)
    .select_from(
        manifest.outerjoin(
            inode, and_(inode.c.ino == manifest.c.ino, inode.c.nlink > literal_column("0"))
        ).outerjoin(checkpoint, checkpoint.c.ino == manifest.c.ino)
    )
    .where(
        or_(
            inode.c.ino.is_(None),
            # The rules may be others than before. Only a change by a client counts.
            and_(
                checkpoint.c.ino.is_(None),
                inode.c.change != manifest.c.change,
                exists().where(catalogue.c.id == literal_column("1")),
            ),
            and_(
                checkpoint.c.evidence != manifest.c.evidence,
                or_(
                    ~_IS_DURABLE,
                    exists().where(
                        _other.c.ino == manifest.c.ino,
                        _other.c.evidence == checkpoint.c.evidence,
                        _other.c.etag.is_not(None),
                    ),
                ),
            ),
        )
    )
)
"""Selects the manifests that must go: of a checkpoint that was deleted or taken apart, that changed
and is not durable now, or that has its manifest at another key."""
HELD = Statement(
    select(manifest.c.ino, trash.c.ino)
    .select_from(manifest.join(trash, trash.c.rotated == manifest.c.ino))
    .where(trash.c.rotated.is_not(None))
)
"""Selects the checkpoints with a manifest that are held for a newer one, with the directories that
they have in the trash."""
KEYS_BELOW = Statement(
    select(object_.c.key).select_from(TREE.join(object_, object_.c.ino == TREE.c.ino))
)
DOUBTFUL = Statement(
    select(manifest).where(
        manifest.c.etag.is_not(None),
        or_(manifest.c.look_ns <= b("now_ns"), manifest.c.look_ns > b("late_ns")),
    )
)
"""Selects the manifests that are looked at, because no request that was given up can arrive any
more. Parameters: late_ns, the latest time that can have been set: the clock may have gone back."""

ROW = Statement(select(manifest).where(manifest.c.key == b("the_key")))
IS_THERE = Statement(
    select(inode.c.ino).where(inode.c.ino == b("ino"), inode.c.nlink > literal_column("0"))
)
DELETE = Statement(delete(manifest).where(manifest.c.key == b("the_key")))
INSERT = Statement(insert(manifest))
KNOWN = Statement(
    update(manifest)
    .where(manifest.c.key == b("the_key"))
    .values(etag=b("new_etag"), look_ns=b("new_look_ns"))
)
"""Records what is at a key."""
