"""Service for the queue: what waits for the bucket, and the orders of people about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Protocol

from gateway.common import clock
from gateway.common.errors import NotThere
from gateway.common.models import Model
from gateway.common.text import encoded, shown, text_of
from gateway.config.settings import Settings
from gateway.db import schema
from gateway.db.models import ROOT_INO
from gateway.drain import queue
from gateway.drain.context import Context
from gateway.service import reports
from gateway.service.paths import names_of

Wanted = Literal["hold", "bump"]
"""hold: it is not drained. bump: it is drained before everything else."""


@dataclass(frozen=True, slots=True)
class WaitingFile(Model):
    """A file whose current version is not in the bucket."""

    path: str | None = field(metadata={"examples": ["/checkpoints/jobs/a/step-1/model.pt"]})
    """None: it has no name any more."""
    state: str = field(metadata={"examples": ["waiting"]})
    """uploading, failing, waiting, behind, settling, open, held or damaged."""
    bumped: bool
    """Whether it goes before all others."""
    size_bytes: int
    """At the last close."""
    age_seconds: float | None
    """Since it was closed."""
    tries: int
    """That failed."""
    error: str | None
    waits_for: str | None
    """What a file goes after that names others."""
    next_try_seconds: float | None


@dataclass(frozen=True, slots=True)
class QueueOrder(Model):
    """An order of a person for a file or directory."""

    path: str | None
    """None: it has no name any more."""
    order: Wanted | None
    """hold: it is not drained. bump: it is drained before everything else. None: neither."""


@dataclass(frozen=True, slots=True)
class Retried(Model):
    """What became of an order to try again."""

    path: str
    had_failed: bool
    """False: nothing of it had failed, so nothing changes."""


class Queue(Protocol):
    """The files that wait for the bucket, and the orders of people about them.

    Paths are those of the command line. Each method that takes one raises NotThere.
    """

    def files(self, path: str | None = None, most: int | None = None) -> Iterator[WaitingFile]:
        """Yield the files that wait, the newest first.

        Args:
            path: of a file, or of a directory with what is in it. None: all.
            most: the number after which it may end. None: it yields all.
        """

    def orders(self) -> list[QueueOrder]:
        """Return the orders that people gave and did not withdraw."""

    def order(self, path: str, order: Wanted) -> QueueOrder:
        """Hold a file or directory, or put it first. It replaces an earlier order."""

    def cancel(self, path: str) -> QueueOrder:
        """End the upload of a file, or those below a directory, and hold it."""

    def release(self, path: str) -> QueueOrder:
        """Withdraw an order. Raises NotThere also if there is none."""

    def retry(self, path: str) -> Retried:
        """Have what failed about a file tried again now."""

    def outage(self) -> str | None:
        """Return why nothing is sent, or None: the bucket is well, or no drain runs."""


class LocalQueue:
    """The queue of this machine's gateway (``Queue``)."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def files(self, path: str | None = None, most: int | None = None) -> Iterator[WaitingFile]:
        top = ROOT_INO if path is None else find(self._context, path)
        now_ns, settings = clock.now_ns(), self._context.settings
        entries = islice(queue.entries(self._context, top), most)
        return (model(settings, entry, now_ns) for entry in entries)

    def orders(self) -> list[QueueOrder]:
        return [_order(self._context.settings, order) for order in queue.orders(self._context)]

    def order(self, path: str, order: Wanted) -> QueueOrder:
        queue.say(self._context, find(self._context, path), order == "hold")
        return QueueOrder(encoded(path), order)

    def cancel(self, path: str) -> QueueOrder:
        return self.order(path, "hold")

    def release(self, path: str) -> QueueOrder:
        if not queue.say(self._context, find(self._context, path), None):
            raise NotThere(f"there is no order for {shown(path)}: spillway queue shows the orders")
        return QueueOrder(encoded(path), None)

    def retry(self, path: str) -> Retried:
        return Retried(encoded(path), queue.retry(self._context, find(self._context, path)))

    def outage(self) -> str | None:
        return reports.outage_of(reports.of_drain(self._context.settings))


@contextmanager
def opened(settings: Settings) -> Iterator[Context]:
    """Open the database as the drain does. Raises UserError."""
    # The import is here because boto3 takes half a second to import.
    from gateway.objectstore.s3 import S3Store

    with schema.opened(settings.database_url) as database:
        yield Context(settings, database, S3Store(settings))


def find(context: Context, path: str) -> int:
    """Return the inode of a path of the command line. Raises NotThere."""
    export = context.settings.nfs.export
    with context.reading() as view:
        return queue.find(view, names_of(export, path), shown(path), export)


def path_of(settings: Settings, path: tuple[bytes, ...] | None) -> str | None:
    """Return a path as clients see it, or None if it has none."""
    return None if path is None else "/".join([settings.nfs.export, *map(text_of, path)])


def model(settings: Settings, entry: queue.QueueEntry, now_ns: int) -> WaitingFile:
    """Return a file that waits."""
    return WaitingFile(
        path=path_of(settings, entry.path),
        state=str(entry.state),
        bumped=entry.bumped,
        size_bytes=entry.size_bytes,
        age_seconds=_seconds(now_ns - entry.sealed_ns) if entry.sealed_ns else None,
        tries=entry.tries,
        error=entry.error or None,
        waits_for=entry.waits_for,
        next_try_seconds=_seconds(entry.next_ns - now_ns) if entry.tries else None,
    )


def order_of(context: Context, ino: int) -> QueueOrder | None:
    """Return the order that people gave for an inode itself, or None. Raises TryAgain."""
    orders = [order for order in queue.orders(context) if order.ino == ino]
    return _order(context.settings, orders[0]) if orders else None


def _order(settings: Settings, order: queue.PathOrder) -> QueueOrder:
    return QueueOrder(path_of(settings, order.path), "hold" if order.hold else "bump")


def _seconds(duration_ns: int) -> float:
    return round(max(0, duration_ns) / clock.NS, 1)
