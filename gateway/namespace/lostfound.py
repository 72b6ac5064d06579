"""Keeps ``/lost+found`` of the namespace, the directory for inodes that a repair found nameless.

A repair never deletes an inode: its bytes may be the only copy of a checkpoint.
"""

from __future__ import annotations

import secrets

from gateway.db import statements as sql
from gateway.db.models import ROOT_INO
from gateway.db.writer import Tx
from gateway.namespace import create
from gateway.namespace.entries import add_name, count_name, directory_changed, note_renamed
from gateway.namespace.lookup import find, get
from gateway.types import ROOT_CRED, Attr, Kind, SetAttr

NAME = b"lost+found"


def shown(ino: int) -> str:
    """Return the path that an inode gets, for people."""
    return f"/{NAME.decode()}/#{ino}"


def keep(tx: Tx, ino: int) -> None:
    """Give a name to an inode that has none, in a transaction of its own."""
    tx.reserve(2)
    attr = get(tx, ino)
    is_directory = attr.kind == Kind.DIRECTORY
    directory = _directory(tx)
    if is_directory:
        tx.run(sql.REPARENT, the_ino=ino, new_parent=directory.ino)
    else:
        count_name(tx, ino, 1 - attr.nlink)
    add_name(tx, directory.ino, b"#%d" % ino, ino)
    directory_changed(tx, directory.ino, links=int(is_directory))
    note_renamed(tx, attr)


def _directory(tx: Tx) -> Attr:
    """Return the directory; make it if there is none. Another inode with its name stays."""
    name = NAME
    while (found := find(tx, ROOT_INO, name)) is not None and found.kind != Kind.DIRECTORY:
        name += b"_"
    if found is not None:
        return found
    wanted = SetAttr(mode=0o700, uid=0, gid=0)
    return create.mkdir(tx, ROOT_CRED, ROOT_INO, name, wanted, generation=secrets.randbits(62))
