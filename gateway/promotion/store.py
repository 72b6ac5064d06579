"""The rows of promotions, and what promotions and pins protect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from sqlalchemy import and_, delete, exists, func, insert, or_, select, update

from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import ROOT_INO
from gateway.db.statements import (
    IS_REGULAR,
    checkpoint,
    doubt,
    inode,
    pin,
    promotion,
    promotion_member,
    tombstone,
)
from gateway.errors import NotPossible
from gateway.namespace.lookup import way_up
from gateway.promotion.places import manifest_key
from gateway.promotion.wishes import OURS
from gateway.types import Kind


class State(StrEnum):
    """How far a promotion is."""

    COPYING = "copying"
    DONE = "done"
    FAILED = "failed"
    """What was copied stays until a person demotes it. If nothing was begun, it has no members."""
    DEMOTING = "demoting"


class Hold(IntEnum):
    """The legal hold of a promotion."""

    NONE = 0
    HELD = 1
    RELEASED = 2
    """A person has released it, and its objects may still be held."""


class Promotion(NamedTuple):
    """A row of ``promotion``."""

    name: str
    state: str
    reason: str | None
    ino: int
    path: bytes
    run: bytes | None
    step: int | None
    note: str
    asked_by: str
    asked_ns: int
    begun_ns: int | None
    done_ns: int | None
    top: int
    generation: int
    files: int
    size: int
    is_tagged: int | None
    manifest_etag: str | None
    legal_hold: int = 0
    tags: str | None = None
    released: str | None = None

    @property
    def all_tags(self) -> dict[str, str]:
        """The tags that its objects are to have."""
        return {**OURS, **json.loads(self.tags or "{}")}

    @property
    def is_held(self) -> bool:
        """Whether its objects may be under a legal hold that no person has released. A promotion
        that failed may have all of them: the database may be an older one."""
        return self.legal_hold == Hold.HELD and self.begun_ns is not None


class Member(NamedTuple):
    """A row of ``promotion_member``."""

    name: str
    copy: int
    path: bytes
    parent: int
    kind: int
    ino: int
    content_version: int
    key: str | None
    is_made: int


_COLUMNS = [promotion.c[name] for name in Promotion._fields]
_MEMBER = [promotion_member.c[name] for name in Member._fields]
_OF_ONE = promotion_member.c.name == b("name")
EVERY = Statement(select(*_COLUMNS).order_by(promotion.c.asked_ns, promotion.c.name))
ONE = Statement(select(*_COLUMNS).where(promotion.c.name == b("name")))
INSERT = Statement(insert(promotion))
DELETE = Statement(delete(promotion).where(promotion.c.name == b("the_name")))
SET = Statement(
    update(promotion)
    .where(promotion.c.name == b("the_name"))
    .values(
        state=b("new_state"),
        reason=b("new_reason"),
        begun_ns=b("new_begun_ns"),
        done_ns=b("new_done_ns"),
        is_tagged=b("new_is_tagged"),
        manifest_etag=b("new_manifest_etag"),
        legal_hold=b("new_legal_hold"),
    )
)
UNTAGGED = Statement(update(promotion).where(promotion.c.name == b("the_name")).values(is_tagged=0))
MEMBER_INSERT = Statement(insert(promotion_member))
MEMBERS_DELETE = Statement(delete(promotion_member).where(promotion_member.c.name == b("the_name")))
MADE = Statement(
    update(promotion_member)
    .where(promotion_member.c.name == b("the_name"), promotion_member.c.copy == b("the_copy"))
    .values(is_made=1)
)
COUNT = Statement(
    select(func.count(), func.coalesce(func.sum(promotion_member.c.is_made), 0)).where(
        _OF_ONE, promotion_member.c.kind == int(Kind.REGULAR)
    )
)
"""Selects the number of files, and of those that are made."""
UNMADE_NAMES = Statement(
    select(*_MEMBER)
    .where(_OF_ONE, promotion_member.c.is_made == 0, promotion_member.c.kind != int(Kind.REGULAR))
    .order_by(promotion_member.c.copy)
    .limit(b("most"))
)
"""Selects directories and links that are not made, each directory before what is in it."""
UNMADE_FILES = Statement(
    select(*_MEMBER)
    .where(_OF_ONE, promotion_member.c.is_made == 0, promotion_member.c.kind == int(Kind.REGULAR))
    .order_by(promotion_member.c.copy)
    .limit(b("most"))
)
OF_COPY = Statement(select(*_MEMBER).where(_OF_ONE, promotion_member.c.copy == b("copy")))
"""Selects the member that an inode is the copy of."""
LAST_MADE = Statement(
    select(*_MEMBER)
    .where(_OF_ONE, promotion_member.c.is_made == 1, promotion_member.c.copy < b("before"))
    .order_by(promotion_member.c.copy.desc())
    .limit(b("most"))
)
"""Selects members that are made, what is in a directory before the directory."""
PENDING = Statement(
    select(*_COLUMNS)
    .where(
        or_(
            promotion.c.state == State.COPYING.value,
            promotion.c.state == State.DEMOTING.value,
            and_(promotion.c.state == State.DONE.value, promotion.c.manifest_etag.is_(None)),
        )
    )
    .order_by(promotion.c.asked_ns, promotion.c.name)
)
"""Selects the promotions with something to do."""

BLOCKED = Statement(
    select(promotion_member.c.copy)
    .where(
        _OF_ONE,
        or_(
            exists().where(tombstone.c.key == promotion_member.c.key),
            exists().where(doubt.c.key == promotion_member.c.key),
        ),
    )
    .limit(1)
)
"""Selects a member whose key has a deletion that may not have reached the store yet."""
KEY_BLOCKED = Statement(
    select(tombstone.c.key)
    .where(tombstone.c.key == b("key"))
    .union(select(doubt.c.key).where(doubt.c.key == b("key")))
)

_PRESENT = exists().where(
    inode.c.ino == promotion_member.c.ino,
    inode.c.nlink > 0,
    or_(~IS_REGULAR, inode.c.content_version == promotion_member.c.content_version),
)
PROMOTED = Statement(
    select(promotion.c.ino)
    .distinct()
    .select_from(promotion.join(checkpoint, checkpoint.c.ino == promotion.c.ino))
    .where(
        or_(
            promotion.c.state == State.COPYING.value,
            promotion.c.state == State.DONE.value,
        ),
        promotion.c.files == checkpoint.c.files,
        ~exists().where(and_(promotion_member.c.name == promotion.c.name, ~_PRESENT)),
    )
)
"""Selects checkpoints that have the members that were promoted, in the same versions."""
COPIED = Statement(select(promotion.c.ino).where(promotion.c.state == State.COPYING.value))
PINNED = Statement(select(pin.c.ino))


class Protected(NamedTuple):
    """What policies leave alone."""

    inos: frozenset[int]
    """Checkpoints that were promoted, and did not change since."""
    paths: frozenset[bytes]
    """Paths below the export's root that are pinned, or are being copied: a checkpoint at, above or
    below one of them stays."""


def protected(session: Session) -> Protected:
    """Return what policies leave alone. The session should be in one transaction."""
    inos = {ino for statement in (PINNED, COPIED) for (ino,) in session.all(statement)}
    return Protected(
        frozenset(ino for (ino,) in session.all(PROMOTED)),
        frozenset(path for ino in inos for path in paths_of(session, ino)),
    )


def paths_of(session: Session, ino: int) -> list[bytes]:
    """Return the paths of an inode below the export's root, by all of its names."""
    found = []
    for parent, name in session.all(sql.NAMES, ino=ino):
        steps = list(way_up(session, parent))
        if parent == ROOT_INO or (steps and steps[-1][1] == ROOT_INO):
            above = [bytes(one) for _ino, _parent, one in reversed(steps)]
            found.append(b"/".join([*above, bytes(name)]))
    return found


def every(session: Session) -> list[Promotion]:
    """Return all promotions, the oldest first."""
    return [_promotion(row) for row in session.all(EVERY)]


def pending(session: Session) -> list[Promotion]:
    """Return the promotions with something to do, the oldest first."""
    return [_promotion(row) for row in session.all(PENDING)]


def one_named(session: Session, name: str) -> Promotion | None:
    """Return the promotion with a name."""
    row = session.one(ONE, name=name)
    return None if row is None else _promotion(row)


def is_blocked(session: Session, prefix: str, name: str) -> bool:
    """Return whether a deletion may still reach one of the keys of a promotion.

    Parameters: prefix of the gateway's keys; name of the promotion.
    """
    if session.one(BLOCKED, name=name) is not None:
        return True
    return session.one(KEY_BLOCKED, key=manifest_key(prefix, name)) is not None


def held(name: str) -> str:
    """Return why a copy under a legal hold is not removed, for people."""
    return f"{name} is under a legal hold: spillway demote {name} --yes --release-hold"


def demote(session: Session, found: Promotion, releases: bool) -> Promotion:
    """Have a copy be removed, inside a write transaction. Returns it as it is then.

    Parameters: releases, whether its legal hold, if it has one, may be released. Raises
    NotPossible.
    """
    hold = found.legal_hold
    if found.is_held and not releases:
        raise NotPossible(held(found.name))
    if hold == Hold.HELD and releases:
        hold = int(Hold.RELEASED)
    made = found._replace(state=State.DEMOTING.value, reason=None, legal_hold=hold)
    change(session, made)
    return made


def change(session: Session, found: Promotion) -> None:
    """Write what may change of a promotion."""
    session.run(
        SET,
        the_name=found.name,
        new_state=found.state,
        new_reason=found.reason,
        new_begun_ns=found.begun_ns,
        new_done_ns=found.done_ns,
        new_is_tagged=found.is_tagged,
        new_manifest_etag=found.manifest_etag,
        new_legal_hold=found.legal_hold,
    )


def members(session: Session, statement: Statement, name: str, **given: Any) -> list[Member]:
    """Return members of a promotion. Parameters: statement, one of this module; its parameters."""
    rows = session.all(statement, name=name, **given)
    return [Member(*row)._replace(path=bytes(row[2])) for row in rows]


def volume(session: Session) -> str:
    """Return the id of this namespace, in hex."""
    row = session.one(sql.VOLUME)
    assert row is not None, "the volume row is missing"
    return bytes(row[0]).hex()


def counts(session: Session, name: str) -> tuple[int, int]:
    """Return the number of files of a promotion, and of those that are copied."""
    row = session.one(COUNT, name=name)
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def add(session: Session, new: Promotion, of: Sequence[Member]) -> None:
    """Add a promotion with its members, in place of a failed one."""
    session.run(MEMBERS_DELETE, the_name=new.name)
    session.run(DELETE, the_name=new.name)
    session.run(INSERT, **new._asdict())
    session.run_each(MEMBER_INSERT, [member._asdict() for member in of])


def _promotion(row: Sequence[Any]) -> Promotion:
    made = Promotion(*row)
    run = None if made.run is None else bytes(made.run)
    return made._replace(path=bytes(made.path), run=run)
