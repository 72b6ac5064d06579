"""Locks that a process waits for, over a real NFS server."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support import nfs4
from tests.support.nfs4 import op, putfh
from tests.support.nfsserver import EXPORT, LEASE_SECONDS, Server
from tests.support.t6 import nfs41
from tests.support.t6.nfs41 import (
    LOCK_DENIED,
    READ_WAITS,
    WRITE,
    WRITE_WAITS,
    Slot,
    after_sequence,
    opened,
)
from tests.support.t6.serving import await_control_socket

DESTROY_SESSION = 44
WAIT_SECONDS = 2.0
"""``SPW_LOCK_WAIT_MS`` of fsal/native/lockwait.h."""
WAITERS_MAX = 32
"""``SPW_LOCK_WAITERS_MAX`` there."""
AT_ONCE_SECONDS = 0.9
HOLD_SECONDS = 0.5
STOP_SECONDS = WAIT_SECONDS / 2
LOW, HIGH = struct.pack(">QQ", 0, 10), struct.pack(">QQ", 10, 10)


@dataclass
class Owner:
    """An owner of locks on a file, which asks by a slot of its own."""

    slot: Slot
    name: bytes
    handle: bytes
    state: bytes
    locks: bytes = b""
    """The stateid of its locks, if it ever had one."""

    @classmethod
    def of(cls, slot: Slot, name: bytes, file: bytes) -> Owner:
        return cls(slot, name, *opened(slot, nfs41.directory_of(slot, EXPORT[1:]), file))

    def ask(self, kind: int, where: bytes = nfs41.WHOLE_FILE) -> None:
        asked = nfs41.lock(kind, self.state, self.slot.client_id, self.name, where)
        if self.locks:
            asked = nfs41.lock_again(kind, self.locks, where)
        self.slot.send(putfh(self.handle), asked)

    def answer(self) -> bool:
        """Return whether the lock was granted."""
        try:
            self.locks = nfs41.locks_of(after_sequence(self.slot.answer()))
        except nfs4.Status as exc:
            if exc.number != LOCK_DENIED:
                raise
            return False
        return True

    def lock(self, kind: int, where: bytes = nfs41.WHOLE_FILE) -> tuple[bool, float]:
        """Return whether the lock was granted, and after how many seconds it was answered."""
        began = time.monotonic()
        self.ask(kind, where)
        return self.answer(), time.monotonic() - began

    def unlock(self, where: bytes = nfs41.WHOLE_FILE) -> None:
        reply = self.slot.done(putfh(self.handle), nfs41.unlock(self.locks, where))
        self.locks = nfs41.locks_of(reply)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    with Server("spillway", directory, directory / "log") as started:
        await_control_socket(started)
        yield started


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def owners(server: Server, stack: ExitStack, request: pytest.FixtureRequest) -> list[Owner]:
    """Return three owners of three clients, of a file of the test's own."""
    file = request.node.name.encode()
    slots = [stack.enter_context(Slot(server.port)) for _ in range(3)]
    return [Owner.of(slot, b"%d" % number, file) for number, slot in enumerate(slots)]


@pytest.fixture
def three(server: Server, stack: ExitStack, request: pytest.FixtureRequest) -> list[Owner]:
    return owners(server, stack, request)


def at_once(owner: Owner, kind: int, where: bytes = nfs41.WHOLE_FILE) -> bool:
    granted, seconds = owner.lock(kind, where)
    assert seconds < AT_ONCE_SECONDS
    return granted


@pytest.mark.parametrize("kind", [READ_WAITS, WRITE_WAITS])
@pytest.mark.parametrize("had_locks", [False, True])
def test_a_lock_that_is_released_soon_is_granted(
    three: list[Owner], kind: int, had_locks: bool
) -> None:
    holder, waiter, _ = three
    if had_locks:
        assert at_once(waiter, WRITE)
        waiter.unlock()
    assert at_once(holder, WRITE)
    began = time.monotonic()
    waiter.ask(kind)
    time.sleep(HOLD_SECONDS)
    holder.unlock()
    assert waiter.answer()
    assert HOLD_SECONDS <= time.monotonic() - began < HOLD_SECONDS + AT_ONCE_SECONDS


def test_a_lock_that_is_held_for_long_is_denied(three: list[Owner]) -> None:
    holder, waiter, _ = three
    assert at_once(holder, WRITE)
    granted, seconds = waiter.lock(WRITE_WAITS)
    assert not granted and WAIT_SECONDS - 0.01 < seconds < WAIT_SECONDS + AT_ONCE_SECONDS
    assert not at_once(waiter, WRITE)  # its process does not wait


def test_what_is_not_denied_does_not_wait(three: list[Owner]) -> None:
    holder, other, _ = three
    assert at_once(holder, WRITE, LOW)
    assert at_once(other, WRITE_WAITS, HIGH)
    assert at_once(holder, READ_WAITS, LOW) and at_once(other, READ_WAITS, LOW)  # downgraded
    other.unlock()
    assert at_once(holder, WRITE_WAITS)  # its own


def test_an_owner_that_asks_anew_does_not_wait_for_its_own_lock(three: list[Owner]) -> None:
    holder = three[0]
    assert at_once(holder, WRITE)
    holder.locks = b""
    assert at_once(holder, WRITE_WAITS)


def test_nothing_else_of_its_connection_waits(
    server: Server, stack: ExitStack, request: pytest.FixtureRequest
) -> None:
    holder = owners(server, stack, request)[0]
    slot = stack.enter_context(Slot(server.port, holder.slot.session, 1))
    slot.join(holder.slot)
    waiter = Owner(slot, b"other", holder.handle, holder.state)
    assert at_once(holder, WRITE)
    waiter.ask(WRITE_WAITS)
    began = time.monotonic()
    while time.monotonic() < began + HOLD_SECONDS:
        holder.slot.done(putfh(holder.handle))
    holder.unlock()  # its answer comes first
    assert waiter.answer()
    assert time.monotonic() - began < HOLD_SECONDS + AT_ONCE_SECONDS


def test_they_get_it_in_the_order_in_which_they_came(three: list[Owner]) -> None:
    assert at_once(three[0], WRITE)
    for owner in three[1:]:
        owner.ask(WRITE_WAITS)
        time.sleep(0.1)
    for owner, following in pairwise(three):
        owner.unlock()
        owner.ask(WRITE_WAITS)  # the one that had it is back at once
        assert following.answer()


def test_processes_that_take_it_all_the_time_starve_nobody(three: list[Owner]) -> None:
    ended = threading.Event()

    def take(owner: Owner) -> None:
        while not ended.is_set():
            if owner.lock(WRITE_WAITS)[0]:
                time.sleep(0.005)
                owner.unlock()

    others = [threading.Thread(target=take, args=[owner]) for owner in three[1:]]
    for thread in others:
        thread.start()
    answers = []
    for _ in range(100):
        answers.append(three[0].lock(WRITE_WAITS))
        if answers[-1][0]:
            three[0].unlock()
    ended.set()
    for thread in others:
        thread.join()
    assert sum(granted for granted, _ in answers) >= 90
    assert max(seconds for _, seconds in answers) < WAIT_SECONDS + AT_ONCE_SECONDS


def waiting(server: Server, stack: ExitStack, holder: Owner, count: int) -> Sequence[Owner]:
    """Have many owners ask for the lock of a holder, all at the same time."""
    found = list[Owner]()
    while len(found) < count:
        first = stack.enter_context(Slot(server.port))
        more = [Slot(server.port, first.session, slot) for slot in range(1, nfs41.SLOTS)]
        _, state = opened(first, nfs41.directory_of(first, EXPORT[1:]), holder.name)
        for slot in [first, *map(stack.enter_context, more)][: count - len(found)]:
            slot.client_id = first.client_id
            found.append(Owner(slot, b"%d" % len(found), holder.handle, state))
    for owner in found:
        owner.ask(WRITE_WAITS)
    return found


def test_only_so_many_wait_and_nobody_else_is_held_up(server: Server, stack: ExitStack) -> None:
    holder = Owner.of(stack.enter_context(Slot(server.port)), b"many", b"many")
    assert at_once(holder, WRITE)
    bystander = Owner.of(stack.enter_context(Slot(server.port)), b"by", b"by")
    began = time.monotonic()
    askers = waiting(server, stack, holder, WAITERS_MAX)
    late = Owner.of(stack.enter_context(Slot(server.port)), b"late", b"many")
    assert not at_once(late, WRITE_WAITS)
    for _ in range(10):
        assert at_once(bystander, WRITE_WAITS)
        bystander.unlock()
    assert time.monotonic() - began < WAIT_SECONDS, "too slow to tell"
    assert not any(asker.answer() for asker in askers)
    assert time.monotonic() - began > WAIT_SECONDS - 0.01


def test_a_session_may_end_while_a_lock_waits(
    server: Server, stack: ExitStack, three: list[Owner]
) -> None:
    holder, waiter, other = three
    beside = stack.enter_context(Slot(server.port, waiter.slot.session, 1))
    beside.done(op(nfs4.PUTROOTFH))  # the session has this connection too
    assert at_once(holder, WRITE)
    waiter.ask(WRITE_WAITS)
    time.sleep(HOLD_SECONDS)
    nfs4.Client.send(beside, op(DESTROY_SESSION) + waiter.slot.session)
    beside.answer()
    holder.unlock()
    waiter.slot.answer()
    assert not at_once(other, WRITE)  # it is the waiter's, until its lease ends
    server.require_alive()


def test_locks_of_a_client_that_is_gone_are_not_waited_for(three: list[Owner]) -> None:
    gone, waiter, other = three
    assert at_once(gone, WRITE)
    gone.slot._socket.close()
    began = time.monotonic()
    while not waiter.lock(WRITE_WAITS)[0]:
        other.slot.done(putfh(other.handle))
        assert time.monotonic() - began < 3 * LEASE_SECONDS
    waiter.unlock()
    assert at_once(other, WRITE_WAITS)


def test_the_server_stops_while_locks_wait(tmp_path: Path) -> None:
    with Server("spillway", tmp_path, tmp_path / "log") as server, ExitStack() as stack:
        await_control_socket(server)
        holder = Owner.of(stack.enter_context(Slot(server.port)), b"held", b"held")
        assert at_once(holder, WRITE)
        waiting(server, stack, holder, WAITERS_MAX)
        began = time.monotonic()
    assert time.monotonic() - began < STOP_SECONDS
    assert server.wait() == 0
