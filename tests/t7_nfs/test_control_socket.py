"""The kernel's own client, and changes that are made on the gateway."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Self

from gateway.db.models import ROOT_INO
from gateway.rpc.control import opened
from gateway.rpc.frames import Op, RpcRequest
from tests.support.client import MOUNT, start_program
from tests.support.gateway import Gateway
from tests.support.vm.client import HOST_ADDRESS, ClientVm
from tests.support.waiting import until
from tests.t7_nfs.conftest import MakeGateway

STRICT, BRIEF = "/mnt/strict", "/mnt/brief"
OWN = "hard,timeo=50,retrans=2,nosharecache"
OPTIONS = f"{OWN},actimeo=0,lookupcache=none"
BRIEF_OPTIONS = f"{OWN},acregmin=1,acregmax=2,acdirmin=1,acdirmax=2"
KEPT_SECONDS = {BRIEF: 2.0 + 1.0, str(MOUNT): 60.0 + 1.0}
"""For so long a mount may keep the attributes of a directory: acdirmax of nfs(5), whose default is
60 s, and a second in which an emulated machine on a busy host may not count its time."""
RENAMES = int(os.environ.get("SPILLWAY_CONTROL_RENAMES", "600"))
RENAMING_SECONDS = 6.0 if RENAMES < 10_000 else 120.0
"""The renames take at least so long: twice what the mounts that are compared may keep."""
WATCH_SECONDS = 240.0 if RENAMES < 10_000 else 1800.0
"""The time-out of the program that watches."""
READER = f"""
exec 3< {STRICT}/d/open
touch {STRICT}/opened
until [ -d {STRICT}/removed ]; do sleep 0.1; done
cat <&3
"""


def test_a_client_sees_what_is_done_on_the_gateway(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    vm.mount(gateway.port, target=STRICT, options=OPTIONS)
    try:
        vm.run(f"mkdir {STRICT}/d && echo bytes > {STRICT}/d/f0 && ls {MOUNT}/d")
        for old, new in itertools.pairwise(f"f{number}" for number in range(6)):
            gateway.spillway("mv", f"d/{old}", f"d/{new}")
            assert vm.run(["ls", f"{STRICT}/d"]).stdout == f"{new}\n"
            assert vm.run(f"cat {STRICT}/d/{new}; ! cat {STRICT}/d/{old}").stdout == "bytes\n"
        # One that keeps attributes sees it when it asks again, after 60 s at the latest.
        until(lambda: vm.run(["ls", f"{MOUNT}/d"]).stdout == "f5\n", "the new name", 70.0)
    finally:
        vm.umount(STRICT)


def test_a_file_that_is_removed_on_the_gateway_stays_for_who_has_it_open(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    gateway = make_gateway()
    vm.mount(gateway.port, target=STRICT, options=OPTIONS)
    try:
        vm.run(f"mkdir {STRICT}/d && echo bytes > {STRICT}/d/open && sync")
        vm.drop_caches()
        reader = vm.start(READER)
        until(lambda: "opened" in gateway.spillway("ls").stdout, "the reader")
        gateway.spillway("rm", "-r", "d")
        gateway.spillway("mkdir", "removed")
        assert reader.wait().stdout == "bytes\n"
        assert vm.run(f"! ls {STRICT}/d").stdout == ""
    finally:
        vm.umount(STRICT)


class Renames:
    """Renames a file over the control socket, in a thread, and knows when each was answered.

    Args:
        gateway: gateway with the file n0 in its directory "numbered".
    """

    def __init__(self, gateway: Gateway) -> None:
        self._settings = gateway.settings
        self._thread = threading.Thread(target=self._rename)
        self.times = [time.monotonic()]
        """The time of each answer, by number."""
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _rename(self) -> None:
        try:
            with opened(self._settings) as control:
                attr = control.run([RpcRequest(Op.LOOKUP, ROOT_INO, b"numbered")])[0].attr
                assert attr is not None
                for number in range(RENAMES):
                    due = self.times[0] + number * RENAMING_SECONDS / RENAMES
                    time.sleep(max(0.0, due - time.monotonic()))
                    names = b"n%d" % number, b"n%d" % (number + 1)
                    request = RpcRequest(Op.RENAME, attr.ino, names[0])
                    [answer] = control.run([request._replace(ino2=attr.ino, name2=names[1])])
                    assert answer.errno == 0, os.strerror(answer.errno)
                    self.times.append(time.monotonic())
        except BaseException as exc:
            self.error = exc


class Comparisons:
    """Compares what the mounts of a client show with what the control socket had answered.

    Args:
        times: times of the answers, by number, to which others are added meanwhile.
    """

    def __init__(self, times: list[float]) -> None:
        self._times = times
        self.looks = 0
        self.bound = dict.fromkeys(KEPT_SECONDS, 0)
        """The looks, by mount, before which a rename was answered longer ago than the mount may
        keep anything. All other looks by the mount may show any name."""

    def look(self, ask: Callable[[int], str]) -> None:
        """Make one look.

        Args:
            ask: which has watch.py look and returns its line.
        """
        answered, now = len(self._times) - 1, time.monotonic()
        seen, has_old, *kept = ask(answered).split()
        assert int(seen.removeprefix("n")) >= answered
        assert not (answered and int(has_old))
        self.looks += 1
        for (mount, seconds), found in zip(KEPT_SECONDS.items(), kept, strict=True):
            at_least = bisect_right(self._times, now - seconds) - 1
            assert int(found.removeprefix("n")) >= at_least, mount
            self.bound[mount] += at_least > 0


def test_no_listing_is_older_than_the_answer_of_the_control_socket(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    """A strict client sees each rename that was answered. One that keeps attributes sees those that
    are older than what it may keep."""
    gateway = make_gateway()
    vm.mount(gateway.port, target=STRICT, options=OPTIONS)
    vm.mount(gateway.port, target=BRIEF, options=BRIEF_OPTIONS)
    listener = socket.create_server(("127.0.0.1", 0))
    try:
        vm.run(f"mkdir {STRICT}/numbered && touch {STRICT}/numbered/n0")
        directories = [f"{mount}/numbered" for mount in (STRICT, *KEPT_SECONDS)]
        where = HOST_ADDRESS, str(listener.getsockname()[1])
        watch = start_program(vm, "watch.py", *where, *directories, timeout_seconds=WATCH_SECONDS)
        connection, _ = listener.accept()
        with connection, connection.makefile() as told, Renames(gateway) as renames:
            assert told.readline() == "ready\n"

            def ask(answered: int) -> str:
                connection.sendall(b"%d\n" % answered)
                return told.readline()

            compared = Comparisons(renames.times)
            while renames.is_running:
                compared.look(ask)
        watch.wait()
        assert renames.error is None, renames.error
        seconds = renames.times[-1] - renames.times[0]
        print(f"{RENAMES} renames in {seconds:.0f} s, {compared.looks} looks: {compared.bound}")
        assert compared.looks > RENAMES / 100
        for mount, kept_seconds in KEPT_SECONDS.items():
            assert compared.bound[mount] > 0 or kept_seconds >= RENAMING_SECONDS, mount
    finally:
        listener.close()
        vm.umount(BRIEF)
        vm.umount(STRICT)
