"""States of locks that go while another request has them, over a real NFS server."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import nfs4
from tests.support.nfs4 import op, putfh
from tests.support.nfsserver import EXPORT, Server
from tests.support.t6 import nfs41
from tests.support.t6.nfs41 import TEST_STATEID, Slot, after_sequence, opened
from tests.support.t6.serving import await_control_socket

BAD_STATEID = 10025
ROUNDS = 200
LOOKS = 1000
"""How often the state is looked at in a round, so that this is done when it goes."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server("spillway", tmp_path, tmp_path / "log") as started:
        await_control_socket(started)
        yield started


def unlocked(slot: Slot, handle: bytes, state: bytes, number: int) -> bytes:
    """Lock and unlock an open file, as an owner that is new. Returns the stateid of the locks."""
    asked = nfs41.lock(nfs41.WRITE, state, slot.client_id, b"lock %d" % number)
    locks = nfs41.locks_of(slot.done(putfh(handle), asked))
    return nfs41.locks_of(slot.done(putfh(handle), nfs41.unlock(locks)))


def test_a_lock_state_may_go_while_a_request_without_a_file_looks_at_it(server: Server) -> None:
    """Linux gives the state of its locks back (FREE_STATEID) while it closes the file."""
    answers: Counter[int] = Counter()
    with Slot(server.port) as closer, Slot(server.port, closer.session, 1) as looker:
        directory = nfs41.directory_of(closer, EXPORT[1:])
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
