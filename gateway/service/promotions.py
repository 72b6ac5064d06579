"""Service for promotions: which copies exist, what may be promoted, and waits for the copying."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.store import Catalogue, catalogue_of
from gateway.common import clock
from gateway.common.errors import START, Changed, NotPossible, NotThere, UserError
from gateway.common.models import Model, Nanoseconds
from gateway.common.text import printable, shown, text_of
from gateway.common.units import size
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import RESERVED_NAME, ROOT_INO
from gateway.db.schema import reading
from gateway.lifecycle.promotion import members, store
from gateway.lifecycle.promotion.members import SourceLook
from gateway.lifecycle.promotion.store import (
    NO_OPTIONS,
    Hold,
    PromotionOptions,
    PromotionState,
    options_of,
)
from gateway.lifecycle.promotion.store import PromotionRow as Row
from gateway.namespace.lookup import Browser, is_trashed
from gateway.objectstore import key_mapper
from gateway.service.jobs import Progress, Tell
from gateway.service.paths import follow

POLL_SECONDS = 0.5
DEAD_SECONDS = 10.0
"""The time that the process of the catalogue may be away: `spillway up` restarts it."""


class PromotionSource(NamedTuple):
    """What a promotion would be made of, as one transaction sees it."""

    path: bytes
    """The path below the export."""
    seen: SourceLook
    is_behind: bool
    """Whether the catalogue has yet to look at the checkpoint as it is."""


@dataclass(frozen=True, slots=True)
class Promotion(Model):
    """A copy of a checkpoint or tree."""

    name: str = field(metadata={"examples": ["release-candidate"]})
    state: str = field(metadata={"examples": ["done"]})
    """copying, done, failed or demoting."""
    reason: str | None
    """Why it failed, or what it waits for."""
    path: str = field(metadata={"examples": ["/checkpoints/.spillway/promoted/release-candidate"]})
    source: str = field(metadata={"examples": ["/checkpoints/jobs/llama-7b/step-1200"]})
    """Its path, when it was promoted."""
    run: str | None
    step: int | None
    note: str
    by: str
    asked_ns: Nanoseconds
    done_ns: Nanoseconds | None
    files: int
    copied_files: int
    size_bytes: int
    is_tagged: bool | None
    """Whether its objects have the tag."""
    legal_hold: bool
    """Whether no program deletes its objects (Object Lock)."""
    tags: dict[str, str] = field(metadata={"examples": [{"spillway": "promoted", "team": "llm"}]})
    """Tags of its objects."""
    key: str = field(metadata={"examples": ["checkpoints/.spillway/promoted/release-candidate"]})
    """The beginning of its keys in the bucket."""
    manifest: str | None
    """Key of its manifest in the bucket."""
    version: str = field(metadata={"examples": ["2f3e9ac41d07b685-done"]})
    """Which one it is, and its state. It is the ETag."""


class PromotionRequest(NamedTuple):
    """A copy to be made, as a person asks for it."""

    path: str
    """That of the command line. Symbolic links are followed."""
    name: str
    note: str = ""
    """Why, for other people."""
    tags: Sequence[str] = ()
    """Tags of its objects, each ``key=value``."""
    to: str | None = None
    """The beginning of its keys. None: that of all promotions."""
    legal_hold: bool = False
    """Whether no program may delete its objects (Object Lock)."""


class Promotions(Protocol):
    """Promoted copies.

    Where a method takes ``progress``, it waits for what the gateway does, and tells it how far
    that is. None: it does not wait.
    """

    def every(self) -> Iterator[Promotion]:
        """Yield the promotions, the oldest first."""

    def named(self, name: str) -> Promotion:
        """Return the promotion with a name. Raises NotThere."""

    def promote(self, request: PromotionRequest, progress: Tell | None = None) -> Promotion:
        """Promote a checkpoint or tree, as soon as the bucket has all of it. Raises NotPossible:
        without ``progress`` also if the bucket has not."""

    def demote(
        self, one: Promotion, progress: Tell | None = None, *, releases_hold: bool = False
    ) -> Promotion:
        """Remove a copy, also from the bucket.

        Args:
            one: as it was found.
            releases_hold: whether its legal hold is ended first.

        Returns:
            What it is when this has begun.

        Raises:
            NotPossible: it is held, or it is not any more what was found.
        """


class LocalPromotions:
    """The promotions of this machine's gateway (``Promotions``).

    Args:
        author: of new ones, for the record.
    """

    def __init__(
        self, settings: Settings, database: Database, browser: Browser, author: str
    ) -> None:
        self._settings = settings
        self._database = database
        self._browser = browser
        self._author = author

    def every(self) -> Iterator[Promotion]:
        with reading(self._database) as session:
            return iter(every(self._settings, session))

    def named(self, name: str) -> Promotion:
        with reading(self._database) as session:
            return as_is(self._settings, session, named(session, name))

    def promote(self, request: PromotionRequest, progress: Tell | None = None) -> Promotion:
        settings, database = self._settings, self._database
        options = options_of(settings.bucket.prefix, request.legal_hold, request.tags, request.to)
        name = checked(settings, request.name, options)
        ino = follow(self._browser, settings, request.path).found().attr.ino
        pause, tell = Pause(settings), progress or (lambda _progress: None)
        catalogue = catalogue_of(settings, database)
        while True:
            began = clock.monotonic_seconds()
            source = source_of(catalogue, ino)
            why = reason_not_ready(source)
            if why is None:
                break
            if progress is None:
                raise NotPossible(f"{printable(source.path)}: {why}")
            tell(Progress(0, None, f"waiting: {why}"))
            seconds = max(POLL_SECONDS, 5 * (clock.monotonic_seconds() - began))
            pause.rest("then promote it", seconds)
        record(settings, database, source, name, request.note, self._author, options)
        made = self.named(name)
        return made if progress is None else ended(self.named, made, tell, pause.rest)

    def demote(
        self, one: Promotion, progress: Tell | None = None, *, releases_hold: bool = False
    ) -> Promotion:
        with self._database.writing() as session:
            row = named(session, one.name)
            if version(row) != one.version:
                raise Changed(f"{one.name} was changed meanwhile: look at it, and repeat")
            after = store.demote(session, row, releases_hold)
            made = as_is(self._settings, session, after)
        if progress is not None:
            await_removal(self.named, made, progress, Pause(self._settings).rest)
        return made


class Pause:
    """Pauses between looks at what the process of the catalogue does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._alive_at = clock.monotonic_seconds()

    def rest(self, then: str, seconds: float = POLL_SECONDS) -> None:
        """Wait some seconds.

        Args:
            then: what follows when the gateway runs again.
            seconds: how long.

        Raises:
            UserError: the gateway does not run.
        """
        until = clock.monotonic_seconds() + seconds
        while (now := clock.monotonic_seconds()) < until:
            time.sleep(min(POLL_SECONDS, until - now))
            children = datadir.reported_children(datadir.read(self._settings, datadir.UP))
            if datadir.alive(children.get("checkpoints")):
                self._alive_at = clock.monotonic_seconds()
        if now - self._alive_at > DEAD_SECONDS:
            raise UserError(f"the gateway does not run: start it: {START}; {then}")


def ended(
    find: Callable[[str], Promotion],
    one: Promotion,
    progress: Tell,
    rest: Callable[[str], None],
) -> Promotion:
    """Wait until a promotion is done or has failed. Returns it. Raises NotPossible if it was
    demoted meanwhile.

    Args:
        find: returns the promotion with a name, or raises NotThere.
        rest: waits for a short time. It gets what follows if the wait ends.
    """
    while one.state == PromotionState.COPYING:
        text = f"{one.copied_files:,} of {one.files:,} files copied"
        text += f": {one.reason}" if one.reason else ""
        progress(Progress(one.copied_files, one.files, text))
        rest(f"{one.name} then continues by itself")
        now = _found(find, one)
        if now is None:
            raise NotPossible(f"{one.name}: it was demoted meanwhile")
        one = now
    return one


def await_removal(
    find: Callable[[str], Promotion],
    one: Promotion,
    progress: Tell,
    rest: Callable[[str], None],
) -> None:
    """Wait until a promotion is removed. Args: as of ``ended``. Raises UserError if it stays."""
    while (now := _found(find, one)) is not None:
        if now.state != PromotionState.DEMOTING:
            raise UserError(
                f"{one.name} is {now.state}, and is not removed: demote it again: "
                f"spillway promotion remove {one.name} --yes"
            )
        progress(Progress(0, None, f"removing: {now.reason or 'files'}"))
        rest(f"{one.name} then continues by itself")


def _found(find: Callable[[str], Promotion], promotion: Promotion) -> Promotion | None:
    """Return a promotion as it is now, or None: it is not there, or another one has its name."""
    try:
        now = find(promotion.name)
    except NotThere:
        return None
    made, _, _state = promotion.version.partition("-")
    return now if now.version.startswith(f"{made}-") else None


def version(one: Row) -> str:
    """Return which promotion it is, with its state."""
    return f"{one.generation:x}-{one.state}"


def as_is(settings: Settings, session: Session, one: Row) -> Promotion:
    """Return a promotion with the number of its files that are copied."""
    _files, copied = store.counts(session, one.name)
    return model(settings, one, copied)


def model(settings: Settings, one: Row, copied: int) -> Promotion:
    """Return a promotion. Args: copied, its files that are copied."""
    export, prefix = settings.nfs.export, settings.bucket.prefix
    return Promotion(
        name=one.name,
        state=one.state,
        reason=one.reason,
        path=f"{export}/{printable(RESERVED_NAME)}/promoted/{one.name}",
        source=f"{export}/{text_of(one.path)}",
        run=None if one.run is None else text_of(one.run),
        step=one.step,
        note=one.note,
        by=one.asked_by,
        asked_ns=one.asked_ns,
        done_ns=one.done_ns,
        files=one.files,
        copied_files=copied,
        size_bytes=one.size,
        is_tagged=None if one.is_tagged is None else bool(one.is_tagged),
        legal_hold=one.legal_hold == Hold.HELD,
        tags=one.all_tags if one.is_tagged else {},
        key=key_mapper.key_of(*store.place_of(prefix, one.name, one.key_prefix, b"")),
        manifest=None if one.manifest_etag is None else store.manifest_key(prefix, one.name),
        version=version(one),
    )


def require_lock(settings: Settings) -> None:
    """Raise UserError if the bucket keeps no legal holds, StoreError if it cannot be asked."""
    # The imports are here because boto3 takes half a second to import.
    from gateway.lifecycle.promotion.copier import NO_LOCK
    from gateway.objectstore.holds import HoldingStore

    if not HoldingStore(settings).has_lock():
        raise UserError(NO_LOCK)


def every(settings: Settings, session: Session) -> list[Promotion]:
    """Return the promotions."""
    return [as_is(settings, session, row) for row in store.every(session)]


def named(session: Session, name: str) -> Row:
    """Return the promotion with a name. Raises NotThere."""
    row = store.one_named(session, name)
    if row is None:
        raise NotThere(f"no promotion {shown(name)}: look with spillway promotion list")
    return row


def promote(
    settings: Settings,
    database: Database,
    ino: int,
    name: str,
    note: str,
    by: str,
    options: PromotionOptions = NO_OPTIONS,
) -> Row:
    """Record a promotion of what the bucket has by now. The gateway copies by itself.

    Raises NotThere, NotPossible, UserError, TryAgain, and StoreError if the bucket cannot be asked
    for what the options need.

    Args:
        ino: ino of the source.
        name: name of the copy, as a person wrote it.
        note: note and by, the person, for the record.
        options: options of the person.
    """
    name = checked(settings, name, options)
    source = source_of(catalogue_of(settings, database), ino)
    if (why := reason_not_ready(source)) is not None:
        raise NotPossible(f"{printable(source.path)}: {why}")
    return record(settings, database, source, name, note, by, options)


def checked(settings: Settings, name: str, options: PromotionOptions) -> str:
    """Return the name of a copy as a person wrote it. Raises UserError if it cannot be one, or the
    bucket has not what the options need; StoreError if it cannot be asked."""
    checked = store.checked(name, settings.drain.incomplete_patterns)
    if options.legal_hold:
        require_lock(settings)
    return checked


def record(
    settings: Settings,
    database: Database,
    source: PromotionSource,
    name: str,
    note: str,
    by: str,
    options: PromotionOptions,
) -> Row:
    """Record a promotion. Raises UserError.

    Args:
        settings, database, note, by, options: as of ``promote``.
        name: as ``checked`` returns it.
    """
    with database.writing() as session:
        prefix = settings.bucket.prefix
        return members.record(session, prefix, name, source.path, source.seen, note, by, options)


def source_of(catalogue: Catalogue, ino: int) -> PromotionSource:
    """Return what is to be promoted. Raises NotThere if it was removed, NotPossible if it is
    nothing that can be, TryAgain."""
    with catalogue.viewing() as view:
        path, seen = _path_of(view.session, ino), members.look(view.session, ino, view.rules)
        if path is None or seen is None:
            raise NotThere("it was removed meanwhile: look again")
        now = catalogue.as_is(view, ino)
    # Its row may be of a moment before the last change: what was complete then may not be now.
    known = seen.checkpoint
    is_behind = now is not None and (known is None or known.evidence != now.evidence)
    return PromotionSource(path, seen, is_behind)


def _path_of(session: Session, ino: int) -> bytes | None:
    if ino == ROOT_INO:
        raise NotPossible("the whole export cannot be promoted: name a checkpoint")
    if is_trashed(session, ino):
        raise NotPossible("it was deleted: restore it: spillway trash restore")
    paths = store.paths_of(session, ino)
    if paths and paths[0].split(b"/")[0] == RESERVED_NAME:
        raise NotPossible(f"{printable(paths[0])}: it is the gateway's own, and stays already")
    return paths[0] if paths else None


def reason_not_ready(source: PromotionSource) -> str | None:
    """Return why a source cannot be promoted yet, or None. Raises NotPossible if it never can."""
    path, seen, is_behind = source
    if seen.special is not None:
        below = _below(path, seen.special.path)
        raise NotPossible(
            f"{printable(below)}: only files, directories and links are promoted: remove it"
        )
    if not seen.files:
        raise NotPossible(f"{printable(path)}: it has no files")
    known = seen.checkpoint
    if known is not None and known.state == CheckpointState.WRITING:
        return f"the checkpoint is not complete: {known.reason}"
    if left := seen.left:
        left_bytes = sum(member.size for member in left)
        return (
            f"{len(left):,} files, {size(left_bytes)} are not in the bucket yet "
            f"({printable(_below(path, left[0].path))}): "
            "spillway wait --durable --timeout 0 PATH says why"
        )
    return "the gateway has yet to look at its last change: try again soon" if is_behind else None


def _below(path: bytes, member: bytes) -> bytes:
    return b"/".join(part for part in (path, member) if part)
