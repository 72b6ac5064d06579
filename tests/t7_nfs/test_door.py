"""The kernel's own client, and changes that are made on the gateway."""

from __future__ import annotations

import itertools

from tests.support.client import MOUNT
from tests.support.vm.client import ClientVm
from tests.support.waiting import until
from tests.t7_nfs.conftest import MakeSite

STRICT = "/mnt/strict"
OPTIONS = "hard,timeo=50,retrans=2,nosharecache,actimeo=0,lookupcache=none"
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
