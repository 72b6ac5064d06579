"""The commands of docs/tasks that save a gateway, run as they are printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.nfs4 import IO, Status
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
    """Back the database up, twice, as a timer does."""
    [backup] = blocks("backup.md", "Back up")
    assert machine.follow(backup) == {}
    assert machine.follow("backup-spillway") == {}


def test_a_backup_is_put_back(machine: Standing) -> None:
    back_up(machine)
    machine.save({"second": b"2"})
    machine.until_drained()
    [restore] = blocks("backup.md", "Restore a backup")
    assert set(machine.follow(restore)) <= {"runuser -u spillway -- spillway fsck --repair"}
    assert machine.load("first") == b"1"
    assert "2" in machine.run("tail -n +1 /var/lib/spillway/files/set-aside/*").splitlines()
    machine.save({"third": b"3"})
    machine.until_drained()
    assert machine.load("third") == b"3"
    machine.run("systemctl stop spillway.target; runuser -u spillway -- spillway fsck")


def test_a_failed_disk_is_replaced(machine: Standing) -> None:
    back_up(machine)
    machine.server.stop()
    machine.save({"second": b"2"})
    back_up(machine)
    stop, prepare, database, start = blocks("backup.md", "Replace a failed disk")
    assert machine.follow(stop) == {}
    machine.new_disk(2)
    machine.server.start()
    assert machine.follow(prepare) == {}
    assert machine.follow(database) == {}
    assert machine.follow(start) == {
        "runuser -u spillway -- spillway adopt files": 1,
        "runuser -u spillway -- spillway fsck": 1,
    }
    assert machine.load("first") == b"1"
    with pytest.raises(Status, match=str(IO)):
        machine.load("second")
    assert "second" in machine.run("spillway queue list --limit 1000")
    assert "stuck" in machine.run("spillway status || [ $? = 1 ]")


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
