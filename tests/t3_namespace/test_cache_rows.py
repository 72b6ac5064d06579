"""What the hydrator and the evictor read and write in the database, on both engines."""

from __future__ import annotations

import os
from contextlib import closing

from gateway.cache import warming
from gateway.cache.eviction import Candidates, Directory, survey
from gateway.cache.rows import Rows, Saved, failure_now
from gateway.common import clock
from gateway.config.settings import Settings
from gateway.db.compiled import Session, rows_of
from gateway.db.engine import Database
from tests.support.namespace import Namespace
from tests.support.t3.names import ROOT
from tests.support.t3.residency import DATA, evict, save
from tests.support.volumes import query

HOUR_NS = 3600 * clock.NS


def test_candidates_are_found_in_their_order(namespace: Namespace, settings: Settings) -> None:
    first, second, read, partial = (save(namespace, settings, b"f%d" % n) for n in range(4))
    namespace.note_reads([(read.ino, 5)])
    absent = evict(namespace, partial)
    path = namespace.files.path(absent.ino, absent.epoch)
    path.write_bytes(DATA)
    os.utime(path, ns=(0, clock.now_ns() - HOUR_NS))
    with closing(Database(settings.database_url)) as database, database.reader() as connection:
        Rows(database).save([Saved(absent.ino, absent.epoch, 4 << 20, b"\1")])
        session = Session(connection, database.dialect)
        [directory] = survey(session)
        assert directory == Directory(ROOT, 5, 3 * first.used)
        candidates = Candidates(session, settings)
        assert [candidate.ino for candidate in candidates.inside([directory])] == [
            first.ino,
            second.ino,
            read.ino,
        ]
        assert [candidate.ino for candidate in candidates.partial()] == [absent.ino]
        given = candidates.given(rows_of([(first.ino,), (absent.ino,), (987_654,)]))
        assert set(given) == {first.ino, absent.ino}
        assert given[first.ino].key == "f0"


def test_the_rows_of_a_hydration(namespace: Namespace, settings: Settings) -> None:
    absent, sibling = (evict(namespace, save(namespace, settings, name)) for name in (b"a", b"b"))
    there = save(namespace, settings, b"c")
    with closing(Database(settings.database_url)) as database:
        rows = Rows(database)
        row = rows.find(absent.ino)
        assert row is not None
        assert row.source is not None
        assert (row.epoch, row.durable, row.path) == (absent.epoch, None, "a")
        assert (row.source.place.key, row.source.crcs) == ("a", b"12345678")
        assert rows.find(there.ino) is None
        assert rows.has_epoch(absent.ino, absent.epoch)
        assert not rows.has_epoch(absent.ino, absent.epoch + 1)
        assert rows.siblings(ROOT, b"a", 10) == [(b"b", sibling.ino)]
        files = [Saved(absent.ino, absent.epoch, 4 << 20, b"\1"), Saved(there.ino, 0, 1, b"\1")]
        assert rows.save(files) == {there.ino}
        row = rows.find(absent.ino)
        assert row is not None
        assert row.durable == b"\1"
        forgotten = Saved(absent.ino, absent.epoch, 4 << 20, None, is_forgotten=True)
        assert rows.save([forgotten]) == set()
        failure = failure_now(3, "the object\nis gone", 60.0)
        for _ in range(2):
            rows.save_failures([(absent.ino, "a", failure), (sibling.ino, "b", failure)])
        assert rows.failures() == dict.fromkeys((absent.ino, sibling.ino), failure)
        inos = [absent.ino, sibling.ino, there.ino]
        with database.reader() as connection, database.transaction(connection):
            warming.request_whole(Session(connection, database.dialect), inos[:1] + inos[2:])
        assert rows.warm_requests(10) == [(absent.ino, False)]
        assert rows.failures() == {sibling.ino: failure}
        rows.save_failures([(absent.ino, "a", failure), (sibling.ino, "b", None)])
        with database.reader() as connection:
            left = warming.left(Session(connection, database.dialect), inos)
        assert left == [(absent.ino, len(DATA), "the object is gone")]
    assert query(settings, "SELECT * FROM present_blocks") == []
