"""What is known of one file: where its bytes are, its object, what the drain does with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import and_, select

from gateway import clock
from gateway.checkpoints.statements import IS_STORED
from gateway.control import paths
from gateway.control import queue as waiting_files
from gateway.control.paths import PathInfo, Place
from gateway.control.queue import Waiting
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import REKEY, inode, object_
from gateway.drain import queue
from gateway.drain.context import view_of
from gateway.namespace.browse import Browser
from gateway.namespace.residency import HAS_CONTENT
from gateway.retention import store
from gateway.serialize import Model, values_of
from gateway.settings import Settings
from gateway.text import Text, printable
from gateway.types import Kind

OBJECT = Statement(
    select(
        object_.c.key,
        object_.c.etag,
        object_.c.size,
        object_.c.checksum,
        object_.c.stored_ns,
    ).where(object_.c.ino == b("ino"))
)
STORED = Statement(
    select(IS_STORED, and_(*HAS_CONTENT))
    .select_from(inode.join(object_, object_.c.ino == inode.c.ino))
    .where(inode.c.ino == b("ino"))
)
ACTIONS_READ = 1000
"""The last actions of policies that are searched for those about a path."""
ACTIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class StoredObject(Model):
    """The object of a file in the bucket."""

    key: str = field(metadata={"examples": ["jobs/a/step-1/model.pt"]})
    etag: str
    size_bytes: int
    checksum: str | None = field(metadata={"examples": ["crc64nvme:0123456789abcdef"]})
    stored_ns: int


@dataclass(frozen=True, slots=True)
class Act(Model):
    """Something that a policy or a person did."""

    began_ns: int
    what: str = field(metadata={"examples": ["evict"]})
    author: str
    reason: str
    result: str | None
    """None: it is under way."""


@dataclass(frozen=True, slots=True)
class FileInfo(PathInfo):
    """A file, a directory, a link or a special file, with everything that is known of it."""

    waiting: Waiting | None
    """What the drain does with it, until it is done."""
    is_moving: bool
    """Whether its object has not followed a rename yet."""
    object: StoredObject | None
    """What the bucket has of it."""
    history: list[Act]
    """What was done lately with its checkpoint."""


def model(
    settings: Settings,
    session: Session,
    browser: Browser,
    place: Place,
    below: bytes,
    path: str,
    text: Text = printable,
) -> FileInfo:
    """Return everything that is known of a place.

    Parameters: below, its path below the export; path, to be shown; text, of names. Raises
    NotThere, TryAgain.
    """
    entry = place.found()
    ino = entry.attr.ino
    waiting = None
    if entry.attr.kind == Kind.REGULAR:
        found = queue.of_file(view_of(settings, session), ino, settings.drain_ahead_ns)
        if found is not None:
            waiting = waiting_files.model(settings, found, clock.now_ns(), text)
    return FileInfo(
        **values_of(paths.model(browser, path, entry, text)),
        waiting=waiting,
        is_moving=session.one(REKEY, ino=ino) is not None,
        object=_object(session, ino),
        history=_history(session, below),
    )


def in_bucket(session: Session, ino: int) -> str | None:
    """Return what the bucket has of a file: its ``present`` version, the same ``unsettled`` (a move
    or a doubt is left), an ``older`` one, or nothing."""
    row = session.one(STORED, ino=ino)
    if row is None:
        return None
    is_stored, has_content = row
    return "present" if is_stored else "unsettled" if has_content else "older"


def _object(session: Session, ino: int) -> StoredObject | None:
    row = session.one(OBJECT, ino=ino)
    return None if row is None else StoredObject(*row)


def _history(session: Session, below: bytes) -> list[Act]:
    """Return what policies and people did lately with the checkpoint that has a path."""
    return [
        Act(one.began_ns, one.what, one.author, one.reason, one.result)
        for one in store.actions(session, ACTIONS_READ)
        if (below + b"/").startswith(one.path + b"/")
    ][:ACTIONS_SHOWN]
