"""The rules of POSIX and RFC 8881 for names and attributes, as plain objects in memory.

The model is written from the standards, and takes only its types from the gateway. Values that can
be derived (link counts, parents) are derived and not stored. A verb that must fail raises Refused
with every error that applies. POSIX (XSH 2.3) leaves the choice among them to the implementation.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.common import errors
from gateway.common.types import Attr, Cred, InodeKind, Sealed, SetAttr
from tests.support.t3.contents import Contents
from tests.support.t3.node import AtLeast, Errors, Node, Refused

SETGID, STICKY = 0o2000, 0o1000
WRITE, EXECUTE = 2, 1
CRASH_STEP = 1 << 32


def refuse(found: Errors) -> None:
    if found:
        raise Refused(found)


def name_errors(name: bytes) -> Errors:
    if len(name) > 255:
        return {errors.NameTooLong}
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        return {errors.InvalidArgument}
    return set()


class Model(Contents):
    """A file system.

    Args:
        root: the first attributes of the root.
    """

    def __init__(self, root: Attr) -> None:
        super().__init__()
        times = (root.atime_ns, root.mtime_ns, root.ctime_ns, root.btime_ns)
        self.root = Node(InodeKind.DIRECTORY, 0o755, 0, 0, *times, generation=root.generation)
        self.bind(self.root, root.ino)

    # ---- derived values ----

    def directories(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.kind == InodeKind.DIRECTORY]

    def parent(self, node: Node) -> Node:
        """Return the directory that has the entry of a directory."""
        if node is self.root:
            return node
        (parent,) = (d for d in self.directories() if node in d.entries.values())
        return parent

    def nlink(self, node: Node) -> int:
        if node.kind == InodeKind.DIRECTORY:
            return 2 + sum(entry.kind == InodeKind.DIRECTORY for entry in node.entries.values())
        return sum(e is node for d in self.directories() for e in d.entries.values())

    def orphans(self) -> list[Node]:
        return [
            n for n in self.nodes.values() if n.kind == InodeKind.REGULAR and self.nlink(n) == 0
        ]

    def bind(self, node: Node, ino: int) -> None:
        """Give a new inode the number that the gateway chose."""
        node.ino = ino
        self.nodes[ino] = node

    # ---- checks ----

    def directory(self, ino: int) -> Node:
        node = self.node(ino)
        if node.kind != InodeKind.DIRECTORY:
            raise Refused({errors.NotADirectory})
        return node

    def lookup(self, parent: int, name: bytes) -> Node:
        node = self.nodes.get(parent)
        if node is None:
            raise Refused({errors.Stale} | name_errors(name))
        if node.kind != InodeKind.DIRECTORY:
            raise Refused({errors.NotADirectory} | name_errors(name))
        if name not in node.entries:
            raise Refused({errors.NotFound} | name_errors(name))
        return node.entries[name]

    def readlink(self, ino: int) -> bytes:
        target = self.node(ino).target
        if target is None:
            raise Refused({errors.InvalidArgument})
        return target

    def _directory_errors(self, cred: Cred, ino: int) -> Errors:
        """Return the errors of a change of a directory's entries."""
        node = self.nodes.get(ino)
        if node is None:
            return {errors.Stale}
        if node.kind != InodeKind.DIRECTORY:
            return {errors.NotADirectory}
        return set() if node.grants(cred, WRITE | EXECUTE) else {errors.AccessDenied}

    def _find(self, parent: int, name: bytes) -> Node | None:
        node = self.nodes.get(parent)
        return None if node is None else node.entries.get(name)

    def _add_errors(self, cred: Cred, parent: int, name: bytes) -> Errors:
        taken = self._find(parent, name) is not None
        directory_errors = self._directory_errors(cred, parent) | name_errors(name)
        return directory_errors | ({errors.Exists} if taken else set())

    def _sticky_errors(self, cred: Cred, parent: int, victim: Node) -> Errors:
        """Return the errors of XBD 4.3: only owners of file or sticky directory may remove."""
        directory = self.nodes[parent]
        if directory.mode & STICKY and cred.uid not in (0, directory.uid, victim.uid):
            return {errors.NotPermitted, errors.AccessDenied}
        return set()

    # ---- effects ----

    def _status_changed(self, node: Node) -> None:
        node.ctime_ns = AtLeast(self.now_ns)
        node.grew()

    def _entries_changed(self, directory: Node) -> None:
        directory.mtime_ns = directory.ctime_ns = AtLeast(self.now_ns)
        directory.grew()

    def _unlink(self, parent: int, name: bytes) -> Node:
        victim = self.nodes[parent].entries.pop(name)
        self._entries_changed(self.nodes[parent])
        self._status_changed(victim)
        self._moved(victim)
        # Only regular files can be open without a name.
        if victim.kind == InodeKind.DIRECTORY or (
            victim.kind != InodeKind.REGULAR and self.nlink(victim) == 0
        ):
            del self.nodes[victim.ino]
        return victim

    def _moved(self, node: Node) -> None:
        """Note that a name has changed. Without names a file loses its object."""
        if node.kind == InodeKind.REGULAR and self.nlink(node) == 0:
            node.object = None
        node.is_moved = node.object is not None

    # ---- making names ----

    def make(
        self,
        cred: Cred,
        parent: int,
        name: bytes,
        wanted: SetAttr,
        kind: int,
        also: Iterable[type[errors.NamespaceError]] = (),
    ) -> Node:
        """Make an inode, which the caller must ``bind``.

        Args:
            wanted: wanted with a mode.
            also: further errors of this kind of inode.
        """
        refuse(self._add_errors(cred, parent, name) | set(also))
        directory = self.nodes[parent]
        inherits = bool(directory.mode & SETGID)
        inherited = directory.gid if inherits else cred.gid
        uid = cred.uid if wanted.uid is None else wanted.uid
        gid = inherited if wanted.gid is None else wanted.gid
        member = cred.uid == 0 or cred.is_member(gid)
        # The attributes of a new file must not give what chown() would refuse.
        gives = (uid != cred.uid and cred.uid != 0) or (wanted.gid is not None and not member)
        refuse({errors.NotPermitted} if gives else set())
        assert wanted.mode is not None
        mode = wanted.mode
        if kind == InodeKind.DIRECTORY and inherits:
            mode |= SETGID
        elif kind != InodeKind.DIRECTORY and not member:
            mode &= ~SETGID  # chmod() would clear this bit too
        now = AtLeast(self.now_ns)
        atime = now if wanted.atime_ns is None else wanted.atime_ns
        mtime = now if wanted.mtime_ns is None else wanted.mtime_ns
        node = Node(kind, mode, uid, gid, atime, mtime, now, now)
        node.version = int(kind == InodeKind.REGULAR)
        directory.entries[name] = node
        self._entries_changed(directory)
        return node

    def link(self, cred: Cred, ino: int, parent: int, name: bytes) -> Node:
        add_errors = self._add_errors(cred, parent, name)
        node = self.nodes.get(ino)
        if node is None:
            add_errors.add(errors.Stale)
        elif node.kind == InodeKind.DIRECTORY:
            add_errors |= {errors.NotPermitted, errors.IsADirectory}
        elif self.nlink(node) == 0:
            add_errors.add(errors.NotFound)
        refuse(add_errors)
        assert node is not None
        self.nodes[parent].entries[name] = node
        self._status_changed(node)
        self._entries_changed(self.nodes[parent])
        return node

    # ---- removing and moving names ----

    def remove(self, cred: Cred, parent: int, name: bytes) -> Node:
        directory_errors = self._directory_errors(cred, parent) | name_errors(name)
        victim = self._find(parent, name)
        if victim is None:
            raise Refused(
                directory_errors
                | (set() if errors.Stale in directory_errors else {errors.NotFound})
            )
        directory_errors |= self._sticky_errors(cred, parent, victim)
        refuse(directory_errors | ({errors.NotEmpty} if victim.entries else set()))
        return self._unlink(parent, name)

    def rename(
        self, cred: Cred, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes
    ) -> tuple[Node, Node | None]:
        """Rename an entry. Returns the moved inode and the one that it replaced."""
        directory_errors = self._directory_errors(cred, old_parent) | self._directory_errors(
            cred, new_parent
        )
        directory_errors |= name_errors(old_name) | name_errors(new_name)
        moved, replaced = self._find(old_parent, old_name), self._find(new_parent, new_name)
        if moved is None:
            raise Refused(
                directory_errors
                | (set() if errors.Stale in directory_errors else {errors.NotFound})
            )
        directory_errors |= self._sticky_errors(cred, old_parent, moved)
        if replaced is moved:
            # "shall return successfully and perform no other action"
            if directory_errors:
                raise Refused(directory_errors, or_nothing=True)
            return moved, None
        directory_errors |= self._rename_errors(cred, moved, old_parent, new_parent)
        if replaced is not None:
            directory_errors |= self._sticky_errors(cred, new_parent, replaced)
            directory_errors |= {errors.NotEmpty} if replaced.entries else set()
            if moved.kind == InodeKind.DIRECTORY and replaced.kind != InodeKind.DIRECTORY:
                directory_errors.add(errors.NotADirectory)
            if moved.kind != InodeKind.DIRECTORY and replaced.kind == InodeKind.DIRECTORY:
                directory_errors.add(errors.IsADirectory)
        refuse(directory_errors)
        if replaced is not None:
            self._unlink(new_parent, new_name)
        del self.nodes[old_parent].entries[old_name]
        self.nodes[new_parent].entries[new_name] = moved
        self._entries_changed(self.nodes[old_parent])
        self._entries_changed(self.nodes[new_parent])
        # "Some implementations mark ... the last file status change timestamp of renamed files"
        assert not isinstance(moved.ctime_ns, AtLeast)
        moved.ctime_ns = AtLeast(moved.ctime_ns)
        moved.may_grow()
        self._moved(moved)
        return moved, replaced

    def _rename_errors(self, cred: Cred, moved: Node, old_parent: int, new_parent: int) -> Errors:
        """Return the errors of moving a directory: its ".." is written, and not below itself."""
        classes: Errors = set()
        if moved.kind != InodeKind.DIRECTORY or old_parent == new_parent:
            return classes
        if not moved.grants(cred, WRITE):
            classes.add(errors.AccessDenied)
        at = self.nodes.get(new_parent)
        while at is not None and at.kind == InodeKind.DIRECTORY:
            if at is moved:
                classes.add(errors.CrossesItself)
            at = None if at is self.root else self.parent(at)
        return classes

    # ---- attributes and ends ----

    def setattr(self, ino: int, wanted: SetAttr) -> Node:
        node = self.node(ino)
        for name, value in wanted._asdict().items():
            if value is not None:
                setattr(node, name, value)
        if node.kind == InodeKind.REGULAR and (wanted.uid is not None or wanted.gid is not None):
            node.mode &= ~0o4000
            if node.mode & 0o010:
                node.mode &= ~0o2000
        self._status_changed(node)
        return node

    def reclaim(self, ino: int) -> None:
        """Delete an inode that is not open any more, unless it has a name."""
        if any(node.ino == ino for node in self.orphans()):
            del self.nodes[ino]

    def restart(self, found: dict[int, Sealed]) -> tuple[int, int]:
        """Recover as after a crash.

        Returns the number of files that were sealed, and of orphans that were deleted.

        Args:
            found: data files that were written and not sealed.
        """
        self.left.clear()
        orphans = self.orphans()
        for node in orphans:
            del self.nodes[node.ino]
        sealed = [node for node in self.nodes.values() if node.write_open]
        for node in sealed:
            assert not isinstance(node.change, AtLeast)
            assert not isinstance(node.ctime_ns, AtLeast)
            if node.ino in found:
                self._sealed(node, found[node.ino])
            else:  # the file was open but not written, so its mtime stays
                node.ctime_ns = AtLeast(node.ctime_ns)
            node.change += CRASH_STEP
            node.write_open = False
        return len(sealed), len(orphans)
