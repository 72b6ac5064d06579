"""Rows of promotions, their names and keys, and the options that a person gives them.

The options are a legal hold, tags, and keys at a prefix of their own. Policies leave alone what
promotions and pins protect (``protected``).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from sqlalchemy import and_, delete, exists, func, insert, or_, select, update

from gateway.common.errors import NotPossible, UserError
from gateway.common.patterns import IncompleteNames
from gateway.common.types import NAME_MAX_BYTES, InodeKind
from gateway.db import journal
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.models import ROOT_INO
from gateway.db.statements import (
    IS_REGULAR,
    checkpoint,
    indeterminate_write,
    inode,
    pin,
    promotion,
    promotion_member,
    tombstone,
)
from gateway.namespace.lookup import way_up
from gateway.objectstore import key_mapper

PROMOTED_DIRECTORY = b"promoted"
"""The directory in ``.spillway`` that has the promotions."""
MANIFEST_END = b".json"
NAME_MAX = NAME_MAX_BYTES - len(MANIFEST_END)
"""The longest name in bytes."""


def place_of(
    prefix: str, name: str, key_prefix: str | None, path: bytes
) -> tuple[str, tuple[bytes, ...]]:
    """Return the prefix and the parts of which the key of a member is made (``keys.promoted``).

    Args:
        prefix: prefix of the gateway.
        name: name of the promotion.
        key_prefix: the one of its own, or None.
        path: path of the member.
    """
    below = path.split(b"/") if path else ()
    return key_mapper.promoted(prefix, key_prefix, (*key_mapper.PROMOTED, name.encode(), *below))


def manifest_key(prefix: str, name: str) -> str:
    """Return the key of the manifest of a copy.

    Args:
        prefix: prefix of the keys.
    """
    return key_mapper.key_of(
        prefix, (key_mapper.RESERVED, PROMOTED_DIRECTORY, name.encode() + MANIFEST_END)
    )


def staged_name(top: int) -> bytes:
    """Return the name that a copy has in the trash, where clients do not find it."""
    return b"promotion-%d" % top


def checked(text: str, incomplete_patterns: Sequence[str]) -> str:
    """Return the name of a promotion as a person wrote it. Raises UserError.

    Args:
        incomplete_patterns: incomplete patterns of names that the drain keeps from the bucket.
    """
    try:
        name = os.fsencode(text).decode()
    except UnicodeDecodeError:
        raise UserError("the name of a promotion must be UTF-8: choose another name") from None
    why = _bad_name(name)
    if why is None and IncompleteNames(list(incomplete_patterns)).holds((), name.encode()):
        why = "drain.incomplete_patterns has a pattern of it"
    if why is not None:
        raise UserError(f"{name!a} cannot be the name of a promotion: {why}: choose another name")
    return name


def _bad_name(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name.startswith("."):
        return "it begins with a dot"
    if "/" in name:
        return "it has a slash, and is one name in .spillway/promoted"
    if not name.isprintable():
        return "it has characters that cannot be shown"
    if name.encode().endswith(MANIFEST_END):
        return "names with .json are of manifests"
    if len(name.encode()) > NAME_MAX:
        return f"it is longer than {NAME_MAX} bytes"
    return None


OURS = {"spillway": "promoted"}
"""The tag that each object of a copy gets, if the store keeps tags."""
TAGS_MAX = 10
"""The most tags of an object, with ours (S3)."""
_KEY_MAX, _VALUE_MAX = 128, 256
_TEXT = re.compile(r"[\w +\-=.:/@]*")
"""What S3 takes in tags: letters, digits and spaces of any script, and these."""


class PromotionOptions(NamedTuple):
    """What a person wants of a promotion."""

    legal_hold: bool = False
    tags: tuple[tuple[str, str], ...] = ()
    key_prefix: str | None = None
    """The beginning of the keys. None: that of all promoted copies."""

    @property
    def tags_text(self) -> str | None:
        """The tags as the table ``promotion`` has them."""
        return json.dumps(dict(self.tags)) if self.tags else None


NO_OPTIONS = PromotionOptions()


def options_of(
    prefix: str, legal_hold: bool, tags: Sequence[str], to: str | None
) -> PromotionOptions:
    """Return what a person wrote. Raises UserError.

    Args:
        prefix: prefix of the gateway's keys.
        tags: each ``key=value``.
        to: the beginning of keys.
    """
    options: dict[str, str] = {}
    for text in tags:
        key, equals, value = text.partition("=")
        why = "write key=value" if not equals else _bad_tag(key, value)
        why = "it is there twice" if key in options else why
        if why is not None:
            raise UserError(f"--tag {text!a}: {why}")
        options[key] = value
    if len(options) + len(OURS) > TAGS_MAX:
        raise UserError(f"an object has at most {TAGS_MAX} tags, and one is ours: leave some out")
    key_prefix = None if to is None else _key_prefix(prefix, to)
    return PromotionOptions(legal_hold, tuple(options.items()), key_prefix)


def _bad_tag(key: str, value: str) -> str | None:
    if not key:
        return "the key is empty"
    if key in OURS:
        return "this key is ours"
    if key.lower().startswith("aws:"):
        return "keys with aws: belong to AWS"
    if len(key) > _KEY_MAX or len(value) > _VALUE_MAX:
        return f"S3 takes {_KEY_MAX} characters of the key and {_VALUE_MAX} of the value"
    if not _TEXT.fullmatch(key) or not _TEXT.fullmatch(value):
        return "S3 takes letters, digits, spaces and + - = . _ : / @"
    return None


def _key_prefix(prefix: str, to: str) -> str:
    name = to.strip("/")
    parts = name.split("/")
    if not name or {"", ".", ".."} & set(parts) or not name.isprintable():
        raise UserError(f"--to {to!a}: write the beginning of keys, like models/released")
    if not prefix:
        raise UserError("--to: any key may be of a client's file: set bucket.prefix first")
    ours = prefix.split("/")
    if parts[: len(ours)] == ours or ours[: len(parts)] == parts:
        raise UserError(f"--to {to!a}: it must be outside of {prefix}/, where clients' files are")
    return name


class PromotionState(StrEnum):
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


class PromotionRow(NamedTuple):
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
    key_prefix: str | None = None

    @property
    def all_tags(self) -> dict[str, str]:
        """The tags that its objects are to have."""
        return {**OURS, **json.loads(self.tags or "{}")}

    @property
    def is_held(self) -> bool:
        """Whether its objects may be under a legal hold that no person has released. A promotion
        that failed may have all of them: the database may be an older one."""
        return self.legal_hold == Hold.HELD and self.begun_ns is not None


class PromotedMember(NamedTuple):
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


_COLUMNS = [promotion.c[name] for name in PromotionRow._fields]
_MEMBER = [promotion_member.c[name] for name in PromotedMember._fields]
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
COPIES_OF = Statement(select(promotion_member.c.copy).where(_OF_ONE))
NOTED_AT_ONCE = 256
"""The inodes of a row of the journal."""
MADE = Statement(
    update(promotion_member)
    .where(promotion_member.c.name == b("the_name"), promotion_member.c.copy == b("the_copy"))
    .values(is_made=1)
)
COUNT = Statement(
    select(func.count(), func.coalesce(func.sum(promotion_member.c.is_made), 0)).where(
        _OF_ONE, promotion_member.c.kind == int(InodeKind.REGULAR)
    )
)
"""Selects the number of files, and of those that are made."""
UNMADE_NAMES = Statement(
    select(*_MEMBER)
    .where(
        _OF_ONE, promotion_member.c.is_made == 0, promotion_member.c.kind != int(InodeKind.REGULAR)
    )
    .order_by(promotion_member.c.copy)
    .limit(b("most"))
)
"""Selects directories and links that are not made, each directory before what is in it."""
UNMADE_FILES = Statement(
    select(*_MEMBER)
    .where(
        _OF_ONE, promotion_member.c.is_made == 0, promotion_member.c.kind == int(InodeKind.REGULAR)
    )
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
            promotion.c.state == PromotionState.COPYING.value,
            promotion.c.state == PromotionState.DEMOTING.value,
            and_(
                promotion.c.state == PromotionState.DONE.value, promotion.c.manifest_etag.is_(None)
            ),
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
            exists().where(indeterminate_write.c.key == promotion_member.c.key),
        ),
    )
    .limit(1)
)
"""Selects a member whose key has a deletion that may not have reached the store yet."""
KEY_BLOCKED = Statement(
    select(tombstone.c.key)
    .where(tombstone.c.key == b("key"))
    .union(select(indeterminate_write.c.key).where(indeterminate_write.c.key == b("key")))
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
            promotion.c.state == PromotionState.COPYING.value,
            promotion.c.state == PromotionState.DONE.value,
        ),
        promotion.c.files == checkpoint.c.files,
        ~exists().where(and_(promotion_member.c.name == promotion.c.name, ~_PRESENT)),
    )
)
"""Selects checkpoints that have the members that were promoted, in the same versions."""
COPIED = Statement(select(promotion.c.ino).where(promotion.c.state == PromotionState.COPYING.value))
PINNED = Statement(select(pin.c.ino))


class ProtectedInodes(NamedTuple):
    """What policies leave alone."""

    inos: frozenset[int]
    """Checkpoints that were promoted, and did not change since."""
    paths: frozenset[bytes]
    """Paths below the export's root that are pinned, or are being copied: a checkpoint at, above or
    below one of them stays."""


def protected(session: Session) -> ProtectedInodes:
    """Return what policies leave alone. The session should be in one transaction."""
    inos = {ino for statement in (PINNED, COPIED) for (ino,) in session.all(statement)}
    return ProtectedInodes(
        frozenset(ino for (ino,) in session.all(PROMOTED)),
        frozenset(path for ino in inos for path in paths_of(session, ino)),
    )


def paths_of(session: Session, ino: int) -> list[bytes]:
    """Return the paths of an inode below the export's root, by all of its names."""
    paths = []
    for parent, name in session.all(sql.NAMES, ino=ino):
        steps = list(way_up(session, parent))
        if parent == ROOT_INO or (steps and steps[-1][1] == ROOT_INO):
            above = [bytes(step_name) for _ino, _parent, step_name in reversed(steps)]
            paths.append(b"/".join([*above, bytes(name)]))
    return paths


def every(session: Session) -> list[PromotionRow]:
    """Return all promotions, the oldest first."""
    return [_promotion(row) for row in session.all(EVERY)]


def pending(session: Session) -> list[PromotionRow]:
    """Return the promotions with something to do, the oldest first."""
    return [_promotion(row) for row in session.all(PENDING)]


def one_named(session: Session, name: str) -> PromotionRow | None:
    """Return the promotion with a name."""
    row = session.one(ONE, name=name)
    return None if row is None else _promotion(row)


def is_blocked(session: Session, prefix: str, name: str) -> bool:
    """Return whether a deletion may still reach one of the keys of a promotion.

    Args:
        prefix: prefix of the gateway's keys.
        name: name of the promotion.
    """
    if session.one(BLOCKED, name=name) is not None:
        return True
    return session.one(KEY_BLOCKED, key=manifest_key(prefix, name)) is not None


def held(name: str) -> str:
    """Return why a copy under a legal hold is not removed, for people."""
    return f"{name} is under a legal hold: spillway promotion remove {name} --yes --release-hold"


def demote(session: Session, found: PromotionRow, releases: bool) -> PromotionRow:
    """Have a copy be removed, inside a write transaction. Returns it as it is then.

    Raises NotPossible.

    Args:
        releases: whether its legal hold, if it has one, may be released.
    """
    hold = found.legal_hold
    if found.is_held and not releases:
        raise NotPossible(held(found.name))
    if hold == Hold.HELD and releases:
        hold = int(Hold.RELEASED)
    made = found._replace(state=PromotionState.DEMOTING.value, reason=None, legal_hold=hold)
    change(session, made)
    return made


def change(session: Session, found: PromotionRow) -> None:
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


def members(
    session: Session, statement: Statement, name: str, **given: Any
) -> list[PromotedMember]:
    """Return members of a promotion.

    Args:
        statement: one of this module.
        given: its other parameters.
    """
    rows = session.all(statement, name=name, **given)
    return [PromotedMember(*row)._replace(path=bytes(row[2])) for row in rows]


def volume(session: Session) -> str:
    """Return the id of this namespace, in hex."""
    row = session.one(sql.VOLUME)
    assert row is not None, "the volume row is missing"
    return bytes(row[0]).hex()


def counts(session: Session, name: str) -> tuple[int, int]:
    """Return the number of files of a promotion, and of those that are copied."""
    row = session.one(COUNT, name=name)
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def add(session: Session, new: PromotionRow, of: Sequence[PromotedMember]) -> None:
    """Add a promotion with its members, in place of a failed one."""
    delete_members(session, new.name)
    session.run(DELETE, the_name=new.name)
    session.run(INSERT, **new._asdict())
    session.run_each(MEMBER_INSERT, [member._asdict() for member in of])
    _note(session, [member.copy for member in of])


def delete_members(session: Session, name: str) -> None:
    """Delete the members of a promotion, with a write transaction."""
    copies = [copy for (copy,) in session.all(COPIES_OF, name=name)]
    session.run(MEMBERS_DELETE, the_name=name)
    _note(session, copies)


def _note(session: Session, copies: Sequence[int]) -> None:
    """Add inodes to the journal: the copy of the names finds members by them."""
    for at in range(0, len(copies), NOTED_AT_ONCE):
        inos = copies[at : at + NOTED_AT_ONCE]
        journal.note(session, dict.fromkeys(inos, journal.CHANGED))


def _promotion(row: Sequence[Any]) -> PromotionRow:
    made = PromotionRow(*row)
    run = None if made.run is None else bytes(made.run)
    return made._replace(path=bytes(made.path), run=run)
