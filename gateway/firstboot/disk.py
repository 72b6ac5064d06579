"""Makes the file system of the data, as the Ansible role ``storage`` does, and mounts it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gateway import atomic
from gateway.errors import UserError
from gateway.firstboot.command import run
from gateway.firstboot.drive import appeared
from gateway.firstboot.site import DATA_DIR

LABEL = "spillway"
OPTIONS = {
    "xfs": "noatime,nodev,nosuid,noexec",
    "ext4": "noatime,nodev,nosuid,noexec,data=ordered,barrier=1,errors=remount-ro",
}
"""Those of the role, by the type of the file system; the role makes either of them. None switches
barriers off: an fsync that was answered is on the device."""
UNIT = Path("/etc/systemd/system/var-lib-spillway.mount")
_MOUNT = """\
# Written at the first boot.
[Unit]
Description=The data of Spillway
Before=spillway.target

[Mount]
What=/dev/disk/by-label/{label}
Where={where}
Type={type}
Options={options}

[Install]
WantedBy=multi-user.target
RequiredBy=spillway.target
"""


def require(device: Path) -> None:
    """Raise UserError unless a disk is there, is empty or has the data of a gateway, and no other
    disk can be taken for it."""
    if appeared(device) is None:
        raise UserError(f"there is no disk {device}: attach it, or correct machine.data_device")
    # The unit mounts by the label: with two of them it would mount either.
    others = [one for one in _labelled() if not one.samefile(device)]
    if others:
        raise UserError(
            f"{others[0]} has the label {LABEL} too, and could be mounted instead of {device}: "
            "detach it, or correct machine.data_device"
        )
    found = run("wipefs", "--noheadings", "--parsable", str(device))
    if found and not _is_ours(device):
        raise UserError(
            f"{device} has something on it that is no gateway's, and it may be data: attach an "
            f"empty disk, or run wipefs -a {device} elsewhere if none of it is needed"
        )


def mount(device: Path) -> str:
    """Mount a disk for the data, after ``require``. Returns what was done. Raises UserError."""
    made = not _is_ours(device)
    if made:
        run("mkfs.xfs", "-q", "-L", LABEL, str(device))
        # The unit waits for the link that udev makes of the label.
        run("udevadm", "trigger", "--settle", str(device))
    kind = _told("TYPE", device)
    unit = _MOUNT.format(label=LABEL, where=DATA_DIR, type=kind, options=OPTIONS[kind])
    atomic.replace(UNIT, unit, 0o644)
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", "--quiet", UNIT.name)
    return f"data: {device}: {'an XFS was made' if made else 'it has the data of a gateway'}"


def _is_ours(device: Path) -> bool:
    return _told("LABEL", device) == LABEL and _told("TYPE", device) in OPTIONS


def _told(tag: str, device: Path) -> str:
    """Return what a device tells of its file system, or nothing."""
    blkid = ["blkid", "--probe", "--output", "value", "--match-tag", tag, str(device)]
    return subprocess.run(blkid, capture_output=True, text=True).stdout.strip()


def _labelled() -> list[Path]:
    """Return all devices with the label. They are read: a cache may have a label of before."""
    blkid = ["blkid", "--cache-file", "/dev/null", "--output", "device"]
    found = subprocess.run(
        [*blkid, "--match-token", f"LABEL={LABEL}"], capture_output=True, text=True
    )
    return [Path(line) for line in found.stdout.splitlines()]
