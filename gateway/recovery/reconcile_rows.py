"""Changes of rows by a reconciliation: of a file and its object, and of its name.

Each works inside the transaction of a page. Nothing here deletes a name, a file or an object.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from sqlalchemy import case, insert, literal_column, select, update

from gateway.common.types import ROOT_CRED, Attr, InodeKind, Residency, SetAttr
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b, rows_of
from gateway.db.models import FIRST_FREE_INO, ROOT_INO
from gateway.db.statements import block_digest, inode, object_
from gateway.db.writer import Ids, Tx
from gateway.drain import statements as own
from gateway.namespace import content, names, rotation
from gateway.namespace.lookup import find, get, is_trashed, way_up
from gateway.namespace.residency import PRESENT_BLOCKS_DELETE
from gateway.objectstore import key_mapper
from gateway.objectstore.key_mapper import KeyMapper, Parts
from gateway.objectstore.metadata import ObjectOrigin
from gateway.objectstore.objects import Head
from gateway.recovery import reconcile_rules as rules
from gateway.recovery.bucket_comparison import Compared
from gateway.recovery.reconcile_rules import Case, FileState, StoredAttributes, Take

MARGIN = 1 << 20
"""New inodes get numbers so far above those of the bucket's objects, of which later pages may have
higher ones."""

_NUMBERS_ABOVE = Statement(
    update(sql.volume)
    .where(sql.volume.c.next_ino <= b("largest"))
    .values(next_ino=b("largest") + literal_column(str(MARGIN)))
)
_FOLLOW = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(
        size=b("size"),
        used=b("used"),
        mode=b("mode"),
        uid=b("uid"),
        gid=b("gid"),
        mtime_ns=b("mtime_ns"),
        ctime_ns=b("now_ns"),
        change=inode.c.change + content.CRASH_CHANGE_STEP,
        content_version=b("version"),
        drained_version=b("version"),
        write_open=0,
        epoch=inode.c.epoch + 1,
        residency=b("new_residency"),
    )
)
"""Makes a file what an object of it is. The epoch is another one, so no data file of before is
taken for its bytes."""
_KEEP_LOCAL = Statement(
    update(inode)
    .where(inode.c.ino == b("the_ino"))
    .values(
        content_version=case(
            (inode.c.content_version > b("version"), inode.c.content_version),
            else_=b("version") + literal_column("1"),
        ),
        drained_version=b("version"),
    )
)
"""Lets the local bytes of a file be a newer version than its object: they are sent again."""
_OBJECT_INSERT = Statement(insert(object_))
_OBJECT_RECORD = Statement(
    update(object_)
    .where(object_.c.ino == b("the_ino"))
    .values(key=b("new_key"), etag=b("new_etag"))
)
_OBJECT_AT = Statement(
    update(object_).where(object_.c.ino == b("the_ino")).values(key=b("new_key"))
)
_DIGESTS_INSERT = Statement(insert(block_digest))
_RELEASE = Statement(update(inode).where(inode.c.ino == b("the_ino")).values(reserved=0))
TOMBSTONES_OF = Statement(select(sql.tombstone.c.ino).where(sql.tombstone.c.key == b("key")))


def require_numbers(tx: Tx, origins: Sequence[ObjectOrigin]) -> None:
    """Have no number given out that an object names as its inode."""
    largest = max((rules.number_of(origin) or 0 for origin in origins), default=0)
    if largest:
        tx.run(_NUMBERS_ABOVE, largest=largest)


def note_key(tx: Tx, key: str, ino: int) -> None:
    """Have the drain look at a key: a request of a gateway that is gone may still reach it."""
    tx.run(own.INDETERMINATE_DELETE, the_key=key)
    tx.run(own.INDETERMINATE_INSERT, key=key, ino=ino, noted_ns=tx.now_ns, check_after_ns=0)


def record(tx: Tx, finding: Compared, state: FileState, how: Take) -> list[tuple[int, int]]:
    """Make the object of a finding that of its file. Returns the data files (inode and epoch) that
    are set aside when this is committed."""
    head = finding.head
    assert head is not None
    if how is Take.ROW and state.stored_key is not None:
        tx.run(_OBJECT_RECORD, the_ino=state.ino, new_key=finding.key, new_etag=head.etag)
        return []
    version = rules.version_of(finding.origin)
    _put_object(tx, finding, state.ino, version)
    if how in (Take.ALL, Take.BYTES):
        is_foreign = finding.case is Case.FOREIGN
        said = (
            rules.attributes_of_foreign(head, finding.stored_ns)
            if is_foreign
            else rules.attributes_of(head)
        )
        if how is Take.BYTES:
            is_same = state.content_version == version and not state.write_open
            said = StoredAttributes(None, None, None, None if is_same else said.mtime_ns)
        return _follow(tx, state, version, head, said)
    if how is Take.NOTHING_LOCAL:
        tx.run(_KEEP_LOCAL, the_ino=state.ino, version=version)
    tx.touch(state.ino)
    return []


def _put_object(tx: Tx, finding: Compared, ino: int, version: int) -> None:
    head = finding.head
    assert head is not None
    tx.run(sql.OBJECT_DELETE, the_ino=ino)
    tx.run(
        _OBJECT_INSERT,
        ino=ino,
        key=finding.key,
        content_version=version,
        size=head.size,
        etag=head.etag,
        # Without one, the drain looks at the object before it replaces it.
        checksum=None if finding.case is Case.FOREIGN else rules.checksum_of(head),
        stored_ns=finding.stored_ns or tx.now_ns,
        storage_class=head.storage_class or None,
    )
    if (digests := rules.digests_of(head)) is not None:
        tx.run(_DIGESTS_INSERT, ino=ino, block_bytes=digests.block_bytes, crcs=digests.crcs)


def _follow(
    tx: Tx, state: FileState, version: int, head: Head, said: StoredAttributes
) -> list[tuple[int, int]]:
    attr = get(tx, state.ino)
    tx.run(
        _FOLLOW,
        the_ino=state.ino,
        size=head.size,
        used=head.size,
        mode=attr.mode if said.mode is None else said.mode,
        uid=attr.uid if said.uid is None else said.uid,
        gid=attr.gid if said.gid is None else said.gid,
        mtime_ns=attr.mtime_ns if said.mtime_ns is None else said.mtime_ns,
        now_ns=tx.now_ns,
        version=version,
        # A file without bytes needs none from the bucket.
        new_residency=int(Residency.ABSENT if head.size else Residency.RESIDENT),
    )
    tx.run(PRESENT_BLOCKS_DELETE, the_ino=state.ino)
    tx.run(sql.DAMAGE_DELETE, the_ino=state.ino)
    tx.touch(state.ino)
    return [(state.ino, state.epoch), (state.ino, state.epoch + 1)]


def make_way(tx: Tx, prefix: str, ino: int) -> str:
    """Take the row of an object off the key at which another file's object is. Returns the key at
    which it is looked for from now on."""
    key = key_mapper.staging_key(prefix, ino)
    tx.run(_OBJECT_AT, the_ino=ino, new_key=key)
    note_rekey(tx, ino)
    return key


def is_moving(session: Session, ino: int) -> bool:
    """Return whether the names know that a file, or a directory above it, was renamed, and that its
    object may have the former key."""
    above = (directory for directory, _parent, _name in way_up(session, ino))
    return any(session.one(sql.REKEY, ino=one) is not None for one in (ino, *above))


def note_rekey(tx: Tx, ino: int) -> None:
    """Have the drain bring the object of a file to the key of its name."""
    tx.run(sql.REKEY_DELETE, the_ino=ino)
    tx.run(sql.REKEY_INSERT, ino=ino, renamed_ns=tx.now_ns)


def send_again(tx: Tx, ino: int) -> None:
    """Have the drain send a file whose object is lost."""
    tx.run(own.NOT_DRAINED, the_ino=ino)
    tx.run(own.OBJECTS_DELETE, inos=rows_of([(ino,)]))
    tx.run(sql.REKEY_DELETE, the_ino=ino)
    tx.touch(ino)


def lose(tx: Tx, state: FileState, key: str) -> None:
    """Record that a file has no bytes anywhere."""
    # No move of its object can succeed.
    tx.run(sql.REKEY_DELETE, the_ino=state.ino)
    if state.damage is None:
        content.damaged(tx, state.ino, f"{rules.DAMAGE}{key}")


def heal(tx: Tx, ino: int) -> None:
    """Forget damage that a comparison found: the object is there."""
    tx.run(sql.DAMAGE_DELETE, the_ino=ino)
    note_rekey(tx, ino)
    tx.touch(ino)


class Namer:
    """Names for the files of objects, in one transaction.

    Args:
        tx: the transaction.
        ids: its numbers.
        prefix: of the gateway.
    """

    def __init__(self, tx: Tx, ids: Ids, prefix: str) -> None:
        self._tx = tx
        self._ids = ids
        self._prefix = prefix
        self._directories: dict[Parts, int] = {(): ROOT_INO}
        self.beside: list[tuple[int, Parts]] = []
        """The inodes that lost their name to another one, with the path that they have now."""

    def make(self, finding: Compared) -> tuple[int, Parts | None]:
        """Make a file for an object. Returns its inode and its path; None: it is in
        ``lost+found``."""
        head = finding.head
        assert head is not None
        parts = rules.path_of(self._prefix, finding.key, head) if finding.is_path else None
        self._reserve(parts)
        ino = self._number(finding.origin)
        place = None if parts is None else self._place(parts, ino, finding.stored_ns)
        owner = get(self._tx, ROOT_INO if place is None else place[0])
        rotation.insert_inode(
            self._tx,
            self._tx.now_ns,
            ino=ino,
            generation=rules.generation_of(finding.origin) or secrets.randbits(62),
            kind=InodeKind.REGULAR,
            mode=0o644,
            nlink=int(place is not None),
            uid=owner.uid,
            gid=owner.gid,
        )
        if place is None or parts is None:
            return ino, None
        parent, name = place
        names.add_name(self._tx, parent, name, ino)
        names.directory_changed(self._tx, parent)
        return ino, (*parts[:-1], name)

    def is_free(self, parts: Parts) -> bool:
        """Return whether nothing has a path, and it can be made."""
        at = ROOT_INO
        for name in parts[:-1]:
            there = find(self._tx, at, name)
            if there is None:
                return True
            if there.kind != InodeKind.DIRECTORY or there.reserved:
                return False
            at = there.ino
        return find(self._tx, at, parts[-1]) is None

    def keep(self, ino: int) -> None:
        """Give a file of whose path nothing is known a name in ``lost+found``. It has its object
        already."""
        names.keep(self._tx, ino)

    def move(self, finding: Compared, state: FileState) -> Parts | None:
        """Give a file the path of the key at which its object is. Returns the path that it has
        then, or None if it keeps its name."""
        tx, head = self._tx, finding.head
        assert head is not None
        parts = rules.path_of(self._prefix, finding.key, head) if finding.is_path else None
        if parts is None or (state.reserved and not is_trashed(tx, state.ino)):
            return None
        self._reserve(parts)
        parent, name = self._place(parts, state.ino, finding.stored_ns)
        path = (*parts[:-1], name)
        there = find(tx, parent, name)
        if there is not None and there.ino == state.ino:
            return path
        old_parent, old_name = self._name_of(state)
        tx.run(
            sql.DIRENT_MOVE,
            the_parent=old_parent,
            the_name=old_name,
            new_parent=parent,
            new_name=name,
            new_cookie=tx.new_cookie(),
        )
        for directory in dict.fromkeys((old_parent, parent)):
            names.directory_changed(tx, directory)
        names.count_name(tx, state.ino, 0)
        if state.reserved:
            tx.run(_RELEASE, the_ino=state.ino)
        return path

    def settle(self, ino: int, key: str, path: Parts | None) -> None:
        """Have the drain move an object whose key is not that of the path of its file."""
        if path is not None and KeyMapper(self._tx, self._prefix).key_of(path) == key:
            self._tx.run(sql.REKEY_DELETE, the_ino=ino)
        else:
            note_rekey(self._tx, ino)

    def _reserve(self, parts: Parts | None) -> None:
        count = 4 + 2 * len(parts or ())
        self._tx.reserve(count)
        self._ids.spent(count)

    def _number(self, origin: ObjectOrigin) -> int:
        """Return the number that metadata names, if it is free, or a new one."""
        ino = rules.number_of(origin)
        if ino is None or ino < FIRST_FREE_INO:
            return self._tx.new_ino()
        is_free = self._tx.one(sql.CONTENT_VERSION, ino=ino) is None
        return ino if is_free else self._tx.new_ino()

    def _name_of(self, state: FileState) -> tuple[int, bytes]:
        """Return the name of a file whose key its object has by the row, or else its first name."""
        found = self._tx.all(sql.NAMES, ino=state.ino)
        if len(found) > 1 and state.stored_key is not None:
            mapper = KeyMapper(self._tx, self._prefix)
            for parent, name in found:
                above = mapper.settled_path(parent)
                if above is not None and mapper.key_of((*above, name)) == state.stored_key:
                    return parent, name
        parent, name = found[0]
        return parent, name

    def _place(self, parts: Parts, ino: int, stored_ns: int) -> tuple[int, bytes]:
        """Make a path free for an inode. Returns the directory and the name.

        Another file that has the name gets another one; a directory keeps it.
        """
        parent, name = self._directory(parts[:-1], stored_ns), parts[-1]
        there = find(self._tx, parent, name)
        if there is None or there.ino == ino:
            return parent, name
        if there.kind == InodeKind.DIRECTORY:
            return parent, self._free(parent, name, stored_ns, ino)
        self._set_beside(parts[:-1], parent, name, there, stored_ns)
        return parent, name

    def _directory(self, parts: Parts, stored_ns: int) -> int:
        """Return the directory of a path. What is missing of the path is made."""
        if (known := self._directories.get(parts)) is not None:
            return known
        above = self._directory(parts[:-1], stored_ns)
        there = find(self._tx, above, parts[-1])
        if there is not None and there.kind != InodeKind.DIRECTORY:
            self._set_beside(parts[:-1], above, parts[-1], there, stored_ns)
            there = None
        if there is None:
            owner = get(self._tx, above)
            wanted = SetAttr(mode=0o755, uid=owner.uid, gid=owner.gid)
            generation = secrets.randbits(62)
            there = names.mkdir(
                self._tx, ROOT_CRED, above, parts[-1], wanted, generation=generation
            )
        self._directories[parts] = there.ino
        return there.ino

    def _set_beside(
        self, above: Parts, parent: int, name: bytes, there: Attr, stored_ns: int
    ) -> None:
        """Give an inode another name in its directory."""
        tx = self._tx
        new_name = self._free(parent, name, stored_ns)
        tx.run(
            sql.DIRENT_MOVE,
            the_parent=parent,
            the_name=name,
            new_parent=parent,
            new_name=new_name,
            new_cookie=tx.new_cookie(),
        )
        names.directory_changed(tx, parent)
        names.count_name(tx, there.ino, 0)
        if there.kind == InodeKind.REGULAR:
            names.note_renamed(tx, there)
        self.beside.append((there.ino, (*above, new_name)))

    def _free(self, parent: int, name: bytes, stored_ns: int, ino: int = 0) -> bytes:
        number = 1
        while True:
            beside = rules.name_beside(name, stored_ns, number)
            there = find(self._tx, parent, beside)
            if there is None or there.ino == ino:
                return beside
            number += 1
