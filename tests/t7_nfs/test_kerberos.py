"""Kerberos: a real KDC, the kernel's client with rpc.gssd, and the users behind the principals."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db.models import ROOT_INO
from tests.support import nfs4
from tests.support.client import GUEST, PYTHON
from tests.support.gateway import Gateway
from tests.support.kdc import REALM, Kdc
from tests.support.namespace import Namespace
from tests.support.nfs4 import op, opaque
from tests.support.s3server import RcloneServer
from tests.support.vm.client import HOST_ADDRESS, ClientError, ClientVm, Completed
from tests.t7_nfs.conftest import RELEASE

HOST = f"gateway.{REALM.lower()}"
FLAVOURS = ("krb5", "krb5i", "krb5p")
WRAPPER = "libnss_wrapper.so"
ALICE, BOB, STRANGER, TEAM, NOBODY = 5001, 5002, 5003, 6001, 65534
USERS = {"alice": ALICE, "bob": BOB, "stranger": STRANGER}
"""The users of the client. All but the stranger are users of the gateway too."""
WRONGSEC = 10016
IDMAP = f"""\
[General]
Domain = {REALM.lower()}
Local-Realms = {REALM}
[Translation]
Method = nsswitch
"""


class Realm(NamedTuple):
    """A gateway that accepts Kerberos alone, and a client of its realm."""

    gateway: Gateway
    vm: ClientVm

    def mount(self, security: str, export: str = "/checkpoints") -> str:
        """Mount an export. Returns where."""
        target = f"/mnt/{security}{export}"
        options = "hard,timeo=50,retrans=2,nosharecache"
        port = self.gateway.port
        self.vm.mount(port, export, target, options=options, security=security, host=HOST)
        return target

    def run(self, user: str, *command: str, stdin: str = "") -> Completed:
        """Run a command in the client as a user, to its end, whatever that is."""
        number = str(USERS[user])
        become = ["setpriv", "--reuid", number, "--regid", number, "--clear-groups"]
        return self.vm.run([*become, *command], stdin=stdin, check=False)


def accounts(directory: Path) -> dict[str, str]:
    """Return the environment in which Alice and Bob are users of this machine."""
    passwd = [f"{name}:x:{USERS[name]}:{USERS[name]}::/:/bin/sh" for name in ("alice", "bob")]
    group = [f"alice:x:{ALICE}:", f"bob:x:{BOB}:", f"team:x:{TEAM}:alice"]
    for name, lines in (("passwd", passwd), ("group", group)):
        (directory / name).write_text(Path("/etc", name).read_text() + "\n".join(lines) + "\n")
    return {
        "LD_PRELOAD": WRAPPER,
        "NSS_WRAPPER_PASSWD": str(directory / "passwd"),
        "NSS_WRAPPER_GROUP": str(directory / "group"),
    }


def prepare(namespace: Namespace) -> None:
    """Make a directory for all, and one for root and the group of Alice."""
    namespace.mkdir(ROOT_CRED, ROOT_INO, b"open", SetAttr(mode=0o777))
    namespace.mkdir(ROOT_CRED, ROOT_INO, b"team", SetAttr(mode=0o770, gid=TEAM))


@contextmanager
def client_of(vm: ClientVm, kdc: Kdc) -> Iterator[None]:
    """Make the client a member of the realm, with tickets for Alice and the stranger.

    The machine has a keytab, as every member of a realm. Its root uses that.
    """
    host = kdc.keytab(f"host/client.{REALM.lower()}")
    keytab = kdc.keytab("alice", "stranger")
    names = "".join(f"{name}:x:{number}:{number}::/:/bin/sh\n" for name, number in USERS.items())
    vm.run(f"cat >> /etc/passwd && echo {HOST_ADDRESS} {HOST} >> /etc/hosts", stdin=names)
    vm.run("cat > /etc/krb5.conf", stdin=kdc.config_from(HOST_ADDRESS))
    vm.run(
        "cat > /etc/idmapd.conf", stdin=IDMAP
    )  # the new owner of a chown is sent with its domain
    for path, file in (("/etc/krb5.keytab", host), ("/tmp/users.keytab", keytab)):
        vm.run(f"base64 -d > {path}", stdin=base64.b64encode(file.read_bytes()).decode())
    for name in ("alice", "stranger"):
        cache = f"/tmp/krb5cc_{USERS[name]}"
        vm.run(f"kinit -k -t /tmp/users.keytab -c {cache} {name} && chown {name} {cache}")
    vm.run("mkdir -p /run/rpc_pipefs && mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs")
    daemon = vm.start("exec rpc.gssd -f -v", timeout_seconds=3600)
    try:
        yield
    finally:
        # With it, later mounts of other tests would try Kerberos first.
        vm.run("pkill rpc.gssd")
        print(daemon.wait(check=False).stderr)
        vm.run("umount /run/rpc_pipefs")


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory, vm: ClientVm) -> Iterator[Realm]:
    directory = tmp_path_factory.mktemp("kerberos")
    with (
        pytest.MonkeyPatch.context() as patch,
        RcloneServer(directory / "s3") as server,
        Kdc(directory / "kdc") as kdc,
    ):
        (directory / "idmapd.conf").write_text(IDMAP)
        for name, value in accounts(directory).items():
            patch.setenv(name, value)
        patch.setenv("KRB5_CONFIG", str(kdc.config))
        gateway = Gateway(
            directory / "gateway",
            server,
            values={
                "nfs": {
                    "security": list(FLAVOURS),
                    "keytab": kdc.keytab(f"nfs/{HOST}"),
                    "idmap_conf": directory / "idmapd.conf",
                }
            },
            say=print,
        )
        for name in ("LD_PRELOAD", "KRB5_CONFIG"):
            patch.delenv(name)
        gateway.prepare(prepare)
        with client_of(vm, kdc), gateway:
            yield Realm(gateway, vm)


@pytest.mark.parametrize("security", FLAVOURS)
def test_a_user_with_a_ticket_saves_and_reads(realm: Realm, security: str) -> None:
    mount = realm.mount(security)
    try:
        assert f"sec={security}," in realm.vm.run(["grep", mount, "/proc/mounts"]).stdout
        program = (GUEST / "checkpoint.py").read_text()
        place = f"{mount}/open/{security}"
        size = ("--ranks", "2", "--mib", "3")
        saved = realm.run("alice", PYTHON, "-", "save", place, *size, stdin=program)
        assert saved.exit_status == 0, saved.stderr
        realm.vm.drop_caches()
        result = realm.run("alice", PYTHON, "-", "read", place, stdin=program)
        assert json.loads(result.stdout)["files"] == json.loads(saved.stdout)["files"]
        owners = realm.vm.run(f"stat -c '%u %g' {place} {place}/*").stdout.splitlines()
        assert set(owners) == {f"{ALICE} {ALICE}"}
    finally:
        realm.vm.umount(mount)


def test_the_rights_are_those_of_the_principal(realm: Realm) -> None:
    """Groups are the gateway's, the client's user ids count for nothing."""
    mount = realm.mount("krb5")
    try:
        assert realm.run("alice", "touch", f"{mount}/team/file").exit_status == 0
        refused = realm.run("alice", "touch", f"{mount}/file")
        assert "Permission denied" in refused.stderr
        no_ticket = realm.run("bob", "ls", mount)
        # The kernel says "Permission denied", "Key has expired" or "Stale file handle".
        assert (no_ticket.exit_status != 0, no_ticket.stdout) == (True, "")
        # The KDC knows the stranger, and the gateway has no such user.
        assert realm.run("stranger", "touch", f"{mount}/open/strange").exit_status == 0
        assert realm.run("stranger", "touch", f"{mount}/team/strange").exit_status != 0
        # Root of a client is the machine.
        realm.vm.run(["touch", f"{mount}/by-root"])
        realm.vm.run(["chown", f"{BOB}:{TEAM}", f"{mount}/by-root"])
        owners = realm.vm.run(f"stat -c '%u %g' {mount}/open/strange {mount}/by-root").stdout
        assert owners.splitlines() == [f"{NOBODY} {NOBODY}", f"{BOB} {TEAM}"]
    finally:
        realm.vm.umount(mount)


def test_a_squashed_machine_is_nobody(realm: Realm) -> None:
    name = "/squashed"
    realm.gateway.spillway("export", "set", name, "--client", "127.0.0.1 rw", "--squash", "root")
    mount = realm.mount("krb5i", name)
    try:
        assert realm.vm.run(["touch", f"{mount}/file"], check=False).exit_status != 0
        realm.vm.run(["touch", f"{mount}/open/squashed"])
        owner = realm.vm.run(["stat", "-c", "%u", f"{mount}/open/squashed"]).stdout
        assert int(owner) == NOBODY
        assert realm.run("alice", "touch", f"{mount}/team/squashed").exit_status == 0
    finally:
        realm.vm.umount(mount)


def test_what_is_not_listed_is_refused(realm: Realm) -> None:
    with pytest.raises(ClientError, match=r"Operation not permitted|Permission denied"):
        realm.mount("sys")
    with nfs4.Client(realm.gateway.port) as client, pytest.raises(nfs4.Status) as refused:
        client.call(op(nfs4.PUTROOTFH), op(nfs4.LOOKUP) + opaque(b"checkpoints"))
    assert refused.value.number == WRONGSEC
    assert realm.gateway.said("users by krb5, krb5i, krb5p") == 1
    assert realm.gateway.said("sec=krb5") == 1
    # From release 6 on, the server makes the directory when it first calls a client back.
    made = os.access(realm.gateway.data_dir / "run" / "krb5", os.F_OK)
    assert made == (RELEASE < 6)
