"""Moves into the trash and out of it, as the trash does them, without its checks."""

from __future__ import annotations

from contextlib import closing

from gateway.common.types import GATEWAY_CRED
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import TRASH_INO
from gateway.namespace import rename, reserved
from tests.support.namespace import Namespace
from tests.support.volumes import query


def reserve(settings: Settings, ino: int) -> None:
    """Have only the gateway change an inode and what is below it."""
    with closing(Database(settings.database_url)) as database:
        reserved.reserve(database, ino)


def discard(
    settings: Settings, namespace: Namespace, parent: int, name: bytes, new_name: bytes
) -> None:
    """Put an entry of a directory into the trash."""
    reserve(settings, namespace.lookup(parent, name).ino)
    namespace.rename(GATEWAY_CRED, parent, name, TRASH_INO, new_name)


def take_back(
    settings: Settings, namespace: Namespace, name: bytes, parent: int, new_name: bytes
) -> None:
    """Give an entry of the trash back to clients."""
    ino = namespace.lookup(TRASH_INO, name, is_gateway=True).ino
    number = let_out(settings, ino)
    namespace.run(rename.rename, GATEWAY_CRED, TRASH_INO, name, parent, new_name, number)
    give_back(settings, ino)


def let_out(settings: Settings, ino: int) -> int:
    """Let the next rename take an inode out of the trash. Returns the number that it needs."""
    query(
        settings,
        "INSERT INTO trash (id, ino, path, run, files, size, dirty_used, deleted_ns, since_ns,"
        " expires_ns, deleted_by, reason, state)"
        " VALUES ('x', :ino, :none, :none, 0, 0, 0, 0, 1, 0, '-', '-', 'returning')",
        ino=ino,
        none=b"",
    )
    return 2


def give_back(settings: Settings, ino: int) -> None:
    """Let clients change what was taken out of the trash."""
    with closing(Database(settings.database_url)) as database:
        reserved.give_back(database, ino)
    query(settings, "DELETE FROM trash WHERE ino = :ino", ino=ino)
