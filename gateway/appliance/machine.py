"""System side of the first boot: the first-boot file, system settings and the data disk.

The first-boot file is on a drive with its label, or where cloud-init put it. Name, address and SSH
keys of the site are written to the system. The data disk gets its file system as the Ansible role
``storage`` makes it, and is mounted.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from gateway.appliance.site import DATA_DIR, SOURCE, SiteMachine
from gateway.common import files
from gateway.common.errors import UserError


def run(*command: str) -> str:
    """Run a program. Returns what it says. Raises UserError when it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        output = " ".join((done.stderr or done.stdout).split())
        raise UserError(f"{' '.join(command)} failed: {output}")
    return done.stdout


def apply(machine: SiteMachine, root: Path = Path("/")) -> None:
    """Apply it. Raises OSError, UserError.

    Args:
        root: root of the system, which tests set.
    """
    if machine.hostname:
        _write(root, "etc/hostname", f"{machine.hostname}\n")
        names = " ".join(dict.fromkeys([machine.hostname, machine.hostname.partition(".")[0]]))
        _write(root, "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {names}\n")
    if machine.ssh_keys:
        keys = "".join(f"{ssh_key}\n" for ssh_key in machine.ssh_keys)
        _write(root, "root/.ssh/authorized_keys", keys, 0o600)
    if machine.address:
        _write(root, "etc/systemd/network/10-spillway.network", _network(machine))
    if root == Path("/"):
        if machine.hostname:
            run("hostname", machine.hostname)
        if machine.address:
            run("systemctl", "restart", "systemd-networkd")


def _network(machine: SiteMachine) -> str:
    lines = [
        *("# Written at the first boot.", "[Match]", f"Name={machine.interface}"),
        *("[Network]", f"Address={machine.address}"),
        *([f"Gateway={machine.gateway}"] if machine.gateway else []),
        *(f"DNS={nameserver}" for nameserver in machine.nameservers),
    ]
    return "".join(f"{line}\n" for line in lines)


def _write(root: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = root / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.replace(path, text, mode)


CONFIG_LABEL = "FIRSTBOOT"
OWN = Path("/etc/spillway-first-boot")
"""Only root may write it: the user of the gateway could otherwise have root do what it says."""
GIVEN = OWN / SOURCE
"""cloud-init writes it (user data, write_files). It counts before a drive, and goes at the end."""
WAIT_SECONDS = 30.0
"""The kernel finds drives while the system boots."""
BYTES_MAX = 1024 * 1024


def text() -> str:
    """Return what the file says. Raises OSError, UserError."""
    if GIVEN.exists():
        # cloud-init makes files that all users may read, and it has the secret of the bucket.
        GIVEN.chmod(0o600)
        return _read(GIVEN)
    drive = appeared(Path("/dev/disk/by-label") / CONFIG_LABEL)
    if drive is None:
        raise UserError(
            f"there is no drive with the label {CONFIG_LABEL} and no {GIVEN}: attach a drive "
            f"(ISO 9660, FAT or ext4) that has {SOURCE}"
        )
    with tempfile.TemporaryDirectory(prefix="first-boot-", dir="/run") as directory:
        mount = ["mount", "-o", "ro,nosuid,nodev,noexec", str(drive), directory]
        done = subprocess.run(mount, capture_output=True, text=True)
        if done.returncode != 0:
            raise UserError(
                f"cannot mount the drive {CONFIG_LABEL}: {done.stderr.strip()}: make it again"
            )
        try:
            return _read(Path(directory) / SOURCE)
        finally:
            subprocess.run(["umount", directory], check=True)


def forget() -> None:
    """Remove the file that cloud-init wrote: the machine has what it says. Raises OSError."""
    GIVEN.unlink(missing_ok=True)


def appeared(device: Path) -> Path | None:
    """Return a device when it is there, or None after a while."""
    end = time.monotonic() + WAIT_SECONDS
    while not device.exists():
        if time.monotonic() > end:
            return None
        time.sleep(0.5)
    return device


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise UserError(f"{path.name} is longer than a megabyte: it cannot be the right file")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"the drive {CONFIG_LABEL} has no {SOURCE}: write it to its root") from None
    except OSError as exc:
        raise UserError(f"cannot read {path.name}: {exc.strerror}: make the drive again") from None
    except UnicodeDecodeError:
        raise UserError(f"{path.name} is not UTF-8: write it again") from None


DATA_LABEL = "spillway"
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
    others = [path for path in _labelled() if not path.samefile(device)]
    if others:
        raise UserError(
            f"{others[0]} has the label {DATA_LABEL} too, and could be mounted instead of "
            f"{device}: detach it, or correct machine.data_device"
        )
    signatures = run("wipefs", "--noheadings", "--parsable", str(device))
    if signatures and not _is_ours(device):
        raise UserError(
            f"{device} has something on it that is no gateway's, and it may be data: attach an "
            f"empty disk, or run wipefs -a {device} elsewhere if none of it is needed"
        )


def mount(device: Path) -> str:
    """Mount a disk for the data, after ``require``. Returns what was done. Raises UserError."""
    made = not _is_ours(device)
    if made:
        run("mkfs.xfs", "-q", "-L", DATA_LABEL, str(device))
        # The unit waits for the link that udev makes of the label.
        run("udevadm", "trigger", "--settle", str(device))
    kind = _blkid("TYPE", device)
    unit = _MOUNT.format(label=DATA_LABEL, where=DATA_DIR, type=kind, options=OPTIONS[kind])
    files.replace(UNIT, unit, 0o644)
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", "--quiet", UNIT.name)
    return f"data: {device}: {'an XFS was made' if made else 'it has the data of a gateway'}"


def _is_ours(device: Path) -> bool:
    return _blkid("LABEL", device) == DATA_LABEL and _blkid("TYPE", device) in OPTIONS


def _blkid(tag: str, device: Path) -> str:
    """Return what a device tells of its file system, or nothing."""
    blkid = ["blkid", "--probe", "--output", "value", "--match-tag", tag, str(device)]
    return subprocess.run(blkid, capture_output=True, text=True).stdout.strip()


def _labelled() -> list[Path]:
    """Return all devices with the label. They are read: a cache may have a label of before."""
    blkid = ["blkid", "--cache-file", "/dev/null", "--output", "device"]
    process = subprocess.run(
        [*blkid, "--match-token", f"LABEL={DATA_LABEL}"], capture_output=True, text=True
    )
    return [Path(line) for line in process.stdout.splitlines()]
