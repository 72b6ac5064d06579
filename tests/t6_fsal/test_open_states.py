"""Open states that a client opens again while it closes them, over a real NFS server."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import nfs4
from tests.support.nfs4 import op, putfh
from tests.support.nfsserver import EXPORT, Server
from tests.support.t6 import nfs41
from tests.support.t6.nfs41 import SLOTS, TEST_STATEID, Slot, opened
from tests.support.t6.serving import await_control_socket

OLD_STATEID, BAD_STATEID = 10024, 10025
CONTENDS_SECONDS = 5.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server("spillway", tmp_path, tmp_path / "log") as started:
        await_control_socket(started)
        yield started


def seqid(state: bytes) -> int:
    return int(struct.unpack_from(">I", state)[0])


def status(slot: Slot, state: bytes) -> int:
    """Return what the server says of a stateid."""
    reply = slot.done(op(TEST_STATEID) + struct.pack(">I", 1) + state)
    reply.unpack("III")
    return reply.number()


class Opener:
    """A process of a client that opens one file again and again, and closes it."""

    def __init__(self, slot: Slot, directory: bytes) -> None:
        self.opens = list[bytes]()
        self.gone = list[bytes]()
        self.closes = Counter[int]()
        self._slot, self._directory = slot, directory

    def run(self) -> None:
        until = time.monotonic() + CONTENDS_SECONDS
        while time.monotonic() < until:
            handle, state = opened(self._slot, self._directory)
            self.opens.append(state)
            if status(self._slot, state) == BAD_STATEID:
                self.gone.append(state)
            try:
                self._slot.done(putfh(handle), op(nfs4.CLOSE) + struct.pack(">I", 0) + state)
            except nfs4.Status as exc:
                self.closes[exc.number] += 1
            else:
                self.closes[nfs4.OK] += 1


def test_an_open_is_not_answered_with_a_state_that_a_close_has_taken(server: Server) -> None:
    """All processes of a user on a client have one open owner, so their opens are one state.

    Only a CLOSE with the newest seqid may end the state.
    """
    with ExitStack() as stack:
        first = stack.enter_context(Slot(server.port))
        directory = nfs41.directory_of(first, EXPORT[1:])
        opened(first, directory)
        slots = [first]
        for number in range(1, SLOTS):
            slots.append(stack.enter_context(Slot(server.port, first.session, number)))
            slots[-1].client_id = first.client_id
        openers = [Opener(slot, directory) for slot in slots]
        with ThreadPoolExecutor(SLOTS) as pool:
            for running in [pool.submit(opener.run) for opener in openers]:
                running.result()
    newest: dict[bytes, int] = {}
    for state in [state for opener in openers for state in opener.opens]:
        newest[state[4:]] = max(seqid(state), newest.get(state[4:], 0))
    gone = [state for opener in openers for state in opener.gone]
    closes = sum((opener.closes for opener in openers), Counter[int]())
    assert [state for state in gone if seqid(state) == newest[state[4:]]] == []
    assert closes.keys() == {nfs4.OK, OLD_STATEID}
    assert len(newest) > SLOTS and max(newest.values()) > 1  # they were closed, and opened again
    assert gone  # a newer OPEN was answered, and closed, before this one was looked at
