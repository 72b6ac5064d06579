"""Ownership of a bucket and prefix: claim, renewal, and the guard of everything that writes there.

The owner object is written in three steps: the row of ``bucket_owner`` gets the new token beside
the old one, the object gets the new one, the row gets the new one alone. So a kill leaves an object
whose token the row has. A gateway that was copied, or put back, has the token of its time: it is
refused as soon as the other one has moved the object.

While a gateway runs it writes the time into the object each minute. A gateway with the same ids and
token on another machine, or after a boot, waits until no such sign can come any more: so of two
copies the one that runs continues, and the other one writes nothing.

``assess`` decides from the row and the owner object alone, without a request.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from contextlib import AbstractContextManager, suppress
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar
from weakref import ReferenceType, WeakValueDictionary, finalize

from sqlalchemy import delete, insert, select

from gateway.common import clock, files
from gateway.common.errors import (
    NamespaceError,
    Occupied,
    OtherOwner,
    SignAwaited,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from gateway.common.units import duration
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.statements import bucket_owner
from gateway.objectstore import foreign
from gateway.objectstore.foreign import Evidence
from gateway.objectstore.owner_object import REQUEST_SECONDS, BucketOwner, OwnerStore, SeenOwner
from gateway.objectstore.request import ABSENT, Conditions
from gateway.objectstore.s3 import S3Store

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


class OwnerClaim(NamedTuple):
    """What this gateway knows of its claim to the configured bucket and prefix."""

    conditions: Conditions | None
    """What the store heeds. None: it was not asked yet."""
    epoch: int
    token: str | None
    former: str | None
    """The token of before, while the object moves, or an empty text. None: the object was read back
    with the new one."""

    def knows(self, owner: BucketOwner) -> bool:
        """Return whether an owner object was written by this gateway, or by the one that this one
        is a copy of."""
        return bool(owner.token) and owner.token in (self.token, self.former)


NO_CLAIM = OwnerClaim(None, 0, None, None)


class OwnerIdentity(NamedTuple):
    """This gateway, as owner objects name it."""

    namespace: str
    gateway: str
    holder: str


class OwnerVerdict(Enum):
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


def assess(claim: OwnerClaim, owner: BucketOwner | None, me: OwnerIdentity) -> OwnerVerdict:
    """Return what an owner object means.

    Two gateways never have one holder: the locks in the data directory keep the second away.
    """
    if owner is None:
        return OwnerVerdict.FREE
    if owner.namespace != me.namespace:
        return OwnerVerdict.OTHER
    is_here = owner.holder == me.holder
    if claim.knows(owner):
        return (
            OwnerVerdict.OURS
            if is_here
            else OwnerVerdict.LEFT
            if owner.released
            else OwnerVerdict.KNOWN
        )
    return OwnerVerdict.LEFT if is_here else OwnerVerdict.COPY


def who(session: Session, settings: Settings) -> OwnerIdentity:
    """Return this gateway. Raises OSError."""
    row = session.one(sql.IDENTITY)
    assert row is not None, "the volume row is missing"
    gateway = "" if row[1] is None else bytes(row[1]).hex()
    return OwnerIdentity(bytes(row[0]).hex(), gateway, _holder(settings))


def _holder(settings: Settings) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    stat = settings.data_dir.stat()
    return f"{boot} {stat.st_dev} {stat.st_ino}"


def read(session: Session, settings: Settings) -> OwnerClaim:
    """Return the claim to the configured bucket and prefix."""
    row = session.one(_ROW, **_place(settings))
    if row is None:
        return NO_CLAIM
    return OwnerClaim(None if row[0] is None else Conditions(row[0]), *row[1:])


def write(session: Session, settings: Settings, claim: OwnerClaim) -> None:
    """Record the claim, in place of any other."""
    session.run(_DELETE)
    facts = claim._asdict() | {"conditions": claim.conditions and claim.conditions.value}
    session.run(_INSERT, id=1, **_place(settings), **facts)


def _place(settings: Settings) -> dict[str, str]:
    bucket = settings.bucket
    return {"url": bucket.endpoint_url, "bucket": bucket.name, "prefix": bucket.prefix}


log = logging.getLogger("owner")

LOOK_SECONDS = 60.0
"""For so long a look permits to write, and so old the time in the object may be."""
UNHEEDED_SECONDS = 2.0
"""The same, with a store that heeds no conditions: each batch has a look of its own."""
LOCK = "owner.lock"
USERS = "owner.users"
T = TypeVar("T", bound=S3Store)


class _Users:
    """A lock that says that this process may write to the bucket. It goes with the last object that
    refers to it.

    Args:
        fd: fd of the file.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        finalize(self, os.close, fd)


_users: WeakValueDictionary[Path, _Users] = WeakValueDictionary()
"""By ``run_dir``."""


class PrefixSurvey(NamedTuple):
    """What is below a prefix that a person wants to take."""

    problem: str | None
    """Why it may be another's, or None."""
    has_ours: bool
    """Whether the owner object, or some of the objects, are this namespace's."""
    is_owned: bool
    """Whether there is an owner object."""


class Ownership:
    """The claim of one gateway. It is safe to use from several threads.

    Args:
        stop: after which nothing is waited for.
    """

    def __init__(
        self, settings: Settings, database: Database, stop: threading.Event | None = None
    ) -> None:
        self._settings = settings
        self._database = database
        self._stop = stop or threading.Event()
        self._guarded: ReferenceType[S3Store] | None = None
        """The first store whose changes are permitted. It refers to this object."""
        self._lock = threading.Lock()
        self._users: _Users | None = None
        self._valid_until = 0.0
        """Monotonic seconds until which this process may write."""
        self._looked_at = -LOOK_SECONDS
        self._watched: tuple[str, float] | None = None
        """The ETag of an owner object that another one may keep, and since when it is the same."""

    def guard(self, store: S3Store) -> None:
        """Let a store change nothing without this gateway's claim."""
        store.permit = self.require
        self._guarded = self._guarded or ReferenceType(store)

    @cached_property
    def _store(self) -> OwnerStore:
        store = None if self._guarded is None else self._guarded()
        return OwnerStore(self._settings, None if store is None else store.address())

    @property
    def is_due(self) -> bool:
        """Whether the last look is a minute ago."""
        return clock.monotonic_seconds() - self._looked_at >= LOOK_SECONDS

    def require(self) -> None:
        """Raise StoreError if this gateway may not write to the bucket now. Raises
        NamespaceError."""
        if clock.monotonic_seconds() >= self._valid_until:
            with self._lock:
                if clock.monotonic_seconds() >= self._valid_until:
                    self._look()

    def look(self) -> Conditions:
        """Look at the owner object, and claim it if no gateway has it. Returns which conditions the
        store heeds. Raises as ``require``."""
        with self._lock:
            return self._look()

    def problem(self) -> str | None:
        """Return why this gateway may not write to the bucket, or None. Changes nothing. Raises
        StoreError, NamespaceError."""
        try:
            seen, me, known = self._store.look(), self._who(), self._claim()
            verdict = assess(known, None if seen is None else seen.owner, me)
            if seen is None:
                self._require_evidence(me)
            elif verdict in (OwnerVerdict.OTHER, OwnerVerdict.COPY):
                self._refuse(seen.owner, me, verdict)
        except OtherOwner as exc:
            return str(exc)
        return None

    def survey(self) -> PrefixSurvey:
        """Return what a person should know before the bucket and prefix are taken. Raises
        StoreError, NamespaceError."""
        me, known = self._who(), self._claim()
        evidence = self._evidence(me)
        try:
            seen = self._store.look()
            if seen is None:
                strange = (
                    evidence.overlap or evidence.foreign or (evidence.listed and not evidence.ours)
                )
                why = evidence.problem(self._settings) if strange else None
                return PrefixSurvey(why, evidence.ours > 0, False)
            if seen.owner.namespace == me.namespace:
                return PrefixSurvey(None, True, True)
            self._refuse(seen.owner, me, assess(known, seen.owner, me))
        except OtherOwner as exc:
            return PrefixSurvey(str(exc), evidence.ours > 0, True)

    def take(self) -> None:
        """Take the bucket and prefix from the gateway that has them, because a person says so. This
        gateway is not running. Raises as ``require``."""
        with self._lock, self._alone():
            seen = self._seen_by_force()
            self._move(self._who(), self._claim(), seen, released=True)

    def release(self) -> None:
        """Say in the bucket that this gateway was stopped, if this is its last process. Then its
        next start, wherever it is, need not wait. Whatever goes wrong costs that start a wait."""
        users = _users.get(self._settings.run_dir)
        if users is None:
            return
        with suppress(StoreError, NamespaceError, OSError):
            if not files.try_lock(users.fd):
                return
            try:
                with self._lock, self._alone():
                    self._valid_until = 0.0
                    seen, me, known = self._store.look(), self._who(), self._claim()
                    if seen and assess(known, seen.owner, me) is OwnerVerdict.OURS:
                        self._write(seen.owner._replace(released=True), known, seen.etag)
            finally:
                # A process of this gateway that starts meanwhile waits for it.
                files.lock(users.fd, shared=True)

    def _look(self) -> Conditions:
        self._looked_at = began = clock.monotonic_seconds()
        self._valid_until = 0.0
        try:
            self._use()
            with self._alone():
                conditions = self._settle()
        except StoreRefused:
            # A person may correct the credentials.
            self._store.reload()
            raise
        except OSError as exc:
            raise StoreUnavailable(
                f"cannot find out whose the bucket is: {exc.filename}: {exc.strerror}"
            ) from None
        self._valid_until = began + (LOOK_SECONDS if conditions.creates else UNHEEDED_SECONDS)
        return conditions

    def _settle(self) -> Conditions:
        """Make sure that the object is this gateway's. Raises StoreError."""
        seen, me, known = self._store.look(), self._who(), self._claim()
        verdict = assess(known, None if seen is None else seen.owner, me)
        if verdict in (OwnerVerdict.OTHER, OwnerVerdict.COPY):
            assert seen is not None
            self._refuse(seen.owner, me, verdict)
        if seen is None:
            self._require_evidence(me)
        elif verdict is OwnerVerdict.KNOWN:
            self._require_silence(seen, me)
        if known.conditions is None:
            known = known._replace(conditions=self._store.ask_conditions())
            self._record(known)
        assert known.conditions is not None
        if seen is None or verdict is not OwnerVerdict.OURS or seen.owner.token != known.token:
            self._move(me, known, seen)
        else:
            if known.former is not None:
                self._confirm(seen.owner, known)
            if seen.owner.released or _is_old(seen.owner):
                self._refresh(seen, known)
        return known.conditions

    def _require_evidence(self, me: OwnerIdentity) -> None:
        if (why := self._evidence(me).problem(self._settings)) is not None:
            raise OtherOwner(why)

    def _evidence(self, me: OwnerIdentity) -> Evidence:
        with self._database.reading() as session:
            recorded = foreign.recorded(session)
        return foreign.gather(self._store, me.namespace, recorded)

    def _require_silence(self, seen: SeenOwner, me: OwnerIdentity) -> None:
        """Raise StoreError until the gateway that wrote the object is known to be gone."""
        late_seconds = self._settings.bucket.late_seconds
        wait_seconds = 2 * LOOK_SECONDS + late_seconds
        now = clock.monotonic_seconds()
        if self._watched is None:
            self._watched = (seen.etag, now)
        etag, since = self._watched
        if etag != seen.etag:
            self._watched = (seen.etag, now)
            self._refuse(seen.owner, me, OwnerVerdict.COPY)
        left_seconds = since + wait_seconds - now
        if left_seconds <= 0:
            log.warning("no sign of %s: this gateway takes the bucket", seen.owner)
            self._watched = None
            return
        raise SignAwaited(
            f"{self._where} was last written by this gateway at {seen.owner}, which was not "
            f"stopped (a power cut, a crash or a copy of its machine): nothing is sent for another "
            f"{duration(left_seconds)}, in which a copy of this gateway that may still run would "
            "give a sign; it ends by itself, and nothing is lost"
        )

    def _move(
        self, me: OwnerIdentity, known: OwnerClaim, seen: SeenOwner | None, released: bool = False
    ) -> None:
        """Make the object this gateway's, with a new epoch. Raises StoreError.

        Args:
            released: whether this process ends now: the next one reads the object back.
        """
        if known.conditions is None:
            known = known._replace(conditions=self._store.ask_conditions())
        epoch = 1 + max(known.epoch, 0 if seen is None else seen.owner.epoch)
        former = seen.owner.token if seen is not None and known.knows(seen.owner) else ""
        known = known._replace(epoch=epoch, token=secrets.token_hex(16), former=former)
        self._record(known)
        now_ns, host = clock.now_ns(), socket.gethostname()
        assert known.token is not None
        mine = BucketOwner(
            me.namespace, me.gateway, epoch, known.token, me.holder, host, now_ns, released
        )
        self._write(mine, known, ABSENT if seen is None else seen.etag)
        if not released:
            self._confirm(mine, known)
        log.info("%s is this gateway's, epoch %d", self._where, epoch)

    def _confirm(self, mine: BucketOwner, known: OwnerClaim) -> None:
        """End a move. Where the store heeds no conditions the object is read back, when no request
        of another gateway for it can be under way any more. Raises StoreError."""
        assert known.conditions is not None
        if not known.conditions.replaces:
            passed_seconds = (clock.now_ns() - mine.time_ns) / clock.NS
            left_seconds = max(0.0, REQUEST_SECONDS - max(0.0, passed_seconds))
            if left_seconds > 0:
                log.info(
                    "%s is read back in %s: its store heeds no conditions, and a request of "
                    "another gateway for it may still be under way",
                    self._where.rstrip(","),
                    duration(left_seconds),
                )
            if self._stop.wait(left_seconds):
                raise StoreUnavailable("the process ends")
            seen = self._store.look()
            if seen is None or seen.owner.token != known.token:
                raise StoreUnavailable(f"{self._where}: the owner object has changed")
        self._record(known._replace(former=None))

    def _refresh(self, seen: SeenOwner, known: OwnerClaim) -> None:
        now_ns = clock.now_ns()
        owner = seen.owner._replace(time_ns=now_ns, released=False, address=socket.gethostname())
        self._write(owner, known, seen.etag)

    def _write(self, owner: BucketOwner, known: OwnerClaim, expected: str) -> None:
        assert known.conditions is not None
        self._store.conditions = known.conditions
        try:
            self._store.write(owner, expected)
        except Occupied:
            raise StoreUnavailable(
                f"{self._where}: the owner object has changed: it is looked at again"
            ) from None

    def _seen_by_force(self) -> SeenOwner | None:
        """Return the owner object, or a stand-in for one that cannot be understood."""
        try:
            return self._store.look()
        except OtherOwner:
            etag = self._store.etag()
            return (
                None
                if etag is None
                else SeenOwner(BucketOwner("", "", 0, "", "", "", 0, True), etag)
            )

    def _refuse(self, owner: BucketOwner, me: OwnerIdentity, verdict: OwnerVerdict) -> NoReturn:
        mine = f"this one is {socket.gethostname()}, namespace {me.namespace[:8]}"
        if verdict is OwnerVerdict.OTHER:
            raise OtherOwner(
                f"{self._where} belongs to another gateway, {owner}; {mine}: nothing is sent or "
                "deleted: give one of them another bucket.prefix; if that one is gone for good, "
                "stop this one, and: spillway adopt bucket --adopt"
            )
        raise OtherOwner(
            f"{self._where} belongs to another copy of this gateway, {owner}; {mine}: nothing is "
            "sent or deleted: only one of them may run; if that one is gone for good, stop this "
            "one, and: spillway adopt bucket"
        )

    @property
    def _where(self) -> str:
        bucket = self._settings.bucket
        return f"bucket {bucket.name}, prefix {bucket.prefix!r},"

    def _who(self) -> OwnerIdentity:
        with self._database.reading() as session:
            return who(session, self._settings)

    def _claim(self) -> OwnerClaim:
        with self._database.reading() as session:
            return read(session, self._settings)

    def _record(self, known: OwnerClaim) -> None:
        with self._database.writing() as session:
            write(session, self._settings, known)

    def _use(self) -> None:
        if self._users is None:
            users = _Users(self._opened(USERS))
            files.lock(users.fd, shared=True)
            self._users = _users.setdefault(self._settings.run_dir, users)

    def _alone(self) -> AbstractContextManager[None]:
        """Keep other processes of this gateway from the owner object meanwhile."""
        return files.held(self._opened(LOCK))

    def _opened(self, name: str) -> int:
        path = self._settings.run_dir / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = files.open_lock(path)
        if os.geteuid() == 0:
            # A command of root must not keep the processes of the gateway out.
            above = path.parent.stat()
            os.fchown(fd, above.st_uid, above.st_gid)
        return fd


def problem_of_new(settings: Settings) -> str | None:
    """Return why a namespace that is not made yet must not have the configured prefix, or None.
    Raises StoreError."""
    store = OwnerStore(settings)
    bucket = settings.bucket
    where = f"bucket {bucket.name}, prefix {bucket.prefix!r}"
    try:
        seen = store.look()
    except OtherOwner as exc:
        return str(exc)
    if seen is not None:
        return (
            f"{where}, belongs to another gateway, {seen.owner}: choose another --prefix; if that "
            "one is gone for good: spillway init --adopt"
        )
    listed = store.listed()
    if (overlap := foreign.overlap_of(store, "", listed)) is not None:
        return f"{where}, {overlap}spillway init --adopt"
    if listed:
        return (
            f"{where}, has objects ({listed[0]}): choose another --prefix, or, if nothing else "
            "writes there: spillway init --adopt"
        )
    return None


def guarded(
    store: T, settings: Settings, database: Database, stop: threading.Event | None = None
) -> T:
    """Return a store that changes nothing unless the bucket and prefix are this gateway's.

    Args:
        store: a new one.
        settings, database, stop: those of the gateway.
    """
    Ownership(settings, database, stop).guard(store)
    return store


def _is_old(owner: BucketOwner) -> bool:
    return abs(clock.now_ns() - owner.time_ns) >= LOOK_SECONDS * clock.NS
