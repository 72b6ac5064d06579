"""``python -m gateway.processes.checkpoints --config PATH``: keeps the catalogue."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import partial

from gateway.catalogue.background import BackgroundTask, BackgroundTasks
from gateway.catalogue.display_state import Look
from gateway.catalogue.manifest_writer import Manifests
from gateway.catalogue.receipt_reconciler import ReceiptReconciler
from gateway.catalogue.receipts import StatusFile
from gateway.catalogue.tracker import WRITING_SECONDS, Follower
from gateway.catalogue.unrecognised import UnrecognisedSurvey
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.lifecycle.promotion.task import Promoter
from gateway.lifecycle.retention.applier import Applier
from gateway.lifecycle.retention.guard import BucketHeads, DeletionGuard
from gateway.lifecycle.trash.expiry import Expiry
from gateway.lifecycle.trash.rows import TrashRow
from gateway.lifecycle.trash.trash import Trash
from gateway.processes.daemon import Daemon
from gateway.rpc import control

LOCK = "checkpoints.lock"
STOP_SECONDS = 4.5


def main() -> int:
    """Run the process. Returns the exit status if it was told to stop."""
    process = Daemon("checkpoints", __doc__, STOP_SECONDS)
    with process.starting():
        settings = process.settings()
        # A second one would write rows of an older moment over those of the first.
        process.alone(settings, LOCK)
    receipts = ReceiptReconciler(settings, process.stop)
    manifests = Manifests(settings, Database(settings.database_url), process.stop)
    others = [manifests, *_tasks(settings, process.stop)]
    tasks = BackgroundTasks([receipts, *others], process.stop)

    def news(looks: Sequence[Look]) -> None:
        receipts.changed({look.now.run for look in looks if look.now is not None})
        if looks and not any(look.is_news for look in looks):
            tasks.news(idle=others)
        elif looks and not any(look.is_of_durable for look in looks):
            # To find what manifests are missing or untrue takes a look at each checkpoint.
            tasks.news(idle=[manifests])
        else:
            tasks.news()

    tasks.start()
    database = Database(settings.database_url)
    follower = Follower(settings, database, process.stop, news, WRITING_SECONDS)
    process.watched(settings, lambda: follower.rounds)
    follower.run()
    tasks.end()
    # The import is here because boto3 is large, and this process rarely needs it.
    from gateway.objectstore.ownership import Ownership

    Ownership(settings, database).release()
    return process.end()


def _tasks(settings: Settings, stop: threading.Event) -> Sequence[BackgroundTask]:
    url = settings.database_url
    opened = partial(control.opened, settings, control.BACKGROUND_SECONDS)
    trash, heads = Trash(settings, Database(url), opened), BucketHeads(settings, stop)
    guard = DeletionGuard(settings, Database(url), heads)
    return (
        StatusFile(settings, stop),
        Applier(settings, Database(url), stop, trash, heads),
        Expiry(settings, Database(url), stop, partial(_reason_against, guard)),
        Promoter(settings, Database(url), opened, stop),
        UnrecognisedSurvey(settings, Database(url), stop),
    )


def _reason_against(guard: DeletionGuard, entry: TrashRow) -> str | None:
    return guard.reason_against(
        entry.ino, entry.path, entry.run, entry.step, entry.complete_ns, entry.size
    )


if __name__ == "__main__":
    sys.exit(main())
