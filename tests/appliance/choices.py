"""A second machine, which gets what the first does not: ext4 on LVM, PostgreSQL, the admin API with
a given certificate, and Kerberos."""

from __future__ import annotations

from typing import Any

from tests.appliance.machine import HOST
from tests.appliance.packages import BROKEN, PREVIOUS, THIS, require_version
from tests.appliance.playbook import succeeded
from tests.appliance.saves import CHECKPOINTS
from tests.appliance.stage import Stage
from tests.support.certificates import certify
from tests.support.kdc import REALM, Kdc
from tests.support.waiting import until

ADDRESS = "10.0.2.15"
NAME = f"gateway.{REALM.lower()}"
KERBEROS_MOUNT = (
    f"mkdir -p /mnt/krb && mount -t nfs4 -o vers=4.1,sec=krb5p {NAME}:/checkpoints /mnt/krb"
)
_COUNT_INODES = "runuser -u spillway -- psql -h /run/postgresql -Atc 'SELECT count(*) FROM inode'"
_LOOK = """\
import ssl, urllib.request
trusted = ssl.create_default_context(cafile="/root/ca.pem")
print(urllib.request.urlopen("https://127.0.0.1:8780/login", context=trusted).status)
"""


class Choices:
    """The steps, in their order.

    Args:
        stage: where they are done.
    """

    def __init__(self, stage: Stage) -> None:
        self._machine = stage.machine
        self._operator = stage.operator
        self._packages = stage.packages
        self._saves = stage.saves
        self._certificates = stage.directory
        certify(stage.directory)
        self._kdc = stage.enter_context(Kdc(stage.directory / "kdc"))
        self._operator.values |= {
            "storage_layout": "lvm",
            "storage_filesystem": "ext4",
            "database_engine": "postgresql",
            "admin_tls": "files",
            "admin_certificate": (self._certificates / "server.pem").read_text(),
            "admin_private_key": (self._certificates / "server.key").read_text(),
        }

    def install_other_choices(self) -> None:
        """The playbook makes a gateway, and a second run changes nothing."""
        succeeded(self._operator.play("site.yml"))
        mounted = self._machine.ssh("findmnt -no FSTYPE,OPTIONS /var/lib/spillway").stdout
        assert mounted.startswith("ext4") and "noatime" in mounted, mounted
        assert self._machine.ssh("lvs --noheadings -o stripes spillway").stdout.split() == ["2"]
        assert int(self._machine.ssh(_COUNT_INODES).stdout) > 0
        again = self._operator.play("site.yml")
        succeeded(again)
        assert again.changed == 0, again.output

    def serve_other_choices(self) -> None:
        """A client saves, and the admin API has the certificate that was given. Root can ask for
        the state, although only the user spillway is one of the database."""
        self._machine.ssh(CHECKPOINTS)
        self._saves.save("run/step-1/a.bin")
        self._machine.put(self._certificates / "ca.pem", "/root/ca.pem")

        def answered() -> bool:
            return self._machine.ssh(f"python3 -c '{_LOOK}'", check=False).stdout == "200\n"

        until(answered, "the login page of the admin API", 300)
        self._machine.ssh("systemctl start check-spillway")
        told = self._machine.ssh("cat /var/lib/prometheus/node-exporter/spillway.prom").stdout
        assert "spillway_healthy 1\n" in told, told

    def fail_to_upgrade_postgresql(self) -> None:
        """A package that does not serve gives way to the one before, with its database."""
        done = self._operator.play(
            "site.yml", spillway_package=str(self._packages[BROKEN]), spillway_start_seconds=120
        )
        assert done.exit_status != 0 and "serves again" in done.output, done.output
        assert "Put the copy of the database back" in done.output, done.output
        require_version(self._machine, PREVIOUS)
        self._saves.save("run/step-2/b.bin")
        self._saves.require_all()

    def upgrade_with_kerberos(self) -> None:
        """This version takes the database over. A member of the realm saves with krb5p."""
        succeeded(self._operator.play("site.yml", **self._kerberos()))
        require_version(self._machine, THIS)
        self._join_the_realm()
        self._machine.ssh(KERBEROS_MOUNT)
        assert "sec=krb5p" in self._machine.ssh("findmnt -no OPTIONS /mnt/krb").stdout
        self._saves.save("run/step-3/c.bin", "/mnt/krb")
        self._saves.require_all("/mnt/krb")

    def uninstall_other_choices(self) -> None:
        """The package is gone, and the database is not."""
        self._machine.ssh("umount -l /mnt/krb /mnt/ckpt")
        succeeded(self._operator.play("uninstall.yml"))
        assert int(self._machine.ssh(_COUNT_INODES).stdout) > 0

    def _kerberos(self) -> dict[str, Any]:
        settings = self._operator.values["spillway_settings"]
        clients = [*settings["nfs"]["clients"], f"{ADDRESS} rw"]
        return {
            "spillway_package": str(self._packages[THIS]),
            "spillway_settings": {**settings, "nfs": {**settings["nfs"], "clients": clients}},
            "kerberos_realm": REALM,
            "kerberos_kdcs": [f"{HOST}:{self._kdc.port}"],
            "kerberos_keytab": str(self._kdc.keytab(f"nfs/{NAME}")),
            "kerberos_security": ["sys", "krb5p"],
        }

    def _join_the_realm(self) -> None:
        """Give the machine, as a client, a key. Its root is then root."""
        self._machine.put(self._kdc.keytab(f"host/client.{REALM.lower()}"), "/etc/krb5.keytab")
        self._machine.ssh(f"echo {ADDRESS} {NAME} >> /etc/hosts && systemctl restart rpc-gssd")

    STEPS = (
        *(install_other_choices, serve_other_choices, fail_to_upgrade_postgresql),
        *(upgrade_with_kerberos, uninstall_other_choices),
    )
