"""Clean files and their eviction as the server does it, for tests of residency."""

from __future__ import annotations

from gateway.common.types import Attr, Sealed
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from tests.support.namespace import Namespace
from tests.support.objects import record_object
from tests.support.t3.names import create
from tests.support.volumes import query

DATA = b"12345"


def save(namespace: Namespace, settings: Settings, name: bytes = b"f") -> Attr:
    """Make a clean file."""
    attr = create(namespace, name)
    namespace.files.path(attr.ino, attr.epoch).write_bytes(DATA)
    sealed = namespace.seal(attr.ino, Sealed(len(DATA), 4096, 77, 1))
    record_object(settings, attr.ino, name.decode())
    return sealed


def evict(namespace: Namespace, attr: Attr, version: int = 1) -> Attr:
    """Evict a file as the server does, with its data file."""
    evicted = namespace.evict(attr.ino, version)
    namespace.files.remove(attr.ino, evicted.epoch - 1)
    return evicted


def count(settings: Settings, table: str) -> int:
    [(found,)] = query(settings, f"SELECT count(*) FROM {table}")
    return int(found)


def problems(settings: Settings, *, repair: bool = False) -> list[str]:
    broken_invariants = fsck.check(
        Database(settings.database_url), DataFiles(settings.files_dir), repair=repair
    )
    return [problem.check for problem in broken_invariants]
