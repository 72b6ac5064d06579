"""Service for the loss of a machine: what would be lost now, and what brings the rest back.

The files that the bucket lacks are read by an index, up to a bound: the page is opened most often
when many wait.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from sqlalchemy import func, literal_column, select

from gateway.common import clock
from gateway.common.models import Model, Nanoseconds
from gateway.common.text import text_of
from gateway.config.settings import Settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.journal import STANDING
from gateway.db.schema import reading
from gateway.db.statements import IS_DIRTY, dirent, inode, names_copy
from gateway.namespace import lookup
from gateway.service.copied_names import CopiedNames, DrillStatus
from gateway.service.scrub import ScrubStatus
from gateway.service.status import Status

NAMES_READER = "names"
"""The reader of the journal that copies the names."""
PLACES = 20
LOOKED_MAX = 100_000
"""The files that are looked at, of those that the bucket lacks."""

_DIRTY = (
    select(inode.c.ino, inode.c.size)
    .where(*IS_DIRTY, inode.c.nlink > 0)
    .limit(b("most"))
    .subquery("dirty")
)
_PLACES = Statement(
    select(
        dirent.c.parent,
        func.count(),
        func.coalesce(func.sum(_DIRTY.c.size), 0).label("bytes"),
    )
    .select_from(_DIRTY.join(dirent, dirent.c.ino == _DIRTY.c.ino))
    .group_by(dirent.c.parent)
    .order_by(literal_column("bytes").desc(), dirent.c.parent)
    .limit(b("places"))
)


_BASE = Statement(
    select(names_copy.c.base_bytes, names_copy.c.log_bytes).where(names_copy.c.base_ns.is_not(None))
)


@dataclass(frozen=True, slots=True)
class LostPlace(Model):
    """A directory with files that the bucket lacks."""

    path: str = field(metadata={"examples": ["/checkpoints/run7/step100"]})
    """Path as clients see it."""
    files: int
    bytes: int
    """Their bytes, as of the last close of each."""


@dataclass(frozen=True, slots=True)
class LossNow(Model):
    """What would be lost if this machine were lost now."""

    files: int
    """Files whose last version the bucket lacks."""
    bytes: int
    places: list[LostPlace]
    """The directories with the most bytes of them."""
    is_partial: bool
    """Whether there are more files than were looked at, or more directories than are named."""
    name_changes: int
    """Changes of names that are newer than the copy in the bucket."""


@dataclass(frozen=True, slots=True)
class RecoveryFacts(Model):
    """What would bring this gateway back, and what would be lost."""

    at_ns: Nanoseconds
    names: CopiedNames
    drill: DrillStatus
    scrub: ScrubStatus
    base_bytes: int | None
    """Size of the newest base of the names. None: there is none."""
    log_bytes: int | None
    """Size of the log since that base. None: there is none."""
    lost: LossNow
    commands: list[str] = field(
        metadata={"examples": [["spillway restore --bucket my-checkpoints"]]}
    )
    """What to run on an empty machine."""


def gather(settings: Settings, database: Database, found: Status) -> RecoveryFacts:
    """Return what would be lost now, and what would bring the rest back. Raises TryAgain.

    Args:
        settings: of the gateway.
        database: of the gateway.
        found: the state of the gateway.
    """
    with reading(database) as session:
        base = session.one(_BASE)
        return RecoveryFacts(
            at_ns=clock.now_ns(),
            names=found.names,
            drill=found.drill,
            scrub=found.scrub,
            base_bytes=None if base is None else int(base[0]),
            log_bytes=None if base is None else int(base[1]),
            lost=_lost(settings, session, found),
            commands=commands(settings),
        )


def _lost(settings: Settings, session: Session, found: Status) -> LossNow:
    standing = session.one(STANDING, reader=NAMES_READER, position=None)
    assert standing is not None, "a query without a table has one row"
    saved, last, _inos = standing
    # One more: then there are others.
    rows = session.all(_PLACES, most=LOOKED_MAX, places=PLACES + 1)
    places = [
        LostPlace(_path(settings, session, parent), int(files), int(size))
        for parent, files, size in rows[:PLACES]
        # What is in the trash is not sent.
        if not lookup.is_trashed(session, parent)
    ]
    return LossNow(
        files=found.dirty.files,
        bytes=found.dirty.bytes,
        places=places,
        is_partial=len(rows) > PLACES or found.dirty.files > LOOKED_MAX,
        name_changes=0 if saved is None else max(0, last - saved),
    )


def _path(settings: Settings, session: Session, ino: int) -> str:
    below = text_of(lookup.path_of(session, ino))
    return f"{settings.nfs.export}/{below}" if below else settings.nfs.export


def commands(settings: Settings) -> list[str]:
    """Return what to run on an empty machine, as docs/tasks/restore.md has it. Pure."""
    bucket = settings.bucket
    config = shlex.quote(str(settings.source))
    words = [f"spillway restore --bucket {shlex.quote(bucket.name)}"]
    if bucket.endpoint_url:
        words.append(f"--endpoint-url {shlex.quote(bucket.endpoint_url)}")
    if bucket.prefix:
        words.append(f"--prefix {shlex.quote(bucket.prefix)}")
    words.append(f"--data-dir {shlex.quote(str(settings.data_dir))} --config {config}")
    return [
        "export AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=…",
        " ".join(words),
        f"spillway up --config {config}",
    ]
