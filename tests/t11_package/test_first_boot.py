"""The first boot of an image: what the file of a site may say, and what the system is given."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest
import yaml

from admin_api.access.principal import Role
from admin_api.access.tokens import Verifier
from admin_api.store import open_store
from gateway.appliance import machine, site
from gateway.cli import first_boot
from gateway.cli.main import EXIT_USAGE, main
from gateway.common.errors import UserError
from gateway.config import loader
from tests.appliance import site as appliance
from tests.support.checkout import ROOT
from tests.support.clisite import PROGRAM
from tests.support.disks import make_ext4
from tests.support.s3server import SECRET_KEY
from tests.support.t11 import apart
from tests.support.tools import run_as_root, tool
from tests.support.volumes import make_settings, make_volume

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPbJ ann@example.com"
BUCKET = '[bucket]\nname = "b"\n'
EXPORT = '[[export]]\nname = "/datasets"\nclients = ["10.0.0.0/8 ro"]\n'


def test_what_a_site_says_becomes_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(f"{KEY}\n")
    wanted = site.read(appliance.text(tmp_path / "key", 9000))
    # The gateway reads what the first boot writes.
    (tmp_path / "spillway.toml").write_text(loader.render(wanted.values))
    settings = loader.load(tmp_path / "spillway.toml", {})
    assert settings.bucket.name == appliance.BUCKET
    assert settings.data_dir == site.DATA_DIR
    assert (settings.admin.bind, settings.admin.tls) == ("0.0.0.0", "self-signed")
    assert [policy["name"] for policy in wanted.policies] == ["newest"]
    assert [(export.name, export.path, export.clients) for export in wanted.exports] == [
        ("/datasets", "datasets", ("10.77.0.2 ro",))
    ]
    assert SECRET_KEY not in repr(wanted.values)


def test_an_admin_api_may_be_set_otherwise() -> None:
    wanted = site.read(f'{BUCKET}[admin]\nbind = "127.0.0.1"\ntls = "off"\n')
    assert (wanted.settings.admin.bind, wanted.settings.admin.tls) == ("127.0.0.1", "off")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[bucket", "spillway.toml is not valid TOML"),
        ("", "bucket.name: is required"),
        (f"{BUCKET}regio = 'x'\n", "bucket.regio: no such key"),
        (f"{BUCKET}[buckets]\n", "buckets: no such section"),
        (f"policy = 3\n{BUCKET}", "policy: must be tables: [[policy]]"),
        (f"machine = 3\n{BUCKET}", "machine: must be a section: [machine]"),
        (f"{BUCKET}[machine]\nhostname = 'a b'\n", "machine.hostname = 'a b': must look like"),
        (f"{BUCKET}[machine]\nssh_keys = ['AAAA']\n", "machine.ssh_keys"),
        (f"{BUCKET}[machine]\nssh_keys = ['{KEY}\\nx']\n".replace("'", '"'), "machine.ssh_keys"),
        (f"{BUCKET}[machine]\naddress = '10.0.0.5'\n", "machine.address = '10.0.0.5': must have"),
        (f"{BUCKET}[machine]\naddress = 'x/24'\n", "machine.address = 'x/24': must look like"),
        (f"{BUCKET}[machine]\ngateway = 'x'\n", "machine.gateway = 'x': must be addresses"),
        (f"{BUCKET}[machine]\nnameservers = ['x']\n", "machine.nameservers"),
        (f"{BUCKET}[machine]\ndata_device = 'vdb'\n", "machine.data_device = 'vdb': must look"),
        (f"{BUCKET}[machine]\ndisk = 'vdb'\n", "machine.disk: no such key"),
        (f"{BUCKET}[credentials]\naccess_key_id = 'a'\n", "credentials: access_key_id and secret"),
        (f"{BUCKET}[admin_token]\nid = 'x'\nhash = 'y'\n", "admin_token.id = 'x': must be what"),
        (f"{BUCKET}[gateway]\ndata_dir = '/x'\n", "gateway.data_dir: is set by the image"),
        (f"{BUCKET}[nfs]\nclients = ['x']\n", "nfs.clients"),
        (f"{BUCKET}[[policy]]\nname = 'p'\n", "policy p: must say which checkpoints"),
        (f"{BUCKET}{EXPORT}path = 3\n", "export.path = 3: must be a string"),
        (f"{BUCKET}{EXPORT}squash = 'x'\n", "export.squash = 'x': must be one of"),
        (f"{BUCKET}{EXPORT}{EXPORT}", "an export cannot be named /datasets beside /datasets"),
        (f"{BUCKET}{EXPORT}".replace("10.0.0.0/8 ro", "x"), "export.clients"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "spillway.toml"
    file.write_text(text)
    assert main(["first-boot", "--check", str(file)]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


FAR = "[machine]\naddress = '10.0.0.5/24'\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[machine]\naddress = '10.0.0.0/24'\n", "machine.address = '10.0.0.0/24': is no address"),
        ("[machine]\naddress = '10.0.0.255/24'\n", "machine.address = '10.0.0.255/24': is no"),
        ("[machine]\naddress = '127.0.0.1/8'\n", "machine.address = '127.0.0.1/8': is no address"),
        (f"{FAR}gateway = '10.0.1.1'\n", "machine.gateway = '10.0.1.1': is not in 10.0.0.0/24"),
        (f"{FAR}gateway = '10.0.0.5'\n", "machine.gateway = '10.0.0.5': is the address of this"),
        (f"{FAR}gateway = 'fe80::1'\n", "machine.gateway = 'fe80::1': is not in 10.0.0.0/24"),
        (
            "[machine]\ngateway = '10.0.0.1'\n",
            "machine.gateway = '10.0.0.1': goes with mach",
        ),
        ("[machine]\nnameservers = ['10.0.0.1']\n", "machine.nameservers"),
        (f"{FAR}[admin]\nbind = '10.0.0.6'\n", "admin.bind = '10.0.0.6': is no address of this"),
        (f"{FAR}[nfs]\nbind = '10.0.0.6'\n", "nfs.bind = '10.0.0.6': is no address of this"),
        ("[admin]\ntls = 'off'\n", "admin.tls = 'off': would send tokens in the clear"),
    ],
)
def test_a_file_that_leaves_the_machine_unreachable_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    path = tmp_path / "site.toml"
    path.write_text(BUCKET + text)
    assert main(["first-boot", "--check", str(path)]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


def test_what_may_be_meant_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "site.toml"
    reached = f"[machine]\nssh_keys = ['{KEY}']\n"
    near = BUCKET + "endpoint_url = 'http://127.0.0.1:9000'\n"
    for text, told in (
        (near + reached, ""),
        (BUCKET, "machine.ssh_keys"),
        (BUCKET + reached + "address = '10.0.0.5/24'\n", "machine.gateway"),
        (BUCKET + reached + "address = '10.0.0.5/24'\n", "machine.nameservers"),
        (BUCKET + reached + "[nfs]\nbind = '127.0.0.1'\n", "nfs.bind = '127.0.0.1': no other"),
        (BUCKET + reached + "[admin]\ntls = 'files'\n", 'admin.tls = "files"'),
        (BUCKET + "endpoint_url = 'http://s3.example'\n" + reached, "endpoint_url is http"),
    ):
        path.write_text(text)
        assert main(["first-boot", "--check", str(path)]) == 0
        out, err = capsys.readouterr()
        assert out == f"{path}: right\n"
        assert f"warning: {told}" in err or f"warning: bucket.{told}" in err if told else err == ""


def test_a_prepared_token_opens_the_admin_api(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["first-boot", "--prepare-token", "ann"]) == 0
    shown = capsys.readouterr()
    token = site.read(f"{BUCKET}{shown.out}").token
    assert token is not None
    settings = make_settings(tmp_path)
    make_volume(settings)
    file = tmp_path / "spillway.toml"
    file.write_text(loader.render({"gateway": {"data_dir": tmp_path}, "bucket": {"name": "b"}}))
    add = ["token", "--config", str(file), "add", "--name", "first boot", token.id, token.hash]
    assert [main(add), main(add)] == [0, 0]
    said = capsys.readouterr().out
    assert said == f"{token.id}: added\n{token.id}: unchanged\n"
    assert main([*add[:-1], "a hash of mine"]) == EXIT_USAGE
    store = open_store(settings)
    try:
        who = Verifier(store).verify(shown.err.splitlines()[0], "127.0.0.1")
    finally:
        store.close()
    assert (who.role, who.token_id) == (Role.ADMIN, token.id)


def test_no_message_has_the_secret() -> None:
    with pytest.raises(UserError) as caught:
        site.read(f'{BUCKET}[credentials]\naccess_key_id = "a"\nsecret_access_key = "s3\\ncret"\n')
    assert "s3" not in str(caught.value)


def test_the_system_gets_name_keys_and_address(tmp_path: Path) -> None:
    said = site.read(
        f'{BUCKET}[machine]\nhostname = "g1.example.com"\nssh_keys = ["{KEY}"]\n'
        'interface = "ens5"\naddress = "10.0.0.5/24"\ngateway = "10.0.0.1"\n'
        'nameservers = ["10.0.0.2", "10.0.0.3"]\n'
    )
    for _ in range(2):  # a second time, after a power cut for instance, changes nothing
        machine.apply(said.machine, tmp_path)
    assert (tmp_path / "etc/hostname").read_text() == "g1.example.com\n"
    assert "127.0.1.1 g1.example.com g1\n" in (tmp_path / "etc/hosts").read_text()
    keys = tmp_path / "root/.ssh/authorized_keys"
    assert (keys.read_text(), keys.stat().st_mode & 0o777) == (f"{KEY}\n", 0o600)
    network = (tmp_path / "etc/systemd/network/10-spillway.network").read_text()
    assert network.endswith(
        "[Match]\nName=ens5\n[Network]\nAddress=10.0.0.5/24\nGateway=10.0.0.1\n"
        "DNS=10.0.0.2\nDNS=10.0.0.3\n"
    )


def test_a_site_that_says_nothing_of_the_machine_leaves_it_alone(tmp_path: Path) -> None:
    machine.apply(site.read(BUCKET).machine, tmp_path)
    assert list(tmp_path.rglob("*")) == []


def test_a_disk_with_data_is_left_alone(tmp_path: Path) -> None:
    device = tmp_path / "disk"
    with device.open("wb") as file:
        file.truncate(8 * 1024 * 1024)
    machine.require(device)  # it is empty
    for label, refused in (("photos", True), (machine.DATA_LABEL, False)):
        subprocess.run([tool("mke2fs"), "-q", "-F", "-t", "ext4", "-L", label, device], check=True)
        before = device.read_bytes()
        with pytest.raises(UserError, match="it may be data") if refused else nullcontext():
            machine.require(device)
        assert device.read_bytes() == before


@contextmanager
def loop(image: Path) -> Iterator[Path]:
    """Make a device of a file, which this user may read."""
    run_as_root("losetup", "--find", image)
    listed = [tool("losetup"), "--noheadings", "--output", "NAME", "--associated", str(image)]
    device = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.strip()
    try:
        run_as_root("chown", str(os.geteuid()), device)
        yield Path(device)
    finally:
        run_as_root("losetup", "--detach", device)


def test_two_disks_with_the_label_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = f"spw-{secrets.token_hex(4)}"  # this machine may have a disk of a gateway
    monkeypatch.setattr(machine, "DATA_LABEL", label)
    images = [tmp_path / "one", tmp_path / "two"]
    with ExitStack() as stack:
        devices = []
        for image in images:
            make_ext4(image, 8, "-L", label)
            devices.append(stack.enter_context(loop(image)))
            link = tmp_path / f"by-id-{image.name}"
            link.symlink_to(devices[-1])
            if len(devices) == 1:
                machine.require(link)  # it has the label alone
        with pytest.raises(UserError, match=f"^{devices[1]} has the label {label} too"):
            machine.require(tmp_path / "by-id-one")
        # An empty disk would get the label.
        subprocess.run([tool("wipefs"), "--all", "--quiet", devices[0]], check=True)
        with pytest.raises(UserError, match=f"^{devices[1]} has the label {label} too"):
            machine.require(devices[0])


def test_a_disk_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "WAIT_SECONDS", 0.0)
    with pytest.raises(UserError, match=r"there is no disk .*none: attach it"):
        machine.require(tmp_path / "none")


def test_the_file_of_cloud_init_is_its_owners_alone_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "spillway.toml"
    given.write_text(BUCKET)
    given.chmod(0o644)
    monkeypatch.setattr(machine, "GIVEN", given)
    assert machine.text() == BUCKET
    assert given.stat().st_mode & 0o777 == 0o600
    machine.forget()
    assert not given.exists()
    machine.forget()  # a drive had it


def test_the_file_goes_when_the_machine_has_what_it_says(tmp_path: Path) -> None:
    """A boot that is cut short reads it again. What systemd was asked for is shown with what the
    directory had then."""
    script = f"""\
mkdir {machine.OWN}
(echo {shlex.quote(BUCKET)} && {PROGRAM} first-boot --prepare-token ann) > {machine.GIVEN}
echo '#!/bin/sh' | tee /usr/bin/spillway /usr/local/bin/systemctl >&2
echo 'echo $1 $(ls {machine.OWN}) >> /mnt/asked' >> /usr/local/bin/systemctl
chmod 755 /usr/bin/spillway /usr/local/bin/systemctl
mount --bind /dev/null {first_boot.CONSOLES}
{PROGRAM} first-boot >&2
cat /mnt/asked
"""
    asked = apart.said(script, tmp_path)
    assert asked == f"stop {machine.GIVEN.name}\nenable {machine.GIVEN.name}\nstart done\n"


def test_a_gateway_of_before_is_stopped_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had asked systemd for is all that a wrong file leaves."""
    asked = tmp_path / "asked"
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(first_boot, "DONE", tmp_path / "done")
    monkeypatch.setattr(first_boot, "CONSOLES", tmp_path / "none")
    (tmp_path / "none").touch()
    monkeypatch.setattr(machine, "GIVEN", tmp_path / "spillway.toml")
    (tmp_path / "spillway.toml").write_text("[bucket")
    with pytest.raises(UserError, match=r"first boot: spillway\.toml is not valid"):
        first_boot.run(Namespace(check=None, prepare_token=None))
    assert asked.read_text() == "stop spillway.target\n"


def test_the_disk_is_mounted_as_the_role_mounts_it() -> None:
    role = yaml.safe_load((ROOT / "ansible/roles/storage/vars/main.yml").read_text())
    assert role["storage_mount_options"] == machine.OPTIONS
    assert role["storage_label"] == machine.DATA_LABEL
    template = (ROOT / "ansible/roles/storage/templates/mount.j2").read_text()
    units = re.findall(r"^(?:Before|WantedBy|RequiredBy)=.*$", template, re.MULTILINE)
    assert units == re.findall(r"^(?:Before|WantedBy|RequiredBy)=.*$", machine._MOUNT, re.MULTILINE)
