"""Adds up the members of a checkpoint, as one transaction sees them."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Sequence
from typing import Any

from gateway.cache.homes import Homes
from gateway.checkpoints import statements as own
from gateway.checkpoints.facts import Entry, Found, Members, Parts
from gateway.checkpoints.texts import entry_of
from gateway.checkpoints.tree import Node, View
from gateway.holds import text_of
from gateway.types import Extent, Kind


class Tally:
    """The members of a checkpoint together.

    Parameters: view; node and found, the checkpoint; prefix of the keys.
    """

    def __init__(self, view: View, node: Node, found: Found, prefix: str) -> None:
        self._view = view
        self._homes = Homes(view.session, prefix)
        self._above = node.parts[:-1] if found.extent is Extent.FILE else node.parts
        self._rule = found.rule
        self._is_deep = found.extent is Extent.TREE
        self._unmatched = dict.fromkeys(view.rules.patterns(found))
        self._hash = hashlib.blake2b(digest_size=16)
        self._held: bytes | None = None
        self._open_files = 0
        self._newest_ns = 0
        self.files = self.size = self.dirty_files = self.dirty_size = 0
        self.stored_ns = 0
        """The time when the last of the members was stored that the bucket has."""
        self.dirty_since_ns: int | None = None
        """The oldest change of a file that the bucket does not have."""
        self._classes: set[str | None] = set()
        self._hash.update(repr((node.parts, found)).encode())
        row = view.session.one(own.STORED, ino=node.entry.ino)
        if found.extent is Extent.FILE and row is not None:
            self._add(row, node.entry, node.parts[-1:])
            return
        if found.extent is Extent.TREE and row is not None:
            self._newest_ns = row[0]
        self._walk(node.entry.ino, ())

    def members(self) -> Members:
        """Return what rules are told."""
        unmatched = tuple(self._unmatched)
        newest_ns = self._newest_ns
        return Members(self.files, self._open_files, self._held, unmatched, newest_ns)

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
                if entry.kind != Kind.DIRECTORY:
                    if not self._is_leftover(entry, inner[-1]):
                        self._add(row[1:6], entry, inner)
                elif self._is_deep:
                    self._note(entry, inner, row[1])
                    below.append((entry.ino, inner))
            for ino, inner in below:
                self._walk(ino, inner)

    def _is_leftover(self, entry: Entry, name: bytes) -> bool:
        is_closed = entry.is_file and not entry.is_open
        return is_closed and self._view.rules.leaves(self._rule, name)

    def _note(self, entry: Entry, path: Parts, ctime_ns: int) -> None:
        """Note a member of any kind."""
        self._newest_ns = max(self._newest_ns, ctime_ns)
        self._hash.update(b"%d %d %d " % (entry.ino, entry.change, entry.is_open) + path[-1])
        above = (*self._above, *path[:-1])
        if self._held is None and self._view.rules.holds.holds(above, path[-1]):
            self._held = path[-1]

    def _add(self, row: Sequence[Any], entry: Entry, path: Parts) -> None:
        """Add a member that is no directory.

        Parameters: row, with the columns of the statement STORED; entry; path in the checkpoint.
        """
        ctime_ns, is_stored, key, stored_ns, storage_class = row
        self._note(entry, path, ctime_ns)
        if not entry.is_file:
            return
        self.files += 1
        self.size += entry.size
        self._open_files += entry.is_open
        self._classes.add(storage_class)
        if self._unmatched:
            self._match(text_of(b"/".join(path)))
        if is_stored and self._homes.is_at_home(entry.ino, key):
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
