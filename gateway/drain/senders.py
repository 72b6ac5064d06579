"""The drain's side of its sender processes: starts them, hands out objects, replaces the dead."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from queue import LifoQueue

from gateway.config import Settings
from gateway.drain.messages import Answer, Result, Small, Task
from gateway.errors import BucketError, StoreRefused, StoreUnavailable
from gateway.objectstore.objects import Stored
from gateway.objectstore.pace import Ended, Pace
from gateway.objectstore.s3 import S3Store

log = logging.getLogger("drain")

UNANSWERED_MAX = 3
"""So many objects in a row that the store did not take, and the rest of a batch is not tried."""


class Senders:
    """``drain.processes`` sender processes; with none, the drain sends by itself.

    Together they send as many objects at a time as the drain has workers. Safe to use from several
    threads. Parameters: settings; store, for the case of none; pace, which requests keep; stop, set
    when the drain must end.
    """

    def __init__(
        self, settings: Settings, store: S3Store, pace: Pace, stop: threading.Event
    ) -> None:
        self._settings = settings
        self._store = store
        self._pace = pace
        self._stop = stop
        count = settings.drain.processes
        self._threads = -(-settings.drain.workers // max(1, count))
        self._generation = 0
        self._all: list[_Process] = []
        # Started when it is needed first: an idle gateway needs no memory for it.
        self._idle: LifoQueue[_Process | None] = LifoQueue()
        for _ in range(count):
            self._idle.put(None)

    def send(self, objects: Sequence[Small]) -> list[Result | None]:
        """Send a batch; returns what became of each object, None: it was not sent.

        When the bucket fails, the rest is not tried. Raises: StoreUnavailable when the process
        died: nothing is known of any of the objects.
        """
        if not self._settings.drain.processes:
            return send_here(self._store, objects)
        process = self._idle.get()
        try:
            if process is None:
                process = _Process(self._settings, self._threads)
                self._all.append(process)
            return self._converse(process, objects)
        except BaseException as exc:
            # What it still answers would be taken for the next batch's.
            if process is not None:
                process.end()
                self._all.remove(process)
                process = None
            if not isinstance(exc, (EOFError, OSError)):
                raise
            log.warning("a sender process ended: %r", exc)
            raise StoreUnavailable("a sender process ended: another one is started") from exc
        finally:
            self._idle.put(process)

    def reload(self) -> None:
        """Read the credentials again: a person may have corrected them."""
        self._generation += 1

    def close(self) -> None:
        """End the processes at once."""
        for process in self._all:
            process.end()

    def _converse(self, process: _Process, objects: Sequence[Small]) -> list[Result | None]:
        results: list[Result | None] = [None] * len(objects)
        waiting = deque(range(len(objects)))
        under_way: dict[int, int] = {}
        admitted = -1
        again: set[int] = set()
        streak = _Streak()
        try:
            while waiting or under_way:
                open_ = waiting and not streak.is_hopeless() and not self._stop.is_set()
                if open_ and len(under_way) < self._threads:
                    index = waiting[0]
                    if admitted != index:
                        self._pace.admit(len(objects[index].body))
                        admitted = index
                    # Waiting for a place with answers unread would keep their places for ever.
                    if number := self._pace.begin(wait=not under_way):
                        waiting.popleft()
                        under_way[index] = number
                        process.connection.send(Task(index, self._generation, objects[index]))
                        continue
                if not under_way:
                    break
                answer: Answer = process.connection.recv()
                self._pace.end(under_way.pop(answer.number), answer.how)
                if answer.how.is_lost and answer.number not in again:
                    # A connection that was idle for too long looks like this.
                    again.add(answer.number)
                    waiting.append(answer.number)
                    continue
                results[answer.number] = answer.result
                streak.note(answer.result)
        finally:
            for number in under_way.values():
                self._pace.end(number, Ended(False))
        return [streak.last if result is None else result for result in results]


class _Streak:
    """Whether the bucket fails, so that no more should be tried."""

    def __init__(self) -> None:
        self.last: BucketError | None = None
        self._unanswered = 0

    def note(self, result: Result) -> None:
        if isinstance(result, Stored):
            self._unanswered = 0
        elif isinstance(result, StoreRefused):
            self.last, self._unanswered = result, UNANSWERED_MAX
        elif isinstance(result, StoreUnavailable):
            self.last, self._unanswered = result, self._unanswered + 1

    def is_hopeless(self) -> bool:
        return self._unanswered >= UNANSWERED_MAX


def send_here(store: S3Store, objects: Sequence[Small]) -> list[Result | None]:
    """Send a batch from this process, one after the other."""
    results: list[Result | None] = []
    streak = _Streak()
    for one in objects:
        result: Result | None = streak.last
        if not streak.is_hopeless():
            try:
                result = store.put(*one)
            except BucketError as exc:
                result = exc
            streak.note(result)
        results.append(result)
    return results


class _Process:
    def __init__(self, settings: Settings, threads: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gateway.drain.sender", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
        self.connection = Connection(ours.detach())
        self.connection.send((settings, threads))

    def end(self) -> None:
        self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self.connection.close()
