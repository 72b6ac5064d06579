"""A machine of the image: its disks, the drive with what a site says, and the cable to a client."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.appliance.machine import Machine
from tests.support.ports import free_port
from tests.support.tools import tool

ADDRESS = "10.77.0.15"
CLIENT_ADDRESS = "10.77.0.2"
CARD = "ens16"
"""The card at the cable, by its place on the bus."""
DATA_DEVICE = "/dev/disk/by-id/virtio-data"
DATA_BYTES = 4 * 1024**3
DRIVE_KIB = 4096
PRESSES, PRESS_SECONDS = 10, 30.0


class Appliance:
    """The parts, in a directory: the machine keeps what it writes. As a cable a pair of UDP ports
    is used, so a machine without power is silent, as it would be.

    Args:
        image: the qcow2.
        ports: its ports that are to be reached from here.
        system: qemu's device for the disk of the system.
    """

    def __init__(
        self,
        image: Path,
        directory: Path,
        ports: Sequence[int] = (),
        system: str = "virtio-blk-pci",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._drive = directory / "drive"
        self._monitor = directory / "monitor"
        self.data = directory / "data"
        self.key = directory / "key"
        self._here, self._there = free_port(), free_port()
        disk = directory / "system.qcow2"
        options = ["-q", "-f", "qcow2", "-F", "qcow2", "-b", str(image.absolute())]
        subprocess.run(["qemu-img", "create", *options, disk], check=True)
        with self.data.open("wb") as file:
            file.truncate(DATA_BYTES)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        self._hardware = [
            *("-drive", f"file={disk},format=qcow2,if=none,id=system,cache=writeback"),
            # Without an order the BIOS takes the first disk on the bus, which may be another one.
            *("-device", f"{system},drive=system,bootindex=1"),
            *("-drive", f"file={self._drive},format=raw,if=virtio,readonly=on"),
            *("-netdev", f"socket,id=cable,{_cable(self._here, self._there)}"),
            *("-device", "virtio-net-pci,netdev=cable,romfile=,addr=0x10"),
            *("-monitor", f"unix:{self._monitor},server,nowait"),
        ]
        self.directory = directory
        self.ports = {port: free_port() for port in (22, *ports)}
        """The ports of this machine, by those of the machine to which they lead."""

    def machine(self, name: str, data: str | None = None) -> Machine:
        """Return the machine, to be switched on.

        Args:
            name: name of its console.
            data: how qemu finds the disk of the data (default: the file).
        """
        found = data or f"file={self.data}"
        hardware = [
            *self._hardware,
            *("-drive", f"{found},format=raw,if=none,id=data,cache=writeback"),
            *("-device", "virtio-blk-pci,drive=data,serial=data"),
        ]
        console = self.directory / f"console-{name}.log"
        return Machine(hardware, self.key, console, self.ports)

    def client_cable(self) -> list[str]:
        """Return the options of qemu for the other end of the cable."""
        return [
            *("-netdev", f"socket,id=cable,{_cable(self._there, self._here)}"),
            *("-device", "virtio-net-pci,netdev=cable,romfile="),
        ]

    def write_drive(self, text: str) -> None:
        """Make the drive with what the site says. Only while the machine is off."""
        files = self.directory / "files"
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir()
        (files / "spillway.toml").write_text(text, encoding="utf-8")
        with self._drive.open("wb") as file:
            file.truncate(DRIVE_KIB * 1024)
        subprocess.run(
            [
                *(tool("mke2fs"), "-q", "-t", "ext4", "-L", "FIRSTBOOT", "-d", files),
                self._drive,
            ],
            check=True,
        )

    def switch_off(self, machine: Machine) -> None:
        """Press the button of the machine until it has switched itself off. One that has just
        booted does not watch its button yet. Raises AssertionError."""
        for _ in range(PRESSES):
            self._press_power()
            with suppress(subprocess.TimeoutExpired):
                return machine.until_off(PRESS_SECONDS)
        raise AssertionError(f"the machine does not switch itself off: {machine.said()}")

    def _press_power(self) -> None:
        # It may have switched itself off in this moment.
        with suppress(OSError), socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self._monitor))
            _until_prompt(monitor)
            monitor.sendall(b"system_powerdown\n")
            # qemu drops a command whose sender closes before it was done.
            _until_prompt(monitor)


def _until_prompt(monitor: socket.socket) -> None:
    said = b""
    while not said.endswith(b"(qemu) "):
        more = monitor.recv(4096)
        if not more:
            return
        said += more


def _cable(own: int, other: int) -> str:
    return f"udp=127.0.0.1:{other},localaddr=127.0.0.1:{own}"
