"""On a full disk, at the dirty limit or on a failing disk, writers wait and then get an error.

Nothing that was answered is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.client import MOUNT, read_back, save, saved, start_program, start_save
from tests.support.datafiles import allocated_bytes, data_files
from tests.support.disks import ThinDisk, small_disk
from tests.support.gateway import Gateway
from tests.support.stopping import stopped
from tests.support.t7.save import below, digests
from tests.support.vm.client import ClientVm, Command
from tests.support.waiting import until
from tests.t7_nfs.conftest import MIB, MakeGateway

MIB_WRITTEN = 24
CRASH_TRIES = 5
WRITE_TRIES = 5
LOAD = Path(__file__).parents[2] / "build" / "bench" / "nfsload"


def level(gateway: Gateway) -> str:
    space = gateway.status()["space"]
    return "unknown" if space is None else str(space["level"])


def until_level(gateway: Gateway, *wanted: str) -> None:
    until(lambda: level(gateway) in wanted, f"level {wanted}", 60.0)


def test_a_full_disk_makes_writers_wait_and_then_says_so(
    tmp_path: Path, stack: ExitStack, vm: ClientVm, make_gateway: MakeGateway
) -> None:
    stack.enter_context(small_disk(tmp_path / "gateway" / "data", tmp_path / "image", 128))
    gateway = make_gateway(space={"reserve_bytes": 24 * MIB, "full_wait_seconds": 3.0})
    files, _seconds = save(vm, "step_1", ranks=2, mib=8)
    failed = vm.start(
        ["dd", "if=/dev/zero", f"of={MOUNT}/big", "bs=1M", "count=200"], timeout_seconds=180
    )
    until_level(gateway, "full")
    status = gateway.spillway("status", check=False)
    assert status.returncode == 1
    assert "FULL for" in status.stdout
    done = failed.wait(check=False)
    assert done.exit_status != 0
    assert "No space left on device" in done.stderr
    # Names can still be changed, and the saved files are there.
    vm.run(f"cd {MOUNT} && mkdir later && mv step_1 later/step_1 && ls later")
    assert read_back(vm, "later/step_1") == files
    available = int(vm.run(f"df --output=avail -B1 {MOUNT} | tail -1").stdout)
    assert available < 8 * MIB
    # After room is made, writes succeed again.
    vm.run(["rm", str(MOUNT / "big")])
    until_level(gateway, "room")
    again, _seconds = save(vm, "step_2", ranks=2, mib=8)
    assert read_back(vm, "step_2") == again
    assert gateway.status()["healthy"]
    gateway.until_drained()
    assert digests(gateway) == below("later/step_1", files) | below("step_2", again)


@pytest.mark.alone
def test_at_the_dirty_limit_writers_wait_for_the_bucket(
    vm: ClientVm, make_gateway: MakeGateway
) -> None:
    gateway = make_gateway(
        space={"dirty_limit_bytes": 48 * MIB, "full_wait_seconds": 600.0, "reserve_bytes": MIB}
    )
    _files, usual_seconds = save(vm, "step_1", ranks=4, mib=4, seed=1)
    gateway.until_drained()
    gateway.server.stop()
    # Twice the usual amount fits below the limit, so no writer waits for the bucket.
    kept, seconds = save(vm, "step_2", ranks=4, mib=8, seed=2)
    assert seconds < 3 * 2 * usual_seconds + 2
    assert level(gateway) == "room"
    # More than that does not fit. (The files that have temporary names at the same time must fit,
    # or no save could end.)
    running = start_save(vm, "step_3", ranks=4, mib=2, shards=8, seed=3)
    until_level(gateway, "slow", "full")
    assert not running.done
    # step_1 is in the bucket.
    assert allocated_bytes(gateway.files_dir) <= 16 * MIB + 48 * MIB
    gateway.server.start()
    files, _seconds = saved(running)
    assert read_back(vm, "step_3") == files
    gateway.until_drained(120.0)
    found = digests(gateway)
    assert found.items() >= (below("step_2", kept) | below("step_3", files)).items()
    until_level(gateway, "room")
    assert gateway.status()["healthy"]


def test_writes_lost_in_a_crash_are_sent_again(vm: ClientVm, make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    is_lost = False
    for number in range(CRASH_TRIES):
        name = f"model-{number}.pt"
        commits_before = commits(vm)
        data, saving = start_unsynced(gateway, vm, name)
        with stopped(gateway.up_pid), stopped(gateway.pid("ganesha")):
            # Bytes that a COMMIT confirmed may not be lost, and a file that has arrived as a whole
            # is about to be committed. A slow client also commits a part of the file early.
            on_disk = data.stat().st_blocks * 512
            if on_disk < MIB_WRITTEN * MIB and commits(vm) == commits_before:
                is_lost = True
                gateway.kill("ganesha")
                os.truncate(data, 0)  # A power cut does this to bytes that were not synced.
        digest = saving.wait().stdout.strip()
        if is_lost:
            break
    assert is_lost, f"the client committed too early in each of {CRASH_TRIES} tries"
    gateway.until_said("ganesha ready", 2)
    assert read_back(vm, ".")[name] == digest


def start_unsynced(gateway: Gateway, vm: ClientVm, name: str) -> tuple[Path, Command]:
    """Begin to fsync a file that is in the client's cache. Returns its data file, of which a part
    has arrived, and the program."""
    go = f"/tmp/{name}.go"
    saving = start_program(vm, "unsynced.py", MOUNT / name, str(MIB_WRITTEN), go)
    until(
        lambda: vm.run(["test", "-e", f"{go}.ready"], check=False).exit_status == 0,
        "a file in the client's cache",
        60.0,
    )
    # The gateway writes receipts meanwhile, which have data files too.
    ino = int(vm.run(["stat", "-c", "%i", str(MOUNT / name)]).stdout)

    def written() -> list[Path]:
        files = data_files(gateway.files_dir, ino)
        return [path for path, stat in files.items() if stat.st_blocks]

    vm.run(["touch", go])
    [data] = until(written, "the first writes")
    return data, saving


def commits(vm: ClientVm) -> int:
    """Return how many COMMITs of the client's mounts were answered."""
    lines = vm.run(["cat", "/proc/self/mountstats"]).stdout.splitlines()
    return sum(int(line.split()[1]) for line in lines if line.strip().startswith("COMMIT:"))


def test_a_failing_disk_fails_that_file_and_no_other(
    tmp_path: Path, stack: ExitStack, vm: ClientVm, make_gateway: MakeGateway
) -> None:
    disk = ThinDisk(tmp_path / "gateway" / "data" / "files", tmp_path / "pool", 48, 256)
    stack.callback(disk.remove)
    gateway = make_gateway(
        space={"reserve_bytes": MIB},
        drain={"settle_seconds": 600},
        namespace={"url": f"sqlite:///{tmp_path}/namespace.db"},
    )
    files, _seconds = save(vm, "step_1", ranks=2, mib=4)
    before = write(gateway, "good", 1)
    done = vm.run(
        ["dd", "if=/dev/zero", f"of={MOUNT}/big", "bs=1M", "count=64", "conv=fsync"], check=False
    )
    assert done.exit_status != 0
    assert "Input/output error" in done.stderr
    disk.mend()
    # Uncommitted bytes of others may be lost too. The new verifier makes clients send them again.
    assert write(gateway, "other", 1) != before
    again = vm.run(f"printf x | dd of={MOUNT}/big bs=1 conv=notrunc,fsync", check=False)
    # The disk is repaired, but some bytes of the file are lost.
    assert again.exit_status != 0
    assert "Input/output error" in again.stderr
    # After the file is rewritten from the beginning, no lost byte is left in it.
    vm.run(f"printf whole | dd of={MOUNT}/big conv=fsync")
    assert vm.run(["cat", str(MOUNT / "big")]).stdout == "whole"
    assert read_back(vm, "step_1") == files


def write(gateway: Gateway, name: str, mib: int) -> str:
    """Write a file by another client. Returns the server's write verifier.

    The verifier changes with each file whose bytes were lost, and the load generator does not send
    its bytes again. The write is repeated then.
    """
    where = ("127.0.0.1", str(gateway.port), "/checkpoints")
    work = ("write", "--file", str(mib * MIB), "--prefix", name)
    for _try in range(WRITE_TRIES):
        done = subprocess.run([LOAD, *where, *work], capture_output=True, text=True, check=False)
        if "write verifier changed" not in done.stdout:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    verifier: str = json.loads(done.stdout)["write_verifier"]
    return verifier
