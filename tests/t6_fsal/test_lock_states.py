"""States of locks that go while another request has them, over a real NFS server."""

from __future__ import annotations

import os
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import nfs4
from tests.support.nfs4 import op, opaque, putfh
from tests.support.nfsserver import EXPORT, Server
from tests.t6_fsal.serving import await_door

LOCK, LOCKU, EXCHANGE_ID, CREATE_SESSION = 12, 14, 42, 43
SEQUENCE, TEST_STATEID, RECLAIM_COMPLETE = 53, 55, 58
BAD_STATEID = 10025
ROUNDS = 200
LOOKS = 1000
"""How often the state is looked at in a round, so that this is done when it goes."""
CHANNEL = struct.pack(">7I", 0, 1 << 16, 1 << 16, 1 << 12, 16, 4, 0)
WHOLE_FILE = struct.pack(">QQ", 0, (1 << 64) - 1)


class Slot(nfs4.Client):
    """A connection that asks by one slot of a session of NFSv4.1.

    Parameters: session, None: a new one of a new client.
    """

    minor_version = 1

    def __init__(self, port: int, session: bytes | None = None, slot: int = 0) -> None:
        super().__init__(port)
        self.client_id = b""
        self.session = session or self._begin()
        self._slot, self._sequence = slot, 0

    def _begin(self) -> bytes:
        owner = os.urandom(8) + opaque(os.urandom(8))
        super().send(op(EXCHANGE_ID) + owner + struct.pack(">III", 0, 0, 0))
        reply = self.answer()
        reply.unpack("II")
        self.client_id = struct.pack(">Q", *reply.unpack("Q"))
        how = struct.pack(">2I", reply.number(), 0) + 2 * CHANNEL + struct.pack(">3I", 0, 1, 0)
        super().send(op(CREATE_SESSION) + self.client_id + how)
        reply = self.answer()
        reply.unpack("II")
        return struct.pack(">QQ", *reply.unpack("QQ"))

    def send(self, *operations: bytes) -> None:
        self._sequence += 1
        how = struct.pack(">4I", self._sequence, self._slot, 3, 0)
        super().send(op(SEQUENCE) + self.session + how, *operations)

    def done(self, *operations: bytes) -> nfs4.Reply:
        """Have operations done. The reply begins with the first of them. Raises Status."""
        while True:
            self.send(*operations)
            try:
                return after_sequence(self.answer())
            except nfs4.Status as exc:
                if exc.number not in (nfs4.DELAY, nfs4.GRACE):
                    raise
            time.sleep(nfs4.AGAIN_SECONDS)


def after_sequence(reply: nfs4.Reply) -> nfs4.Reply:
    reply.unpack("11I")
    return reply


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server("spillway", tmp_path, tmp_path / "log") as started:
        await_door(started)
        yield started


def opened(slot: Slot, directory: bytes) -> tuple[bytes, bytes]:
    """Open a file. Returns its handle, and the stateid."""
    how = struct.pack(">III", 0, 3, 0) + slot.client_id + opaque(b"owner")
    how += struct.pack(">IIII", 1, 0, 0, 0) + struct.pack(">I", 0) + opaque(b"locked")
    reply = slot.done(putfh(directory), op(nfs4.OPEN) + how, op(nfs4.GETFH))
    reply.unpack("IIII")
    state = struct.pack(">4I", *reply.unpack("4I"))
    reply.unpack("IQQI")
    reply.unpack(f"{reply.number()}I")
    reply.unpack("III")
    return reply.opaque(), state


def unlocked(slot: Slot, handle: bytes, state: bytes, number: int) -> bytes:
    """Lock and unlock an open file, as an owner that is new. Returns the stateid of the locks."""
    how = struct.pack(">II", 2, 0) + WHOLE_FILE + struct.pack(">II", 1, 0) + state
    owner = struct.pack(">I", 0) + slot.client_id + opaque(b"lock %d" % number)
    reply = slot.done(putfh(handle), op(LOCK) + how + owner)
    reply.unpack("4I")
    locks = struct.pack(">4I", *reply.unpack("4I"))
    reply = slot.done(putfh(handle), op(LOCKU) + struct.pack(">II", 2, 0) + locks + WHOLE_FILE)
    reply.unpack("4I")
    return struct.pack(">4I", *reply.unpack("4I"))


def test_a_lock_state_may_go_while_a_request_without_a_file_looks_at_it(server: Server) -> None:
    """Linux gives the state of its locks back (FREE_STATEID) while it closes the file."""
    answers: Counter[int] = Counter()
    with Slot(server.port) as closer, Slot(server.port, closer.session, 1) as looker:
        closer.done(op(RECLAIM_COMPLETE) + struct.pack(">I", 0))
        reply = closer.done(op(nfs4.PUTROOTFH), nfs4.lookup(EXPORT[1:]), op(nfs4.GETFH))
        reply.unpack("6I")
        directory = reply.opaque()
        for number in range(ROUNDS):
            handle, state = opened(closer, directory)
            locks = unlocked(closer, handle, state, number)
            looker.send(op(TEST_STATEID) + struct.pack(">I", LOOKS) + LOOKS * locks)
            closer.send(putfh(handle), op(nfs4.CLOSE) + struct.pack(">I", 0) + state)
            closer.answer()
            seen = after_sequence(looker.answer())
            seen.unpack("II")
            answers.update(seen.unpack(f"{seen.number()}I"))
    server.require_alive()
    assert set(answers) <= {nfs4.OK, BAD_STATEID, nfs4.STALE}
    assert min(answers[nfs4.OK], answers[BAD_STATEID]) > 0  # it looked before and after
