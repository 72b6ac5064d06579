"""What waits for the bucket, and the orders of people about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from gateway import clock
from gateway.control.paths import names_of
from gateway.db import opening
from gateway.drain import queue
from gateway.drain.context import Context
from gateway.serialize import Model
from gateway.settings import Settings
from gateway.text import Text, printable


@dataclass(frozen=True, slots=True)
class Waiting(Model):
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
class Said(Model):
    """What a person said of a file or directory."""

    path: str | None
    """None: it has no name any more."""
    said: Literal["hold", "bump"]
    """hold: it is not drained. bump: it is drained before everything else."""


@contextmanager
def opened(settings: Settings) -> Iterator[Context]:
    """Open the database as the drain does. Raises UserError."""
    # The import is here because boto3 takes half a second to import.
    from gateway.objectstore.s3 import S3Store

    with opening.opened(settings.database_url) as database:
        yield Context(settings, database, S3Store(settings))


def resolve(context: Context, paths: Iterable[str]) -> dict[str, int]:
    """Return the inodes of paths that a person gave. Raises UserError."""
    export = context.settings.nfs.export
    with context.reading() as view:
        return {path: queue.find(view, names_of(export, path), path, export) for path in paths}


def path_of(
    settings: Settings, path: tuple[bytes, ...] | None, text: Text = printable
) -> str | None:
    """Return a path as clients see it, or None if it has none. Parameters: text, of names."""
    if path is None:
        return None
    return "/".join([settings.nfs.export, *map(text, path)])


def model(settings: Settings, entry: queue.Entry, now_ns: int, text: Text = printable) -> Waiting:
    """Return a file that waits as people see it. Parameters: now_ns; text, of names."""
    return Waiting(
        path=path_of(settings, entry.path, text),
        state=str(entry.state),
        bumped=entry.bumped,
        size_bytes=entry.size_bytes,
        age_seconds=_seconds(now_ns - entry.sealed_ns) if entry.sealed_ns else None,
        tries=entry.tries,
        error=entry.error or None,
        waits_for=entry.waits_for,
        next_try_seconds=_seconds(entry.next_ns - now_ns) if entry.tries else None,
    )


def orders(context: Context, text: Text = printable) -> list[Said]:
    """Return the orders that people gave and did not withdraw. Raises TryAgain."""
    return [_order(context, one, text) for one in queue.said(context)]


def order(context: Context, ino: int, text: Text = printable) -> Said | None:
    """Return the order that people gave for an inode itself, or None. Raises TryAgain."""
    found = [one for one in queue.said(context) if one.ino == ino]
    return _order(context, found[0], text) if found else None


def _order(context: Context, one: queue.Said, text: Text) -> Said:
    return Said(path_of(context.settings, one.path, text), "hold" if one.hold else "bump")


def _seconds(duration_ns: int) -> float:
    return round(max(0, duration_ns) / clock.NS, 1)
