"""Orders of people about imports: begin one, have it listed again, or remove it.

The process of the recovery carries them out (gateway.recovery.importer). Only the place of the
directory is decided here, so that a person gets the error at once.
"""

from __future__ import annotations

import errno
import secrets
from typing import NamedTuple
from urllib.parse import urlsplit

from gateway.common import clock
from gateway.common.errors import NotPossible, UserError
from gateway.common.types import GATEWAY_CRED, InodeKind
from gateway.config.settings import Settings
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.engine import Database
from gateway.db.models import TRASH_INO
from gateway.db.writer import Effects, Ids, Tx
from gateway.namespace import names, rotation
from gateway.recovery import import_keys, import_rows
from gateway.recovery.import_rows import ImportRow, ImportState, staged_name
from gateway.rpc.control import ControlSocket
from gateway.rpc.frames import Op, RpcRequest

_REFUSALS = {
    errno.EEXIST: "something has this name already: choose another path",
    errno.ENOTEMPTY: "something has this name already: choose another path",
    errno.ENOTDIR: "something has this name already: choose another path",
    errno.EROFS: "the gateway keeps that directory for itself: choose another path",
    errno.ESTALE: "its directory was removed meanwhile: choose another path",
}


class ImportSource(NamedTuple):
    """What is to be imported."""

    bucket: str
    prefix: str


class ImportPlace(NamedTuple):
    """Where the directory of an import is to be."""

    parent: int
    name: bytes
    shown: str
    """The path, for people."""


def source_of(settings: Settings, url: str) -> ImportSource:
    """Return what a person wrote. Raises UserError."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise UserError(f"{url!a}: write s3://BUCKET/PREFIX")
    source = ImportSource(parts.netloc, parts.path.strip("/"))
    own = settings.bucket
    if source.bucket == own.name and import_keys.overlap(source.prefix, own.prefix):
        raise UserError(
            f"{url}: these are keys of the gateway itself, and it shows their objects at their own "
            "paths: to have objects there become files that others put there, stop the gateway "
            "and run: spillway reconcile --import"
        )
    return source


def begin(
    database: Database, control: ControlSocket, source: ImportSource, place: ImportPlace
) -> int:
    """Begin an import at a free place. Returns the inode of its directory.

    An earlier try of the same source that was cut off is continued.

    Args:
        database: of the gateway.
        control: of its NFS server.
        source: what is imported.
        place: where.

    Raises:
        NotPossible: the place cannot be taken.
        ControlSocketClosed: the server went away: begin again.
    """
    top = _prepare(database, source)
    request = RpcRequest(
        *(Op.RENAME, TRASH_INO, staged_name(top), place.parent, place.name), cred=GATEWAY_CRED
    )
    [answer] = control.run([request])
    if answer.errno != 0:
        _give_up(database, top)
        why = _REFUSALS.get(answer.errno, f"the NFS server refuses it (errno {answer.errno})")
        raise NotPossible(f"{place.shown}: {why}")
    _list(database, top)
    return top


def _prepare(database: Database, source: ImportSource) -> int:
    """Make the directory of an import, where no client finds it. Returns its inode."""
    effects, ids = Effects(), Ids()
    with database.reader() as connection, database.transaction(connection):
        tx = Tx(connection, database.dialect, ids, "import", effects)
        for row in import_rows.every(tx):
            is_same = (row.bucket, row.prefix) == source and row.state == ImportState.PLACING
            if is_same and import_rows.entry_of(tx, row.top) == (TRASH_INO, staged_name(row.top)):
                return row.top
        if tx.one(sql.GET, ino=TRASH_INO) is None:
            raise UserError(
                "a client has made /.spillway, which the gateway needs: give it another name and "
                "restart the gateway"
            )
        tx.reserve(1)
        top = tx.new_ino()
        rotation.insert_inode(
            tx,
            tx.now_ns,
            ino=top,
            generation=secrets.randbits(62),
            kind=InodeKind.DIRECTORY,
            mode=0o555,
            nlink=2,
            reserved=1,
            parent=TRASH_INO,
        )
        names.add_name(tx, TRASH_INO, staged_name(top), top)
        names.directory_changed(tx, TRASH_INO, links=1)
        tx.run(import_rows.INSERT, **new_row(top, source, tx.now_ns)._asdict())
        tx.touch(top)
        journal.note(tx, effects.touched)
    return top


def _give_up(database: Database, top: int) -> None:
    """Delete the directory of an import that got no place."""
    effects = Effects()
    with database.reader() as connection, database.transaction(connection):
        tx = Tx(connection, database.dialect, Ids(), "import", effects)
        import_rows.delete_staged(tx, [top])
        names.directory_changed(tx, TRASH_INO, links=-1)
        tx.touch(top)
        journal.note(tx, effects.touched)


def new_row(top: int, source: ImportSource, now_ns: int) -> ImportRow:
    """Return the row of an import that begins."""
    return ImportRow(
        top=top,
        bucket=source.bucket,
        prefix=source.prefix,
        state=ImportState.PLACING.value,
        last_key=None,
        untold="[]",
        asked_ns=now_ns,
        ended_ns=None,
        files=0,
        size=0,
        gone=0,
        left_out=0,
        examples="[]",
        error=None,
    )


def _list(database: Database, top: int) -> None:
    with database.writing() as session:
        import_rows.set_state(session, top, ImportState.LISTING, clock.now_ns())


def refresh(database: Database, top: int, source: ImportSource, shown: str) -> None:
    """Have an import be listed again. Raises NotPossible if it is another one, or is removed.

    Args:
        database: of the gateway.
        top: its directory.
        source: that it must have.
        shown: its path, for people.
    """
    with database.writing() as session:
        row = _found(import_rows.one(session, top), shown)
        if (row.bucket, row.prefix) != source:
            raise NotPossible(
                f"{shown}: it is an import of {row.url}: choose another path, or remove that one "
                f"first: spillway import --remove {shown}"
            )
        _require_there(row, shown)
        import_rows.set_state(session, top, ImportState.LISTING, clock.now_ns())


def remove(database: Database, top: int, shown: str) -> None:
    """Have the names and the local copies of an import be removed. Args and errors as of
    ``refresh``."""
    with database.writing() as session:
        _found(import_rows.one(session, top), shown)
        import_rows.set_state(session, top, ImportState.REMOVING, clock.now_ns())


def _found(row: ImportRow | None, shown: str) -> ImportRow:
    if row is None:
        raise NotPossible(
            f"{shown}: it is not the directory of an import: spillway import shows which there are"
        )
    return row


def _require_there(row: ImportRow, shown: str) -> None:
    if row.state == ImportState.REMOVING:
        raise NotPossible(f"{shown}: it is being removed: wait until it is gone, and try again")
