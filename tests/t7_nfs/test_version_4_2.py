"""NFSv4.2, if it is switched on, adds extended attributes, holes and preallocation."""

from __future__ import annotations

import json

import pytest

from tests.support.client import MOUNT, PYTHON
from tests.support.vm.client import ClientError, ClientVm
from tests.t7_nfs.conftest import MakeSite

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
    site = make_site(nfs={"version_4_2": True})
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


def test_4_2_is_refused_unless_switched_on(vm: ClientVm, make_site: MakeSite) -> None:
    site = make_site()
    vm.umount()
    with pytest.raises(ClientError):
        vm.mount(site.gateway.port, version="4.2")
    vm.mount(site.gateway.port, version="4.0")
    assert vm.run(["ls", str(MOUNT)]).exit_status == 0
