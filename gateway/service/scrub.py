"""Service for the scrub: how far its passes are, and what they found."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.common.models import Model, Nanoseconds
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.recovery import scrub_rows
from gateway.recovery.scrub_rows import ScrubKind, ScrubPass


@dataclass(frozen=True, slots=True)
class PassCounts(Model):
    """A pass of the scrub."""

    number: int
    """Its number, from 1."""
    began_ns: Nanoseconds
    ended_ns: Nanoseconds | None
    """None: it is under way."""
    files: int
    """Files or objects that were compared."""
    bytes: int
    """The bytes that were read for it."""
    found: int
    """Those of them that were not what they should be."""
    healed: int
    """Those that are fetched or sent again."""
    damaged: int
    """The rest."""


@dataclass(frozen=True, slots=True)
class Passes(Model):
    """The passes of one kind."""

    every_days: float
    """Every so many days one begins. 0: never."""
    present: PassCounts | None
    """The one that is under way."""
    last: PassCounts | None
    """The last that looked at everything."""

    @property
    def damaged(self) -> int:
        """What the last whole pass, or the present one, found and could not heal."""
        return max((one.damaged for one in (self.present, self.last) if one is not None), default=0)


@dataclass(frozen=True, slots=True)
class ScrubStatus(Model):
    """What the scrub found."""

    local: Passes
    """Files on the disk, compared with their checksums."""
    objects: Passes
    """What the store tells of objects, compared with what was recorded."""
    deep: Passes
    """The bytes of objects, compared with their checksums."""
    is_late: bool
    """Whether no whole pass over the disk ended for three times the time in which one is due."""

    @property
    def kinds(self) -> dict[ScrubKind, Passes]:
        """The passes by their kind."""
        return {
            ScrubKind.LOCAL: self.local,
            ScrubKind.OBJECTS: self.objects,
            ScrubKind.DEEP: self.deep,
        }

    @property
    def damaged(self) -> int:
        """How many files at least were found that could not be healed: passes of several kinds
        find the same one."""
        return max(passes.damaged for passes in self.kinds.values())


def gather(settings: Settings, session: Session) -> ScrubStatus:
    """Return how far the passes are. Raises TryAgain."""
    rows = scrub_rows.passes(session)
    passes = {
        kind: Passes(
            every_days=scrub_rows.days_of(settings.scrub, kind),
            present=_counts(rows.get((kind, False))),
            last=_counts(rows.get((kind, True))),
        )
        for kind in ScrubKind
    }
    local = rows.get((ScrubKind.LOCAL, False)), rows.get((ScrubKind.LOCAL, True))
    return ScrubStatus(
        local=passes[ScrubKind.LOCAL],
        objects=passes[ScrubKind.OBJECTS],
        deep=passes[ScrubKind.DEEP],
        is_late=scrub_rows.is_late(settings.scrub, *local),
    )


def _counts(row: ScrubPass | None) -> PassCounts | None:
    if row is None:
        return None
    return PassCounts(
        number=row.number,
        began_ns=row.began_ns,
        ended_ns=row.ended_ns,
        files=row.files,
        bytes=row.bytes,
        found=row.found,
        healed=row.healed,
        damaged=row.damaged,
    )
