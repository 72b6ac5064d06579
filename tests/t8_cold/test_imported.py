"""Cold reads of imported files: by their ETag at first, then by digests, and never of two
versions."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gateway.cache.eviction import Candidates, Eviction, EvictionVerdict, survey
from gateway.common.types import Residency
from gateway.db.compiled import Session, rows_of
from gateway.objectstore.s3 import S3Store
from gateway.rpc.frames import Op
from tests.support.drainsite import MIB
from tests.support.imports import Imports
from tests.support.t8.site import BLOCK_BYTES, ColdSite
from tests.support.waiting import until

SIZE = 9 * MIB + 5


class ColdImport:
    """An import of one file, which is absent."""

    def __init__(self, site: ColdSite) -> None:
        self.site = site
        self.imports = Imports(site)
        self.data = os.urandom(SIZE)
        self.imports.put("set/f", self.data)
        self.top = self.imports.all()
        self.ino = self.imports.tree(self.top)["f"].ino
        site.control.expected[self.ino] = self.data
        site.proxy.forget()

    def evict(self) -> EvictionVerdict:
        """Evict the file as the evictor does."""
        site, database = self.site, self.imports.database
        site.configure("cache", keep_seconds=0.0)
        store = S3Store(site.settings)
        with database.reader() as connection:
            session = Session(connection, database.dialect)
            candidates = Candidates(session, site.settings)
            [candidate] = candidates.given(rows_of([(self.ino,)])).values()
            [directory] = survey(session)
            assert [one.ino for one in candidates.inside([directory])] == [self.ino]
        with Eviction(site.settings, database, store) as eviction:
            [verdict] = eviction.run(self.imports.control.run, [candidate])
        return verdict

    def digests(self) -> bytes | None:
        [(crcs,)] = self.site.rows("SELECT crcs FROM imported_object WHERE key = 'set/f'")
        return None if crcs is None else bytes(crcs)

    def require_refused(self, at: int = 0) -> None:
        """Require that a read is an error, which people see."""
        with self.site.hydrating():
            self.site.control.want(self.ino, at)
            self.site.control.wait(Op.FAILED, self.ino)
        [(ino, _key, _tries, error)] = self.site.retries()
        assert ino == self.ino
        assert "the file is of an import: spillway import" in error
        assert self.imports.writes() == []


@pytest.fixture(params=["site", "aws_site"])
def cold(request: pytest.FixtureRequest) -> Iterator[ColdImport]:
    """An import on a store that heeds no If-Match, and on one that does."""
    made = ColdImport(request.getfixturevalue(request.param))
    yield made
    made.imports.close()


def test_a_file_is_read_evicted_and_read_again(cold: ColdImport) -> None:
    site, ino = cold.site, cold.ino
    assert cold.digests() is None
    site.hydrate(ino, cold.data)
    assert site.is_resident(ino)
    digests = cold.digests()
    assert digests is not None
    assert len(digests) == 8 * -(-SIZE // BLOCK_BYTES)
    assert cold.evict() is EvictionVerdict.EVICTED
    assert site.namespace.getattr(ino).residency == Residency.ABSENT
    site.hydrate(ino, cold.data, at=5 * MIB)
    assert cold.digests() == digests
    assert cold.imports.writes() == []
    # The drain knows nothing of it.
    site.drain()
    assert site.objects() == {}


def test_another_object_is_an_error_and_keeps_the_copy(cold: ColdImport) -> None:
    site, ino = cold.site, cold.ino
    site.hydrate(ino, cold.data)
    cold.imports.put("set/f", os.urandom(SIZE))
    assert cold.evict() is EvictionVerdict.DIFFERS
    assert site.bytes_of(ino) == cold.data


def test_an_object_that_changed_is_never_mixed_with_the_former_one(cold: ColdImport) -> None:
    site, ino = cold.site, cold.ino
    other = os.urandom(SIZE)
    with site.hydrating():
        site.control.want(ino, 0)
        site.control.wait(Op.PRESENT, ino)
    cold.imports.put("set/f", other)
    # What was there before is read to its end, or is an error. The control socket compares.
    with site.hydrating():
        site.control.want(ino)
        until(lambda: site.is_resident(ino) or site.control.of(Op.FAILED, ino), "an answer")
    # After a refresh the name is another file, of the newer object alone.
    cold.imports.refresh(cold.top)
    cold.imports.run()
    found = cold.imports.tree(cold.top)["f"]
    assert found.ino != ino
    site.control.clear()  # the clients of the former file have their error
    site.control.expected[found.ino] = other
    site.hydrate(found.ino, other)
    assert cold.imports.writes() == []


def test_an_object_that_is_gone_is_an_error(cold: ColdImport) -> None:
    cold.imports.delete("set/f")
    cold.require_refused()


def test_wrong_bytes_are_seen_by_the_digests(cold: ColdImport) -> None:
    site, ino = cold.site, cold.ino
    site.hydrate(ino, cold.data)
    assert cold.evict() is EvictionVerdict.EVICTED
    # The store lies: another object, with the ETag that was recorded.
    etag = cold.imports.put("set/f", os.urandom(SIZE))
    site.rows(f"UPDATE imported_object SET etag = '{etag}' WHERE ino = {ino} RETURNING 1")
    cold.require_refused()


def test_a_refused_bucket_is_no_outage(cold: ColdImport) -> None:
    site, ino = cold.site, cold.ino
    site.rows("UPDATE imported_prefix SET bucket = 'there-is-no-such-one' RETURNING 1")
    with site.hydrating():
        site.control.want(ino, 0)
        site.control.wait(Op.FAILED, ino)
        until(lambda: site.retries(), "the row of the failure")
