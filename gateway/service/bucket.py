"""Service for the bucket: whether it answers, what it does by itself, its effect on a gateway."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from gateway.common.errors import NamespaceError, SchemaError, StoreError, UserError
from gateway.common.models import Model
from gateway.config.settings import Settings
from gateway.db import schema
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.schema import explained
from gateway.service.configuration import without_userinfo

if TYPE_CHECKING:
    # boto3 takes half a second to import.
    from gateway.objectstore.s3 import S3Store
    from gateway.objectstore.setup import BucketConfiguration, LifecycleTransition, Rule, Setup

PROBE_SECONDS = 5.0
"""The time that the bucket has for a connection, and again for an answer."""
APPLY = "spillway bucket setup --apply"


@dataclass(frozen=True, slots=True)
class Checksum(Model):
    """The checksum that goes with what is sent."""

    kind: str | None = field(metadata={"examples": ["md5"]})
    """None: the store was not asked yet."""
    source: Literal["configuration", "store"] | None
    """What the kind is from."""


@dataclass(frozen=True, slots=True)
class Bucket(Model):
    """The bucket, as it is configured and as it answered some seconds ago."""

    name: str = field(metadata={"examples": ["checkpoints"]})
    endpoint_url: str
    """Empty: AWS. User and password are masked."""
    prefix: str
    reachable: bool | None
    """None: it was not asked yet."""
    error: str | None
    """Why not, for people."""
    checksum: Checksum


@dataclass(frozen=True, slots=True)
class Reachability(Model):
    """Whether the bucket can be used."""

    reachable: bool
    error: str | None
    """Why not, for people."""


@dataclass(frozen=True, slots=True)
class SetUp(Model):
    """What the bucket does by itself, and its effect on the gateway. Texts are for people."""

    bucket: str
    checksum: str
    versioning: str
    object_lock: str
    unfinished_uploads: str
    expiring_rules: list[str]
    """They delete objects whose files are there."""
    transition_rules: list[str]
    is_well: bool
    """Whether nothing of it needs a person."""


class BucketActions(Protocol):
    """What people ask of the bucket, and change in it."""

    def test(self, adopts: bool) -> Reachability:
        """Ask it once whether it can be used, and whose it is. Args: adopts, whether it may be
        another gateway's."""

    def set_up(self, applies: bool, adopts: bool) -> SetUp:
        """Look at its own settings. Raises UserError if it may be another gateway's.

        Args:
            applies: whether the rule that ends unfinished uploads is added if it is missing.
            adopts: whether the bucket may be another gateway's.
        """


class LocalBucket:
    """The bucket of this machine's gateway (``BucketActions``)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def test(self, adopts: bool) -> Reachability:
        return test(self._settings, adopts)

    def set_up(self, applies: bool, adopts: bool) -> SetUp:
        return set_up(self._settings, applies, adopts)


def model(settings: Settings, session: Session, probe: Reachability | None = None) -> Bucket:
    """Return the bucket as it is configured and as it answers. No password is in it.

    Args:
        probe: what it answered. None: it was not asked.
    """
    return Bucket(
        name=settings.bucket.name,
        endpoint_url=without_userinfo(settings.bucket.endpoint_url),
        prefix=settings.bucket.prefix,
        reachable=None if probe is None else probe.reachable,
        error=None if probe is None else probe.error,
        checksum=_known_checksum(settings, session),
    )


def test(settings: Settings, adopts: bool = False) -> Reachability:
    """Ask the bucket once whether it can be used, and whose it is. Raises UserError.

    Args:
        adopts: whether it may be another gateway's.
    """
    reachability = probe(settings)
    if adopts or not reachability.reachable:
        return reachability
    try:
        return Reachability(reachable=True, error=owner_problem(settings))
    except StoreError as exc:
        return Reachability(reachable=False, error=str(exc))


def probe(settings: Settings) -> Reachability:
    """Ask the bucket once whether it can be used. PROBE_SECONDS limits each wait."""
    return Probe(settings).ask()


def owner_problem(settings: Settings) -> str | None:
    """Return why the bucket and prefix may be another gateway's, or None. Raises StoreError,
    UserError."""
    from gateway.objectstore.ownership import Ownership, problem_of_new

    with closing(Database(settings.database_url)) as database:
        try:
            schema.require_made(database)
        except SchemaError:
            return problem_of_new(settings)
        schema.require_current(database)
        with explained(database):
            return Ownership(settings, database).problem()


class Probe:
    """Asks a bucket whether it can be used, over and over. Not safe to use from several threads."""

    def __init__(self, settings: Settings) -> None:
        limits = replace(
            settings.bucket,
            read_timeout_seconds=min(PROBE_SECONDS, settings.bucket.read_timeout_seconds),
            connect_timeout_seconds=min(PROBE_SECONDS, settings.bucket.connect_timeout_seconds),
        )
        self._settings = replace(settings, bucket=limits)
        self._store: S3Store | None = None
        """It is kept, because to make one takes a tenth of a second."""

    def ask(self) -> Reachability:
        """Ask once, or twice if the bucket answered before. PROBE_SECONDS limits each wait."""
        from gateway.objectstore.s3 import S3Store

        error = None
        for _ in range(1 if self._store is None else 2):
            try:
                if self._store is None:
                    self._store = S3Store(self._settings, attempts=1)
                self._store.check()
                return Reachability(reachable=True, error=None)
            except StoreError as exc:
                # A connection that was kept may be what is wrong: the next one is new.
                self._store, error = None, str(exc)
        return Reachability(reachable=False, error=error)


def _known_checksum(settings: Settings, session: Session) -> Checksum:
    # Here, because awscrt takes a tenth of a second to import.
    from gateway.objectstore import negotiation

    chosen = negotiation.configured(settings.bucket)
    if chosen is not None:
        return Checksum(chosen, "configuration")
    kind = negotiation.known(session, settings.bucket)
    return Checksum(kind, None if kind is None else "store")


def set_up(settings: Settings, applies: bool, adopts: bool = False) -> SetUp:
    """Look at the bucket's own settings. Raises StoreError; UserError if the prefix may be another
    gateway's.

    Args:
        applies: whether the rule that ends unfinished uploads is added if it is missing.
        adopts: whether the prefix may be another gateway's.
    """
    from gateway.objectstore.setup import Setup

    if not adopts and (why := owner_problem(settings)) is not None:
        raise UserError(why)
    setup = Setup(settings)
    configuration = setup.look()
    applied = applies and not any(map(setup.aborts, configuration.rules))
    if applied:
        setup.apply(configuration)
        configuration = setup.look()
    expiring = [_name(rule) for rule in configuration.rules if setup.expires(rule)]
    moves = [
        (rule, transition) for rule in configuration.rules for transition in setup.transitions(rule)
    ]
    ends_uploads = any(map(setup.aborts, configuration.rules))
    return SetUp(
        bucket=settings.bucket.name,
        checksum=_checksum(settings),
        versioning=_versioning(configuration),
        object_lock=_lock(configuration),
        unfinished_uploads=_unfinished(setup, configuration, applied),
        expiring_rules=expiring,
        transition_rules=[_transition(rule, transition) for rule, transition in moves],
        is_well=ends_uploads
        and not expiring
        and not any(transition.archives for _, transition in moves),
    )


def _transition(rule: Rule, transition: LifecycleTransition) -> str:
    text = f"{_name(rule)} moves objects to {transition.storage_class} {transition.when}: "
    if transition.archives:
        return text + (
            "objects there cannot be copied until a person restores them, so a rename does not "
            "move them: exclude our prefix from it"
        )
    return text + "a rename pays for retrieval there"


def _versioning(configuration: BucketConfiguration) -> str:
    versioning = configuration.versioning
    if not isinstance(versioning, str):
        return f"the server does not say ({versioning.why})"
    if versioning == "Enabled":
        return (
            "on: a deletion or a new version keeps the old bytes, and their costs, until a "
            "lifecycle rule expires noncurrent versions"
        )
    return f"{'suspended' if versioning else 'off'}: a deletion takes the bytes for good"


def _lock(configuration: BucketConfiguration) -> str:
    lock = configuration.lock
    if isinstance(lock, tuple):
        return f"the server does not say ({lock.why})"
    if not lock or lock.get("ObjectLockEnabled") != "Enabled":
        return "off"
    kept = lock.get("Rule", {}).get("DefaultRetention")
    if not kept:
        return "on, without a default retention: only versions that a person locks stay"
    time = f"{kept['Days']} days" if "Days" in kept else f"{kept.get('Years')} years"
    return (
        f"on, {kept.get('Mode')} for {time}: every version stays so long; deletions and renames "
        "leave delete markers over them"
    )


def _checksum(settings: Settings) -> str:
    """Ask the store which checksum goes with what is sent, and remember it."""
    from gateway.objectstore import negotiation
    from gateway.objectstore.checksums import ChecksumKind
    from gateway.objectstore.negotiation import negotiate

    if (chosen := negotiation.configured(settings.bucket)) is not None:
        return f"{chosen}, as configured"
    kind = negotiate(settings)
    if kind is None:
        return "md5: the store does not let us find out whether it verifies a newer one"
    checksum = f"{kind}: the store refuses what does not match it"
    if kind is ChecksumKind.MD5:
        checksum = "md5: the store takes objects with wrong newer checksums"
    database = Database(settings.database_url)
    try:
        schema.require_current(database)
        with database.reader() as connection, database.transaction(connection):
            negotiation.remember(Session(connection, database.dialect), settings.bucket, kind)
    except (NamespaceError, UserError) as exc:
        # The rest of what was found, and what was changed in the bucket, must be shown.
        return f"{checksum} (not recorded, the drain will ask again: {exc})"
    finally:
        database.close()
    return checksum


def _unfinished(setup: Setup, configuration: BucketConfiguration, applied: bool) -> str:
    rules = [_name(rule) for rule in configuration.rules if setup.aborts(rule)]
    if rules:
        return f"ended by the rule {rules[0]}{' (just added)' if applied else ''}"
    if isinstance(configuration.lifecycle, tuple):
        return (
            f"the server does not tell its lifecycle rules ({configuration.lifecycle.why}): the "
            "drain looks for unfinished uploads once a day"
        )
    return f"no rule ends them, what is lost in them is paid for: {APPLY} adds one"


def _name(rule: Rule) -> str:
    return str(rule.get("ID") or "without a name")
