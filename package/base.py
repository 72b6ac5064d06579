"""Makes a Debian of packages, as its installer would: a disk, its kernel and initramfs, and a key
that opens it.

The disk has a partition and no boot loader yet: the kernel is given to the first boot, which
installs one. Everything that the roles would install is there already, because the machines that
boot it may have no network but the one that leads to this machine.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SUITE = platform.freedesktop_os_release()["VERSION_CODENAME"]
"""That of this machine, because the package that is built here fits no other Debian."""
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    *("systemd-sysv", "systemd-resolved", "systemd-timesyncd", "dbus", "udev", "iproute2"),
    *("linux-image-cloud-amd64", "initramfs-tools", "grub-pc-bin", "grub2-common"),
    *("openssh-server", "python3", "python3-apt", "ca-certificates", "adduser"),
    *("nfs-ganesha", f"libpython3.{sys.version_info.minor}", "e2fsprogs", "xfsprogs", "nftables"),
    "prometheus-node-exporter",
)
KEPT_DOCUMENTS = (
    "exclude=/usr/share/doc/*",
    *("include=/usr/share/doc/*/copyright", "include=/usr/share/doc/spillway/*"),
)
"""dpkg keeps to it in the machine, too."""
_LABEL = "system"
ROOT_DEVICE = f"LABEL={_LABEL}"
"""A cloud may have its disks as NVMe or Xen devices, so no name of a device is written down."""
DISK_BYTES = 6 * 1024**3
SECTOR_BYTES = 512
FIRST_SECTOR = 2048
_BOOTABLE, _LINUX = 0x80, 0x83
_NETWORK = "[Match]\nName=e*\n[Network]\nDHCP=yes\n"
_ONLINE = "[Service]\nExecStart=\nExecStart=/lib/systemd/systemd-networkd-wait-online --any\n"
"""A card without a network does not delay the boot."""
_GRUB = """\
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR=Debian
GRUB_TERMINAL=console
GRUB_DISABLE_OS_PROBER=true
GRUB_CMDLINE_LINUX="console=tty0 console=ttyS0,115200"
GRUB_CMDLINE_LINUX_DEFAULT=""
"""


class Base(NamedTuple):
    """What qemu boots, and the key that opens the machine."""

    disk: Path
    kernel: Path
    initramfs: Path
    key: Path


def base(cache: Path, hostname: str, more: Sequence[str] = ()) -> Base:
    """Return the machine, made if the cache has none of this file. As root; it takes three minutes.

    Args:
        more: further packages.

    Raises:
        CalledProcessError: a tool fails.
    """
    source = Path(__file__).read_bytes() + " ".join((hostname, *more)).encode()
    made = cache / f"{hostname}-{hashlib.sha256(source).hexdigest()[:16]}"
    found = Base(*(made / name for name in Base._fields))
    if not made.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=cache) as scratch:
            new = Path(scratch) / "new"
            new.mkdir()
            _make(
                Path(scratch) / "root", Base(*(new / path.name for path in found)), hostname, more
            )
            new.rename(made)
    return found


def _make(root: Path, wanted: Base, hostname: str, more: Sequence[str]) -> None:
    subprocess.run(
        [
            *("mmdebstrap", "--quiet", "--variant=apt"),
            f"--include={','.join((*PACKAGES, *more))}",
            "--aptopt=APT::Install-Recommends \"false\"",
            *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "locale")),
            *(f"--dpkgopt=path-{what}" for what in KEPT_DOCUMENTS),
            *(SUITE, root, MIRROR),
        ],
        check=True,
    )  # fmt: skip
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", wanted.key], check=True)
    _write(root / "etc/fstab", f"{ROOT_DEVICE} / ext4 errors=remount-ro 0 1\n")
    _write(root / "etc/hostname", f"{hostname}\n")
    _write(root / "etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {hostname}\n")
    _write(root / "etc/default/grub", _GRUB)
    _write(root / "etc/systemd/network/90-dhcp.network", _NETWORK)
    unit = "systemd-networkd-wait-online.service.d"
    _write(root / "etc/systemd/system" / unit / "any.conf", _ONLINE)
    _write(root / "root/.ssh/authorized_keys", wanted.key.with_suffix(".pub").read_text())
    resolver = root / "etc/resolv.conf"
    resolver.unlink(missing_ok=True)
    resolver.symlink_to("/run/systemd/resolve/stub-resolv.conf")
    for unit in ("systemd-networkd", "systemd-resolved"):
        subprocess.run(["systemctl", f"--root={root}", "enable", "--quiet", unit], check=True)
    # They would only lengthen the boot of a machine that has no list of packages.
    for unit in ("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer"):
        subprocess.run(["systemctl", f"--root={root}", "disable", "--quiet", unit], check=True)
    shutil.copy(next((root / "boot").glob("vmlinuz-*")), wanted.kernel)
    shutil.copy(next((root / "boot").glob("initrd.img-*")), wanted.initramfs)
    _disk(root, wanted.disk)


def _disk(root: Path, disk: Path) -> None:
    """Write a disk with one partition (MBR), an ext4 with the files of the root."""
    sectors = DISK_BYTES // SECTOR_BYTES - FIRST_SECTOR
    entry = struct.pack("<B3sB3sII", _BOOTABLE, b"", _LINUX, b"", FIRST_SECTOR, sectors)
    with disk.open("wb") as file:
        file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
        file.truncate(DISK_BYTES)
    offset = f"offset={FIRST_SECTOR * SECTOR_BYTES}"
    size = f"{sectors * SECTOR_BYTES // 1024}k"
    subprocess.run(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-L", _LABEL, "-E", offset, "-d", root, disk, size],
        check=True,
        env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"},
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
