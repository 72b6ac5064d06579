"""NFSv4.2 adds extended attributes, holes and preallocation, and reads are right with it."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.support.client import MOUNT, PYTHON, read_back
from tests.support.gateway import BUCKET
from tests.support.vm.client import ClientError, ClientVm
from tests.t7_nfs.conftest import OFFERED, MakeGateway

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


RECEIPT = """
import os
for name in ("state", "etag", "checksum"):
    print(os.getxattr("%s/f", f"user.spillway.{name}").decode())
"""

SPARSE = """
import hashlib, json, os, random, subprocess
directory, can_punch = %r, %r
os.mkdir(directory)
os.chdir(directory)
seeded = random.Random(directory)
MIB = 1 << 20
expected = {}
for name, size, parts in (
    ("front", 3 * MIB, [(2 * MIB, MIB)]),
    ("middle", 3 * MIB, [(0, MIB), (2 * MIB, MIB)]),
    ("end", 3 * MIB, [(0, MIB)]),
    ("hole", 5 * MIB, []),
    ("odd", MIB + 5, [(7, 100), (70_001, 4096), (MIB - 1, 3)]),
    ("many", 4 * MIB, [(at, 4096) for at in range(0, 4 * MIB, 65536)]),
    ("punched", 2 * MIB, [(0, 2 * MIB)]),
):
    body = bytearray(size)
    with open(name, "wb") as file:
        file.truncate(size)
        for at, length in parts:
            body[at : at + length] = seeded.randbytes(length)
            file.seek(at)
            file.write(body[at : at + length])
    if name == "punched" and can_punch:
        subprocess.run(
            ["fallocate", "--punch-hole", "--offset", "5000", "--length", str(MIB), name],
            check=True,
        )
        body[5000 : 5000 + MIB] = bytes(MIB)
    expected[name] = hashlib.sha256(body).hexdigest()
print(json.dumps(expected))
"""


def test_what_4_2_adds(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway(nfs={"version_4_2": "on"})
    vm.umount()
    vm.mount(gateway.port, version="4.2")
    done = vm.run([PYTHON, "-"], stdin=SCRIPT % MOUNT, timeout_seconds=60.0)
    document = json.loads(done.stdout)
    assert document == {
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
    gateway.until_drained()
    receipt = vm.run([PYTHON, "-c", RECEIPT % MOUNT]).stdout.split()
    [etag] = [
        item["ETag"].strip('"')
        for item in gateway.server.client().list_objects_v2(Bucket=BUCKET)["Contents"]
        if item["Key"] == "f"
    ]
    # rclone verifies no newer checksum than MD5.
    md5 = hashlib.md5(b"x" * 4096, usedforsecurity=False).hexdigest()
    assert receipt == ["durable", etag, f"md5:{md5}"]


def test_sparse_files_are_read_rightly(vm: ClientVm, make_gateway: MakeGateway) -> None:
    """Each version that is offered reads them. Linux 6.6 and later ask with READ_PLUS in 4.2."""
    gateway = make_gateway()
    kernel = vm.run(["uname", "-r"]).stdout.strip()
    for version in OFFERED:
        vm.umount()
        vm.mount(gateway.port, version=version)
        name = f"sparse-{version}"
        made = vm.run([PYTHON, "-"], stdin=SPARSE % (str(MOUNT / name), version == "4.2"))
        expected = json.loads(made.stdout)
        assert len(set(expected.values())) == len(expected) > 5
        assert read_back(vm, name) == expected
        vm.run(["cp", "-r", str(MOUNT / name), str(MOUNT / f"{name}-copy")])
        assert read_back(vm, f"{name}-copy") == expected
        counts = vm.run(["grep", "-E", "\\sREAD(_PLUS)?:", "/proc/self/mountstats"]).stdout
        asked = {line.split(":")[0].strip(): int(line.split()[1]) for line in counts.splitlines()}
        print(f"kernel {kernel}, NFSv{version}: {asked}")
        # It asks in vain once or a few times, until it knows.
        assert asked["READ"] > 10 > asked.get("READ_PLUS", 0)


def test_4_2_is_refused_if_switched_off(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway(nfs={"version_4_2": "off"})
    vm.umount()
    with pytest.raises(ClientError):
        vm.mount(gateway.port, version="4.2")
    vm.mount(gateway.port, version="4.0")
    assert vm.run(["ls", str(MOUNT)]).exit_status == 0
