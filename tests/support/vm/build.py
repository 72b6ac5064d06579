"""Builder of the kernel and initramfs that the virtual NFS client boots.

This file owns where the kernel comes from (Debian's package), which modules the guest loads, the
guest's first process up to the hand-over to the agent, and the cache of finished images.

Run ``python -m tests.support.vm.build DIRECTORY`` to fill a cache ahead of the tests.
"""

import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import tool

METAPACKAGE = "linux-image-amd64"
ANOTHER_KERNEL = "SPILLWAY_TEST_KERNEL"
"""Environment variable: the archive of a kernel package, in place of the newest that apt knows."""
MODULES = (
    *("virtio_pci", "virtio-rng", "virtio_net", "9pnet_virtio", "9p", "overlay", "nfsv4"),
    # These are for Kerberos. The guest loads no module on demand.
    *("cts", "rpcsec_gss_krb5"),
    # These are for a disk. ext4 asks for the checksum by name.
    *("virtio_blk", "crc32c_generic", "ext4"),
)
AGENT = Path(__file__).with_name("agent.py")

# A command that fails ends this script and with it process 1. The kernel then panics, qemu exits,
# and the console shows which command failed.
INIT = """\
#!/bin/busybox sh
set -e
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
while read -r module; do insmod "/modules/$module"; done < /modules/order
hostname "$VM_HOSTNAME"
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
mkdir -p /host /layer /root
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host
mount -t tmpfs tmpfs /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /root
cd /root
mkdir -p proc sys dev run tmp mnt
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t devtmpfs devtmpfs dev
mkdir -p dev/shm dev/pts
mount -t devpts devpts dev/pts
ln -sf /proc/self/fd dev/fd
ln -sf fd/0 dev/stdin
ln -sf fd/1 dev/stdout
ln -sf fd/2 dev/stderr
for directory in dev/shm run tmp mnt; do mount -t tmpfs tmpfs "$directory"; done
chmod 1777 dev/shm tmp
mkdir run/vm run/host
mount --bind /host run/host
cp /agent.py run/vm/agent.py
exec switch_root /root /usr/bin/python3 -I -S /run/vm/agent.py
"""


class BuildError(RuntimeError):
    """The image cannot be built; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Image:
    """A bootable client: the two files qemu loads, and the kernel's release (``uname -r``)."""

    kernel: Path
    initramfs: Path
    release: str


@dataclass(frozen=True)
class KernelPackage:
    """One version of one Debian kernel package."""

    name: str
    version: str

    @property
    def release(self) -> str:
        """The output of ``uname -r`` on this kernel."""
        return self.name.removeprefix("linux-image-")


def build_image(cache: Path, archive: Path | None = None) -> Image:
    """Return the client image, building it if ``cache`` does not hold the current one.

    An image is current if it was made from the kernel version apt knows of (or that of a given
    archive), this file, the agent and the busybox of this machine. A current image, or a changed
    agent with an unchanged kernel, needs no network. Several processes may build into one cache at
    once.

    :param cache: directory for the finished images and the downloaded kernel package.
    :param archive: of a kernel package; by default the one that SPILLWAY_TEST_KERNEL names, if any.
    :raises BuildError: a tool is missing, or the kernel package is not available.
    """
    cache = cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    named = os.environ.get(ANOTHER_KERNEL)
    given = archive or (Path(named) if named else None)
    package = _package_of(given) if given else _current_package(cache)
    busybox = _static_busybox()
    finished = cache / f"image-{package.release}-{_fingerprint(package, busybox)}"
    if not finished.is_dir():
        with tempfile.TemporaryDirectory(prefix=".building-", dir=cache) as scratch:
            path = given or _archive(package, cache)
            image = _assemble(package, path, busybox, Path(scratch))
            try:
                image.rename(finished)
            except OSError:
                if not finished.is_dir():  # Else another process finished the same image first.
                    raise
    return Image(finished / "kernel", finished / "initramfs", package.release)


def parse_metapackage(description: str) -> KernelPackage | None:
    """Find the kernel package that the metapackage depends on.

    :param description: output of ``apt-cache show`` for the metapackage.
    :return: the exact package and version, or None if ``description`` names none.
    """
    match = re.search(r"^Depends:.*?\b(linux-image-\S+) \(= ([^)]+)\)", description, re.MULTILINE)
    return KernelPackage(match[1], match[2]) if match else None


def load_order(modules_dep: str, modules_builtin: str, wanted: Iterable[str]) -> list[str]:
    """Put the wanted modules and all they need into an order in which each one can be loaded.

    :param modules_dep: contents of depmod's ``modules.dep``.
    :param modules_builtin: contents of ``modules.builtin``; what is built in is not loaded.
    :param wanted: module file names without directory and ``.ko``.
    :return: paths relative to the kernel's module directory, without duplicates.
    :raises BuildError: the kernel has no such module.
    """
    needs: dict[str, list[str]] = {}
    for line in modules_dep.splitlines():
        path, _, required = line.partition(":")
        # depmod lists the modules that a module needs in the reverse of the loading order.
        needs[_name(path)] = [*reversed(required.split()), path]
    order: dict[str, None] = {}
    built_in = set(map(_name, modules_builtin.splitlines()))
    for name in wanted:
        if name in built_in:
            continue
        if name not in needs:
            raise BuildError(f"the kernel package has no module {name}.ko")
        order.update(dict.fromkeys(needs[name]))
    return list(order)


def _name(path: str) -> str:
    """Return the name of a module's file without ``.ko``, or ``.ko.xz`` (since Debian 13)."""
    return Path(path).name.partition(".ko")[0]


def unpack_kernel(vmlinuz: bytes) -> bytes:
    """Return the ELF kernel inside a self-extracting one.

    The extraction would take an emulated processor seconds at each boot.

    :param vmlinuz: a kernel compressed with xz; any other is returned as it is and boots, too.
    """
    start = vmlinuz.find(b"\xfd7zXZ\0")
    return vmlinuz if start < 0 else lzma.LZMADecompressor().decompress(vmlinuz[start:])


def _current_package(cache: Path) -> KernelPackage:
    known = _run(["apt-cache", "show", "--no-all-versions", METAPACKAGE], check=False)
    if package := parse_metapackage(known):
        return package
    kept = sorted(cache.glob("linux-image-*.deb"), key=lambda path: path.stat().st_mtime)
    if not kept:
        raise BuildError(f"apt knows no package {METAPACKAGE}: run apt-get update first")
    return _package_of(kept[-1])


def _package_of(archive: Path) -> KernelPackage:
    name, _, version = archive.stem.partition("_")
    return KernelPackage(name, version)


def _static_busybox() -> Path:
    path = Path(tool("busybox"))
    # A dynamic busybox finds no libc in the initramfs, and the kernel would panic.
    if not path.is_file() or b"/ld-linux" in path.read_bytes():
        raise BuildError("no statically linked busybox: install busybox-static")
    return path


def _fingerprint(package: KernelPackage, busybox: Path) -> str:
    inputs = hashlib.sha256(package.version.encode())
    for path in (Path(__file__), AGENT, busybox):
        inputs.update(hashlib.sha256(path.read_bytes()).digest())
    return inputs.hexdigest()[:16]


def _archive(package: KernelPackage, cache: Path) -> Path:
    """Return the package's archive, kept in the cache so that a rebuild needs no network."""
    kept = cache / f"{package.name}_{package.version}.deb"
    if not kept.is_file():
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=cache) as scratch:
            wanted = f"{package.name}={package.version}"
            # apt's sandbox user may be unable to write here. apt would warn and continue as root.
            _run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", wanted], scratch)
            next(Path(scratch).glob("*.deb")).rename(kept)
    return kept


def _assemble(package: KernelPackage, archive: Path, busybox: Path, scratch: Path) -> Path:
    """Make a directory below ``scratch`` that holds the kernel and the initramfs."""
    release = package.release
    _run(["dpkg-deb", "-x", str(archive), str(scratch / "package")])
    if not (scratch / "package/lib").exists():  # since Debian 13; depmod looks here
        (scratch / "package/lib").symlink_to("usr/lib")
    _run(["depmod", "-b", str(scratch / "package"), release])
    modules = scratch / "package/lib/modules" / release
    dependencies = (modules / "modules.dep").read_text()
    order = load_order(dependencies, (modules / "modules.builtin").read_text(), MODULES)

    tree = scratch / "tree"
    for directory in ("bin", "modules", "proc", "sys"):
        (tree / directory).mkdir(parents=True)
    for path in order:
        packed = (modules / path).read_bytes()
        module = lzma.decompress(packed) if path.endswith(".xz") else packed
        (tree / "modules" / f"{_name(path)}.ko").write_bytes(module)
    (tree / "modules/order").write_text("".join(f"{_name(path)}.ko\n" for path in order))
    shutil.copy(busybox, tree / "bin/busybox")
    shutil.copy(AGENT, tree / "agent.py")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)

    image = scratch / "image"
    image.mkdir()
    vmlinuz = (scratch / f"package/boot/vmlinuz-{release}").read_bytes()
    (image / "kernel").write_bytes(unpack_kernel(vmlinuz))
    _run(["sh", "-c", "find . | cpio -o -H newc --quiet -R 0:0 > ../image/initramfs"], tree)
    return image


def _run(argv: list[str], cwd: Path | str | None = None, *, check: bool = True) -> str:
    """Run a tool and return its standard output; a failure or a missing tool is a BuildError."""
    try:
        program = tool(argv[0])
        done = subprocess.run(
            [program, *argv[1:]], cwd=cwd, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise BuildError(f"{argv[0]} is not installed") from error
    if check and done.returncode != 0:
        raise BuildError(f"{' '.join(argv)} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.support.vm.build DIRECTORY")
    print(build_image(Path(sys.argv[1])))
