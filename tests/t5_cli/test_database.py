"""`spillway fsck` and `spillway upgrade`."""

from __future__ import annotations

import json

from gateway.cli import checks
from tests.support.volumes import query
from tests.t5_cli.site import Site, spillway


def test_a_healthy_namespace(site: Site) -> None:
    done = spillway("fsck", "--config", site.config)
    assert (done.returncode, done.stdout) == (0, "0 problems found, 0 left\n")


def test_problems_are_shown_then_repaired(site: Site) -> None:
    query(site.settings, "UPDATE inode SET nlink = 9 WHERE ino = 2")
    query(site.settings, "INSERT INTO rekey VALUES (424242, 1)")
    done = spillway("fsck", "--config", site.config)
    assert done.returncode == 1
    assert "directory 2 has link count 9, its subdirectories make it 2 [can be" in done.stdout
    assert "2 problems found, 2 left" in done.stdout
    done = spillway("fsck", "--config", site.config, "--repair")
    assert done.returncode == 0
    assert "a rename of inode 424242 is noted, which is gone [note dropped]" in done.stdout
    done = spillway("fsck", "--config", site.config, "--json")
    assert json.loads(done.stdout) == {"problems": [], "left": 0}


def test_what_cannot_be_repaired_is_left_and_said(site: Site) -> None:
    query(site.settings, "UPDATE volume SET next_cookie = 0")
    query(site.settings, "UPDATE volume SET next_ino = 0")
    done = spillway("fsck", "--config", site.config, "--repair")
    assert done.returncode == 1
    assert done.stdout.endswith("1 problems found, 1 left\n")


def test_not_beside_a_running_gateway(site: Site) -> None:
    with checks.locked(site.settings):
        done = spillway("fsck", "--config", site.config)
    assert done.returncode == 2
    assert "stop it first" in done.stderr


def test_upgrade_of_a_current_database_says_so(site: Site) -> None:
    done = spillway("upgrade", "--config", site.config)
    assert done.returncode == 0
    assert "current, schema" in done.stdout


def test_upgrade_refuses_a_newer_database(site: Site) -> None:
    query(site.settings, "UPDATE alembic_version SET version_num = 'f00d'")
    done = spillway("upgrade", "--config", site.config)
    assert done.returncode == 2
    assert "newer Spillway" in done.stderr
    assert len(done.stderr.splitlines()) == 1
