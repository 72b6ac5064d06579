"""Service for checkpoints and runs: pages of lists, counts, recovery points, orders of people.

The recovery point of a run is what would be lost if this gateway were lost now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

from sqlalchemy import BigInteger, and_, func, literal_column, select, tuple_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Boolean

from gateway.catalogue import manifests
from gateway.catalogue.display_state import ARCHIVED, CATALOGUED, SHOWN
from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.risk import Newest, Risk, measure, summarize
from gateway.catalogue.store import catalogue_of
from gateway.catalogue.unrecognised import unrecognised
from gateway.common import clock
from gateway.common.errors import NotThere
from gateway.common.models import Model, Nanoseconds, from_json, values_of
from gateway.common.text import text_of
from gateway.common.types import Extent, InodeKind
from gateway.common.units import duration, size
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.schema import reading
from gateway.db.statements import (
    IS_CLIENTS,
    IS_DIRTY,
    catalogue,
    checkpoint,
    inode,
    manifest,
    promotion,
)
from gateway.namespace.lookup import Browser, PinLookup
from gateway.objectstore.key_mapper import key_of
from gateway.service import deletion, trash
from gateway.service.deletion import Deleted
from gateway.service.paths import names_of, resolve, shown_path
from gateway.service.trash import Expired


@dataclass(frozen=True, slots=True)
class NewestCheckpoint(Model):
    """The newest checkpoint of a kind, by the time at which it was complete."""

    name: str
    step: int | None
    complete_ns: Nanoseconds
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Run(Model):
    """A run. What is at risk would be lost with this gateway."""

    run: str
    """Path of the directory of its steps."""
    newest_complete: NewestCheckpoint | None
    newest_durable: NewestCheckpoint | None
    at_risk_seconds: float
    """The age of the work that is only here."""
    at_risk_bytes: int
    eta_seconds: float | None
    """Time until the bucket has everything that waits, at the rate of the last minute; 0: nothing
    of this run waits. null: the drain sends nothing."""
    alarm: str | None
    """Which threshold of `checkpoints.rpo_*` is exceeded."""


def waiting_bytes(session: Session) -> int:
    """Return the bytes of all files that wait for the bucket."""
    ((size_bytes,),) = session.all(WAITING)
    # On PostgreSQL the sum is a Decimal.
    return int(size_bytes)


def models(settings: Settings, risks: Sequence[Risk], all_waiting_bytes: int) -> list[Run]:
    """Return the runs.

    Args:
        all_waiting_bytes: bytes of all files that wait, of runs or not.
    """
    drain = datadir.read(settings, datadir.DRAIN)
    rate = drain.get("bytes_per_second") if drain is not None and datadir.alive(drain) else None
    bytes_per_second = float(rate) if isinstance(rate, int) else 0.0
    now_ns = clock.now_ns()
    runs = []
    for risk in risks:
        eta_seconds = risk.eta_seconds(bytes_per_second, all_waiting_bytes)
        runs.append(
            Run(
                run=text_of(risk.run),
                newest_complete=_newest(risk.complete, now_ns),
                newest_durable=_newest(risk.durable, now_ns),
                at_risk_seconds=round(risk.seconds, 1),
                at_risk_bytes=risk.size,
                eta_seconds=None if eta_seconds is None else round(eta_seconds, 1),
                alarm=alarm(settings, risk),
            )
        )
    return runs


def alarm(settings: Settings, risk: Risk) -> str | None:
    """Return which threshold a run exceeds, or None."""
    limits = settings.checkpoints
    if limits.rpo_seconds and risk.seconds > limits.rpo_seconds:
        least = duration(limits.rpo_seconds)
        return f"more than checkpoints.rpo_seconds ({least}) of its work is only here"
    if limits.rpo_bytes and risk.size > limits.rpo_bytes:
        return f"more than checkpoints.rpo_bytes ({size(limits.rpo_bytes)}) are only here"
    return None


def _newest(newest_checkpoint: Newest | None, now_ns: int) -> NewestCheckpoint | None:
    if newest_checkpoint is None:
        return None
    return NewestCheckpoint(
        name=text_of(newest_checkpoint.path.rpartition(b"/")[2]),
        step=newest_checkpoint.step,
        complete_ns=newest_checkpoint.complete_ns,
        age_seconds=round(max(0, now_ns - newest_checkpoint.complete_ns) / clock.NS, 1),
    )


_LAST = literal_column(str((1 << 63) - 1), BigInteger)
"""Takes the place of a step or time that there is not: it comes after all others."""
_NAMES = (
    *("ino", "path", "run", "step", "rule", "reason", "files", "size"),
    *("dirty_files", "dirty_size", "complete_ns", "durable_ns", "evidence", "storage_class"),
    "grade",
)
_MANIFEST = (
    select(func.min(manifest.c.key))
    .where(
        manifest.c.ino == checkpoint.c.ino,
        manifest.c.evidence == checkpoint.c.evidence,
        manifest.c.etag.is_not(None),
    )
    .scalar_subquery()
)
WAITING = Statement(
    select(func.coalesce(func.sum(inode.c.size), 0)).where(
        and_(*IS_DIRTY, inode.c.nlink > 0, IS_CLIENTS)
    )
)
"""Selects the bytes that wait for the bucket. What is in the trash is reserved, and is not sent."""
ARCHIVED_COUNT = Statement(
    select(func.count()).where(
        checkpoint.c.storage_class.is_not(None),
        checkpoint.c.state == literal_column(f"'{CheckpointState.DURABLE}'"),
    )
)
IS_MADE = Statement(select(catalogue.c.id))
PROMOTIONS = Statement(
    select(promotion.c.name).where(promotion.c.ino == b("ino")).order_by(promotion.c.name)
)
PAGE = 1000


class Sort(StrEnum):
    """The order of a list. All lists end with the inode, so that no two rows have one place."""

    RUN = "run"
    """Sorts by run, step and path. Those without a step are the last of their run."""
    COMPLETE = "complete"
    """Sorts by the time of completion. Those that are not complete count as the newest."""
    SIZE = "size"


_STEP = func.coalesce(checkpoint.c.step, _LAST)
_COMPLETE = func.coalesce(checkpoint.c.complete_ns, _LAST)
_KEYS: dict[Sort, tuple[Any, ...]] = {
    Sort.RUN: (checkpoint.c.run, _STEP, checkpoint.c.path, checkpoint.c.ino),
    Sort.COMPLETE: (_COMPLETE, checkpoint.c.ino),
    Sort.SIZE: (checkpoint.c.size, checkpoint.c.ino),
}
_KINDS: dict[Sort, tuple[type, ...]] = {
    Sort.RUN: (bytes, int, bytes, int),
    Sort.COMPLETE: (int, int),
    Sort.SIZE: (int, int),
}
Key = tuple[Any, ...]
"""The place of a row in a list."""


class ListFilter(NamedTuple):
    """What a list has: all that is given must hold. None: any."""

    ino: int | None = None
    run: bytes | None = None
    state: str | None = None
    """One of ``CATALOGUED``."""
    rule: str | None = None
    text: bytes | None = None
    """Part of the path."""


@dataclass(frozen=True, slots=True)
class Checkpoint(Model):
    """A checkpoint, as the catalogue has it."""

    ino: int
    """Its number, which a rename does not change."""
    path: str
    run: str
    step: int | None
    rule: str = field(metadata={"examples": ["dcp"]})
    """The rule that recognised it."""
    state: str = field(metadata={"examples": ["durable"]})
    """writing, complete, draining, durable or archived; broken if it was complete and has lost
    members since: no other one is deleted for it."""
    reason: str | None
    """Why it is not complete, or how it is broken."""
    files: int
    size_bytes: int
    dirty_files: int
    """Files that the bucket does not have as they are here."""
    dirty_bytes: int
    complete_ns: Nanoseconds | None
    durable_ns: Nanoseconds | None
    age_seconds: float | None
    """Time since it was complete."""
    manifest: str | None
    """Key of its manifest in the bucket."""
    evidence: str
    """A hash of its members. It is the ETag."""
    storage_class: str | None
    """The one that all objects were moved to. A durable checkpoint is archived then."""
    grade: Literal["listed", "alike", "marked"] | None
    """What shows that it is complete. listed: its index names its members, and all are there.
    alike: it has the members of the complete ones before it. marked: its save has ended, and
    nothing lists its members. Only for those that are listed or alike another one is deleted.
    None: it is not complete."""


@dataclass(frozen=True, slots=True)
class OneCheckpoint(Checkpoint):
    """A checkpoint, with what people said of it."""

    pinned: bool
    """Whether it, or a directory above it, is pinned."""
    promotions: list[str] = field(metadata={"examples": [["best"]]})
    """The names of its promotions."""


@dataclass(frozen=True, slots=True)
class MemberFile(Model):
    """A file of a checkpoint."""

    name: str
    """Path below the checkpoint."""
    path: str
    size_bytes: int
    in_bucket: Literal["present", "other"]
    """Whether the bucket has it as it is here."""


@dataclass(frozen=True, slots=True)
class UnrecognisedSummary(Model):
    """What was found of directories with files of tensors that no rule knows."""

    time_ns: Nanoseconds
    """When they were looked for."""
    directories: int
    first: str | None = field(metadata={"examples": ["jobs/other"]})
    """The first of them, below the export. Empty: the export itself."""


@dataclass(frozen=True, slots=True)
class CatalogueStatus(Model):
    """Runs and checkpoints, and what is at risk."""

    is_made: bool
    """Whether the catalogue has all checkpoints."""
    runs: int
    checkpoints: dict[str, int]
    """Their number by state."""
    at_risk: list[Run]
    """The runs with work that is only here, those with an alarm first."""
    alarms: int
    """The number of runs with an alarm."""
    unrecognised: UnrecognisedSummary | None
    """None: it was not looked for yet."""


@dataclass(frozen=True, slots=True)
class UnknownDirectory(Model):
    """A directory with files of tensors that belong to no checkpoint."""

    path: str
    files: int
    """The number of such files directly in it."""
    size_bytes: int
    first: str
    """The first name."""


@dataclass(frozen=True, slots=True)
class Listing(Model):
    """Runs and checkpoints."""

    is_made: bool
    """Whether the catalogue has all checkpoints."""
    runs: list[Run]
    checkpoints: list[Checkpoint]
    expired: list[Expired]
    """What is in the trash, if everything was asked for."""
    export: str
    """The path that clients mount. It is the run that has no name."""


class ListOptions(NamedTuple):
    """Which checkpoints are listed, and in which order. All that is given must hold; None: any."""

    run: str | None = None
    """Its path or name, as on the command line."""
    state: str | None = None
    """One of ``CATALOGUED``."""
    rule: str | None = None
    text: str | None = None
    """Part of the path, as on the command line."""
    sort: Sort = Sort.RUN
    is_descending: bool = False
    most: int | None = None
    """The first so many of this order."""

    @property
    def is_sorted(self) -> bool:
        """Whether the order is another one than by run and step."""
        return self.sort is not Sort.RUN or self.is_descending

    @property
    def is_whole(self) -> bool:
        """Whether everything is listed, or everything of one run."""
        is_part = self.state or self.rule or self.text or self.most is not None
        return not (self.is_sorted or is_part)


class Checkpoints(Protocol):
    """The checkpoints, and the runs that they belong to.

    Paths are those of the command line. Each method that takes one raises NotThere, NotPossible.
    """

    def listing(self, options: ListOptions) -> Listing:
        """Return checkpoints with their runs."""

    def unrecognised(self) -> list[UnknownDirectory]:
        """Return the directories whose files of tensors belong to no checkpoint. All names are
        read."""

    def one(self, path: str) -> OneCheckpoint:
        """Return a checkpoint."""

    def delete(self, path: str, reason: str | None, *, insists: bool) -> Deleted:
        """Put a checkpoint into the trash.

        Args:
            reason: for other people.
            insists: whether it is deleted although a deletion guard keeps it.
        """


class LocalCheckpoints:
    """The checkpoints of this machine's gateway (``Checkpoints``).

    Args:
        author: of deletions, for the record.
    """

    def __init__(
        self, settings: Settings, database: Database, browser: Browser, author: str
    ) -> None:
        self._settings = settings
        self._database = database
        self._browser = browser
        self._author = author

    def listing(self, options: ListOptions) -> Listing:
        settings = self._settings
        wanted = wanted_of(settings.nfs.export, options)
        with reading(self._database) as session:
            listed = every(session, settings, wanted, options.sort, options.is_descending)
            checkpoints = list(islice(listed, options.most))
            risks = [risk for risk in measure(session) if wanted.run in (None, risk.run)]
            expired = trash.expired(settings, session, wanted.run) if options.is_whole else []
            has_all = is_made(session)
            waiting = waiting_bytes(session)
        every_run = models(settings, risks, waiting)
        return Listing(has_all, every_run, checkpoints, expired, settings.nfs.export)

    def unrecognised(self) -> list[UnknownDirectory]:
        export = self._settings.nfs.export
        return [
            UnknownDirectory(
                path=f"{export}/{text_of(directory.path)}".rstrip("/"),
                files=directory.files,
                size_bytes=directory.size,
                first=text_of(directory.first),
            )
            for directory in unrecognised(catalogue_of(self._settings, self._database))
        ]

    def one(self, path: str) -> OneCheckpoint:
        ino = resolve(self._browser, self._settings, path).found().attr.ino
        with reading(self._database) as session:
            shown = one(session, self._settings, ino)
            if shown is None:
                raise none_at(path)
            return whole(session, shown)

    def delete(self, path: str, reason: str | None, *, insists: bool) -> Deleted:
        seen = self.one(path)
        with trash.refusals():
            made = deletion.delete(
                self._settings,
                self._database,
                seen.ino,
                author=self._author,
                reason=deletion.BY_HAND if reason is None else reason,
                insists=insists,
                seen=[seen.evidence],
            )
        return Deleted(made, seen.path)


def wanted_of(export: str, options: ListOptions) -> ListFilter:
    """Return what a list has that was asked for on the command line. Args: export, its path."""
    run, text = options.run, options.text
    return ListFilter(
        run=None if run is None else b"/".join(names_of(export, run)),
        state=options.state,
        rule=options.rule,
        text=os.fsencode(text) if text else None,
    )


def none_at(path: str) -> NotThere:
    """Return the error of a path of the command line that is no checkpoint."""
    return NotThere(f"{shown_path(path)} is no checkpoint: spillway checkpoint list lists them")


class ListedCheckpoint(NamedTuple):
    """A row of a list."""

    key: Key
    model: Checkpoint


class _Contains(FunctionElement[bool]):
    """Whether bytes contain other bytes."""

    inherit_cache = True
    type = Boolean()


@compiles(_Contains, "sqlite")
def _(element: _Contains, compiler: Any, **how: Any) -> str:
    return f"instr({compiler.process(element.clauses, **how)}) > 0"


@compiles(_Contains, "postgresql")
def _(element: _Contains, compiler: Any, **how: Any) -> str:
    whole, part = (compiler.process(clause, **how) for clause in element.clauses)
    return f"position({part} in {whole}) > 0"


_CONDITIONS = {
    "ino": checkpoint.c.ino == b("ino"),
    "run": checkpoint.c.run == b("run"),
    "state": b("state") == SHOWN,
    "rule": checkpoint.c.rule == b("rule"),
    "text": _Contains(checkpoint.c.path, b("text")),
}


@cache
def _statement(
    sort: Sort, is_descending: bool, wanted: tuple[str, ...], is_first: bool
) -> Statement:
    """Return the statement of a page.

    Args:
        wanted: the names of the conditions.
        is_first: whether it is the first page.
    """
    columns = _KEYS[sort]
    # A place is compared as a row of values, so that an index can find it.
    place, after = tuple_(*columns), tuple_(*(b(f"after_{at}") for at in range(len(columns))))
    conditions = [_CONDITIONS[name] for name in wanted]
    if not is_first:
        conditions.append(place < after if is_descending else place > after)
    order = [column.desc() if is_descending else column for column in columns]
    # SQLite would find the manifest of every row before it sorts them.
    picked = select(checkpoint.c.ino).where(*conditions).order_by(*order).limit(b("most"))
    page = picked.subquery("page")
    return Statement(
        select(*columns, *(checkpoint.c[name] for name in _NAMES), SHOWN, _MANIFEST)
        .select_from(page.join(checkpoint, checkpoint.c.ino == page.c.ino))
        .order_by(*order)
    )


def page(
    session: Session,
    settings: Settings,
    most: int,
    *,
    wanted: ListFilter = ListFilter(),  # noqa: B008
    sort: Sort = Sort.RUN,
    is_descending: bool = False,
    after: Key | None = None,
) -> list[ListedCheckpoint]:
    """Return the next checkpoints of a list.

    Raises TryAgain.

    Args:
        most: most of them.
        sort: sort with its direction.
        after: the key of the last row before.
    """
    given = {name: value for name, value in wanted._asdict().items() if value is not None}
    statement = _statement(sort, is_descending, tuple(given), after is None)
    places = {f"after_{at}": value for at, value in enumerate(after or ())}
    now_ns = clock.now_ns()
    count = len(_KEYS[sort])
    return [
        ListedCheckpoint(tuple(row[:count]), _model(settings, row[count:], now_ns))
        for row in session.all(statement, **given, **places, most=most)
    ]


def every(
    session: Session,
    settings: Settings,
    wanted: ListFilter = ListFilter(),  # noqa: B008
    sort: Sort = Sort.RUN,
    is_descending: bool = False,
) -> Iterator[Checkpoint]:
    """Yield all checkpoints of a list, by run and step if nothing else is said.
    Raises TryAgain."""
    after = None
    how: dict[str, Any] = {"wanted": wanted, "sort": sort, "is_descending": is_descending}
    while rows := page(session, settings, PAGE, after=after, **how):
        yield from (row.model for row in rows)
        after = rows[-1].key


def one(session: Session, settings: Settings, ino: int) -> Checkpoint | None:
    """Return a checkpoint, or None if there is none. Raises TryAgain."""
    rows = page(session, settings, 1, wanted=ListFilter(ino=ino))
    return rows[0].model if rows else None


def whole(session: Session, known: Checkpoint) -> OneCheckpoint:
    """Return a checkpoint with what people said of it. Raises TryAgain."""
    return OneCheckpoint(
        **values_of(known),
        pinned=PinLookup(session).cover(known.ino),
        promotions=promotions(session, known.ino),
    )


def kinds_of(sort: Sort) -> tuple[type, ...]:
    """Return the types of the values of a key."""
    return _KINDS[sort]


def promotions(session: Session, ino: int) -> list[str]:
    """Return the names of the promotions of a checkpoint."""
    return [name for (name,) in session.all(PROMOTIONS, ino=ino)]


def members(settings: Settings, database: Database, ino: int, most: int) -> list[MemberFile]:
    """Return the first files of a checkpoint by name, as its manifest has them.

    Raises TryAgain.

    Args:
        most: most of them.
    """
    known = catalogue_of(settings, database)
    with known.viewing() as view:
        row = known.row(view, ino)
        if row is None:
            return []
        above = row.path.rpartition(b"/")[0] if row.extent == Extent.FILE else row.path
        manifest_members = manifests.members(view.session, row, view.rules)
        return [
            MemberFile(
                name=text_of(at.path),
                path=f"{settings.nfs.export}/{text_of(b'/'.join(filter(None, (above, at.path))))}",
                size_bytes=at.size,
                in_bucket="other" if at.stored is None else "present",
            )
            for at in islice((at for at in manifest_members if at.kind == InodeKind.REGULAR), most)
        ]


def place(settings: Settings, path: bytes) -> str:
    """Return the address in the bucket of what has a path, as the tools of S3 take it."""
    parts = path.removeprefix(settings.nfs.export.encode()).strip(b"/").split(b"/")
    return f"s3://{settings.bucket.name}/{key_of(settings.bucket.prefix, parts)}"


def is_made(session: Session) -> bool:
    """Return whether the catalogue has all checkpoints."""
    return session.one(IS_MADE) is not None


def _model(settings: Settings, row: Sequence[Any], now_ns: int) -> Checkpoint:
    values = dict(zip((*_NAMES, "state", "manifest"), row, strict=True))
    values["run"] = text_of(bytes(values["run"]))
    values["path"] = f"{settings.nfs.export}/{text_of(bytes(values['path']))}"
    complete_ns = values["complete_ns"]
    age_ns = None if complete_ns is None else max(0, now_ns - complete_ns)
    return Checkpoint(
        size_bytes=values.pop("size"),
        dirty_bytes=values.pop("dirty_size"),
        age_seconds=None if age_ns is None else round(age_ns / clock.NS, 1),
        **values,
    )


def gather(settings: Settings, session: Session) -> CatalogueStatus:
    """Return what ``spillway status`` says of checkpoints. Raises TryAgain."""
    summary = summarize(session)
    ((archived,),) = session.all(ARCHIVED_COUNT)
    counts = dict.fromkeys(CATALOGUED, 0) | summary.states | {ARCHIVED: archived}
    counts[CheckpointState.DURABLE] -= archived
    every_run = models(settings, summary.risks, waiting_bytes(session))
    unknown = datadir.read(settings, datadir.UNRECOGNISED)
    at_risk = sorted(
        (run for run in every_run if run.at_risk_seconds or run.at_risk_bytes),
        key=lambda run: (run.alarm is None, -run.at_risk_seconds),
    )
    alarms = sum(run.alarm is not None for run in every_run)
    return CatalogueStatus(
        is_made=is_made(session),
        runs=summary.runs,
        checkpoints={str(name): count for name, count in counts.items()},
        at_risk=at_risk,
        alarms=alarms,
        unrecognised=None if unknown is None else from_json(UnrecognisedSummary, unknown),
    )
