"""After a power cut of the gateway itself, everything that was answered is on its file system.

The gateway runs in a VM with a disk of its own and is killed with the VM. The guest's memory is
lost, and with it everything that was not flushed to the disk. The VM's processors are emulated.
Steps without a power cut therefore run on the host, where the disk is mounted.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.client import MOUNT, start_program
from tests.support.clisite import PROGRAM
from tests.support.confirmed import check, files_in
from tests.support.disks import make_ext4, mounted
from tests.support.gateway import BUCKET, Gateway
from tests.support.owner import own
from tests.support.s3server import RcloneServer
from tests.support.vm.build import build_image
from tests.support.vm.client import HOST_ADDRESS, ClientVm
from tests.support.volumes import query
from tests.t7_nfs.conftest import CACHE

CHECKOUT = Path(__file__).parents[2]
DISK = "/mnt/disk"
CONFIRMED = 12
DISK_MIB = 8192
"""The size of the disk. Its image is a sparse file."""
BOOT_SECONDS = 300.0
COMMAND_SECONDS = 600.0
UP_SECONDS = 900.0
DRAIN_SECONDS = 300.0
"""The deadlines suit an emulated machine: the gateway's imports take 20 s, or 60 s beside other
suites."""


@contextmanager
def machine(gateway: Gateway, s3: RcloneServer, disk: Path, console: Path) -> Iterator[ClientVm]:
    """Run the gateway in a VM, with its data on the disk, and mount it in the same VM.

    The checkout has the same path in the VM. The paths of the disk and of the bucket differ.
    """
    environ = {
        "SPILLWAY_GATEWAY_DATA_DIR": DISK,
        "SPILLWAY_BUCKET_ENDPOINT_URL": s3.url.replace("127.0.0.1", HOST_ADDRESS),
    }
    with ClientVm.boot(
        build_image(CACHE), console_log=console, disk=disk, cpus=2, deadline_seconds=BOOT_SECONDS
    ) as vm:
        vm.mount_disk(DISK)
        vm.run(f"mkdir -p {CHECKOUT} && mount --bind /run/host{CHECKOUT} {CHECKOUT}")
        up = f"exec {PROGRAM} up --config /run/host{gateway.config} > /run/up.log 2>&1"
        vm.start(up, env=environ, timeout_seconds=3600)
        ready = "until grep -q 'ganesha ready' /run/up.log; do sleep 0.2; done"
        done = vm.run(ready, timeout_seconds=UP_SECONDS, check=False)
        assert done.exit_status == 0, vm.run("cat /run/up.log").stdout
        vm.mount(gateway.port, address="127.0.0.1", timeout_seconds=COMMAND_SECONDS)
        yield vm


def confirmed_steps(vm: ClientVm, directory: str) -> int:
    """Let a client in the VM work until it has confirmed some steps, then cut the power.

    Returns how many steps the client has confirmed.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(COMMAND_SECONDS)
        port = str(listener.getsockname()[1])
        arguments = (MOUNT / directory, HOST_ADDRESS, port)
        start_program(vm, "confirm.py", *arguments, timeout_seconds=3600)
        connection, _ = listener.accept()
        connection.settimeout(COMMAND_SECONDS)
        with connection, connection.makefile("rb") as lines:
            for _ in range(CONFIRMED):
                assert lines.readline()
            vm.kill()
            # Steps whose lines were under way at the cut are confirmed too.
            return CONFIRMED + len(lines.readlines())


@pytest.mark.timeout(3600)  # the gateway runs on emulated processors
def test_what_was_answered_survives_a_power_cut(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    make_ext4(disk, DISK_MIB)
    data_dir = tmp_path / "gateway" / "data"
    with RcloneServer(tmp_path / "s3") as s3:
        with mounted(disk, data_dir):
            gateway = Gateway(
                tmp_path / "gateway",
                s3,
                values={"drain": {"settle_seconds": 2.0, "processes": 0}},
                say=print,
            )
        with machine(gateway, s3, disk, tmp_path / "console.0") as vm:
            answered = {"first": confirmed_steps(vm, "first")}
        with machine(gateway, s3, disk, tmp_path / "console.1") as vm:
            files = files_in(vm, "first")
            answered["second"] = confirmed_steps(vm, "second")
        check(files, answered["first"])
        with mounted(disk, data_dir):
            # On the host it has another address of the bucket, as a copy of it would have.
            own(gateway.settings)
            with gateway:
                gateway.until_drained(DRAIN_SECONDS)
            gateway.spillway("fsck", "--checksums")
            drained = {name: sums(s3.files(f"{BUCKET}/{name}")) for name in answered}
            links = links_of(gateway)
        assert {**drained["first"], "latest": links["first"]} == files
        check({**drained["second"], "latest": links["second"]}, answered["second"])


def links_of(gateway: Gateway) -> dict[str, str]:
    """Return the target of the link "latest" of each directory, by the directory's name."""
    rows = query(
        gateway.settings,
        "SELECT directory.name, inode.target FROM inode"
        " JOIN dirent AS link ON link.ino = inode.ino"
        " JOIN dirent AS directory ON directory.ino = link.parent"
        " WHERE link.name = :name",
        name=b"latest",
    )
    return {os.fsdecode(directory): os.fsdecode(target) for directory, target in rows}


def sums(objects: dict[str, bytes]) -> dict[str, str]:
    """Return the sha256 of every object, by name."""
    return {name: hashlib.sha256(body).hexdigest() for name, body in objects.items()}
