"""Wait until the bucket alone could restore a file or a tree.

A file is durable when its present version is verified in the bucket at the key that is its path. So
files that are open, held or renamed are waited for too. The database is read, and one file again
and again: all others only when that one is durable, and now and then to say how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from gateway.catalogue import statements as stored
from gateway.catalogue.background import AbandonedFiles, Inside
from gateway.catalogue.rules import Rules
from gateway.catalogue.store import rules_of
from gateway.catalogue.tree import entry_of
from gateway.common import clock
from gateway.common.errors import START, NotPossible, NotThere
from gateway.common.text import shown
from gateway.common.types import InodeKind
from gateway.common.units import duration, size
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.statements import IMPORT_TOPS, IMPORTED
from gateway.drain import queue
from gateway.drain import statements as own
from gateway.drain.context import Context, DrainView
from gateway.drain.paths import file_of
from gateway.namespace.lookup import is_below, is_trashed
from gateway.objectstore.key_mapper import KeyMapper
from gateway.service.jobs import Progress, Tell
from gateway.service.paths import browsing, follow
from gateway.service.queue import path_of

POLL_SECONDS = 0.5
PAUSE_RATIO = 5
"""A look at a large tree is followed by a pause of this many times its length."""
COURSE_SECONDS = 2.0
COURSE_PAUSE_RATIO = 20
"""A look at all that is missing is followed by a pause of this many times its length."""
PAGE = 1024


class NotDurableFile(NamedTuple):
    """A file that is not durable."""

    ino: int
    size: int
    """Bytes at the last close."""


def find(settings: Settings, path: str) -> int:
    """Return the inode of a path. Symbolic links are followed, as those of receipts. Raises
    NotPossible, UserError."""
    with browsing(settings) as browser:
        return follow(browser, settings, path).found().attr.ino


class DurabilityWait:
    """Looks again and again whether everything at or below an inode is durable.

    Args:
        top: the inode.
        path: to be shown.
    """

    def __init__(self, context: Context, top: int, path: str) -> None:
        self._context = context
        self._top = top
        self._path = path
        self._first: NotDurableFile | None = None
        self._rules = rules_of(context.settings)

    def look(self) -> float | None:
        """Return the time in seconds until the next look, or None if everything is durable. Raises
        NotPossible if it was removed, TryAgain."""
        before = clock.monotonic_seconds()
        with self._context.reading() as view:
            if self._is_durable(view.session):
                return None
        return max(POLL_SECONDS, PAUSE_RATIO * (clock.monotonic_seconds() - before))

    def _is_durable(self, session: Session) -> bool:
        top = self._top
        if file_of(session, top) is None:
            raise NotThere(f"{shown(self._path)} was removed meanwhile")
        if is_trashed(session, top):
            raise NotPossible(
                f"{shown(self._path)} is not sent: it was deleted: restore it: "
                "spillway trash restore"
            )
        keys = KeyMapper(session, self._context.settings.bucket.prefix)
        if self._first is None or not _is_waited_for(session, keys, top, self._first.ino):
            self._first = next(_missing(session, keys, top, self._rules), None)
        return self._first is None


def wait(
    context: Context, top: int, path: str, progress: Tell, pause: Callable[[float], None]
) -> Progress:
    """Wait until everything at or below an inode is durable. Returns how far it was at the end.

    Args:
        path: to be shown.
        pause: called after each look with the time in seconds until the next one. What it raises
            ends the wait.

    Raises:
        NotPossible: it was removed.
        TryAgain: the database cannot be read now.
    """
    waiting, course = DurabilityWait(context, top, path), WaitProgress(context, top)
    while (seconds := waiting.look()) is not None:
        progress(course.look())
        pause(seconds)
    return replace(course.progress, done=course.total_bytes, text="it is durable")


class NotDurable(NamedTuple):
    """What is not durable."""

    bytes: int
    text: str
    """What is missing and why, in one line."""


class WaitProgress:
    """How far a wait is.

    Args:
        top: the inode.
    """

    def __init__(self, context: Context, top: int) -> None:
        self._context = context
        self._top = top
        self._next_at = 0.0
        self.total_bytes = 0
        """The most that was not durable at one time."""
        self._done_bytes = 0
        self._text = ""

    def look(self) -> Progress:
        """Look at all that is missing, unless the last look was a short time ago. Raises
        TryAgain."""
        before = clock.monotonic_seconds()
        if before < self._next_at:
            return self.progress
        undurable = left(self._context, self._top)
        took_seconds = clock.monotonic_seconds() - before
        self._next_at = before + max(COURSE_SECONDS, COURSE_PAUSE_RATIO * took_seconds)
        self.total_bytes = max(self.total_bytes, undurable.bytes)
        self._done_bytes, self._text = self.total_bytes - undurable.bytes, undurable.text
        return self.progress

    @property
    def progress(self) -> Progress:
        """What the last look found."""
        return Progress(self._done_bytes, self.total_bytes or None, self._text, in_bytes=True)


def late(path: str, timeout_seconds: float, why: str) -> NotPossible:
    """Return what is raised when the time for a wait is over. Args: why, what is missing."""
    return NotPossible(f"{shown(path)} is not durable after {timeout_seconds:g} s: {why}")


def why(context: Context, top: int) -> str:
    """Return what is missing and why, in one line. Raises TryAgain."""
    return left(context, top).text


def left(context: Context, top: int) -> NotDurable:
    """Return what is missing. It reads all names at or below an inode. Raises TryAgain."""
    rules = rules_of(context.settings)
    with context.reading() as view:
        keys = KeyMapper(view.session, context.settings.bucket.prefix)
        missing = _missing(view.session, keys, top, rules)
        first = next(missing, None)
        if first is None:
            return NotDurable(0, "the last file became durable in this moment: ask again")
        files, size_bytes = 1, first.size
        for file in missing:
            files, size_bytes = files + 1, size_bytes + file.size
        reason = _reason(context, view, first.ino)
        place = view.paths.place(first.ino)
    path = path_of(context.settings, None if place is None else place.parts)
    count = "1 file" if files == 1 else f"{files} files"
    return NotDurable(size_bytes, f"{count}, {size(size_bytes)}; {path}: {reason}")


def _is_waited_for(session: Session, keys: KeyMapper, top: int, ino: int) -> bool:
    """Return whether a file is still at or below an inode, by first names, and not durable."""
    if _is_durable(session, keys, ino):
        return False
    return is_below(session, ino, top)


def _is_durable(session: Session, keys: KeyMapper, ino: int) -> bool:
    """Return whether a file is durable, or gone."""
    row = session.one(stored.STORED, ino=ino)
    if row is None or (row[1] and keys.is_settled(ino, row[2])):
        return True
    return session.one(IMPORTED, ino=ino) is not None


def _missing(session: Session, keys: KeyMapper, top: int, rules: Rules) -> Iterator[NotDurableFile]:
    """Yield the files at or below an inode that are not durable, without what killed saves have
    left in checkpoints.

    Args:
        rules: say what that is.
    """
    file = file_of(session, top)
    if file is not None and file.kind != InodeKind.DIRECTORY:
        if file.kind == InodeKind.REGULAR and not _is_durable(session, keys, top):
            yield NotDurableFile(top, file.size)
        return
    abandoned = AbandonedFiles(session, rules)
    imports = {ino for (ino,) in session.all(IMPORT_TOPS)}
    waiting: list[tuple[int, Inside | None]] = [(top, abandoned.at(top))]
    while waiting:
        (directory, inside), after = waiting.pop(), b""
        while True:
            rows = session.all(stored.MEMBERS, parent=directory, after=after, most=PAGE)
            for row in rows:
                after, _ctime_ns, is_stored, key, *_ = row
                entry = entry_of(row)
                if entry.ino in imports:
                    continue  # its bytes have always been in a bucket
                if entry.kind == InodeKind.DIRECTORY:
                    waiting.append((entry.ino, abandoned.below(entry.ino, inside)))
                elif not entry.is_file or (is_stored and keys.is_settled(entry.ino, key)):
                    continue
                elif not (
                    abandoned.has(inside, entry.kind, bytes(after), entry.is_open)
                    or session.one(IMPORTED, ino=entry.ino) is not None
                ):
                    yield NotDurableFile(entry.ino, entry.size)
            if len(rows) < PAGE:
                break


def _reason(context: Context, view: DrainView, ino: int) -> str:
    failed = view.session.one(stored.FETCH_FAILED, ino=ino)
    if failed is not None:
        return f"its object cannot be read: {shown(failed[0])}: see spillway status"
    report: dict[str, Any] | None = datadir.read(context.settings, datadir.DRAIN)
    entry = queue.of_file(view, ino, context.settings.drain_ahead_ns)
    if entry is None:
        key = view.paths.key_of(ino)
        if key is None:
            return "its name is held (drain.incomplete_patterns, spillway queue)"
        row = view.session.one(own.INDETERMINATE_WRITE, key=key)
        if row is not None:
            seconds = max(0.0, (row[1] - clock.now_ns()) / clock.NS)
            return (
                "it was sent, but a request got no answer and may still be carried out: its object "
                f"is looked at again in {duration(seconds)}"
            )
        file = file_of(view.session, ino)
        wait = None if file is None else view.precedence.wait_of(file)
        if wait is not None:
            return f"its object is moved later: {wait.reason}"
        return "its object is moved or verified first (spillway queue)"
    if entry.is_stuck or entry.error:
        return f"{entry.state}: {shown(entry.error)}"
    if entry.state == queue.QueueState.HELD:
        return (
            "held: by a pattern of drain.incomplete_patterns, by spillway queue hold, or "
            "superseded (spillway policy plan)"
        )
    if entry.waits_for is not None:
        return f"{entry.state}: {entry.waits_for}"
    if entry.state == queue.QueueState.OPEN:
        return "open: a client writes it"
    if not datadir.alive(report):
        return f"{entry.state}: the drain is not running: start it: {START}"
    bucket = (report or {}).get("bucket")
    error = bucket.get("error") if isinstance(bucket, dict) else None
    return f"{entry.state}: {shown(str(error))}" if error else str(entry.state)
