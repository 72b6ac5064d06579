"""Connections of the hydrator to the NFS server: which bytes clients wait for, and which have come.

Two threads have a connection each. While the server is away they try to connect again. What could
not be told is lost; a new number of the session then makes the server ask for everything again that
it still lacks.
"""

from __future__ import annotations

import errno
import logging
import queue
import secrets
import threading
from collections.abc import Callable
from contextlib import closing

from gateway.common.errors import ControlSocketClosed
from gateway.common.types import Attr
from gateway.config.settings import Settings
from gateway.rpc.control import Remote
from gateway.rpc.frames import ALL_BYTES, Op, RpcReply, RpcRequest

log = logging.getLogger("cache")

WAIT_MS = 1000
"""The time for which the server holds a question for wanted bytes."""
PAUSE_SECONDS = 0.3
TOLD_TOGETHER = 64

OnWanted = Callable[[Attr, int, int, int], None]
"""Called with attributes, offset, length (bytes), and the number of the session."""
OnAnswer = Callable[[RpcRequest, int | None], None]
"""Called with what was told, and the errno of the answer; None: there was none."""


class WaitingClients:
    """The two connections."""

    def __init__(
        self,
        settings: Settings,
        on_wanted: OnWanted,
        on_answer: OnAnswer,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._on_wanted = on_wanted
        self._on_answer = on_answer
        self._stop = stop
        self._to_tell: queue.SimpleQueue[RpcRequest | None] = queue.SimpleQueue()
        self._next: RpcRequest | None = None
        self._session = _number()
        self._known = 0
        """The session that the server answered last."""
        self.is_up = False
        """Whether the server answered last."""
        self.was_up = threading.Event()
        """Set when the server knows of this hydrator. Requests of an earlier one have ended."""

    def start(self) -> list[threading.Thread]:
        """Start the threads. They end after ``stop`` is set and ``close`` was called."""
        threads = [
            threading.Thread(target=run, name=run.__name__, daemon=True)
            for run in (self._listen, self._tell)
        ]
        for thread in threads:
            thread.start()
        return threads

    def close(self) -> None:
        """Let the threads see that they must stop."""
        self._to_tell.put(None)

    def present(self, ino: int, epoch: int, offset: int, length: int) -> None:
        """Tell that bytes are verified and in the data file. It does not wait."""
        self._to_tell.put(RpcRequest(Op.PRESENT, ino, ino2=epoch, offset=offset, length=length))

    def arrived(self, ino: int, epoch: int, content_version: int) -> None:
        """Tell that a whole file is on stable storage. It does not wait."""
        # The server refuses an arrival that a hydrator sent which is dead by now.
        request = RpcRequest(Op.ARRIVED, ino, ino2=epoch, change=content_version)
        self._to_tell.put(request._replace(offset=self._known))

    def failed(self, ino: int, epoch: int, *, is_all: bool = False) -> None:
        """Tell that the bytes that clients wait for cannot be had, or (is_all) that nothing in the
        data file is believed any more. It does not wait."""
        length = ALL_BYTES if is_all else 0
        self._to_tell.put(RpcRequest(Op.FAILED, ino, ino2=epoch, change=errno.EIO, length=length))

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                with closing(Remote(self._settings)) as control:
                    self._session = _number()
                    while not self._stop.is_set():
                        self._ask(control)
            except (OSError, ControlSocketClosed) as exc:
                self._is_away(exc)

    def _ask(self, control: Remote) -> None:
        session = self._session
        (answer,) = control.run([RpcRequest(Op.WANTED, session, ino2=WAIT_MS)])
        self.is_up = True
        if answer.errno:
            # EBUSY: another connection waits already, perhaps one of ours that is closing.
            if answer.errno == errno.ESTALE:
                self._session = _number()  # the server has seen another one since
            self._stop.wait(PAUSE_SECONDS)
            return
        self._known = session
        self.was_up.set()
        if answer.attr is not None:
            self._on_wanted(answer.attr, answer.offset, answer.length, session)

    def _tell(self) -> None:
        control: Remote | None = None
        while not self._stop.is_set():
            batch = self._batch()
            answers: list[RpcReply] = []
            try:
                if batch:
                    control = control or Remote(self._settings)
                    answers = control.run(batch)
            except (OSError, ControlSocketClosed) as exc:
                if control is not None:
                    control.close()
                    control = None
                self._session = _number()
                self._is_away(exc)
            for at, request in enumerate(batch):
                self._on_answer(request, answers[at].errno if answers else None)
        if control is not None:
            control.close()

    def _batch(self) -> list[RpcRequest]:
        """Return the next requests. The server may carry them out in any order, so what takes back
        earlier ones is alone."""
        batch: list[RpcRequest] = []
        while not batch or (len(batch) < TOLD_TOGETHER and not self._to_tell.empty()):
            request = self._next or self._to_tell.get()
            self._next = None
            if request is None:
                break
            if request.length == ALL_BYTES and batch:
                self._next = request
                break
            batch.append(request)
            if request.length == ALL_BYTES:
                break
        return batch

    def _is_away(self, exc: Exception) -> None:
        if self.is_up:
            log.info("the NFS server went away (%s): connecting again", exc)
        self.is_up = False
        self._stop.wait(PAUSE_SECONDS)


def _number() -> int:
    return secrets.randbits(63) | 1
