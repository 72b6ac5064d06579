"""Boots the image with a file of a site, and uses it: ``python -m tests.appliance.first IMAGE VM``.

Each step prints how long it took. A failed run leaves its consoles in /tmp/first-boot-*.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx

from package.base import FIRST_SECTOR, SECTOR_BYTES
from tests.appliance import site
from tests.appliance.gateway import ADDRESS, CLIENT_ADDRESS, Appliance
from tests.appliance.machine import Machine
from tests.appliance.steps import timed
from tests.support.client import MOUNT, read_back, save
from tests.support.s3server import RcloneServer
from tests.support.tools import tool
from tests.support.vm.build import build_image
from tests.support.vm.client import ClientVm
from tests.support.waiting import until

ADMIN_PORT = 8780
SYSTEM = "nvme,serial=system"
"""The image is made on a virtio disk. A disk with another name boots as well."""
BOOT_SECONDS = 900.0
SERVICES = (
    *("spillway-nfs", "spillway-drain", "spillway-checkpoints", "spillway-recovery"),
    "spillway-admin",
)
NFS_SECONDS = 600.0
DRAIN_SECONDS = 300.0
POLICY_SECONDS = 300.0
_TOKEN = re.compile(r"spw_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
_MADE_ONCE = (
    *("/etc/machine-id", "/etc/hostname", "/root/.ssh/authorized_keys"),
    *("/etc/ssh/ssh_host_*_key", "/etc/spillway/*", "/etc/spillway-first-boot/*"),
    *("/var/lib/spillway/admin-*.pem", "/etc/systemd/network/*"),
)


def look_at_the_files(image: Path) -> None:
    """The files of an image have their sums. No machine of it has the host keys of another one:
    there are none in it."""
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=image, check=True)
    [raw] = image.glob("*.raw")
    disk = f"{raw}?offset={FIRST_SECTOR * SECTOR_BYTES}"
    listing = [*(tool("debugfs"), "-R", "ls -p /etc/ssh"), disk]
    stdout = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    assert "/sshd_config/" in stdout, stdout
    assert "ssh_host_" not in stdout, stdout


class Run:
    """The steps, in their order.

    Args:
        server: server of the bucket.
        cache: cache of the client's image.
        stack: switches off what runs.
    """

    def __init__(
        self, appliance: Appliance, server: RcloneServer, cache: Path, stack: ExitStack
    ) -> None:
        self._appliance = appliance
        self._server = server
        self._cache = cache
        self._stack = stack
        self._saved: dict[str, str] = {}
        self._made = ""

    def boot_without_a_bucket(self) -> None:
        """A wrong file is told on the console. Nothing was changed, and no gateway runs."""
        right = site.text(self._appliance.key, self._server.port)
        self._appliance.write_drive(right.replace(f'name = "{site.BUCKET}"', "region = 5", 1))
        machine = self._started("wrong")
        told = "configuration: bucket."
        until(lambda: "the gateway is not started" in machine.shown(), told, BOOT_SECONDS)
        assert told in machine.shown(), machine.shown()
        self._appliance.switch_off(machine)

    def boot_with_a_corrected_file(self) -> None:
        """The next boot with a right file makes a gateway, with a token that no log has."""
        self._appliance.write_drive(site.text(self._appliance.key, self._server.port))
        self._machine = self._started("first")
        until(lambda: _TOKEN.search(self._machine.shown()), "the token", BOOT_SECONDS)
        self._token = _TOKEN.findall(self._machine.shown())[-1]
        self._machine.until_reached()

    def serve(self) -> None:
        """All services run, and the boot before left its reason in the journal."""
        self._machine.until_active(*SERVICES)
        journal = self._machine.ssh("journalctl --no-pager -b -1 -u configure-spillway").stdout
        assert "configuration: bucket." in journal, journal
        nfs = self._machine.ssh("journalctl --no-pager -b -1 -u spillway-nfs").stdout
        assert "Started" not in nfs and "mount it" not in nfs, nfs
        assert self._token not in self._machine.ssh("journalctl --no-pager").stdout
        mounted = self._machine.ssh("findmnt -no FSTYPE,OPTIONS /var/lib/spillway").stdout
        assert mounted.startswith("xfs") and "noatime" in mounted, mounted
        login = self._machine.ssh("passwd -S root; sshd -T | grep -i passwordauth").stdout
        assert login.split()[1] == "L" and "passwordauthentication no" in login, login
        # What looks after the gateway may have looked while it started.
        failed = "systemctl --failed --plain --no-legend"
        until(lambda: not self._machine.ssh(failed).stdout, "no failed unit", NFS_SECONDS)
        self._made = self._once()

    def boot_a_client(self) -> None:
        """A client of another machine mounts it."""
        self._client = self._stack.enter_context(
            ClientVm.boot(
                build_image(self._cache),
                console_log=self._appliance.directory / "console-client.log",
                hardware=self._appliance.client_cable(),
                deadline_seconds=BOOT_SECONDS,
            )
        )
        self._client.run(f"ip addr add {CLIENT_ADDRESS}/24 dev eth1 && ip link set eth1 up")
        self._client.mount(2049, address=ADDRESS, timeout_seconds=300.0)

    def save(self) -> None:
        """The client saves two checkpoints. The bytes come back."""
        self._saved, _ = save(self._client, "run/step-1", ranks=site.RANKS, mib=2)
        assert read_back(self._client, "run/step-1") == self._saved

    def mount_the_other_export(self) -> None:
        """The export of the file can be mounted too, and only be read."""
        self._client.mount(
            2049, "/datasets", "/mnt/datasets", address=ADDRESS, timeout_seconds=300.0
        )
        refused = self._client.run(["touch", "/mnt/datasets/file"], check=False)
        assert "Read-only file system" in refused.stderr, refused
        self._client.umount("/mnt/datasets")

    def drain(self) -> None:
        """The bucket gets the objects under their own paths, and their bytes."""
        for name in self._saved:
            stored = self._server.directory / site.BUCKET / "run/step-1" / name
            until(stored.is_file, f"{name} in the bucket", DRAIN_SECONDS)
            assert hashlib.sha256(stored.read_bytes()).hexdigest() == self._saved[name], name

    def look_at_the_admin_pages(self) -> None:
        """They have the certificate that the machine made, want the token, and show the files."""
        pem = self._machine.ssh("cat /var/lib/spillway/admin-certificate.pem").stdout
        trusted = ssl.create_default_context(cadata=pem)
        url = f"https://127.0.0.1:{self._machine.ports[ADMIN_PORT]}"
        with httpx.Client(base_url=url, verify=trusted, timeout=120.0) as browser:
            assert browser.get("/").status_code in (303, 401)
            assert browser.post("/login", data={"token": self._token}).status_code == 303
            page = browser.get("/files", params={"path": "/checkpoints/run/step-1"}).text
            assert all(name in page for name in self._saved), page
            assert "newest" in browser.get("/policies").text

    def apply_the_policy(self) -> None:
        """The policy of the file deletes the checkpoint before, once the next one is durable."""
        save(self._client, "run/step-2", ranks=site.RANKS, mib=2, seed=1)

        def gone() -> bool:
            log = self._machine.ssh("spillway policy log", check=False).stdout
            return "run/step-1" in log and "newest" in log

        until(gone, "the policy", POLICY_SECONDS)
        left = self._client.run(f"ls {MOUNT}/run").stdout.split()
        assert left == ["step-2"], left

    def boot_again(self) -> None:
        """A second boot changes nothing, and the client continues."""
        self._machine.ssh("systemctl reboot", check=False)
        self._machine.until_off()
        self._machine = self._started("second")
        self._machine.until_reached()
        self._machine.until_active(*SERVICES)
        assert self._once() == self._made
        assert _TOKEN.search(self._machine.shown()) is None
        assert len(read_back(self._client, "run/step-2")) == site.RANKS

    def _started(self, name: str) -> Machine:
        machine = self._appliance.machine(name)
        self._stack.callback(machine.kill)
        machine.start()
        return machine

    def _once(self) -> str:
        """Return digests of what is made once, and the tokens."""
        files = f"sha256sum $(ls -d {' '.join(_MADE_ONCE)})"
        # When a token was used is not made once.
        tokens = "runuser -u spillway -- spillway token list --json | grep -v last_used"
        return self._machine.ssh(f"{files}; {tokens}").stdout


def main() -> int:
    """Run all steps. Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.appliance.first", description=__doc__)
    parser.add_argument("image", type=Path, help="the directory of make image")
    parser.add_argument("vm", type=Path, help="the cache of the client's image")
    args = parser.parse_args()
    timed("look at the files", partial(look_at_the_files, args.image))
    [image] = args.image.glob("*.qcow2")
    directory = Path(tempfile.mkdtemp(prefix="first-boot-"))
    with ExitStack() as stack:
        server = stack.enter_context(RcloneServer(directory / "s3"))
        server.client().create_bucket(Bucket=site.BUCKET)
        appliance = Appliance(image, directory / "machine", [ADMIN_PORT], SYSTEM)
        run = Run(appliance, server, args.vm, stack)
        steps: tuple[Callable[[], None], ...] = (
            *(run.boot_without_a_bucket, run.boot_with_a_corrected_file, run.serve),
            *(run.boot_a_client, run.save, run.mount_the_other_export, run.drain),
            *(run.look_at_the_admin_pages, run.apply_the_policy, run.boot_again),
        )
        for step in steps:
            timed(step.__name__.replace("_", " "), step)
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
