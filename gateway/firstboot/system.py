"""Gives the system what the site says of it: name, address, and the keys of ssh."""

from __future__ import annotations

from pathlib import Path

from gateway import atomic
from gateway.firstboot.command import run
from gateway.firstboot.site import Machine


def apply(machine: Machine, root: Path = Path("/")) -> None:
    """Apply it. Parameters: root of the system, which tests set. Raises OSError, UserError."""
    if machine.hostname:
        _write(root, "etc/hostname", f"{machine.hostname}\n")
        names = " ".join(dict.fromkeys([machine.hostname, machine.hostname.partition(".")[0]]))
        _write(root, "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {names}\n")
    if machine.ssh_keys:
        keys = "".join(f"{one}\n" for one in machine.ssh_keys)
        _write(root, "root/.ssh/authorized_keys", keys, 0o600)
    if machine.address:
        _write(root, "etc/systemd/network/10-spillway.network", _network(machine))
    if root == Path("/"):
        if machine.hostname:
            run("hostname", machine.hostname)
        if machine.address:
            run("systemctl", "restart", "systemd-networkd")


def _network(machine: Machine) -> str:
    lines = [
        *("# Written at the first boot.", "[Match]", f"Name={machine.interface}"),
        *("[Network]", f"Address={machine.address}"),
        *([f"Gateway={machine.gateway}"] if machine.gateway else []),
        *(f"DNS={one}" for one in machine.nameservers),
    ]
    return "".join(f"{line}\n" for line in lines)


def _write(root: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = root / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.replace(path, text, mode)
