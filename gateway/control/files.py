"""What is known of one file: where its bytes are, its object, what the drain does with it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, select

from gateway import clock
from gateway.checkpoints.statements import IS_STORED
from gateway.control.paths import Place, facts
from gateway.control.queue import facts as about
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import REKEY, inode, object_
from gateway.drain import queue
from gateway.drain.context import view_of
from gateway.namespace.browse import Browser
from gateway.namespace.residency import HAS_CONTENT
from gateway.retention import store
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


def of(
    settings: Settings,
    session: Session,
    browser: Browser,
    place: Place,
    below: bytes,
    text: Text = printable,
) -> dict[str, Any]:
    """Return everything that is known of a place, but its path.

    Parameters: below, its path below the export; text, of names. Raises NotThere, TryAgain.
    """
    entry = place.found()
    ino = entry.attr.ino
    found = facts(browser, "", entry, text)
    del found["path"]
    waiting = None
    if entry.attr.kind == Kind.REGULAR:
        waiting = queue.of_file(view_of(settings, session), ino, settings.drain_ahead_ns)
    return {
        **found,
        "waiting": None if waiting is None else about(settings, waiting, clock.now_ns(), text),
        "is_moving": session.one(REKEY, ino=ino) is not None,
        "object": _object(session, ino),
        "history": _history(session, below),
    }


def in_bucket(session: Session, ino: int) -> str | None:
    """Return what the bucket has of a file: its ``present`` version, the same ``unsettled`` (a move
    or a doubt is left), an ``older`` one, or nothing."""
    row = session.one(STORED, ino=ino)
    if row is None:
        return None
    is_stored, has_content = row
    return "present" if is_stored else "unsettled" if has_content else "older"


def _object(session: Session, ino: int) -> dict[str, Any] | None:
    row = session.one(OBJECT, ino=ino)
    if row is None:
        return None
    key, etag, size_bytes, checksum, stored_ns = row
    return {
        "key": key,
        "etag": etag,
        "size_bytes": size_bytes,
        "checksum": checksum,
        "stored_ns": stored_ns,
    }


def _history(session: Session, below: bytes) -> list[dict[str, Any]]:
    """Return what policies and people did lately with the checkpoint that has a path."""
    return [
        {
            "began_ns": one.began_ns,
            "what": one.what,
            "author": one.author,
            "reason": one.reason,
            "result": one.result,
        }
        for one in store.actions(session, ACTIONS_READ)
        if (below + b"/").startswith(one.path + b"/")
    ][:ACTIONS_SHOWN]
