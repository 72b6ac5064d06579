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
OPTIONS = "noatime,nodev,nosuid,noexec"
"""Those of the role. None switches barriers off: an fsync that was answered is on the device."""
UNIT = Path("/etc/systemd/system/var-lib-spillway.mount")
_MOUNT = """\
# Written at the first boot.
[Unit]
Description=The data of Spillway
Before=spillway.target

[Mount]
What=/dev/disk/by-label/{label}
Where={where}
Type=xfs
Options={options}

[Install]
WantedBy=multi-user.target
RequiredBy=spillway.target
"""


def require(device: Path) -> None:
    """Raise UserError unless a disk is there, and is empty or has the data of a gateway."""
    if appeared(device) is None:
        raise UserError(f"there is no disk {device}: attach it, or correct machine.data_device")
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
    atomic.replace(UNIT, _MOUNT.format(label=LABEL, where=DATA_DIR, options=OPTIONS), 0o644)
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", "--quiet", UNIT.name)
    return f"data: {device}: {'an XFS was made' if made else 'it has the data of a gateway'}"


def _is_ours(device: Path) -> bool:
    blkid = ["blkid", "--probe", "--output", "value", "--match-tag", "LABEL", str(device)]
    return subprocess.run(blkid, capture_output=True, text=True).stdout.strip() == LABEL
