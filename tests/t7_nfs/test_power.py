"""A power cut of the gateway itself: what was answered is there, on a real file system.

The gateway runs in a VM with a disk of its own and is killed with the VM: the guest's memory, and
with it everything that was not flushed to the disk, is gone.
"""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway import config
from tests.support.client import MOUNT, start_program
from tests.support.gateway import PLUGINS_DIR, PROGRAM
from tests.support.guest.confirm import KEPT, content
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer
from tests.support.tools import tool
from tests.support.vm.build import build_image
from tests.support.vm.client import HOST_ADDRESS, ClientVm, Command
from tests.t7_nfs.conftest import BUCKET, CACHE, MIB

CHECKOUT = Path(__file__).parents[2]
DISK = "/mnt/disk"
CONFIG = f"{DISK}/spillway.toml"
PORT = 2049
CONFIRMED = 12
DISK_MIB = 8192
"""Of which the file takes what is used."""
BOOT_SECONDS = 300.0
COMMAND_SECONDS = 600.0
UP_SECONDS = 900.0
DRAIN_SECONDS = 900.0
"""Everything is emulated here: the gateway's imports take 20 s, beside other suites 60 s."""


def spillway(vm: ClientVm, command: str, timeout_seconds: float = COMMAND_SECONDS) -> str:
    """Run a command of the gateway in the VM; what it printed."""
    done = vm.run(
        f"{PROGRAM} {command} --config {CONFIG}",
        env={"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY},
        timeout_seconds=timeout_seconds,
    )
    return done.stdout


@contextmanager
def machine(disk: Path, console: Path) -> Iterator[ClientVm]:
    """A VM with the disk mounted and the checkout in its place (the VM's /tmp is its own)."""
    with ClientVm.boot(
        build_image(CACHE), console_log=console, disk=disk, deadline_seconds=BOOT_SECONDS
    ) as vm:
        vm.mount_disk(DISK)
        vm.run(f"mkdir -p {CHECKOUT} && mount --bind /run/host{CHECKOUT} {CHECKOUT}")
        yield vm


def bring_up(vm: ClientVm) -> Command:
    """Start the gateway and mount it, in the VM. Returns the running command."""
    up = vm.start(f"exec {PROGRAM} up --config {CONFIG} > /run/up.log 2>&1", timeout_seconds=3600)
    wait = "until grep -q 'ganesha ready' /run/up.log; do sleep 0.2; done"
    done = vm.run(wait, timeout_seconds=UP_SECONDS, check=False)
    assert done.exit_status == 0, vm.run("cat /run/up.log").stdout
    vm.mount(PORT, address="127.0.0.1", timeout_seconds=COMMAND_SECONDS)
    return up


def confirmed_steps(vm: ClientVm, directory: str) -> int:
    """Let a client in the VM work until it has confirmed some steps; then cut the power.

    Returns how many steps the client had been answered.
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
            # What was on its way was answered too.
            return CONFIRMED + len(lines.readlines())


def files_in(vm: ClientVm, directory: str) -> dict[str, str]:
    """sha256 of every file, by name; of a link where it points to."""
    look = f"cd {MOUNT / directory} && sha256sum *.pt && readlink latest"
    *sums, latest = vm.run(look).stdout.splitlines()
    return {"latest": latest, **{name: found for found, name in map(str.split, sums)}}


@pytest.mark.timeout(3600)  # the gateway runs on emulated processors
def test_what_was_answered_survives_a_power_cut(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with disk.open("wb") as image:
        image.truncate(DISK_MIB * MIB)
    subprocess.run([tool("mkfs.ext4"), "-q", disk], check=True)
    with RcloneServer(tmp_path / "s3") as s3:
        s3.client().create_bucket(Bucket=BUCKET)
        text = config.render(
            {
                "gateway": {"data_dir": f"{DISK}/data"},
                "nfs": {
                    "bind": "127.0.0.1",
                    "port": PORT,
                    "plugins_dir": PLUGINS_DIR,
                    "lease_seconds": 10,
                    "grace_seconds": 15,
                },
                "bucket": {
                    "name": BUCKET,
                    "endpoint_url": s3.url.replace("127.0.0.1", HOST_ADDRESS),
                },
                "drain": {"settle_seconds": 2.0, "processes": 0},
            }
        )
        with machine(disk, tmp_path / "console.0") as vm:
            vm.run(f"cat > {CONFIG}; sync", stdin=text)
            spillway(vm, "init")
            bring_up(vm)
            answered = {"first": confirmed_steps(vm, "first")}
        with machine(disk, tmp_path / "console.1") as vm:
            bring_up(vm)
            found = files_in(vm, "first")
            answered["second"] = confirmed_steps(vm, "second")
        check(found, answered["first"])
        with machine(disk, tmp_path / "console.2") as vm:
            up = bring_up(vm)
            assert files_in(vm, "first") == found
            check(files_in(vm, "second"), answered["second"])
            spillway(vm, "drain --wait", DRAIN_SECONDS)
            status = json.loads(spillway(vm, "status --json"))
            assert status["dirty"]["files"] == 0
            vm.umount()
            vm.run(["pkill", "-TERM", "-f", "spillway up"])
            up.wait(60, check=False)
            spillway(vm, "fsck")
        for directory, steps in answered.items():
            for step in sure(steps):
                path = s3.directory / BUCKET / directory / f"{step}.pt"
                assert path.read_bytes() == content(step)


def check(found: dict[str, str], steps: int) -> None:
    """Every confirmed step is there, and what it took away is not.

    One more may have been confirmed without our hearing of it, and the next one be half done.
    """
    digests = {step_of(name): digest for name, digest in found.items() if name != "latest"}
    assert step_of(found["latest"]) in range(steps - 1, steps + 2)
    assert set(sure(steps)) <= set(digests) <= set(range(steps - KEPT, steps + 2))
    for step, digest in digests.items():
        assert digest == hashlib.sha256(content(step)).hexdigest()


def step_of(name: str) -> int:
    return int(name.removesuffix(".pt"))


def sure(steps: int) -> range:
    """Steps whose files must be there, so many having been confirmed."""
    return range(steps - KEPT + 2, steps)
