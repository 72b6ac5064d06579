"""Says whether a run can do without a checkpoint that is about to be removed for good.

A checkpoint goes into the trash only while a newer one of its run is durable. That one may be gone
when the grace is over: a client may have removed it, or written into it. So the same law is asked
again, of the catalogue and of the namespace itself.
"""

from __future__ import annotations

from gateway.checkpoints.catalogue import Catalogue, catalogue_of
from gateway.checkpoints.facts import State
from gateway.db.engine import Database
from gateway.retention import statements as own
from gateway.retention.facts import Checkpoint
from gateway.retention.order import Order
from gateway.retention.planning import checkpoint_of
from gateway.settings import Settings

NOT_MADE = "the namespace was not looked at as a whole yet"
NOT_KNOWN = "it is not known of which run it is, or when it was complete"
NONE_LEFT = "no newer checkpoint of its run is durable"


class Law:
    """Asks for one gateway. Each thread that uses it needs one of its own.

    Parameters: settings; database.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._catalogue = catalogue_of(settings, database)

    def why_not(
        self, ino: int, path: bytes, run: bytes, step: int | None, complete_ns: int | None
    ) -> str | None:
        """Return why a checkpoint must not be removed for good, or None. Raises TryAgain.

        Parameters: those of the checkpoint before it was deleted. complete_ns is None if that was
        not recorded: then its step alone tells which ones are newer.
        """
        if not path or (step is None and complete_ns is None):
            return NOT_KNOWN
        one = Checkpoint(
            ino, path, run, step, 0, State.COMPLETE, None, 0, 0, complete_ns or 1, None, ""
        )
        with self._catalogue.viewing() as view:
            if view.session.one(own.IS_MADE) is None:
                return NOT_MADE
            rows = [checkpoint_of(row) for row in view.session.all(own.OF_RUN, run=run)]
        newer = Order([one, *(row for row in rows if row.ino != ino)]).newer(one)
        if newer is None or not is_still(self._catalogue, newer.stays, must_be_durable=True):
            return NONE_LEFT
        return None


def is_still(catalogue: Catalogue, one: Checkpoint, must_be_durable: bool = False) -> bool:
    """Return whether a checkpoint is in the namespace what its row said. Raises TryAgain."""
    with catalogue.viewing() as view:
        as_is = catalogue.as_is(view, one.ino)
    # A look that cannot read a file keeps the evidence of the row.
    if as_is is None or as_is.evidence != one.evidence:
        return False
    now = catalogue.look(one.ino).now
    if now is None or (now.path, now.run, now.step) != (one.path, one.run, one.step):
        return False
    if now.evidence != one.evidence or now.state == State.WRITING:
        return False
    return now.state == State.DURABLE or not must_be_durable
