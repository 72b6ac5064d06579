"""`spillway fsck` and `spillway upgrade`."""

from __future__ import annotations

import json
import os

import psycopg
import pytest

from gateway.config import datadir
from gateway.db import fence
from tests.support.clisite import Site, assert_refused, spillway
from tests.support.namespace import Namespace
from tests.support.postgres import PostgresServer
from tests.support.volumes import query


def test_a_healthy_namespace(site: Site) -> None:
    done = spillway("fsck", "--config", site.config)
    assert (done.returncode, done.stdout) == (0, "0 problems found, 0 left\n")


def test_problems_are_shown_then_repaired(site: Site) -> None:
    query(site.settings, "UPDATE inode SET nlink = 9 WHERE ino = 2")
    query(site.settings, "INSERT INTO rekey VALUES (424242, 1)")
    done = spillway("fsck", "--config", site.config)
    assert done.returncode == 1
    [row] = [line for line in done.stdout.splitlines() if "directory 2 has link count 9" in line]
    assert row.endswith("can be repaired") and "its subdirectories make it 2" in row
    assert "2 problems found, 2 left" in done.stdout
    done = spillway("fsck", "--config", site.config, "--repair")
    assert done.returncode == 0
    [row] = [line for line in done.stdout.splitlines() if "inode 424242" in line]
    assert row.endswith("note dropped") and "a rename of inode 424242 is noted" in row
    done = spillway("fsck", "--config", site.config, "--json")
    assert json.loads(done.stdout) == {"problems": [], "left": 0}


def test_what_cannot_be_repaired_is_left_and_said(site: Site) -> None:
    query(site.settings, "UPDATE volume SET next_cookie = 0")
    query(site.settings, "UPDATE volume SET next_ino = 0")
    done = spillway("fsck", "--config", site.config, "--repair")
    assert done.returncode == 1
    assert done.stdout.endswith("1 problems found, 1 left\n")


def test_not_beside_a_running_gateway(site: Site) -> None:
    with datadir.locked(site.settings, datadir.UP_PROGRAM):
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


@pytest.fixture
def shared(site: Site, postgres: PostgresServer) -> Site:
    """Put the namespace of a site on PostgreSQL."""
    site.edit("namespace", "url", f'"{postgres.create_database()}"')
    assert spillway("init", "--new", "--config", site.config).returncode == 0
    return site


def test_an_empty_database_in_place_of_the_namespaces_is_refused(
    shared: Site, postgres: PostgresServer
) -> None:
    shared.edit("namespace", "url", f'"{postgres.create_database()}"')
    done = spillway("init", "--config", shared.config)
    assert_refused(done, "is empty: correct namespace.url or put its backup back", "init --new")
    assert query(shared.settings, "SELECT to_regclass('volume')") == [(None,)]


def test_nothing_is_done_to_a_namespace_that_another_gateway_serves(shared: Site) -> None:
    namespace = Namespace(shared.settings)
    try:
        for command in ("up", "fsck"):
            done = spillway(command, "--config", shared.config)
            assert_refused(done, "another NFS server", f"process {os.getpid()} on host")
        query(shared.settings, "UPDATE alembic_version SET version_num = '0005'")
        done = spillway("upgrade", "--config", shared.config)
        assert_refused(done, "another NFS server", f"process {os.getpid()} on host")
        assert query(shared.settings, "SELECT version_num FROM alembic_version") == [("0005",)]
    finally:
        namespace.close()


def test_init_beside_our_own_server_and_not_beside_one_elsewhere(shared: Site) -> None:
    namespace = Namespace(shared.settings)
    assert spillway("init", "--config", shared.config).returncode == 0
    namespace.close()
    with psycopg.connect(shared.settings.database_url, autocommit=True) as elsewhere:
        elsewhere.execute("SET application_name = 'spillway-nfs otherhost 7 abcdef'")
        elsewhere.execute("SELECT pg_advisory_lock(%s)", (fence.SERVER_LOCK,))
        done = spillway("init", "--config", shared.config)
        assert_refused(done, "process 7 on host otherhost", "namespace.url")
