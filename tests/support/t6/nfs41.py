"""Client of NFSv4.1 without a cache, that asks by one slot of a session."""

from __future__ import annotations

import os
import struct
import time

from tests.support import nfs4
from tests.support.nfs4 import op, opaque, putfh

LOCK, LOCKU, EXCHANGE_ID, CREATE_SESSION = 12, 14, 42, 43
SEQUENCE, TEST_STATEID, RECLAIM_COMPLETE = 53, 55, 58
SLOTS = 4
"""How many a session has."""
CHANNEL = struct.pack(">7I", 0, 1 << 16, 1 << 16, 1 << 12, 16, SLOTS, 0)
WHOLE_FILE = struct.pack(">QQ", 0, (1 << 64) - 1)
"""The range of a lock: its first byte and its length."""
WRITE, READ_WAITS, WRITE_WAITS = 2, 3, 4
"""Kinds of locks. ``_WAITS``: a process waits for it."""
LOCK_DENIED = 10010


class Slot(nfs4.Client):
    """A connection that asks by one slot of a session of NFSv4.1.

    Args:
        session: None: a new one of a new client.
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

    def join(self, other: Slot) -> None:
        """Ask over the connection of another slot of the session from now on."""
        self._socket.close()
        self._socket, self.client_id = other._socket, other.client_id

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


def opened(slot: Slot, directory: bytes, name: bytes = b"locked") -> tuple[bytes, bytes]:
    """Open a file, which is made if there is none. Returns its handle, and the stateid."""
    how = struct.pack(">III", 0, 3, 0) + slot.client_id + opaque(b"owner")
    how += struct.pack(">IIII", 1, 0, 0, 0) + struct.pack(">I", 0) + opaque(name)
    reply = slot.done(putfh(directory), op(nfs4.OPEN) + how, op(nfs4.GETFH))
    reply.unpack("IIII")
    state = struct.pack(">4I", *reply.unpack("4I"))
    reply.unpack("IQQI")
    reply.unpack(f"{reply.number()}I")
    reply.unpack("III")
    return reply.opaque(), state


def lock(
    kind: int, state: bytes, client_id: bytes, owner: bytes, where: bytes = WHOLE_FILE
) -> bytes:
    """Return a LOCK of an owner that has no locks yet.

    Args:
        state: state of its open.
    """
    how = struct.pack(">II", kind, 0) + where + struct.pack(">II", 1, 0) + state
    return op(LOCK) + how + struct.pack(">I", 0) + client_id + opaque(owner)


def lock_again(kind: int, locks: bytes, where: bytes = WHOLE_FILE) -> bytes:
    """Return a LOCK of an owner that has the stateid of its locks."""
    return op(LOCK) + struct.pack(">II", kind, 0) + where + struct.pack(">I", 0) + locks + bytes(4)


def unlock(locks: bytes, where: bytes = WHOLE_FILE) -> bytes:
    return op(LOCKU) + struct.pack(">II", WRITE, 0) + locks + where


def locks_of(reply: nfs4.Reply) -> bytes:
    """Return the stateid that a PUTFH and a LOCK or LOCKU were answered with."""
    reply.unpack("4I")
    return struct.pack(">4I", *reply.unpack("4I"))


def directory_of(slot: Slot, path: str) -> bytes:
    """Return the handle of a directory below the root, of a client that has just come."""
    slot.done(op(RECLAIM_COMPLETE) + struct.pack(">I", 0))
    reply = slot.done(op(nfs4.PUTROOTFH), nfs4.lookup(path), op(nfs4.GETFH))
    reply.unpack("6I")
    return reply.opaque()
