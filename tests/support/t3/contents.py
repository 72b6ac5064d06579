"""The rules of the model for the bytes of files: written, sealed, drained, evicted, back again."""

from __future__ import annotations

from gateway.common import errors
from gateway.common.types import InodeKind, Residency, Sealed
from tests.support.t3.node import AtLeast, Node, Refused


class Contents:
    """The inodes of the model, by number."""

    def __init__(self) -> None:
        self.now_ns = 0
        """The time when the operation began; the caller sets it."""
        self.nodes: dict[int, Node] = {}
        self.left: set[tuple[int, int]] = set()
        """Inode and epoch of each data file that a start must delete."""

    def node(self, ino: int) -> Node:
        if ino not in self.nodes:
            raise Refused({errors.Stale})
        return self.nodes[ino]

    def open_write(self, ino: int) -> Node:
        node = self.node(ino)
        if node.kind != InodeKind.REGULAR:
            raise Refused({errors.InvalidArgument, errors.IsADirectory})
        if node.is_absent:
            raise Refused({errors.TryAgain})
        node.version += 1
        node.write_open = True
        node.may_grow()
        return node

    def seal(self, ino: int, data: Sealed) -> Node:
        """Seal a file after its last close. While it was open, ``change`` grew with each write."""
        node = self.node(ino)
        if node.write_open and data.writes > 0:
            assert not isinstance(node.change, AtLeast)
            self._sealed(node, data)
            node.change = AtLeast(node.change + data.writes)
        elif node.write_open and 0 < node.drained == node.version - 1:
            # It was opened and not written.
            node.drained = node.version
            node.object = node.object and (node.version, node.size)
        node.write_open = False
        return node

    def _sealed(self, node: Node, data: Sealed) -> None:
        assert not isinstance(node.ctime_ns, AtLeast)
        node.size, node.used, node.mtime_ns = data.size, data.used, data.mtime_ns
        node.ctime_ns = AtLeast(max(node.ctime_ns, node.written_ns))
        node.writes = 0

    def stored(self, node: Node, size: int) -> None:
        """Note that the bucket has the bytes of a file, verified, at the key that is its path.

        Args:
            size: size of a snapshot if the file is open for writing.
        """
        node.object, node.is_moved = (node.version, size), False
        if not node.write_open:
            node.drained = node.version

    def evict(self, ino: int, version: int) -> Node:
        """Make a file absent if the bucket has what it is now, as far as the caller saw it."""
        node = self.node(ino)
        is_stored = node.object == (version, node.size) and node.drained == version
        is_at_rest = not node.write_open and not node.is_moved and node.version == version
        has_bytes_here = node.size > 0 and (not node.is_absent or node.has_blocks)
        if not (is_stored and is_at_rest and has_bytes_here):
            raise Refused({errors.Busy})
        self._leave(node, Residency.ABSENT)
        return node

    def _leave(self, node: Node, residency: Residency) -> None:
        """Never use the data file again that a file has."""
        self.left.add((node.ino, node.epoch))
        node.residency, node.epoch = residency, node.epoch + 1
        node.has_blocks, node.data = False, None

    def arrived(self, ino: int, epoch: int, version: int) -> Node:
        """Make a file resident whose bytes are all in the data file of an epoch."""
        node = self.node(ino)
        if node.is_absent and (epoch, version) == (node.epoch, node.version):
            node.residency, node.has_blocks = Residency.RESIDENT, False
        elif node.is_absent or epoch != node.epoch:
            raise Refused({errors.Stale})
        return node

    def open_emptied(self, ino: int) -> Node:
        """Open a file for a writer that empties it. An absent one is empty at once."""
        node = self.node(ino)
        if not node.is_absent:
            return self.open_write(ino)
        self._leave(node, Residency.RESIDENT)
        node.write_open, node.version = True, node.version + 2
        node.size = node.used = 0
        node.mtime_ns = node.ctime_ns = AtLeast(self.now_ns)
        node.grew()
        return node
