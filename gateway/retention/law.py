"""Says whether a run can do without a checkpoint at this moment.

A checkpoint is deleted, and leaves the trash for good, only while a newer one of its run stands for
it: trusted, durable, not much smaller, as its row says it is, and with objects that the bucket has
as they were recorded. Policies, people and the trash ask here, of the namespace and of the bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.checkpoints.catalogue import Catalogue, catalogue_of
from gateway.checkpoints.facts import NOT_MADE, State
from gateway.db.engine import Database
from gateway.errors import StoreError
from gateway.retention import order
from gateway.retention import statements as own
from gateway.retention.facts import Checkpoint
from gateway.retention.heads import Heads
from gateway.retention.planning import checkpoint_of
from gateway.settings import Settings
from gateway.text import printable
from gateway.types import FIRST_NS

NOT_KNOWN = "it is not known of which run it is, or when it was complete"
NONE_LEFT = "no newer checkpoint of its run is durable, known to be whole, and as large"
NOT_STILL = "the newer one is not what it was, or not durable any more"


class Unfit(NamedTuple):
    """Why nothing can be deleted for a checkpoint."""

    why: str
    is_loss: bool = False
    """Whether the bucket does not have what was recorded."""


class Law:
    """Asks for one gateway. Each thread that uses it needs one of its own.

    Parameters: settings; database; heads, which may be shared.
    """

    def __init__(self, settings: Settings, database: Database, heads: Heads) -> None:
        self._catalogue = catalogue_of(settings, database)
        self._least_share = settings.retention.least_share
        self._heads = heads

    def why_not(
        self,
        ino: int,
        path: bytes,
        run: bytes,
        step: int | None,
        complete_ns: int | None,
        size: int,
    ) -> str | None:
        """Return why a checkpoint must not leave the trash for good, or None. Raises TryAgain.

        Parameters: those of the checkpoint before it was deleted. Its record says which ones are
        newer, and is there as long as its inode. One that never was complete, or that an older
        release deleted, has none: then newer is what is so by its step and by its time.
        """
        if not path:
            return NOT_KNOWN
        with self._catalogue.viewing() as view:
            if view.session.one(own.IS_MADE) is None:
                return NOT_MADE
            rows = [checkpoint_of(row) for row in view.session.all(own.OF_RUN, run=run)]
            others = [row for row in rows if row.ino != ino]
            record = view.session.one(own.RECORD, ino=ino)
        place = _place(step, complete_ns, others) if record is None else record[0]
        if place is None:
            return NOT_KNOWN
        one = Checkpoint(
            *(ino, path, run, step, 0, State.COMPLETE, None, 0, size, complete_ns, None, ""),
            completion=place,
        )
        newer = order.successor(one, others, self._least_share)
        if newer is None:
            return NONE_LEFT
        try:
            found = self.unfit(newer)
        except StoreError as exc:
            return cannot_ask(exc)
        return None if found is None else found.why

    def unfit(self, newer: Checkpoint) -> Unfit | None:
        """Return why nothing can be deleted for a newer checkpoint now, or None. Raises
        StoreError if the bucket does not say, TryAgain."""
        if not newer.is_trusted:
            return Unfit(NOT_STILL)
        if (why := self._heads.differs(self._catalogue, newer)) is not None:
            name = printable(newer.path)
            return Unfit(f"the bucket does not have the newer one, {name}: {why}", is_loss=True)
        # This is asked last: the requests may take a while.
        is_fit = is_still(self._catalogue, newer, must_be_durable=True)
        return None if is_fit else Unfit(NOT_STILL)


def cannot_ask(exc: StoreError) -> str:
    """Return why nothing is deleted while the bucket does not say what it has."""
    return f"the bucket cannot be asked for the newer one: {exc}"


def _place(step: int | None, complete_ns: int | None, others: Sequence[Checkpoint]) -> int | None:
    """Return a place in its run for a checkpoint in the trash that has no record: right behind the
    last one that may be older. None: nothing tells what is older."""
    if complete_ns is not None and complete_ns < FIRST_NS:
        complete_ns = None
    if step is None and complete_ns is None:
        return None
    places = (
        one.completion
        for one in others
        if one.completion is not None
        and (
            (complete_ns is not None and one.ready_ns <= complete_ns)
            or (step is not None and (one.step is None or one.step <= step))
        )
    )
    return max(places, default=0)


def is_still(catalogue: Catalogue, one: Checkpoint, must_be_durable: bool = False) -> bool:
    """Return whether a checkpoint is in the namespace what its row said. Raises TryAgain."""
    with catalogue.viewing() as view:
        as_is = catalogue.as_is(view, one.ino)
        row = view.session.one(own.OF_INO, ino=one.ino)
    # A look that cannot read a file keeps the evidence of the row.
    if as_is is None or as_is.evidence != one.evidence or row is None:
        return False
    kept = checkpoint_of(row)
    if (kept.grade, kept.completion) != (one.grade, one.completion):
        return False
    now = catalogue.look(one.ino).now
    if now is None or (now.path, now.run, now.step) != (one.path, one.run, one.step):
        return False
    if now.evidence != one.evidence or now.state in (State.WRITING, State.BROKEN):
        return False
    return now.state == State.DURABLE or not must_be_durable
