"""Sender process of the drain for small objects: ``python -m gateway.drain.send.sender FD...``.

Signing and sending a small object takes processor time under Python's one lock, so it happens
beside the drain, not in it. A sender knows nothing of files, of the database or of rates: on each
of its connections it gets a body when it may send it. It ends when its standard input does, that
is, at once when the drain is killed: no request of a dead drain may overtake those of the next.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from gateway.common.errors import StoreError
from gateway.drain.messages import Attempt, Handshake, Result, SmallObject, Task
from gateway.objectstore.objects import VerifiedObject
from gateway.objectstore.pace import Goes, RequestEnd, always
from gateway.objectstore.s3 import S3Store


class _Notes(threading.local):
    """Notes how the PUT of a thread ended. The drain keeps the pace."""

    how: RequestEnd | None = None

    def attach(self, client: Any) -> None:
        """Do nothing: a sender only sends bodies."""

    def admit(self, body_bytes: int, goes_first: Goes = always) -> None:
        """Do nothing: the drain has admitted the body."""

    def begin(self, goes_first: Goes = always) -> int:
        return 1

    def end(self, number: int, *hows: RequestEnd) -> None:
        (self.how,) = hows


def main() -> None:
    """Serve until the drain closes the connections or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_drain, daemon=True).start()
    connections: list[Connection] = [Connection(int(fd)) for fd in sys.argv[1:]]
    handshake: Handshake = connections[0].recv()
    notes = _Notes()
    settings, address, kind, conditions = handshake
    store = S3Store(settings, pace=notes, attempts=1, address=address, kind=kind)
    store.conditions = conditions
    for connection in connections:
        threading.Thread(target=_serve, args=(connection, store, notes)).start()


def _serve(connection: Connection, store: S3Store, notes: _Notes) -> None:
    reloads = 0
    while True:
        try:
            task: Task = connection.recv()
        except EOFError:
            return
        if task.reloads != reloads:
            reloads = task.reloads
            store.reload()
        attempts: list[Attempt] = []
        for small_object in task.objects:
            notes.how = None
            result = _put(store, small_object)
            # Without a PUT, the look before it failed, or found something: that says nothing of how
            # much the store gets.
            attempts.append(Attempt(result, notes.how or RequestEnd(False)))
            if not isinstance(attempts[-1].result, VerifiedObject):
                break
        connection.send(attempts)


def _put(store: S3Store, small_object: SmallObject) -> Result:
    try:
        return store.put(*small_object)
    except StoreError as exc:
        return exc


def _end_with_the_drain() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
