"""NFSv4.2 adds extended attributes, holes and preallocation, and reads are right with it."""

from __future__ import annotations

import json

import pytest

from gateway.cli import nfsserver
from gateway.settings import NfsSettings
from tests.support.client import MOUNT, PYTHON, read_back, save
from tests.support.vm.client import ClientError, ClientVm
from tests.t7_nfs.conftest import MakeSite

DEFAULTS = NfsSettings()

SCRIPT = """
import errno, json, os
os.chdir("%s")
out = {}
def failing(call):
    try:
        call()
    except OSError as exc:
        return errno.errorcode[exc.errno]
with open("f", "wb") as f:
    f.write(b"x" * 4096)
before = os.stat("f")
os.setxattr("f", "user.key", b"value")
os.setxattr("f", "user.big", b"b" * 5000)
os.setxattr("f", "user.empty", b"")
out["values"] = [os.getxattr("f", n).decode() for n in ("user.key", "user.empty")]
out["big"] = len(os.getxattr("f", "user.big"))
out["list"] = sorted(os.listxattr("f"))
out["create"] = failing(lambda: os.setxattr("f", "user.key", b"w", os.XATTR_CREATE))
out["ours"] = failing(lambda: os.setxattr("f", "user.spillway.state", b"w"))
out["replace"] = failing(lambda: os.setxattr("f", "user.none", b"w", os.XATTR_REPLACE))
os.removexattr("f", "user.big")
out["removed"] = failing(lambda: os.getxattr("f", "user.big"))
os.stat(".")
out["ctime moved"] = os.stat("f").st_ctime_ns > before.st_ctime_ns
fd = os.open("sparse", os.O_CREAT | os.O_RDWR)
os.pwrite(fd, b"data", 1 << 20)
os.fsync(fd)
out["data"] = os.lseek(fd, 0, os.SEEK_DATA)
out["hole"] = os.lseek(fd, 1 << 20, os.SEEK_HOLE)
out["no data"] = failing(lambda: os.lseek(fd, 1 << 30, os.SEEK_DATA))
os.posix_fallocate(fd, 0, 2 << 20)
out["allocated"] = os.fstat(fd).st_size
os.close(fd)
print(json.dumps(out))
"""


def test_what_4_2_adds(vm: ClientVm, make_site: MakeSite) -> None:
    site = make_site(nfs={"version_4_2": "on"})
    vm.umount()
    vm.mount(site.gateway.port, version="4.2")
    done = vm.run([PYTHON, "-"], stdin=SCRIPT % MOUNT, timeout_seconds=60.0)
    found = json.loads(done.stdout)
    assert found == {
        "values": ["value", ""],
        "big": 5000,
        "list": ["user.big", "user.empty", "user.key"],
        "create": "EEXIST",
        "ours": "EPERM",
        "replace": "ENODATA",
        "removed": "ENODATA",
        "ctime moved": True,
        "data": 1 << 20,
        "hole": (1 << 20) + 4,
        "no data": "ENXIO",
        "allocated": 2 << 20,
    }


def test_a_client_of_the_newest_version_offered_reads_rightly(
    vm: ClientVm, make_site: MakeSite
) -> None:
    site = make_site()
    offers_4_2 = nfsserver.release(DEFAULTS.ganesha) >= nfsserver.ANSWERS_READ_PLUS
    vm.umount()
    vm.mount(site.gateway.port, version="4.2" if offers_4_2 else "4.1")
    files, _seconds = save(vm, "step_1", ranks=2, mib=4)
    vm.run(["sh", "-c", f"cd {MOUNT}; truncate -s 3M holes; echo end >> holes; cp holes copy"])
    vm.drop_caches()
    assert read_back(vm, "step_1") == files
    assert vm.run(["sh", "-c", f"cd {MOUNT}; cmp holes copy; tail -c 4 copy"]).stdout == "end\n"
    asked = vm.run(["sh", "-c", "grep READ_PLUS: /proc/self/mountstats"], check=False).stdout
    print(f"kernel {vm.run(['uname', '-r']).stdout.strip()}, {asked.strip()}")


def test_4_2_is_refused_if_switched_off(vm: ClientVm, make_site: MakeSite) -> None:
    site = make_site(nfs={"version_4_2": "off"})
    vm.umount()
    with pytest.raises(ClientError):
        vm.mount(site.gateway.port, version="4.2")
    vm.mount(site.gateway.port, version="4.0")
    assert vm.run(["ls", str(MOUNT)]).exit_status == 0
