"""Totals of the members of a checkpoint, as one transaction sees them."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Sequence
from typing import Any

from gateway.catalogue import statements as own
from gateway.catalogue.facts import (
    MEMBERS_MAX,
    CheckpointMember,
    Members,
    Parts,
    PlaceEntry,
    Recognised,
)
from gateway.catalogue.record import line_of, packed
from gateway.catalogue.rules import copied_to, is_removed
from gateway.catalogue.tree import CatalogueView, Node, entry_of
from gateway.common.patterns import text_of
from gateway.common.types import Extent, InodeKind
from gateway.objectstore.key_mapper import KeyMapper

ITSELF = b"."
"""The path of the member of a checkpoint of one file, in its record."""


class MemberScan:
    """The members of a checkpoint together.

    Args:
        node, found: the checkpoint.
        prefix: prefix of the keys.
    """

    def __init__(
        self, view: CatalogueView, node: Node, recognition: Recognised, prefix: str
    ) -> None:
        self._view = view
        self._keys = KeyMapper(view.session, prefix)
        self._above = node.parts[:-1] if recognition.extent is Extent.FILE else node.parts
        self._found = recognition
        self._is_deep = recognition.extent is Extent.TREE
        self._unmatched = dict.fromkeys(view.rules.patterns(recognition))
        self._hash = hashlib.blake2b(digest_size=16)
        self._contents = hashlib.blake2b(digest_size=16)
        self._each: list[CheckpointMember] = []
        self._temporary: list[tuple[Sequence[Any], PlaceEntry, Parts]] = []
        """Closed files whose names are not final, until it is known whether a save renames them."""
        self._held: bytes | None = None
        self._open_files = 0
        self._newest_ns = self._newest_file_ns = 0
        self.files = self.size = self.dirty_files = self.dirty_size = 0
        self.stored_ns = 0
        """The time when the last of the members was stored that the bucket has."""
        self.dirty_since_ns: int | None = None
        """The oldest change of a file that the bucket does not have."""
        self._classes: set[str | None] = set()
        self._hash.update(repr((node.parts, recognition)).encode())
        row = view.session.one(own.STORED, ino=node.entry.ino)
        if recognition.extent is Extent.FILE and row is not None:
            self._add(row, node.entry, node.parts[-1:])
            # A file keeps its record when it gets another name.
            self._contents = hashlib.blake2b(
                line_of(CheckpointMember(ITSELF, node.entry)), digest_size=16
            )
            return
        if recognition.extent is Extent.TREE and row is not None:
            self._newest_ns = row[0]
        self._walk(node.entry.ino, ())
        for row, entry, path in self._temporary:
            # A save in progress has written nothing after the file that it is about to rename.
            if row[0] >= self._newest_file_ns:
                self._add(row, entry, path)

    def members(self) -> Members:
        """Return what rules are told."""
        unmatched = tuple(self._unmatched)
        newest_ns = self._newest_ns
        members = self._each if len(self._each) <= MEMBERS_MAX else None
        files = (self.files, self._open_files, self._held, unmatched)
        return Members(*files, newest_ns, self._newest_file_ns, members)

    def kept(self) -> bytes | None:
        """Return the members as a record has them, or None if they are too many."""
        return None if len(self._each) > MEMBERS_MAX else packed(self.for_record())

    def for_record(self) -> list[CheckpointMember]:
        """Return the members by the paths that a record has."""
        is_file = self._found.extent is Extent.FILE
        return (
            [CheckpointMember(ITSELF, member.entry) for member in self._each]
            if is_file
            else self._each
        )

    def contents(self) -> str:
        """Return a hash of the names, inodes, sizes and content versions of the members."""
        return self._contents.hexdigest()

    def evidence(self) -> str:
        """Return a hash of the members. Evictions do not change it."""
        return self._hash.hexdigest()

    @property
    def storage_class(self) -> str | None:
        """The storage class that the objects of all members were moved to, if it is one."""
        return next(iter(self._classes)) if len(self._classes) == 1 else None

    def _walk(self, directory: int, path: Parts) -> None:
        for rows in self._view.pages(own.MEMBERS, directory):
            below = []
            for row in rows:
                entry, inner = entry_of(row), (*path, bytes(row[0]))
                if entry.kind != InodeKind.DIRECTORY:
                    self._take(directory, row[1:6], entry, inner)
                elif self._is_deep:
                    self._note(entry, inner, row[1])
                    below.append((entry.ino, inner))
            for ino, inner in below:
                self._walk(ino, inner)

    def _take(self, directory: int, row: Sequence[Any], entry: PlaceEntry, path: Parts) -> None:
        """Add what is in a directory, unless it is left of something."""
        name = path[-1]
        if is_removed(name) or (
            entry.is_file and not entry.is_open and self._is_left(directory, name)
        ):
            return
        is_temporary = self._view.rules.holds.holds((*self._above, *path[:-1]), name)
        if is_temporary and entry.is_file and not entry.is_open:
            self._temporary.append((row, entry, path))
            return
        if entry.is_file:
            self._newest_file_ns = max(self._newest_file_ns, row[0])
        self._add(row, entry, path)

    def _is_left(self, directory: int, name: bytes) -> bool:
        """Return whether a closed file is what a killed save, a copy or an editor has left."""
        if self._view.rules.leaves(self._found.rule, name):
            return True
        target = copied_to(name)
        return target is not None and self._view.entry(directory, target) is not None

    def _note(self, entry: PlaceEntry, path: Parts, ctime_ns: int) -> None:
        """Note a member of any kind."""
        self._newest_ns = max(self._newest_ns, ctime_ns)
        self._hash.update(b"%d %d %d " % (entry.ino, entry.change, entry.is_open) + path[-1])
        above = (*self._above, *path[:-1])
        if self._held is None and self._view.rules.holds.holds(above, path[-1]):
            self._held = path[-1]

    def _add(self, row: Sequence[Any], entry: PlaceEntry, path: Parts) -> None:
        """Add a member that is no directory.

        Args:
            row: row with the columns of the statement STORED.
            path: path in the checkpoint.
        """
        ctime_ns, is_stored, key, stored_ns, storage_class = row
        self._note(entry, path, ctime_ns)
        member = CheckpointMember(b"/".join(path), entry)
        self._contents.update(line_of(member))
        if len(self._each) <= MEMBERS_MAX:
            self._each.append(member)
        if not entry.is_file:
            return
        self.files += 1
        self.size += entry.size
        self._open_files += entry.is_open
        self._classes.add(storage_class)
        if self._unmatched:
            self._match(text_of(b"/".join(path)))
        if is_stored and self._keys.is_settled(entry.ino, key):
            self.stored_ns = max(self.stored_ns, stored_ns)
        else:
            self.dirty_files += 1
            self.dirty_size += entry.size
            before_ns = self.dirty_since_ns
            self.dirty_since_ns = ctime_ns if before_ns is None else min(before_ns, ctime_ns)

    def _match(self, path: str) -> None:
        for pattern in list(self._unmatched):
            if fnmatch.fnmatchcase(path, pattern):
                del self._unmatched[pattern]
