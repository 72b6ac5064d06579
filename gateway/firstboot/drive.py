"""Finds the file of the first boot: on a drive with its label, or where cloud-init put it."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from gateway.errors import UserError
from gateway.firstboot.site import SOURCE

LABEL = "FIRSTBOOT"
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
    drive = appeared(Path("/dev/disk/by-label") / LABEL)
    if drive is None:
        raise UserError(
            f"there is no drive with the label {LABEL} and no {GIVEN}: attach a drive (ISO 9660, "
            f"FAT or ext4) that has {SOURCE}"
        )
    with tempfile.TemporaryDirectory(prefix="first-boot-", dir="/run") as directory:
        mount = ["mount", "-o", "ro,nosuid,nodev,noexec", str(drive), directory]
        done = subprocess.run(mount, capture_output=True, text=True)
        if done.returncode != 0:
            raise UserError(f"cannot mount the drive {LABEL}: {done.stderr.strip()}: make it again")
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
        raise UserError(f"the drive {LABEL} has no {SOURCE}: write it to its root") from None
    except OSError as exc:
        raise UserError(f"cannot read {path.name}: {exc.strerror}: make the drive again") from None
    except UnicodeDecodeError:
        raise UserError(f"{path.name} is not UTF-8: write it again") from None
