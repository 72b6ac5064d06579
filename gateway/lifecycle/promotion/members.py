"""Members of what is promoted, as one transaction sees them, and the metadata of their objects.

A file counts as stored if the bucket has its present version, with digests to verify it by, and no
request that was given up could still change that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.lifecycle.promotion.store import PromotionRow
from gateway.objectstore import metadata

if TYPE_CHECKING:
    from gateway.objectstore.objects import Head
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import and_, case, exists, or_, select

from gateway.catalogue.background import AbandonedFiles, Inside
from gateway.catalogue.rules import Rules
from gateway.common import clock
from gateway.common.errors import START, UserError
from gateway.common.text import printable
from gateway.common.types import Extent, InodeKind
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import PROMOTED_INO
from gateway.db.statements import block_digest, checkpoint, dirent, inode, object_
from gateway.lifecycle.promotion.store import (
    NO_OPTIONS,
    PromotedMember,
    PromotionOptions,
    PromotionState,
    add,
    counts,
    one_named,
    place_of,
)
from gateway.namespace.residency import HAS_CONTENT, IS_CERTAIN, IS_DRAINED
from gateway.objectstore import key_mapper

VERSION = 1
"""The content version of every copy."""
REMEDY = "choose another name, or delete it"
"""What a person can do about another's object at the key of a copy."""


def copy_metadata(of: PromotionRow, volume: str, ino: int) -> dict[str, str]:
    """Return the metadata of an object of a copy.

    The manifest has that of the copy as a whole.

    Args:
        volume: the id of the namespace.
        ino, of: the copied file.
    """
    return {
        metadata.VOLUME: volume,
        metadata.INO: str(ino),
        metadata.GENERATION: str(of.generation),
        metadata.CONTENT_VERSION: str(VERSION),
    }


def is_copy_of(head: Head, of: PromotionRow, volume: str, ino: int, otherwise: bool) -> bool:
    """Return whether an object is one of a copy, as its metadata says.

    Args:
        otherwise: the answer if the server does not keep metadata.
    """
    origin = metadata.origin_of(head.metadata)
    if origin.volume is None and origin.ino is None:
        return otherwise
    return (origin.volume, origin.ino, origin.generation) == (volume, ino, of.generation)


PAGE = 1024
_COPIED = (InodeKind.REGULAR, InodeKind.DIRECTORY, InodeKind.SYMLINK)

_HAS_DIGESTS = or_(inode.c.size == 0, exists().where(block_digest.c.ino == inode.c.ino))
_IS_STORED = and_(*IS_DRAINED, *HAS_CONTENT, *IS_CERTAIN, _HAS_DIGESTS)
_COLUMNS = (
    inode.c.kind,
    inode.c.ino,
    inode.c.content_version,
    inode.c.size,
    case((_IS_STORED, 1), else_=0),
)
_INODES = inode.outerjoin(object_, object_.c.ino == inode.c.ino)
TOP = Statement(
    select(*_COLUMNS).select_from(_INODES).where(inode.c.ino == b("ino"), inode.c.nlink > 0)
)
ENTRIES = Statement(
    select(*_COLUMNS, dirent.c.name)
    .select_from(_INODES.join(dirent, dirent.c.ino == inode.c.ino))
    .where(dirent.c.parent == b("parent"), dirent.c.name > b("after"))
    .order_by(dirent.c.name)
    .limit(b("most"))
)
CHECKPOINT = Statement(
    select(
        checkpoint.c.run,
        checkpoint.c.step,
        checkpoint.c.extent,
        checkpoint.c.state,
        checkpoint.c.reason,
        checkpoint.c.evidence,
    ).where(checkpoint.c.ino == b("ino"))
)


class SourceCheckpoint(NamedTuple):
    """What the catalogue says of the source."""

    run: bytes
    step: int | None
    extent: int
    state: str
    reason: str | None
    evidence: str


class SourceMember(NamedTuple):
    """A member of the source."""

    path: bytes
    """The path below the source. Empty: the source itself."""
    kind: int
    ino: int
    content_version: int
    size: int
    is_stored: bool
    above: int
    """Index of the directory that has it, among all. -1: none."""


class SourceLook(NamedTuple):
    """What was found at a source."""

    found: list[SourceMember]
    checkpoint: SourceCheckpoint | None

    @property
    def files(self) -> list[SourceMember]:
        return [member for member in self.found if member.kind == InodeKind.REGULAR]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def special(self) -> SourceMember | None:
        """A member that cannot be promoted, because a bucket has nothing of its kind."""
        return next((member for member in self.found if member.kind not in _COPIED), None)

    @property
    def left(self) -> list[SourceMember]:
        """The files that the bucket does not have."""
        return [file for file in self.files if not file.is_stored]


def look(session: Session, ino: int, rules: Rules) -> SourceLook | None:
    """Return what is at an inode, or None if it is gone.

    Args:
        rules: say what is left of a killed save.
    """
    row = session.one(TOP, ino=ino)
    if row is None:
        return None
    recorded = session.one(CHECKPOINT, ino=ino)
    known = None if recorded is None else SourceCheckpoint(bytes(recorded[0]), *recorded[1:])
    is_deep = known is None or known.extent != Extent.FILES
    members = [_found(row, b"", -1)]
    if members[0].kind == InodeKind.DIRECTORY:
        _walk(session, members, is_deep, AbandonedFiles(session, rules))
    return SourceLook(members, known)


def _walk(
    session: Session, members: list[SourceMember], is_deep: bool, abandoned: AbandonedFiles
) -> None:
    """Add what is below the first directory. A directory comes before what is in it."""
    waiting: list[tuple[int, Inside | None]] = [(0, abandoned.at(members[0].ino))]
    while waiting:
        at, inside = waiting.pop()
        for row in _entries(session, members[at].ino):
            name = bytes(row[-1])
            above = members[at].path
            member = _found(row[:-1], b"/".join([above, name]) if above else name, at)
            if member.kind == InodeKind.DIRECTORY:
                if not is_deep:
                    continue
                waiting.append((len(members), abandoned.below(member.ino, inside)))
            elif abandoned.has(inside, member.kind, name, is_open=False):
                continue
            members.append(member)


def _entries(session: Session, directory: int) -> Iterator[Sequence[Any]]:
    after = b""
    while rows := session.all(ENTRIES, parent=directory, after=after, most=PAGE):
        yield from rows
        after = rows[-1][-1]


def _found(row: Sequence[Any], path: bytes, above: int) -> SourceMember:
    kind, ino, content_version, size, is_stored = row
    return SourceMember(path, kind, ino, content_version, size, bool(is_stored), above)


def record(
    session: Session,
    prefix: str,
    name: str,
    path: bytes,
    seen: SourceLook,
    note: str,
    by: str,
    options: PromotionOptions = NO_OPTIONS,
) -> PromotionRow:
    """Record a promotion of what was seen, in a write transaction. Its members are fixed from now
    on. Returns it. Raises UserError if the name is taken.

    Args:
        prefix: prefix of the keys.
        path: path of the source.
        note: note and by, the user, for the record.
        options: options of the user.
    """
    _require_free(session, name)
    if seen.left:
        raise UserError(f"{printable(path)}: not all of it is in the bucket: spillway queue")
    count = len(seen.found)
    row = session.one(sql.RESERVE, inos=count, cookies=0)
    assert row is not None, "the volume row is missing"
    first = row[0] - count
    known = seen.checkpoint
    new = PromotionRow(
        name=name,
        state=PromotionState.COPYING.value,
        reason=None,
        ino=seen.found[0].ino,
        path=path,
        run=None if known is None else known.run,
        step=None if known is None else known.step,
        note=note,
        asked_by=by,
        asked_ns=clock.now_ns(),
        begun_ns=None,
        done_ns=None,
        top=first,
        generation=secrets.randbits(62) | 1,
        files=len(seen.files),
        size=seen.size,
        is_tagged=None,
        manifest_etag=None,
        legal_hold=int(options.legal_hold),
        tags=options.tags_text,
        key_prefix=options.key_prefix,
    )
    add(session, new, [_member(new, prefix, *pair) for pair in enumerate(seen.found)])
    return new


def _require_free(session: Session, name: str) -> None:
    """Raise UserError if the name of a promotion is taken."""
    if session.one(sql.GET, ino=PROMOTED_INO) is None:
        raise UserError(f"there is no .spillway/promoted: start the gateway once: {START}")
    before = one_named(session, name)
    if before is not None and (before.state != PromotionState.FAILED or counts(session, name)[0]):
        raise UserError(
            f"there is a promotion {name} ({before.state}): choose another name, or end it: "
            f"spillway promotion remove {name} --yes"
        )


def _member(of: PromotionRow, prefix: str, number: int, member: SourceMember) -> PromotedMember:
    is_file = member.kind == InodeKind.REGULAR
    return PromotedMember(
        name=of.name,
        copy=of.top + number,
        path=member.path,
        parent=of.top + member.above if number else 0,
        kind=member.kind,
        ino=member.ino,
        content_version=member.content_version,
        key=key_mapper.key_of(*place_of(prefix, of.name, of.key_prefix, member.path))
        if is_file
        else None,
        is_made=0,
    )
