"""Pool of the drain's sender processes: hands out objects, and replaces processes that died."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from multiprocessing.connection import Connection
from queue import LifoQueue

from gateway.common.errors import StoreBusy, StoreError, StoreRefused, StoreUnavailable
from gateway.config.settings import Settings
from gateway.drain.messages import Attempt, Handshake, Result, SmallObject, Task
from gateway.objectstore.client import ATTEMPTS_MAX
from gateway.objectstore.objects import KIB, VerifiedObject
from gateway.objectstore.pace import Pace, RequestEnd
from gateway.objectstore.s3 import S3Store

log = logging.getLogger("drain")

TASK_FILES = 16
TASK_BYTES = 256 * KIB
"""The limit of the objects that a sender gets at a time while nothing limits the drain."""
UNANSWERED_MAX = 3
"""After the store did not take so many objects in a row, the rest of a batch is not tried."""


class Senders:
    """The ``drain.processes`` sender processes. With none, the drain sends by itself.

    Each process has enough connections for all workers of the drain to send at a time. On each
    connection one object goes after the other. While nothing limits the drain, a sender gets
    several at a time: a message for each would take a third of the drain's own time. Safe to use
    from several threads.

    Args:
        store: for the bucket's address, and to send without processes.
        pace: requests keep.
        stop: set when the drain must end.
    """

    def __init__(
        self, settings: Settings, store: S3Store, pace: Pace, stop: threading.Event
    ) -> None:
        self._store = store
        self._pace = pace
        self._stop = stop
        self._reloads = 0
        count = settings.drain.processes
        channels = -(-settings.drain.workers // max(1, count))
        self._processes = [_Process(settings, store, channels) for _ in range(count)]
        self._idle: LifoQueue[tuple[_Process, int]] = LifoQueue()
        for slot in product(self._processes, range(channels)):
            self._idle.put(slot)

    def send(self, objects: Sequence[SmallObject]) -> list[Result | None]:
        """Send a batch. Returns the result of each object, or None if it was not sent.

        When the bucket fails, the rest is not tried. Raises: StoreUnavailable when the process
        died. Then nothing is known of any of the objects.
        """
        self._store.require_permit()
        if not self._processes:
            return self._send_all(objects, self._send_here)
        process, number = slot = self._idle.get()
        connection: Connection | None = None
        lost: set[str] = set()
        try:
            connection = process.connection(number)
            results = self._send_all(objects, partial(self._send_there, connection, lost))
            return [_result(pair, lost) for pair in zip(objects, results, strict=True)]
        except BaseException as exc:
            # A late answer of the process would be taken for one of the next batch.
            process.end(connection)
            if not isinstance(exc, (EOFError, OSError)):
                raise
            log.warning("a sender process ended: %r", exc)
            raise StoreUnavailable("a sender process ended: another one is started") from exc
        finally:
            self._idle.put(slot)

    def reload(self) -> None:
        """Read the credentials again: a person may have corrected them."""
        self._reloads += 1

    def close(self) -> None:
        """End the processes at once."""
        for process in self._processes:
            process.end()

    def _send_all(
        self, objects: Sequence[SmallObject], send: Callable[[Sequence[SmallObject]], list[Result]]
    ) -> list[Result | None]:
        results: list[Result | None] = []
        streak = _Streak()
        while len(results) < len(objects):
            if streak.is_hopeless() or self._stop.is_set():
                return results + [streak.last] * (len(objects) - len(results))
            done = send(objects[len(results) :])
            for result in done:
                streak.note(result)
            results += done
        return results

    def _send_here(self, objects: Sequence[SmallObject]) -> list[Result]:
        """Send the first object. Returns its result."""
        try:
            return [self._store.put(*objects[0])]
        except StoreError as exc:
            return [exc]

    def _send_there(
        self, connection: Connection, lost: set[str], objects: Sequence[SmallObject]
    ) -> list[Result]:
        """Send the first object, or several. Returns the results of those that were sent.

        Args:
            lost: a set that gets the keys of those whose request got no answer and is repeated.
        """
        task = Task(self._reloads, _first(objects) if self._pace.is_free() else [objects[0]])
        for _ in range(ATTEMPTS_MAX):
            attempts = self._ask(connection, task)
            if not attempts[0].how.is_lost:
                break
            lost.add(objects[0].key)
            # A connection that was idle for too long fails like this.
        if len(attempts) > 1 and attempts[-1].how.is_lost:
            # That object is the first of the next task.
            attempts.pop()
            lost.add(objects[len(attempts)].key)
        return [attempt.result for attempt in attempts]

    def _ask(self, connection: Connection, task: Task) -> list[Attempt]:
        for small_object in task.objects:
            if self._store.looks_first(small_object.there):
                self._pace.admit(0)
        self._pace.admit(sum(len(small_object.body) for small_object in task.objects))
        number = self._pace.begin()
        hows = [RequestEnd(False, is_lost=True)]
        try:
            connection.send(task)
            attempts: list[Attempt] = connection.recv()
            hows = [attempt.how for attempt in attempts]
        finally:
            self._pace.end(number, *hows)
        return attempts


def _result(pair: tuple[SmallObject, Result | None], lost: set[str]) -> Result | None:
    small, result = pair
    if small.key in lost:
        if isinstance(result, VerifiedObject):
            return result._replace(is_indeterminate=True)
        if isinstance(result, StoreBusy):
            return StoreUnavailable(str(result))
    return result


def _first(objects: Sequence[SmallObject]) -> list[SmallObject]:
    """Return as many of the objects as a sender may get at a time, at least one."""
    size = 0
    for count, small_object in enumerate(objects[:TASK_FILES]):
        size += len(small_object.body)
        if count and size > TASK_BYTES:
            return list(objects[:count])
    return list(objects[:TASK_FILES])


class _Streak:
    """Tells whether the bucket fails, so that no more objects should be tried."""

    def __init__(self) -> None:
        self.last: StoreError | None = None
        self._unanswered = 0

    def note(self, result: Result) -> None:
        if isinstance(result, VerifiedObject):
            self._unanswered = 0
        elif isinstance(result, StoreRefused):
            # A policy may deny one key. Objects that were not tried say nothing of the bucket.
            self.last, self._unanswered = None, self._unanswered + 1
        elif isinstance(result, StoreUnavailable):
            self.last, self._unanswered = result, self._unanswered + 1

    def is_hopeless(self) -> bool:
        return self._unanswered >= UNANSWERED_MAX


class _Process:
    """A sender process. It starts when it is needed, and again after it has ended: an idle gateway
    needs no memory for it. Safe to use from several threads.

    Args:
        store: knows the bucket's address.
        channels: the number of its connections.
    """

    def __init__(self, settings: Settings, store: S3Store, channels: int) -> None:
        self._settings = settings
        self._store = store
        self._channels = channels
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connections: list[Connection] = []

    def connection(self, number: int) -> Connection:
        """Return one of its connections. Raises OSError, StoreError."""
        with self._lock:
            if self._process is None:
                self._start()
            return self._connections[number]

    def end(self, connection: Connection | None = None) -> None:
        """End the process at once.

        Args:
            connection: one of the process that is meant.
        """
        with self._lock:
            process = self._process
            if process is None or (connection and connection not in self._connections):
                return
            process.kill()
            if process.stdin is not None:
                process.stdin.close()
            process.wait()
            # Each connection is closed with its last user: a thread may be reading from it.
            self._process, self._connections = None, []

    def _start(self) -> None:
        store = self._store
        handshake = Handshake(self._settings, store.address(), store.kind, store.conditions)
        pairs = [socket.socketpair() for _ in range(self._channels)]
        theirs = [str(sender.fileno()) for _, sender in pairs]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway.drain.send.sender", *theirs],
            stdin=subprocess.PIPE,
            pass_fds=[sender.fileno() for _, sender in pairs],
        )
        for _, sender in pairs:
            sender.close()
        self._connections = [Connection(ours.detach()) for ours, _ in pairs]
        self._connections[0].send(handshake)
