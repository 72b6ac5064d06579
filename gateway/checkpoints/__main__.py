"""``python -m gateway.checkpoints --config PATH``: keeps the catalogue until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import partial

from gateway.checkpoints.duties import Duties, Duty
from gateway.checkpoints.follower import WRITING_SECONDS, Follower
from gateway.checkpoints.looks import Look
from gateway.checkpoints.unrecognised import Survey
from gateway.daemon import Daemon
from gateway.db.engine import Database
from gateway.door import door
from gateway.errors import NamespaceError, UserError
from gateway.manifests.writer import Manifests
from gateway.promotion.duty import Promoter
from gateway.receipts.keeper import Receipts
from gateway.receipts.status import Status
from gateway.retention.applier import Applier
from gateway.retention.heads import BucketHeads
from gateway.retention.law import Law
from gateway.settings import Settings
from gateway.trash.expiry import Expiry
from gateway.trash.rows import Entry
from gateway.trash.trash import Trash

LOCK = "checkpoints.lock"
STOP_SECONDS = 4.5


def main() -> int:
    """Run the process. Returns the exit status: 0 if it was told to stop, 1 if a person must act
    first."""
    process = Daemon("checkpoints", __doc__, STOP_SECONDS)
    try:
        settings = process.settings()
        # A second one would write rows of an older moment over those of the first.
        process.alone(settings, LOCK)
    except (UserError, NamespaceError) as exc:
        print(exc, file=sys.stderr)
        return 1
    receipts = Receipts(settings, process.stop)
    manifests = Manifests(settings, Database(settings.database_url), process.stop)
    others = [manifests, *_duties(settings, process.stop)]
    duties = Duties([receipts, *others], process.stop)

    def news(looks: Sequence[Look]) -> None:
        receipts.changed({look.now.run for look in looks if look.now is not None})
        if looks and not any(look.is_news for look in looks):
            duties.news(idle=others)
        elif looks and not any(look.is_of_durable for look in looks):
            # To find what manifests are missing or untrue takes a look at each checkpoint.
            duties.news(idle=[manifests])
        else:
            duties.news()

    duties.start()
    database = Database(settings.database_url)
    follower = Follower(settings, database, process.stop, news, WRITING_SECONDS)
    process.watched(settings, lambda: follower.rounds)
    follower.run()
    duties.end()
    # The import is here because boto3 is large, and this process rarely needs it.
    from gateway.ownership.keeper import Ownership

    Ownership(settings, database).release()
    return process.end()


def _duties(settings: Settings, stop: threading.Event) -> Sequence[Duty]:
    url = settings.database_url
    opened = partial(door.opened, settings, door.BACKGROUND_SECONDS)
    trash, heads = Trash(settings, Database(url), opened), BucketHeads(settings, stop)
    law = Law(settings, Database(url), heads)
    return (
        Status(settings, stop),
        Applier(settings, Database(url), stop, trash, heads),
        Expiry(settings, Database(url), stop, partial(_law, law)),
        Promoter(settings, Database(url), opened, stop),
        Survey(settings, Database(url), stop),
    )


def _law(law: Law, entry: Entry) -> str | None:
    return law.why_not(entry.ino, entry.path, entry.run, entry.step, entry.complete_ns, entry.size)


if __name__ == "__main__":
    sys.exit(main())
