"""Makes the disk, kernel and initramfs of the machine: a fresh Debian 12 with systemd and sshd.

The machine has what Debian's installer leaves, and what the roles would install from the network:
it can reach this machine only. The tests start with a copy, so what they change does not stay.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support.tools import tool

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    *("systemd-sysv", "dbus", "udev", "linux-image-cloud-amd64", "initramfs-tools"),
    *("openssh-server", "python3", "python3-apt", "sudo", "iproute2", "ca-certificates"),
    *("systemd-timesyncd", "nfs-ganesha", "libpython3.11", "adduser"),
    *("e2fsprogs", "xfsprogs", "lvm2", "mdadm", "nftables", "postgresql"),
    "prometheus-node-exporter",
)
DISK_BYTES = 6 * 1024**3
_NETWORK = "[Match]\nName=e*\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n"


class Image(NamedTuple):
    """What qemu boots, and the key that opens the machine."""

    disk: Path
    kernel: Path
    initramfs: Path
    key: Path


def image(cache: Path) -> Image:
    """Return the image, made if the cache has none of this file. As root; it takes three minutes.

    Raises: CalledProcessError when a tool fails.
    """
    made = cache / f"machine-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]}"
    found = Image(*(made / name for name in ("disk", "kernel", "initramfs", "key")))
    if not made.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=cache) as scratch:
            new = Path(scratch) / "new"
            new.mkdir()
            _make(Path(scratch) / "root", Image(*(new / path.name for path in found)))
            new.rename(made)
    return found


def _make(root: Path, wanted: Image) -> None:
    subprocess.run(
        [
            *("mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(PACKAGES)}"),
            "--aptopt=APT::Install-Recommends \"false\"",
            *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "locale", "doc")),
            *(SUITE, root, MIRROR),
        ],
        check=True,
    )  # fmt: skip
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", wanted.key], check=True)
    _write(root / "etc/fstab", "/dev/vda / ext4 errors=remount-ro 0 1\n")
    _write(root / "etc/hostname", "appliance\n")
    _write(root / "etc/hosts", "127.0.0.1 localhost\n127.0.1.1 appliance\n")
    _write(root / "etc/systemd/network/10-net.network", _NETWORK)
    _write(root / "root/.ssh/authorized_keys", wanted.key.with_suffix(".pub").read_text())
    for unit in ("systemd-networkd",):
        subprocess.run(["systemctl", f"--root={root}", "enable", "--quiet", unit], check=True)
    # They would only lengthen the boot: no network time is to be had, and no package lists.
    for unit in ("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer"):
        subprocess.run(["systemctl", f"--root={root}", "mask", "--quiet", unit], check=True)
    shutil.copy(next((root / "boot").glob("vmlinuz-*")), wanted.kernel)
    shutil.copy(next((root / "boot").glob("initrd.img-*")), wanted.initramfs)
    with wanted.disk.open("wb") as disk:
        disk.truncate(DISK_BYTES)
    subprocess.run([tool("mke2fs"), "-q", "-t", "ext4", "-d", root, wanted.disk], check=True)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
