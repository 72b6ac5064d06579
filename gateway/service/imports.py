"""Service for imports: which prefixes are imported, and how far each is."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.common.models import Model, Nanoseconds
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.namespace.lookup import path_of
from gateway.recovery import import_rows
from gateway.recovery.import_rows import ImportRow, ImportState
from gateway.service import paths


@dataclass(frozen=True, slots=True)
class LeftOut(Model):
    """An object that got no name."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Import(Model):
    """A prefix of a bucket whose objects are files that clients read."""

    path: str
    """Its directory."""
    source: str
    state: str
    """placing, listing, whole or removing."""
    files: int
    size_bytes: int
    gone_files: int
    """Those whose objects the last listing did not have. Their names stay."""
    left_out_objects: int
    """The objects that got no name."""
    left_out_first: list[LeftOut]
    asked_ns: Nanoseconds
    """When a person asked for the listing."""
    ended_ns: Nanoseconds | None
    """The end of the last listing. None: none has ended."""
    error: str | None
    """Why it waits."""

    @property
    def is_whole(self) -> bool:
        """Whether its last listing has ended."""
        return self.state == ImportState.WHOLE

    @property
    def needs_a_person(self) -> bool:
        """Whether something of it is not, or not any more, what the bucket has."""
        return bool(self.gone_files or self.left_out_objects)


def every(settings: Settings, session: Session) -> list[Import]:
    """Return all imports, the oldest first. Raises TryAgain."""
    return [model(settings, session, row) for row in import_rows.every(session)]


def one(settings: Settings, session: Session, top: int) -> Import | None:
    """Return the import of a directory, or None. Raises TryAgain."""
    row = import_rows.one(session, top)
    return None if row is None else model(settings, session, row)


def model(settings: Settings, session: Session, row: ImportRow) -> Import:
    """Return an import. Raises TryAgain."""
    return Import(
        path=paths.path_of(settings, path_of(session, row.top)),
        source=row.url,
        state=row.state,
        files=row.files,
        size_bytes=row.size,
        gone_files=row.gone,
        left_out_objects=row.left_out,
        left_out_first=[LeftOut(key, reason) for key, reason in row.left_out_first],
        asked_ns=row.asked_ns,
        ended_ns=row.ended_ns,
        error=row.error,
    )
