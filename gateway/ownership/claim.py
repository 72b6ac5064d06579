"""The row of ``bucket_owner``, and what follows from it and the owner object. Asks nothing."""

from __future__ import annotations

from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import delete, insert, select

from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import bucket_owner
from gateway.objectstore.conditions import Conditions
from gateway.objectstore.ownerstore import Owner
from gateway.settings import Settings

_ROW = Statement(
    select(
        bucket_owner.c.conditions,
        bucket_owner.c.epoch,
        bucket_owner.c.token,
        bucket_owner.c.former,
    ).where(
        bucket_owner.c.url == b("url"),
        bucket_owner.c.bucket == b("bucket"),
        bucket_owner.c.prefix == b("prefix"),
    )
)
_DELETE = Statement(delete(bucket_owner))
_INSERT = Statement(insert(bucket_owner))


class Claim(NamedTuple):
    """What this gateway knows of its claim to the configured bucket and prefix."""

    conditions: Conditions | None
    """What the store heeds. None: it was not asked yet."""
    epoch: int
    token: str | None
    former: str | None
    """The token of before, while the object moves, or an empty text. None: the object was read back
    with the new one."""

    def knows(self, owner: Owner) -> bool:
        """Return whether an owner object was written by this gateway, or by the one that this one
        is a copy of."""
        return bool(owner.token) and owner.token in (self.token, self.former)


NO_CLAIM = Claim(None, 0, None, None)


class Who(NamedTuple):
    """This gateway, as owner objects name it."""

    namespace: str
    gateway: str
    holder: str


class Verdict(Enum):
    """What an owner object means for this gateway."""

    FREE = auto()
    """There is none."""
    OURS = auto()
    """This gateway wrote it, on this machine since its boot."""
    KNOWN = auto()
    """This gateway wrote it on another machine, or before the machine's boot: or the gateway did
    that this one is a copy of, and may still run."""
    LEFT = auto()
    """It is KNOWN and was stopped, or this machine's data directory wrote it and an earlier
    database was put back since."""
    COPY = auto()
    """Another copy of this gateway has moved it."""
    OTHER = auto()
    """It is another namespace's."""


def judge(claim: Claim, owner: Owner | None, me: Who) -> Verdict:
    """Return what an owner object means.

    Two gateways never have one holder: the locks in the data directory keep the second away.
    """
    if owner is None:
        return Verdict.FREE
    if owner.namespace != me.namespace:
        return Verdict.OTHER
    is_here = owner.holder == me.holder
    if claim.knows(owner):
        return Verdict.OURS if is_here else Verdict.LEFT if owner.released else Verdict.KNOWN
    return Verdict.LEFT if is_here else Verdict.COPY


def who(session: Session, settings: Settings) -> Who:
    """Return this gateway. Raises OSError."""
    row = session.one(sql.IDENTITY)
    assert row is not None, "the volume row is missing"
    gateway = "" if row[1] is None else bytes(row[1]).hex()
    return Who(bytes(row[0]).hex(), gateway, _holder(settings))


def _holder(settings: Settings) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    found = settings.data_dir.stat()
    return f"{boot} {found.st_dev} {found.st_ino}"


def read(session: Session, settings: Settings) -> Claim:
    """Return the claim to the configured bucket and prefix."""
    row = session.one(_ROW, **_place(settings))
    if row is None:
        return NO_CLAIM
    return Claim(None if row[0] is None else Conditions(row[0]), *row[1:])


def write(session: Session, settings: Settings, claim: Claim) -> None:
    """Record the claim, in place of any other."""
    session.run(_DELETE)
    facts = claim._asdict() | {"conditions": claim.conditions and claim.conditions.value}
    session.run(_INSERT, id=1, **_place(settings), **facts)


def _place(settings: Settings) -> dict[str, str]:
    bucket = settings.bucket
    return {"url": bucket.endpoint_url, "bucket": bucket.name, "prefix": bucket.prefix}
