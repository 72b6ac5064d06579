"""Text of manifests, and the queries for the members that a manifest lists.

The text is JSON in UTF-8, with one member on each line, so that a checkpoint of any size is written
and compared line by line. The same rows always make the same bytes: ``lines`` is pure. Names and
paths are bytes; they are escaped as in keys (``gateway.common.text``): undo every ``%XX``.

Members are read in one transaction, page by page: a directory of any size takes the memory of one
page for each level of the tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import and_, delete, exists, insert, literal_column, or_, select, update

from gateway.catalogue.display_state import CheckpointRow
from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.record import unpacked
from gateway.catalogue.rules import Rules
from gateway.catalogue.statements import IS_STORED, RECORD
from gateway.catalogue.tree import record_of
from gateway.common.text import text_of
from gateway.common.types import Extent, InodeKind
from gateway.db.compiled import Session, Statement, b
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

FORMAT = 1
"""Grows when a reader of an older manifest could misunderstand a newer one."""
_KINDS = {
    InodeKind.REGULAR: "file",
    InodeKind.DIRECTORY: "directory",
    InodeKind.SYMLINK: "symlink",
    InodeKind.FIFO: "fifo",
    InodeKind.SOCKET: "socket",
    InodeKind.CHARACTER: "character device",
    InodeKind.BLOCK: "block device",
}


class Promoted(NamedTuple):
    """What a manifest says of a promotion."""

    name: str
    note: str
    by: str
    """Name of the user."""
    asked_ns: int
    source: bytes
    """Path below the export's root that the original had."""


class ManifestSubject(NamedTuple):
    """The checkpoint, or the copy of one, that a manifest is about."""

    path: bytes
    """Path below the export's root."""
    run: bytes | None
    step: int | None
    rule: str | None
    extent: str
    """``tree``, ``files`` or ``file`` (``checkpoints.facts.Extent``)."""
    files: int
    size: int
    """Bytes of all files."""
    complete_ns: int | None
    durable_ns: int | None
    mode: int
    """Permission bits of its directory, or of its one file."""
    promotion: Promoted | None = None
    """None: it is a checkpoint of clients."""


class ManifestObject(NamedTuple):
    """The object of a member."""

    key: str
    etag: str
    content_version: int
    checksum: str | None
    """The checksum as the table ``object`` has it. None: it is not known."""


class ManifestMember(NamedTuple):
    """A member of a checkpoint."""

    path: bytes
    """The path below the checkpoint's directory. If the checkpoint is one file, its name."""
    kind: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int = 0
    target: bytes | None = None
    """What a symbolic link points to."""
    stored: ManifestObject | None = None
    """The object of a file. None: the bucket does not have its present version."""


def lines(subject: ManifestSubject, members: Iterable[ManifestMember]) -> Iterator[bytes]:
    """Yield the text of a manifest.

    Args:
        members: each directory before what is in it.
    """
    head = {
        "spillway_manifest": FORMAT,
        "path": text_of(subject.path),
        "run": None if subject.run is None else text_of(subject.run),
        "step": subject.step,
        "rule": subject.rule,
        "extent": subject.extent,
        "mode": f"{subject.mode:04o}",
        "files": subject.files,
        "size": subject.size,
        "complete_ns": subject.complete_ns,
        "durable_ns": subject.durable_ns,
    }
    if subject.promotion is not None:
        described = subject.promotion
        head["promotion"] = {**described._asdict(), "source": text_of(described.source)}
    yield _json(head)[:-1].encode() + b', "members": ['
    separator = b"\n"
    for member in members:
        yield separator + _json(_facts(member)).encode()
        separator = b",\n"
    yield b"\n]}\n"


def name_of(path: bytes, step: int | None, ino: int | None = None) -> bytes:
    """Return the last name of a checkpoint's manifest, below the names of its run.

    ``<step>.json``; ``~<name>.json`` if it has no step.

    Args:
        ino: if another checkpoint of the run has the same step: ``<step>~<ino>.json``.
    """
    if step is None:
        return b"~%s.json" % path.rpartition(b"/")[2]
    return b"%d.json" % step if ino is None else b"%d~%d.json" % (step, ino)


def _facts(member: ManifestMember) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "path": text_of(member.path),
        "type": _KINDS[InodeKind(member.kind)],
        "mode": f"{member.mode:04o}",
        "uid": member.uid,
        "gid": member.gid,
        "mtime_ns": member.mtime_ns,
    }
    if member.target is not None:
        facts["target"] = text_of(member.target)
    if member.kind == InodeKind.REGULAR:
        facts["size"] = member.size
    if (stored := member.stored) is not None:
        facts |= {
            "key": stored.key,
            "etag": stored.etag,
            "content_version": stored.content_version,
            **_sum(stored.checksum),
        }
    return facts


def _sum(checksum: str | None) -> dict[str, Any]:
    """Return the fields of a checksum, from the text in the table ``object``."""
    if checksum is None:
        return {}
    algorithm, *part_bytes, value = checksum.split(":")
    sum_document: dict[str, Any] = {"algorithm": algorithm, "checksum": value}
    if part_bytes:
        sum_document["part_bytes"] = int(part_bytes[0])
    return sum_document


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False)


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

_IS_DURABLE = checkpoint.c.state == literal_column(f"'{CheckpointState.DURABLE}'")
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
INDETERMINATE = Statement(
    select(manifest).where(
        manifest.c.etag.is_not(None),
        or_(manifest.c.check_after_ns <= b("now_ns"), manifest.c.check_after_ns > b("late_ns")),
    )
)
"""Selects the manifests that are looked at, because no request that was given up can arrive any
more. The parameters are now_ns, and late_ns, the latest time that can have been set: the clock may
have gone back."""

ROW = Statement(select(manifest).where(manifest.c.key == b("the_key")))
IS_THERE = Statement(
    select(inode.c.ino).where(inode.c.ino == b("ino"), inode.c.nlink > literal_column("0"))
)
DELETE = Statement(delete(manifest).where(manifest.c.key == b("the_key")))
INSERT = Statement(insert(manifest))
KNOWN = Statement(
    update(manifest)
    .where(manifest.c.key == b("the_key"))
    .values(etag=b("new_etag"), check_after_ns=b("new_check_after_ns"))
)
"""Records what is at a key."""


PAGE = 1024


def document(session: Session, row: CheckpointRow, rules: Rules) -> Iterator[bytes]:
    """Yield the text of a checkpoint's manifest.

    Args:
        session: session in a read transaction that ends after the last line.
        row: as the same transaction sees the checkpoint.
        rules: say what is left of a killed save.
    """
    top_row = session.one(TOP, ino=row.ino)
    assert top_row is not None, "the transaction sees the checkpoint"
    subject = ManifestSubject(
        row.path,
        row.run,
        row.step,
        row.rule,
        Extent(row.extent).name.lower(),
        row.files,
        row.size,
        row.complete_ns,
        row.durable_ns,
        top_row[0],
    )
    yield from lines(subject, members(session, row, rules))


def members(session: Session, row: CheckpointRow, rules: Rules) -> Iterator[ManifestMember]:
    """Yield the members of a checkpoint, each directory before what is in it."""
    if row.extent == Extent.FILE:
        yield only(session, row.ino, row.path.rpartition(b"/")[2])
        return
    record_row = session.one(RECORD, ino=row.ino)
    kept = None if record_row is None else record_of(record_row).members
    if kept is None:

        def leaves(path: bytes) -> bool:
            return rules.leaves(row.rule, path.rpartition(b"/")[2])
    else:
        paths = unpacked(kept).keys()

        def leaves(path: bytes) -> bool:
            return path not in paths

    yield from below(session, row.ino, b"", row.extent == Extent.TREE, leaves)


def only(session: Session, ino: int, name: bytes) -> ManifestMember:
    """Return the member of what is one file."""
    row = session.one(MEMBER, ino=ino)
    assert row is not None, "the transaction sees the file"
    return _member(row, name)


def below(
    session: Session,
    directory: int,
    above: bytes = b"",
    is_deep: bool = True,
    leaves: Callable[[bytes], bool] = lambda _path: False,
) -> Iterator[ManifestMember]:
    """Yield what is in a directory, each directory before what is in it.

    Args:
        above: begins all paths.
        is_deep: whether directories in it count.
        leaves: says of the path of a file whether something has left it.
    """
    after = b""
    while rows := session.all(MEMBERS, parent=directory, after=after, most=PAGE):
        for row in rows:
            name, kind = bytes(row[0]), row[2]
            path, is_directory = above + name, kind == InodeKind.DIRECTORY
            if kind == InodeKind.REGULAR and leaves(path):
                continue
            if is_deep or not is_directory:
                yield _member(row, path)
            if is_deep and is_directory:
                yield from below(session, row[1], path + b"/", is_deep, leaves)
        after = rows[-1][0]


def _member(row: Sequence[Any], path: bytes) -> ManifestMember:
    _name, _ino, kind, mode, uid, gid, mtime_ns, size, target, is_stored, *stored = row
    is_file = kind == InodeKind.REGULAR
    return ManifestMember(
        path,
        kind,
        mode,
        uid,
        gid,
        mtime_ns,
        size if is_file else 0,
        None if target is None else bytes(target),
        ManifestObject(*stored) if is_file and is_stored else None,
    )
