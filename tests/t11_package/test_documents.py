"""The commands of docs/tasks that save a gateway, run as they are printed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.appliance import machine as system
from gateway.cli import first_boot
from tests.support.checkout import ROOT
from tests.support.nfs4 import IO, Status
from tests.support.s3server import ACCESS_KEY, SECRET_KEY
from tests.support.t11.standing import CHECKOUT, Standing

_BRIEFLY = """\
ip link set lo up
# Ganesha finds no IPv4 at all on a machine that has loopback addresses only.
ip address add 10.77.0.1/24 dev lo
{begun} >/run/up.log 2>&1 &
until grep -q "ganesha ready" /run/up.log; do kill -0 $!; sleep 0.1; done
kill $!
wait $!
"""
_BLOCK = re.compile(r"^( *)```\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, heading: str) -> list[str]:
    """Return the blocks of commands below a heading of a page."""
    text = (ROOT / "docs/tasks" / page).read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [match[2] for match in _BLOCK.finditer(section)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Standing]:
    """A gateway with one file, which the bucket has, on a disk of its own."""
    with Standing(tmp_path) as found:
        found.new_disk(1)
        found.set_up()
        found.save({"first": b"1"})
        found.until_drained()
        yield found


def back_up(machine: Standing) -> None:
    """Back names and settings up, as a timer does."""
    [backup] = blocks("backup.md", "Back up")
    assert machine.follow(backup) == {}


def test_a_backup_is_put_back(machine: Standing) -> None:
    back_up(machine)
    machine.save({"second": b"2", "third.tmp": b"3"})
    machine.until_drained()
    [restore] = blocks("backup.md", "Restore a backup")
    # The bucket has one that the backup does not know. The other one is on the disk only.
    assert machine.follow(restore) == {}
    assert machine.load("first") == b"1"
    assert machine.load("second") == b"2"
    assert "3" in machine.run("tail -n +1 /var/lib/spillway/files/set-aside/*").splitlines()
    machine.save({"fourth": b"4"})
    machine.until_drained()
    assert machine.load("fourth") == b"4"
    machine.run("systemctl stop spillway.target; runuser -u spillway -- spillway fsck")


def test_a_failed_disk_is_replaced(machine: Standing) -> None:
    machine.save({"second.tmp": b"2"})
    machine.until_copied()
    stop, prepare, restore, _with_database = blocks("backup.md", "Replace a failed disk")
    assert machine.follow(stop) == {}
    machine.new_disk(2)
    assert machine.follow(prepare) == {}
    assert machine.follow(restore) == {
        "spillway restore": 1,
    }
    assert machine.load("first") == b"1"
    with pytest.raises(Status, match=str(IO)):
        machine.load("second.tmp")
    assert "second.tmp" in machine.run("spillway queue list --limit 1000")
    assert "stuck" in machine.run("spillway status || [ $? = 1 ]")


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Standing]:
    """A machine whose disk and configuration are gone. The bucket has a file and a token."""
    with Standing(tmp_path) as machine:
        machine.new_disk(1)
        machine.set_up("team")
        # Where the package has it.
        machine.run(f"mkdir -p /usr/lib && ln -s {CHECKOUT}/build/lib /usr/lib/spillway")
        machine.run("spillway token create --name ann --role admin")
        # A process that starts looks at once for what changed.
        machine.run("systemctl stop spillway.target; systemctl start spillway.target")
        machine.save({"first": b"1"})
        machine.until_drained()
        machine.until_copied()
        machine.run("systemctl stop spillway.target")
        machine.new_disk(2)
        machine.run("rm -r /etc/spillway/*")
        yield machine


def test_everything_is_lost_but_the_bucket(lost: Standing) -> None:
    [commands] = blocks("restore.md", "Bring everything back")
    for printed, real in (
        ("AWS_ACCESS_KEY_ID=…", f"AWS_ACCESS_KEY_ID={ACCESS_KEY}"),
        ("AWS_SECRET_ACCESS_KEY=…", f"AWS_SECRET_ACCESS_KEY={SECRET_KEY}"),
        ("https://s3.example.com", lost.server.url),
    ):
        assert printed in commands
        commands = commands.replace(printed, real)
    assert lost.follow(commands) == {}
    assert lost.load("first") == b"1"
    lost.save({"second": b"2"})
    lost.until_drained()
    assert lost.server.files("my-checkpoints/team")["second"] == b"2"
    assert "settle_seconds = 0.0\n" in lost.run("cat /etc/spillway/spillway.toml")
    assert "ann" in lost.run("spillway token list")


@pytest.mark.skipif("SPILLWAY_FIRST_BOOT" not in os.environ, reason="make slow runs it")
def test_an_image_brings_everything_back_at_its_first_boot(lost: Standing) -> None:
    """Also if the boot is repeated after a power cut."""
    machine = lost
    wanted = f"""\
[machine]
restore = true
[bucket]
name = "my-checkpoints"
prefix = "team"
endpoint_url = "{machine.server.url}"
[admin]
enabled = false
[credentials]
access_key_id = "{ACCESS_KEY}"
secret_access_key = "{SECRET_KEY}"
"""
    # Services are started below. The program is where the package has it.
    stub, config = "/usr/local/bin/systemctl", "/etc/spillway/spillway.toml"
    machine.run(f"mv {stub} /usr/local/bin/real; ln -s /bin/true {stub}")
    machine.run(f"cp /usr/local/bin/spillway {first_boot.PROGRAM}; mkdir -p {system.OWN}")
    machine.run(f"mount --bind /dev/null {first_boot.CONSOLES}")
    configs = []
    for _ in range(2):
        machine.run(f"cat > {system.GIVEN}", wanted)
        print(machine.run("spillway first-boot"))
        machine.run(f"rm {first_boot.DONE}")
        configs.append(machine.run(f"stat -c '%U %G %a' {config}; cat {config}"))
    assert configs[0].startswith("root spillway 640\n")
    assert "\nsettle_seconds = 0.0\n" in configs[0]
    assert configs[1] == configs[0]
    # The units hand them over.
    machine.run("chown spillway /etc/spillway/credentials")
    machine.run(f"mv /usr/local/bin/real {stub}; systemctl start spillway.target")
    assert machine.load("first") == b"1"
    tokens = json.loads(machine.run("spillway token list --json"))
    assert [token["name"] for token in tokens] == ["ann"]


def test_a_gateway_gets_another_bucket(machine: Standing) -> None:
    machine.run("runuser -u spillway -- spillway evict /checkpoints/first")
    warm, change = blocks("backup.md", "Move to another bucket")
    assert machine.follow(warm) == {}
    assert machine.follow(change) == {}
    machine.until_drained()
    for bucket in ("my-checkpoints", "other-checkpoints"):
        assert machine.server.files(bucket)["first"] == b"1"


def test_a_gateway_is_replaced(machine: Standing) -> None:
    stop, adopt, start = blocks("upgrades.md", "Replace a gateway")
    assert machine.follow(stop) == {}
    machine.run("cp -a /var/lib/spillway /mnt/copy && chown -R nobody: /mnt/copy")
    machine.new_disk(2)
    machine.run("cp -a -T /mnt/copy /var/lib/spillway")
    assert machine.follow(adopt) == {}
    assert machine.follow(start) == {}
    assert machine.load("first") == b"1"


def test_the_commands_of_the_readme_make_a_gateway(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    block = text[text.index("\n## Install it") :].split("```")[1]
    lines = block.replace("\\\n", "").splitlines()
    made = [line for line in lines if re.match(r"export |.* init ", line)]
    [up] = [line.partition("#")[0] for line in lines if "spillway up" in line]
    with Standing(tmp_path) as machine:
        program = "build/venv/bin/spillway"
        # The program of the checkout, which a copy of the machine has in another place.
        here = [line.replace(program, "spillway").replace("$PWD", CHECKOUT) for line in made]
        machine.run("\n".join(["set -e", *here]))
        begun = up.replace(program, "spillway").strip()
        # Port 2049 of this machine may be in use.
        machine.run(f"unshare --net bash -ec '{_BRIEFLY.format(begun=begun)}'")
