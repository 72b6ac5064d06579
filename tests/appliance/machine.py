"""Boots a machine and runs commands on it, through ssh."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from package.base import ROOT_DEVICE, Base
from tests.support.ports import free_port
from tests.support.waiting import until

HOST = "10.0.2.2"
"""This machine, as the machine sees it."""
BOOT_SECONDS = 900.0
MEMORY_MIB = 2048


def bare(base: Base, disks: Sequence[Path] = ()) -> list[str]:
    """Return the options of qemu for a machine that forgets all changes of its first disk.

    Args:
        disks: raw files that it has as NVMe devices.
    """
    return [
        *("-kernel", str(base.kernel), "-initrd", str(base.initramfs)),
        *("-append", f"root={ROOT_DEVICE} rw console=ttyS0 panic=1 systemd.show_status=1"),
        *("-drive", f"file={base.disk},format=raw,if=virtio,snapshot=on"),
        *(
            word
            for number, disk in enumerate(disks)
            for word in (
                *("-drive", f"file={disk},format=raw,if=none,id=disk{number}"),
                *("-device", f"nvme,serial=spillway{number},drive=disk{number}"),
            )
        ),
    ]


class Machine:
    """A machine; as a context manager it runs and answers. It dies with this process.

    Args:
        hardware: options of qemu for its disks.
        key: that opens it.
        console: the file that gets its console.
        ports: those of this machine by the ports of the machine to which they lead, that of ssh
            among them (default: only that).
    """

    def __init__(
        self,
        hardware: Sequence[str],
        key: Path,
        console: Path,
        ports: Mapping[int, int] | None = None,
    ) -> None:
        self._hardware = hardware
        self._key = key
        self.console = console
        self.ports = {22: free_port()} if ports is None else ports
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> None:
        """Switch it on."""
        self._log = self.console.open("wb")
        self._process = subprocess.Popen(
            self._argv(), stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )

    def until_reached(self) -> None:
        """Wait until it has booted. Raises AssertionError."""
        end = time.monotonic() + BOOT_SECONDS
        while self.ssh("true", check=False, seconds=60).returncode != 0:
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise AssertionError(f"the machine did not boot: {self.said()}")
            time.sleep(1.0)

    def until_off(self, seconds: float = 300.0) -> None:
        """Wait until it has switched itself off. Raises TimeoutExpired."""
        assert self._process is not None
        self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """Cut its power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        self.start()
        self.until_reached()
        self.ssh("systemctl is-system-running --wait", check=False)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def shown(self) -> str:
        """Return all that the console shows."""
        return self.console.read_text(errors="replace")

    def said(self) -> str:
        """Return the end of the console."""
        return self.shown()[-4000:]

    def ssh(
        self, script: str, *, check: bool = True, seconds: float = 600.0, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root. Raises AssertionError with its output when it fails."""
        done = subprocess.run(
            self.ssh_command(script), input=stdin, capture_output=True, timeout=seconds
        )
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if check and done.returncode != 0:
            raise AssertionError(f"{script}: exit status {done.returncode}\n{out}{err}")
        return subprocess.CompletedProcess(script, done.returncode, out, err)

    def ssh_command(self, script: str) -> list[str]:
        """Return the command that runs a shell script as root."""
        return [
            *("ssh", *self.ssh_options(), "-p", str(self.ports[22])),
            *("root@127.0.0.1", script),
        ]

    def until_active(self, *units: str) -> None:
        """Wait until all of these units run. Raises AssertionError."""
        script = "".join(f"systemctl is-active --quiet {unit} || exit 1; " for unit in units)
        until(lambda: self.ssh(script, check=False).returncode == 0, " ".join(units), BOOT_SECONDS)

    def put(self, file: Path, target: str) -> None:
        """Copy a file to the machine."""
        self.ssh(f"cat > '{target}'", stdin=file.read_bytes())

    def ssh_options(self) -> list[str]:
        """Return the options with which ssh reaches the machine without a question."""
        return [
            *("-i", str(self._key.absolute()), "-o", "StrictHostKeyChecking=no"),
            *("-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"),
            *("-o", "ConnectTimeout=20", "-o", "BatchMode=yes"),
        ]

    def _argv(self) -> list[str]:
        forwards = "".join(
            f",hostfwd=tcp:127.0.0.1:{port}-:{there}" for there, port in self.ports.items()
        )
        return [
            *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
            *("-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2", "-m", str(MEMORY_MIB)),
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-serial", "stdio", "-device", "virtio-rng-pci"),
            *self._hardware,
            *("-netdev", f"user,id=net{forwards}", "-device", "virtio-net-pci,netdev=net,romfile="),
        ]
