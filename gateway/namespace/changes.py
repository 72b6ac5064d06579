"""The changes that clients ask for, as operations of the writer: one for each verb.

Making one does nothing yet; ``Namespace`` runs it, alone or together with others.
"""

from __future__ import annotations

from gateway.db.writer import Operation
from gateway.namespace import content, create, remove, rename, setattr, xattr
from gateway.types import Attr, Cred, Removed, Sealed, SetAttr


class Changes:
    """Parameters: generation, of inodes made from now on; settle_ns, how long the drain leaves a
    sealed file alone."""

    def __init__(self, generation: int, settle_ns: int) -> None:
        self._generation = generation
        self._settle_ns = settle_ns

    def create(
        self,
        cred: Cred,
        parent: int,
        name: bytes,
        wanted: SetAttr,
        verifier: bytes | None = None,
        for_writing: bool = True,
    ) -> Operation[Attr]:
        return Operation(
            "create",
            lambda tx: create.create_file(
                tx,
                cred,
                parent,
                name,
                wanted,
                generation=self._generation,
                verifier=verifier,
                for_writing=for_writing,
            ),
        )

    def mkdir(self, cred: Cred, parent: int, name: bytes, wanted: SetAttr) -> Operation[Attr]:
        generation = self._generation
        return Operation(
            "mkdir", lambda tx: create.mkdir(tx, cred, parent, name, wanted, generation=generation)
        )

    def symlink(
        self, cred: Cred, parent: int, name: bytes, target: bytes, wanted: SetAttr
    ) -> Operation[Attr]:
        generation = self._generation
        return Operation(
            "symlink",
            lambda tx: create.symlink(
                tx, cred, parent, name, target, wanted, generation=generation
            ),
        )

    def mknod(
        self, cred: Cred, parent: int, name: bytes, kind: int, rdev: int, wanted: SetAttr
    ) -> Operation[Attr]:
        generation = self._generation
        return Operation(
            "mknod",
            lambda tx: create.mknod(
                tx, cred, parent, name, kind, rdev, wanted, generation=generation
            ),
        )

    def link(self, cred: Cred, ino: int, parent: int, name: bytes) -> Operation[Attr]:
        return Operation("link", lambda tx: create.link(tx, cred, ino, parent, name))

    def rename(
        self, cred: Cred, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes
    ) -> Operation[tuple[Attr, Removed | None]]:
        return Operation(
            "rename", lambda tx: rename.rename(tx, cred, old_parent, old_name, new_parent, new_name)
        )

    def remove(
        self, cred: Cred, parent: int, name: bytes, only: tuple[int, int] | None = None
    ) -> Operation[Removed]:
        return Operation("remove", lambda tx: remove.remove(tx, cred, parent, name, only))

    def reclaim(self, ino: int) -> Operation[bool]:
        return Operation("reclaim", lambda tx: remove.reclaim(tx, ino))

    def setattr(self, ino: int, wanted: SetAttr) -> Operation[Attr]:
        return Operation("setattr", lambda tx: setattr.setattr_(tx, ino, wanted))

    def setxattr(
        self, cred: Cred, ino: int, name: bytes, value: bytes, how: int = 0
    ) -> Operation[Attr]:
        return Operation("setxattr", lambda tx: xattr.set_value(tx, cred, ino, name, value, how))

    def removexattr(self, cred: Cred, ino: int, name: bytes) -> Operation[Attr]:
        return Operation("removexattr", lambda tx: xattr.remove_value(tx, cred, ino, name))

    def open_write(self, ino: int) -> Operation[Attr]:
        return Operation("open_write", lambda tx: content.open_write(tx, ino))

    def seal(self, ino: int, data: Sealed) -> Operation[Attr]:
        return Operation("seal", lambda tx: content.seal(tx, ino, data, self._settle_ns))

    def damaged(self, ino: int, reason: str) -> Operation[None]:
        return Operation("damaged", lambda tx: content.damaged(tx, ino, reason))

    def whole(self, ino: int) -> Operation[None]:
        return Operation("whole", lambda tx: content.whole(tx, ino))
