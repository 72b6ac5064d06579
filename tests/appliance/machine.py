"""Boots the machine and runs commands on it, through ssh."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from tests.appliance.image import Image
from tests.support.s3server import free_port

HOST = "10.0.2.2"
"""This machine, as the machine sees it."""
BOOT_SECONDS = 600.0
MEMORY_MIB = 2048


class Machine:
    """A running machine; a context manager. It dies with this process, and forgets all changes of
    its first disk.

    Parameters: image; console, the file that gets its console; disks, raw files that it has as NVMe
    devices; ports, its ports that are to be reached from here.
    """

    def __init__(
        self, image: Image, console: Path, disks: Sequence[Path] = (), ports: Sequence[int] = ()
    ) -> None:
        self._image = image
        self._disks = disks
        self.console = console
        self.ports = {port: free_port() for port in (22, *ports)}
        """The ports of this machine that lead to those of the machine."""
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.boot_seconds = 0.0

    def __enter__(self) -> Self:
        self._log = self.console.open("wb")
        self._process = subprocess.Popen(
            self._argv(), stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )
        began = time.monotonic()
        until = began + BOOT_SECONDS
        while self.ssh("true", check=False, seconds=30).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > until:
                self.__exit__()
                raise AssertionError(f"the machine did not boot: {self.said()}")
            time.sleep(1.0)
        self.ssh("systemctl is-system-running --wait", check=False)
        self.boot_seconds = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._log is not None
        self._process.kill()
        self._process.wait()
        self._log.close()

    def said(self) -> str:
        """Return the end of the console."""
        return self.console.read_text(errors="replace")[-4000:]

    def ssh(
        self, script: str, *, check: bool = True, seconds: float = 600.0, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root. Raises AssertionError with its output when it fails."""
        done = subprocess.run(
            ["ssh", *self.ssh_options(), "-p", str(self.ports[22]), "root@127.0.0.1", script],
            input=stdin, capture_output=True, timeout=seconds,
        )  # fmt: skip
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if check and done.returncode != 0:
            raise AssertionError(f"{script}: exit status {done.returncode}\n{out}{err}")
        return subprocess.CompletedProcess(script, done.returncode, out, err)

    def put(self, file: Path, target: str) -> None:
        """Copy a file to the machine."""
        self.ssh(f"cat > '{target}'", stdin=file.read_bytes())

    def ssh_options(self) -> list[str]:
        """Return the options with which ssh reaches the machine without a question."""
        return [
            *("-i", str(self._image.key.absolute()), "-o", "StrictHostKeyChecking=no"),
            *("-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"),
            *("-o", "ConnectTimeout=20", "-o", "BatchMode=yes"),
        ]

    def _argv(self) -> list[str]:
        forwards = "".join(
            f",hostfwd=tcp:127.0.0.1:{here}-:{there}" for there, here in self.ports.items()
        )
        disks = [
            word
            for number, disk in enumerate(self._disks)
            for word in (
                *("-drive", f"file={disk},format=raw,if=none,id=disk{number}"),
                *("-device", f"nvme,serial=spillway{number},drive=disk{number}"),
            )
        ]
        return [
            *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
            *("-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2", "-m", str(MEMORY_MIB)),
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-serial", "stdio", "-device", "virtio-rng-pci"),
            *("-kernel", str(self._image.kernel), "-initrd", str(self._image.initramfs)),
            *("-append", "root=/dev/vda rw console=ttyS0 panic=1 systemd.show_status=1"),
            *("-drive", f"file={self._image.disk},format=raw,if=virtio,snapshot=on"),
            *disks,
            *("-netdev", f"user,id=net{forwards}", "-device", "virtio-net-pci,netdev=net,romfile="),
        ]
