"""Service for usage: who has how many files and bytes, and where they are."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from gateway.common.errors import NotPossible
from gateway.common.models import Model
from gateway.common.text import text_of
from gateway.common.types import InodeKind
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.schema import reading
from gateway.namespace import usage
from gateway.namespace.usage import OwnerUsage, TrashedSums
from gateway.service.paths import browsing, is_below, names_of, resolve


@dataclass(frozen=True, slots=True)
class DirectoryUse(Model):
    """What a directory has with all below it."""

    path: str = field(metadata={"examples": ["/checkpoints/run7"]})
    directories: int
    """Below it."""
    files: int
    """All but directories. A file with several names counts once."""
    size_bytes: int
    """At the last close of each file."""
    disk_bytes: int
    """On the local disk."""
    bucket_bytes: int
    """Those whose file the bucket has as it is now."""
    only_here_bytes: int
    """Those whose file the bucket does not have as it is now."""
    trash_files: int
    """Files of checkpoints that were below it, and are in the trash."""
    trash_bytes: int


@dataclass(frozen=True, slots=True)
class OwnerUse(Model):
    """What an owner has in the whole namespace."""

    uid: int
    files: int
    size_bytes: int
    disk_bytes: int
    only_here_bytes: int
    kept_files: int
    """Which the gateway keeps: in the trash, and copies of promotions."""
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class UsageFacts(Model):
    """The usage of a directory, of those in it, and of owners."""

    directory: DirectoryUse
    below: list[DirectoryUse]
    """The directories in it, the largest first."""
    owners: list[OwnerUse]
    """Those of the whole namespace, the largest first."""


def gather(settings: Settings, path: str) -> UsageFacts:
    """Return the usage of a directory. Raises NotThere, NotPossible, UserError.

    Args:
        path: of the command line.
    """
    with browsing(settings) as browser:
        place = resolve(browser, settings, path)
        entry = place.found()
    if entry.attr.kind != InodeKind.DIRECTORY:
        raise NotPossible(f"{place.path} is not a directory: usage is of directories")
    names = names_of(settings.nfs.export, path)
    # One moment for all sums.
    with closing(Database(settings.database_url)) as database, reading(database) as session:
        return _report(settings, session, entry.attr.ino, names)


def _report(settings: Settings, session: Session, ino: int, names: list[bytes]) -> UsageFacts:
    trashed = usage.trashed(session)

    def use(names: list[bytes], found: usage.Usage) -> DirectoryUse:
        top = b"/".join(names)
        gone = [one for one in trashed if is_below(one.path, top)]
        return _of_directory(settings, names, found, gone)

    below = [use([*names, name], found) for name, found in usage.below(session, ino)]
    owners: dict[int, dict[int, OwnerUsage]] = {}
    for row in usage.owners(session):
        owners.setdefault(row.uid, {})[row.reserved] = row
    return UsageFacts(
        directory=use(names, usage.of_tree(session, ino)),
        below=sorted(below, key=lambda one: -one.size_bytes),
        owners=[_of_owner(uid, rows) for uid, rows in owners.items()],
    )


def _of_directory(
    settings: Settings, names: list[bytes], found: usage.Usage, gone: list[TrashedSums]
) -> DirectoryUse:
    return DirectoryUse(
        path="/".join([settings.nfs.export, *map(text_of, names)]),
        directories=found.directories,
        files=found.files,
        size_bytes=found.size,
        disk_bytes=found.used,
        bucket_bytes=found.size - found.unsaved,
        only_here_bytes=found.unsaved,
        trash_files=sum(one.files for one in gone),
        trash_bytes=sum(one.size for one in gone),
    )


def _of_owner(uid: int, rows: dict[int, OwnerUsage]) -> OwnerUse:
    none = OwnerUsage(uid, 0, 0, 0, 0, 0)
    own, kept = (rows.get(reserved, none) for reserved in (0, 1))
    return OwnerUse(
        uid=uid,
        files=own.files,
        size_bytes=own.size,
        disk_bytes=own.used,
        only_here_bytes=own.unsaved,
        kept_files=kept.files,
        kept_bytes=kept.size,
    )
