"""Ceph's object gateway for tests: one monitor, one store in memory, radosgw, all on loopback.

The programs come from Debian's packages radosgw, ceph-mon and ceph-osd, which ``make ceph``
installs.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from typing import Self

from tests.support.ports import free_port
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, Server, die_with_parent

ON_CEPH = os.environ.get("SPILLWAY_S3_SERVER") == "ceph"
"""Whether the suite of the drain runs on this server instead of all others."""

HOST = "s3.us-east-1.amazonaws.com"
"""The domain of the server: a bucket can also be addressed as a host name below it."""

STORE_BYTES = 8 << 30
COMMAND_DEADLINE_SECONDS = 60.0
CAPABILITIES = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *", "mgr": "allow profile osd"},
}


class CephServer(Server):
    """radosgw with a cluster of its own, which lives as long as the ``with`` block.

    Args:
        directory: for everything except the objects, which are in memory.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory / "radosgw.log")
        self._directory = directory
        self._config = directory / "ceph.conf"
        self._daemons: list[subprocess.Popen[bytes]] = []

    def command(self) -> list[str]:
        return ["radosgw", "--conf", str(self._config), "--name", "client.admin", "-f"]

    def __enter__(self) -> Self:
        try:
            self._make_cluster()
            return super().__enter__()
        except BaseException:
            self._end_cluster()
            raise

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._end_cluster()

    def admin(self, *args: str) -> None:
        """Run radosgw-admin, for example to set a quota. Raises CalledProcessError."""
        self._run("radosgw-admin", "--name", "client.admin", *args)

    def _make_cluster(self) -> None:
        cluster, store = str(uuid.uuid4()), str(uuid.uuid4())
        address = f"v2:127.0.0.1:{free_port()}"
        self._config.write_text(self._text(cluster, address))
        for part in ("mon", "osd", "rgw", "run"):
            (self._directory / part).mkdir()
        self._make_keys()
        monmap = str(self._directory / "monmap")
        self._run(
            "monmaptool", "--create", "--addv", "a", f"[{address}]", "--fsid", cluster, monmap
        )
        self._run("ceph-mon", "--mkfs", "--id", "a", "--monmap", monmap)
        self._daemon("ceph-mon", "--id", "a")
        self._run("ceph", "osd", "new", store, "0")  # waits for the monitor
        self._run("ceph-osd", "--mkfs", "--id", "0", "--osd-uuid", store)
        self._daemon("ceph-osd", "--id", "0")
        self.admin(
            *("user", "create", "--uid", "spillway", "--display-name", "spillway"),
            *("--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY),
        )
        for level in ("zonegroup", "zone"):
            self.admin(
                *(level, "placement", "add", "--storage-class", "STANDARD_IA"),
                *(f"--rgw-{level}", "default", "--placement-id", "default-placement"),
                *(("--data-pool", "default.rgw.cold") if level == "zone" else ()),
            )

    def _make_keys(self) -> None:
        keyring = str(self._directory / "keyring")
        self._run("ceph-authtool", "--create-keyring", keyring)
        for name, capabilities in CAPABILITIES.items():
            pairs = [text for kind, cap in capabilities.items() for text in ("--cap", kind, cap)]
            self._run("ceph-authtool", keyring, "--gen-key", "--name", name, *pairs)

    def _text(self, cluster: str, address: str) -> str:
        path = self._directory
        values = {
            "fsid": cluster,
            "mon host": address,
            "public addr": "127.0.0.1",
            "cluster addr": "127.0.0.1",
            "keyring": path / "keyring",
            "run dir": path / "run",
            "admin socket": "",
            "log file": path / "$name.log",
            "mon data": path / "mon",
            "mon data avail crit": 1,
            "mon allow pool size one": "true",
            "osd data": path / "osd",
            "osd objectstore": "memstore",
            "memstore device bytes": STORE_BYTES,
            "osd crush chooseleaf type": 0,
            "osd pool default size": 1,
            "osd pool default min size": 1,
            "osd pool default pg num": 1,
            "osd pool default pgp num": 1,
            "osd pool default pg autoscale mode": "off",
            "rgw data": path / "rgw",
            "rgw dns name": HOST,
            "rgw frontends": f"beast endpoint=127.0.0.1:{self.port}",
        }
        return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())

    def _daemon(self, *command: str) -> None:
        with (self._directory / f"{command[0]}.out").open("ab") as output:
            self._daemons.append(
                subprocess.Popen(
                    [command[0], "--conf", str(self._config), "-f", *command[1:]],
                    stdout=output,
                    stderr=output,
                    preexec_fn=die_with_parent,
                )
            )

    def _run(self, program: str, *args: str) -> None:
        subprocess.run(
            [program, "--conf", self._config, *args],
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=COMMAND_DEADLINE_SECONDS,
        )

    def _end_cluster(self) -> None:
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
        self._daemons.clear()
