"""The kernel's own client, and changes that are made on the gateway."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from bisect import bisect_right
from typing import Self

from gateway import config
from gateway.db.models import ROOT_INO
from gateway.door.door import opened
from gateway.door.frames import Op, Request
from tests.support.client import MOUNT, start_program
from tests.support.gateway import Gateway
from tests.support.vm.client import HOST_ADDRESS, ClientVm
from tests.support.waiting import until
from tests.t7_nfs.conftest import MakeSite

STRICT = "/mnt/strict"
OPTIONS = "hard,timeo=50,retrans=2,nosharecache,actimeo=0,lookupcache=none"
RENAMES = int(os.environ.get("SPILLWAY_DOOR_RENAMES", "600"))
CACHED_SECONDS = 60.0
"""The time for which the client may keep attributes of a directory (acdirmax of nfs(5))."""
READER = f"""
exec 3< {STRICT}/d/open
touch {STRICT}/opened
until [ -d {STRICT}/removed ]; do sleep 0.1; done
cat <&3
"""


def test_a_client_sees_what_is_done_on_the_gateway(vm: ClientVm, make_site: MakeSite) -> None:
    gateway = make_site().gateway
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
    vm: ClientVm, make_site: MakeSite
) -> None:
    gateway = make_site().gateway
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
    """Renames a file through the door, in a thread, and knows when each was answered. Parameters:
    gateway, with the file n0 in its directory "numbered"."""

    def __init__(self, gateway: Gateway) -> None:
        self._settings = config.load(gateway.config)
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
            with opened(self._settings) as door:
                found = door.run([Request(Op.LOOKUP, ROOT_INO, b"numbered")])[0].attr
                assert found is not None
                for number in range(RENAMES):
                    names = b"n%d" % number, b"n%d" % (number + 1)
                    request = Request(Op.RENAME, found.ino, names[0])
                    [answer] = door.run([request._replace(ino2=found.ino, name2=names[1])])
                    assert answer.errno == 0, os.strerror(answer.errno)
                    self.times.append(time.monotonic())
        except BaseException as exc:
            self.error = exc


def test_no_listing_is_older_than_the_answer_of_the_door(vm: ClientVm, make_site: MakeSite) -> None:
    """A strict client sees each rename that was answered. One that keeps attributes sees those that
    are older than what it may keep."""
    gateway = make_site().gateway
    vm.mount(gateway.port, target=STRICT, options=OPTIONS)
    listener = socket.create_server(("127.0.0.1", 0))
    try:
        vm.run(f"mkdir {STRICT}/numbered && touch {STRICT}/numbered/n0")
        directories = f"{STRICT}/numbered", MOUNT / "numbered"
        port = str(listener.getsockname()[1])
        watch = start_program(vm, "watch.py", HOST_ADDRESS, port, *directories)
        connection, _ = listener.accept()
        with connection, connection.makefile() as told, Renames(gateway) as renames:
            assert told.readline() == "ready\n"
            looks = 0
            while renames.is_running:
                answered = len(renames.times) - 1
                kept_since = time.monotonic() - CACHED_SECONDS
                connection.sendall(b"%d\n" % answered)
                seen, has_old, usual = told.readline().split(" ")
                assert int(seen.removeprefix("n")) >= answered
                assert not (answered and int(has_old))
                at_least = bisect_right(renames.times, kept_since) - 1
                assert int(usual.removeprefix("n")) >= at_least
                looks += 1
        watch.wait()
        assert renames.error is None, renames.error
        assert looks > RENAMES / 100
    finally:
        listener.close()
        vm.umount(STRICT)
