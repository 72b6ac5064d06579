"""The drain on PostgreSQL: its own SQL, and a database server that goes away."""

from __future__ import annotations

import os

from tests.support.drainsite import MIB, Site
from tests.support.postgres import PostgresServer
from tests.support.s3proxy import Act
from tests.support.s3server import RcloneServer
from tests.support.sites import MakeSite
from tests.support.t4.block_digests import found, of
from tests.support.t4.negotiated import configured, remembered
from tests.support.waiting import until


def test_uploads_moves_and_deletions(
    rclone: RcloneServer, make_site: MakeSite, postgres: PostgresServer
) -> None:
    site: Site = make_site(rclone, database_url=postgres.create_database())
    large = os.urandom(11 * MIB)
    for path, data in {"a": b"first", "b": b"second", "d/large": large, "d/x.tmp": b""}.items():
        site.write(path, data)
    site.drain()
    assert site.objects() == {"a": b"first", "b": b"second", "d/large": large}
    site.rename("a", "x.tmp")
    site.rename("b", "a")
    site.rename("x.tmp", "b")
    site.rename("d", "e")
    site.drain()
    assert site.objects() == {"a": b"second", "b": b"first", "e/large": large}
    site.unlink("a")
    site.unlink("e/large")
    site.drain()
    assert site.objects() == {"b": b"first"}


def test_block_digests_and_what_the_store_answered(
    rclone: RcloneServer, make_site: MakeSite, postgres: PostgresServer
) -> None:
    site: Site = configured(make_site(rclone, database_url=postgres.create_database()), "auto")
    files = {"a": b"first", "large": os.urandom(11 * MIB)}
    for path, data in files.items():
        site.write(path, data)
    site.drain()
    assert remembered(site) == ["md5"]
    assert found(site) == {path: of(data) for path, data in files.items()}
    site.unlink("large")
    assert site.rows("SELECT count(*) FROM block_digest") == [(1,)]


def test_a_database_that_goes_away_during_an_upload_only_delays_it(
    rclone: RcloneServer, make_site: MakeSite, postgres: PostgresServer
) -> None:
    site: Site = make_site(rclone, database_url=postgres.create_database())
    site.write("f", b"data")
    held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD_ANSWER)
    with site.draining():
        held.wait()
        postgres.kill()
        held.release()
        postgres.start()
        until(lambda: site.rows("SELECT 1 FROM object") == [(1,)], "the file is published")
    assert site.objects() == {"f": b"data"}
