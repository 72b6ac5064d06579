"""Promoted copies: the rows of a copy in the namespace, its manifest, and its removal.

The manifest is the last object of a copy that is put, and the first that is deleted. So the bucket
alone tells a whole copy from one that is being made or removed. The text is made of the rows of the
copy, which do not change, so that each try puts the same bytes.

The rows in the namespace are written beside the NFS server. It knows nothing of them: the copy is
in the trash, of which clients see nothing, until the server itself renames it. Inode numbers and
cookies come from the counters that the server reserves its own from, so none is given out twice.

A copy that a person demoted is removed first from the sight of clients, then file by file, after
its manifest. The drain deletes the objects, as of all files that were removed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.catalogue import manifests
from gateway.catalogue.manifests import ManifestMember, ManifestSubject, Promoted, lines
from gateway.common.errors import StoreUnavailable, UserError
from gateway.common.text import printable
from gateway.common.types import Extent, InodeKind
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session
from gateway.db.models import RESERVED_NAME
from gateway.lifecycle.promotion import members, store
from gateway.lifecycle.promotion.context import PromotionContext
from gateway.lifecycle.promotion.store import PROMOTED_DIRECTORY, PromotionRow, manifest_key

if TYPE_CHECKING:
    # The import is for types only: awscrt takes time to import.
    from gateway.objectstore.objects import Head
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, case, exists, insert, literal_column, or_, select, update

from gateway.common import clock
from gateway.common.types import GATEWAY_CRED, Residency
from gateway.db.compiled import Statement, b
from gateway.db.models import PROMOTED_INO, TRASH_INO
from gateway.db.statements import block_digest, dirent, inode, object_, promotion_member, xattr
from gateway.lifecycle.promotion.store import Hold, PromotedMember, PromotionState, staged_name
from gateway.rpc.frames import Op, RpcRequest
from gateway.rpc.removal import GONE


def put(context: PromotionContext, of: PromotionRow, is_resumed: bool) -> str | None:
    """Put the manifest of a copy whose objects are all verified. Returns its ETag, or None if an
    earlier try of the request may still reach the store.

    Raises UserError if the bucket may not have all of the copy, StoreError, TryAgain, OSError.

    Args:
        is_resumed: whether an earlier try may have put it.
    """
    # The import is here because awscrt takes time to import.
    from gateway.lifecycle.promotion.copier import label

    key = manifest_key(context.settings.bucket.prefix, of.name)
    with tempfile.TemporaryFile(dir=context.settings.run_dir) as file:
        with context.reading() as session:
            file.writelines(text(session, of))
            volume = store.volume(session)
        file.flush()

        def is_ours(head: Head) -> bool:
            return members.is_copy_of(head, of, volume, of.top, is_resumed)

        described = members.copy_metadata(of, volume, of.top)
        stored = context.manifests.put(key, file, described, is_ours, members.REMEDY)
        label(context.store, of, key, tags=bool(of.is_tagged))
    return None if stored.is_indeterminate else stored.head.etag


def delete(context: PromotionContext, of: PromotionRow, is_indeterminate: bool) -> None:
    """Delete the manifest of a copy that is to be removed. It can be repeated.

    Raises Ended, StoreError, TryAgain.

    Args:
        is_indeterminate: whether a request for it may still be under way.
    """
    key = manifest_key(context.settings.bucket.prefix, of.name)
    with context.writing(of) as view:
        # What a late request brings is deleted by the drain.
        buried = sql.TombstoneRow(key, of.top, members.VERSION, of.manifest_etag, of.generation)
        view.add_tombstones([buried])
        if is_indeterminate:
            view.mark_indeterminate(key, of.top)
        volume = view.volume

    def is_ours(head: Head) -> bool:
        return members.is_copy_of(head, of, volume, of.top, head.etag == of.manifest_etag)

    context.manifests.delete(key, is_ours, _deleting(context, of, key))


@contextmanager
def _deleting(context: PromotionContext, of: PromotionRow, key: str) -> Iterator[None]:
    try:
        yield
    except StoreUnavailable:
        with context.writing(of) as view:
            view.mark_indeterminate(key, of.top)
        raise


def text(session: Session, of: PromotionRow) -> Iterator[bytes]:
    """Yield the text of a manifest. Raises UserError if the bucket may not have all of the copy."""
    top = session.one(manifests.TOP, ino=of.top)
    if top is None:
        raise UserError("a part of the copy is missing: look with spillway fsck")
    is_file = manifests.only(session, of.top, b"").kind == InodeKind.REGULAR
    subject = ManifestSubject(
        path=b"/".join((RESERVED_NAME, PROMOTED_DIRECTORY, of.name.encode())),
        run=of.run,
        step=of.step,
        rule=None,
        extent=(Extent.FILE if is_file else Extent.TREE).name.lower(),
        files=of.files,
        size=of.size,
        complete_ns=None,
        durable_ns=None,
        mode=top[0],
        promotion=Promoted(of.name, of.note, of.asked_by, of.asked_ns, of.path),
    )
    yield from lines(subject, _members(session, of, is_file))


def _members(session: Session, of: PromotionRow, is_file: bool) -> Iterator[ManifestMember]:
    files = 0
    name = of.name.encode()
    for member in (
        [manifests.only(session, of.top, name)] if is_file else manifests.below(session, of.top)
    ):
        if member.kind == InodeKind.REGULAR:
            files += 1
            if member.stored is None:
                raise UserError(f"the bucket may not have {printable(member.path)} of the copy")
        yield member
    if files != of.files:
        raise UserError(f"{files} of {of.files} files of the copy are there: see spillway fsck")


_KEPT = ("kind", "mode", "uid", "gid", "size", "used", "atime_ns", "mtime_ns", "btime_ns", "target")
"""What a copy has of its original."""
_IS_FILE = inode.c.kind == int(InodeKind.REGULAR)
_VALUES: dict[str, Any] = {
    "ino": bindparam("copy", type_=inode.c.ino.type),
    "generation": bindparam("generation", type_=inode.c.generation.type),
    "nlink": case((inode.c.kind == int(InodeKind.DIRECTORY), 2), else_=1),
    "ctime_ns": bindparam("now_ns", type_=inode.c.ctime_ns.type),
    "change": literal_column("1"),
    "rdev": literal_column("0"),
    "parent": bindparam("parent", type_=inode.c.parent.type),
    "content_version": case((_IS_FILE, 1), else_=0),
    "drained_version": case((_IS_FILE, 1), else_=0),
    "write_open": literal_column("0"),
    "drain_after_ns": literal_column("0"),
    "epoch": literal_column("0"),
    # A file without bytes needs none from the bucket.
    "residency": case(
        (or_(~_IS_FILE, inode.c.size == 0), int(Residency.RESIDENT)), else_=int(Residency.ABSENT)
    ),
    "reserved": literal_column("1"),
}
INODE = Statement(
    insert(inode).from_select(
        [*_KEPT, *_VALUES],
        select(*(inode.c[name] for name in _KEPT), *_VALUES.values()).where(
            inode.c.ino == b("ino"),
            inode.c.nlink > 0,
            inode.c.content_version == b("content_version"),
            or_(
                ~_IS_FILE,
                exists().where(
                    object_.c.ino == inode.c.ino,
                    object_.c.content_version == inode.c.content_version,
                    object_.c.size == inode.c.size,
                    object_.c.etag == bindparam("etag", type_=object_.c.etag.type),
                ),
            ),
        ),
    )
)
"""Makes the inode of a copy, if the original still is what was copied: the same version, with the
object that was read."""
OBJECT = Statement(
    insert(object_).from_select(
        ["ino", "key", "content_version", "size", "etag", "checksum", "stored_ns"],
        select(
            bindparam("copy", type_=object_.c.ino.type),
            bindparam("key", type_=object_.c.key.type),
            literal_column("1"),
            object_.c.size,
            bindparam("new_etag", type_=object_.c.etag.type),
            object_.c.checksum,
            bindparam("now_ns", type_=object_.c.stored_ns.type),
        ).where(object_.c.ino == b("ino")),
    )
)
BLOCKS = Statement(
    insert(block_digest).from_select(
        ["ino", "block_bytes", "crcs"],
        select(
            bindparam("copy", type_=block_digest.c.ino.type),
            block_digest.c.block_bytes,
            block_digest.c.crcs,
        ).where(block_digest.c.ino == b("ino")),
    )
)
XATTRS = Statement(
    insert(xattr).from_select(
        ["ino", "name", "value"],
        select(bindparam("copy", type_=xattr.c.ino.type), xattr.c.name, xattr.c.value).where(
            xattr.c.ino == b("ino")
        ),
    )
)
ONE_MORE = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(nlink=inode.c.nlink + 1, change=inode.c.change + 1)
)
NEW_ETAG = Statement(
    update(object_).where(object_.c.ino == b("the_ino")).values(etag=b("new_etag"))
)
PARENT_OF = Statement(select(dirent.c.parent).where(dirent.c.ino == b("ino")))


def make(
    session: Session, of: PromotionRow, members: list[PromotedMember]
) -> PromotedMember | None:
    """Make directories and links. Returns the first one whose original is gone, or None."""
    cookie = _cookies(session, len(members))
    _note(session, members)
    for number, member in enumerate(members):
        if not _inode(session, of, member, None):
            return member
        _finish(session, of, member, cookie + number)
    return None


def make_files(
    session: Session, of: PromotionRow, copied: list[tuple[PromotedMember, str, str]]
) -> list[PromotedMember]:
    """Make files whose objects are copied. Returns those that are not what was copied any more.

    Args:
        copied: each with the ETags of what was read, and of the copy.
    """
    cookie = _cookies(session, len(copied))
    changed = []
    for number, (member, etag, new_etag) in enumerate(copied):
        if not _inode(session, of, member, etag):
            changed.append(member)
            continue
        copy, ino = member.copy, member.ino
        now_ns = clock.now_ns()
        session.run(OBJECT, copy=copy, ino=ino, key=member.key, new_etag=new_etag, now_ns=now_ns)
        session.run(BLOCKS, copy=copy, ino=ino)
        _finish(session, of, member, cookie + number)
    _note(session, [member for member, _etag, _new_etag in copied])
    return changed


def set_etag(session: Session, ino: int, etag: str) -> None:
    """Record that a copy was made again, with another ETag."""
    session.run(NEW_ETAG, the_ino=ino, new_etag=etag)
    journal.note(session, {ino: journal.STORED})


def _note(session: Session, members: list[PromotedMember]) -> None:
    """Add what was made to the journal."""
    inos = {ino for member in members for ino in (member.copy, _parent(member))}
    if inos:
        journal.note(session, dict.fromkeys(inos, journal.CHANGED))


def parent_of(session: Session, of: PromotionRow) -> int | None:
    """Return the directory that a copy is in, or None if it is in none."""
    row = session.one(PARENT_OF, ino=of.top)
    return None if row is None else row[0]


def _inode(session: Session, of: PromotionRow, member: PromotedMember, etag: str | None) -> bool:
    made = session.run(
        INODE,
        copy=member.copy,
        generation=of.generation,
        now_ns=clock.now_ns(),
        parent=_parent(member) if member.kind == InodeKind.DIRECTORY else None,
        ino=member.ino,
        content_version=member.content_version,
        etag=etag,
    )
    return made > 0


def _finish(session: Session, of: PromotionRow, member: PromotedMember, cookie: int) -> None:
    """Give an inode its name and what belongs to it, and note that it is made."""
    parent = _parent(member)
    name = member.path.rpartition(b"/")[2] if member.parent else staged_name(of.top)
    session.run(XATTRS, copy=member.copy, ino=member.ino)
    session.run(sql.DIRENT_INSERT, parent=parent, name=name, ino=member.copy, cookie=cookie)
    if member.kind == InodeKind.DIRECTORY:
        session.run(ONE_MORE, the_ino=parent)
    session.run(store.MADE, the_name=of.name, the_copy=member.copy)


def _parent(member: PromotedMember) -> int:
    return member.parent or TRASH_INO


def _cookies(session: Session, count: int) -> int:
    """Reserve cookies. Returns the first."""
    row = session.one(sql.RESERVE, inos=0, cookies=count)
    assert row is not None, "the volume row is missing"
    first: int = row[1] - count
    return first


log = logging.getLogger("checkpoints")

PAGE = 512
KEYS = Statement(
    select(promotion_member.c.copy, promotion_member.c.key)
    .where(
        promotion_member.c.name == b("name"),
        promotion_member.c.copy > b("after"),
        promotion_member.c.key.is_not(None),
    )
    .order_by(promotion_member.c.copy)
    .limit(b("most"))
)
"""Selects the keys of a copy."""


def remove(
    context: PromotionContext,
    of: PromotionRow,
    unmade_most: int,
    etags: Mapping[int, str],
    is_indeterminate: bool,
    release: Callable[[Sequence[str]], None],
) -> None:
    """Remove a copy, as far as it was made. It can be repeated after any interruption.

    Raises UserError, StoreError, ControlSocketClosed, Ended, TryAgain, OSError.

    Args:
        unmade_most: the number of copies that may have been requested and not recorded.
        etags: etags of such copies, as far as they are known, by inode.
        is_indeterminate: whether a copy may still be under way.
        release: ends the legal hold of what is at keys.
    """
    if of.is_held:
        # Only a person who names the hold ends it.
        state = PromotionState.FAILED if of.done_ns is None else PromotionState.DONE
        context.change(of._replace(state=state.value, reason=store.held(of.name)), of)
        return
    if of.begun_ns is not None and of.legal_hold != Hold.NONE:
        _release(context, of, release)
    if of.begun_ns is not None:
        # What the bucket has is not called whole any more before any of it goes.
        delete(context, of, is_indeterminate and of.manifest_etag is None)
        _bury(context, of, unmade_most, etags, is_indeterminate)
    with context.reading() as session:
        is_visible = parent_of(session, of) == PROMOTED_INO
    if is_visible:
        staged = staged_name(of.top)
        name = of.name.encode()
        context.ask(
            [RpcRequest(Op.RENAME, PROMOTED_INO, name, TRASH_INO, staged, cred=GATEWAY_CRED)]
        )
    before = 1 << 62
    while True:
        with context.reading() as session:
            page = store.members(session, store.LAST_MADE, of.name, before=before, most=PAGE)
        context.ask([_removal(of, member) for member in page], GONE)
        if len(page) < PAGE:
            break
        before = page[-1].copy
    with context.reading() as session:
        if parent_of(session, of) is not None:
            # A rename that was given up has shown the copy meanwhile: the next pass hides it again.
            return
    with context.writing(of) as view:
        store.delete_members(view.session, of.name)
        view.session.run(store.DELETE, the_name=of.name)
    log.info("promotion %s: the copy is removed", of.name)


def _release(
    context: PromotionContext, of: PromotionRow, release: Callable[[Sequence[str]], None]
) -> None:
    release([manifest_key(context.settings.bucket.prefix, of.name)])
    after = 0
    while True:
        with context.reading() as session:
            rows = session.all(KEYS, name=of.name, after=after, most=PAGE)
        release([key for _copy, key in rows])
        if len(rows) < PAGE:
            return
        after = rows[-1][0]


def _removal(of: PromotionRow, member: PromotedMember) -> RpcRequest:
    if member.parent:
        parent, name = member.parent, member.path.rpartition(b"/")[2]
    else:
        parent, name = TRASH_INO, staged_name(of.top)
    return RpcRequest(Op.REMOVE, parent, name, member.copy, cred=GATEWAY_CRED)


def _bury(
    context: PromotionContext,
    of: PromotionRow,
    most: int,
    etags: Mapping[int, str],
    is_indeterminate: bool,
) -> None:
    """Add tombstones for the copies that may be in the bucket without a row. A request that was
    given up may still make one, so the drain looks at the keys again."""
    with context.writing(of) as view:
        unmade = store.members(view.session, store.UNMADE_FILES, of.name, most=most)
        view.add_tombstones(
            [
                sql.TombstoneRow(member.key, member.copy, 1, etags.get(member.copy), of.generation)
                for member in unmade
                if member.key is not None
            ]
        )
        for member in unmade if is_indeterminate else ():
            if member.key is not None:
                view.mark_indeterminate(member.key, member.copy)
