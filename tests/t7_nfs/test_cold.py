"""The kernel's client reads, changes and truncates files whose bytes were evicted."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from pathlib import Path

from tests.support.client import MOUNT, PYTHON, read_back, save
from tests.support.datafiles import allocated_bytes
from tests.support.disks import small_disk
from tests.support.s3proxy import Act
from tests.support.s3server import flip
from tests.support.vm.client import ClientVm
from tests.support.waiting import until
from tests.t7_nfs.conftest import MIB, MakeGateway

KIB = 1024
SPARSE_BYTES = 24 * MIB
DATA = ((5 * MIB, 6 * MIB), (20 * MIB, 20 * MIB + 64 * KIB))
"""What has bytes in a sparse file. The hydrator leaves holes of this size as they were."""
MAKE_SPARSE = """
import os
with open("%s", "wb") as file:
    file.truncate(%d)
    for start, end in %r:
        file.seek(start)
        file.write(os.urandom(end - start))
"""
EXTENTS = """
import errno, json, os
found = []
with open("%s", "rb") as file:
    try:
        start = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        while True:
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            found.append([start, end])
            start = os.lseek(file.fileno(), end, os.SEEK_DATA)
    except OSError as exc:
        assert exc.errno == errno.ENXIO
print(json.dumps(found))
"""


def available_bytes(vm: ClientVm) -> int:
    """Return the room that a client is told to have."""
    return int(vm.run(f"df --output=avail -B1 {MOUNT} | tail -1").stdout)


def test_a_cold_checkpoint_is_read_back(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    files, _seconds = save(vm, "step_1", ranks=2, mib=5)
    gateway.until_drained()
    gateway.evict("step_1")
    assert allocated_bytes(gateway.files_dir) < MIB
    assert vm.run(f"stat -c %s {MOUNT}/step_1/*").stdout.split() == [str(5 * MIB)] * 2
    assert read_back(vm, "step_1") == files
    until(
        lambda: allocated_bytes(gateway.files_dir) >= 2 * 5 * MIB,
        "all files to be whole again",
    )
    # They are served from the disk now, also without the bucket.
    gateway.server.stop()
    vm.drop_caches()
    vm.run(f"cat {MOUNT}/step_1/* > /dev/null")


def test_a_cold_file_is_changed_and_emptied(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    vm.run(f"cd {MOUNT} && head -c 5000000 /dev/urandom > a && cp a b && cp a {'/tmp'}/a && sync")
    gateway.until_drained()
    gateway.evict("a", "b")
    vm.drop_caches()
    vm.run(f"cd {MOUNT} && printf more >> a && printf more >> /tmp/a && cmp a /tmp/a && : > b")
    assert vm.run(f"stat -c %s {MOUNT}/a {MOUNT}/b").stdout.split() == ["5000004", "0"]
    gateway.until_drained()
    gateway.evict("a")
    vm.drop_caches()
    vm.run(f"cmp {MOUNT}/a /tmp/a")
    checked = gateway.status()
    assert checked["dirty"]["files"] == 0


def test_a_damaged_object_is_an_error_and_no_wrong_byte(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    gateway = make_gateway()
    vm.run(f"cd {MOUNT} && head -c 5000000 /dev/urandom > bad && cp bad good && sync")
    gateway.until_drained()
    gateway.evict("bad", "good")
    vm.drop_caches()
    stored = gateway.stored("bad")
    flip(stored, 4 * MIB + 5)
    done = vm.run(f"cat {MOUNT}/bad > /dev/null", check=False)
    assert done.exit_status != 0 and "Input/output error" in done.stderr
    vm.run(f"cat {MOUNT}/good > /dev/null")
    # The report of the hydrator is written once a second.
    until(lambda: '"path": "bad"' in json.dumps(gateway.status()), "it is shown as damaged")
    flip(stored, 4 * MIB + 5)
    until(
        lambda: vm.run(f"cat {MOUNT}/bad > /dev/null", check=False).exit_status == 0,
        "the file after its object was repaired",
        90.0,
    )


def test_the_room_of_evicted_files_is_shown_and_given(
    tmp_path: Path, stack: ExitStack, vm: ClientVm, make_gateway: MakeGateway
) -> None:
    stack.enter_context(small_disk(tmp_path / "gateway" / "data", tmp_path / "image", 128))
    gateway = make_gateway(space={"reserve_bytes": MIB}, cache={"evict_from": 1.0})
    files, _seconds = save(vm, "step_1", ranks=2, mib=24)
    gateway.until_drained()
    before = available_bytes(vm)
    gateway.evict("step_1")
    freed = 2 * 24 * MIB
    until(lambda: available_bytes(vm) > before + freed - 2 * MIB, "the room of the evicted files")
    # A file that is larger than the room of before.
    mib = before // MIB + 16
    vm.run(
        ["dd", "if=/dev/zero", f"of={MOUNT}/large", "bs=1M", f"count={mib}", "conv=fsync"],
        timeout_seconds=180.0,
    )
    vm.run(["rm", str(MOUNT / "large")])
    assert read_back(vm, "step_1") == files


def test_an_evicted_file_keeps_its_allocated_bytes(vm: ClientVm, make_gateway: MakeGateway) -> None:
    """So `du` tells what a tree needs on a disk, and not what is on this one."""
    gateway = make_gateway()
    vm.run([PYTHON, "-c", MAKE_SPARSE % (MOUNT / "sparse", SPARSE_BYTES, DATA)])
    vm.run(f"cd {MOUNT} && mkdir d && mv sparse d && head -c 3000000 /dev/urandom > d/full")
    gateway.until_drained()

    def told() -> list[str]:
        vm.drop_caches()
        asked = f"cd {MOUNT} && stat -c '%n %s %b' d/* && du -k d && du -k --apparent-size d"
        return vm.run(asked).stdout.splitlines()

    before = told()
    assert int(before[1].split()[2]) * 512 in range(MIB, 2 * MIB)
    gateway.evict("d")
    assert allocated_bytes(gateway.files_dir) < MIB
    assert told() == before
    # The server has the attributes of before in memory. Another one has those of the row.
    gateway.kill("ganesha")
    gateway.until_said("ganesha ready", 2)
    assert told() == before
    vm.run(f"cat {MOUNT}/d/* > /dev/null")
    until(lambda: allocated_bytes(gateway.files_dir) > 3 * MIB, "the files to be whole again")
    assert told() == before


def test_a_seek_in_an_evicted_file_waits_and_finds_the_same_holes(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    gateway = make_gateway(nfs={"version_4_2": "on"})
    sparse = MOUNT / "sparse"
    vm.run([PYTHON, "-c", MAKE_SPARSE % (sparse, SPARSE_BYTES, DATA)])
    digest = vm.run(["sha256sum", str(sparse)]).stdout
    gateway.until_drained()
    gateway.evict("sparse")
    # Only SEEK is asked of NFSv4.2: Linux 6.6 and later would read with READ_PLUS there.
    vm.umount()
    vm.mount(gateway.port, version="4.2")
    held = gateway.proxy.inject(lambda request: "range" in request.headers, Act.HOLD, math.inf)
    seeking = vm.start([PYTHON, "-c", EXTENTS % sparse])
    held.wait()
    # The data file has no byte yet: it is one hole.
    assert vm.run(["stat", "-c", "%s", str(sparse)]).stdout.split() == [str(SPARSE_BYTES)]
    assert not seeking.done
    held.release()
    assert json.loads(seeking.wait().stdout) == [list(data) for data in DATA]
    counted = vm.run(["grep", "-E", "\\sSEEK:", "/proc/self/mountstats"]).stdout.split()
    assert int(counted[1]) > 0, "the client did not ask the server"
    vm.umount()
    vm.mount(gateway.port)
    assert vm.run(["sha256sum", str(sparse)]).stdout == digest
