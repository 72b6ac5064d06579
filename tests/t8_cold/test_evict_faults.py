"""Evictions while the server, the disk or the database fails, with two evictors, and kills."""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.cache import evictor as evictor_module
from gateway.cache.eviction import Candidates, Directory, Eviction, EvictionVerdict, survey
from gateway.cache.evictor import LOOK_SECONDS, RETRY_SECONDS
from gateway.common import clock
from gateway.common.errors import ControlSocketClosed, TryAgain
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.namespace import data_files, fsck
from gateway.namespace.data_files import DataFiles
from gateway.objectstore.s3 import S3Store
from gateway.rpc.frames import Op, RpcReply, RpcRequest
from tests.support.direct import Direct
from tests.support.s3proxy import Act
from tests.support.s3server import credentials
from tests.support.t8.evicting import FILE_BYTES, Cold

context = multiprocessing.get_context("forkserver")


class Refusing:
    """A control socket with an answer of its own for each request."""

    def __init__(self, answer: int | Exception) -> None:
        self.answer = answer
        self.asked = 0

    def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        self.asked += len(requests)
        if isinstance(self.answer, Exception):
            raise self.answer
        return [RpcReply(self.answer, None) for _ in requests]

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("answer", "again_seconds"),
    [(errno.EAGAIN, 10.0), (errno.ENOTSUP, 10.0), (ControlSocketClosed("gone"), 0.0)],
)
def test_a_refusal_is_no_reason_to_ask_again_at_once(
    cold: Cold,
    monkeypatch: pytest.MonkeyPatch,
    answer: int | Exception,
    again_seconds: float,
) -> None:
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    cold.save("run", 4, hours_ago=1)
    control = Refusing(answer)
    working = cold.evictor()
    working._open_control = lambda: closing(control)
    now = [clock.monotonic_seconds()]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    for passed, asked in ((0.0, 4), (again_seconds - 1, 4), (2.0, 8)):
        if again_seconds == 0 and asked == 4 and passed != 0:
            continue
        now[0] += passed
        working.step()
        assert control.asked == asked
    assert cold.absent() == set()


def test_a_file_that_stays_busy_is_asked_for_ever_less_often(
    cold: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of one moment must not keep a file on a full disk for a minute."""
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    cold.save("run", 4, hours_ago=1)
    control = Refusing(errno.EBUSY)
    working = cold.evictor()
    working._open_control = lambda: closing(control)
    now = [clock.monotonic_seconds()]
    started = now[0]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    asked_at = []
    while now[0] < started + 300.0:
        before = control.asked
        working.step()
        assert control.asked - before in (0, 4)
        if control.asked > before:
            asked_at.append(now[0] - started)
        now[0] += 1.0
    assert asked_at == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]


def test_a_server_that_went_away_is_asked_again_soon(cold: Cold) -> None:
    """Clients write as soon as it is back."""
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    cold.save("run", 4, hours_ago=1)
    working = cold.evictor()
    working._open_control = lambda: closing(Refusing(ControlSocketClosed("gone")))
    assert working.step() == LOOK_SECONDS


def test_a_server_that_has_no_time_is_not_asked_for_every_file(
    cold: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictor_module, "TOGETHER", 1)
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    cold.save("run", 4, hours_ago=1)
    control = Refusing(errno.EAGAIN)
    working = cold.evictor()
    working._open_control = lambda: closing(control)
    working.step()
    assert control.asked == 1


def test_a_row_stays_until_its_deletion_is_durable(
    cold: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    inos = cold.save("run", 4, hours_ago=1)

    def fail(_path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    working = cold.evictor()
    sync = data_files.sync_directory
    with cold.control() as control:
        working._open_control = lambda: _given(control)
        monkeypatch.setattr(data_files, "sync_directory", fail)
        assert working.step() == RETRY_SECONDS
        assert cold.run("SELECT count(*) FROM eviction") == [(4,)]
        monkeypatch.setattr(data_files, "sync_directory", sync)
        # The next evictor finishes what is left, as soon as it has anything to do.
        monkeypatch.setattr(evictor_module, "survey", lambda _session: [])
        cold.evictor()._evict(1)
    assert cold.absent() == set(inos)


@contextmanager
def _given(control: Any) -> Iterator[Any]:
    yield control


def test_two_evictors_at_once_are_harmless(cold: Cold) -> None:
    cold.save("run", 4, hours_ago=1)
    database = Database(cold.settings.database_url)
    with database.reader() as connection:
        session = Session(connection, database.dialect)
        candidates = list(Candidates(session, cold.settings).inside(survey(session)))
    with (
        cold.control() as control,
        Eviction(cold.settings, database, S3Store(cold.settings)) as eviction,
    ):
        assert eviction.run(control.run, candidates) == [EvictionVerdict.EVICTED] * 4
        assert eviction.run(control.run, candidates) == [EvictionVerdict.BUSY] * 4
        # Of another eviction the data file is still there: a start after a kill must find its row.
        cold.run("INSERT INTO eviction VALUES (:ino, 7)", ino=candidates[0].ino)
        path = DataFiles(cold.settings.files_dir).path(candidates[0].ino, 7)
        path.touch()
        eviction.forget_left()
        assert cold.run("SELECT ino, epoch FROM eviction") == [(candidates[0].ino, 7)]
        path.unlink()
        eviction.forget_left()
        assert cold.run("SELECT * FROM eviction") == []
    assert cold.absent() == {candidate.ino for candidate in candidates}
    epochs = cold.run("SELECT DISTINCT epoch FROM inode WHERE kind = 1")
    assert epochs == [(candidates[0].epoch + 1,)]


def die_before_unlink(settings: Settings, ino: int) -> None:
    direct = Direct(settings)
    data_files.DataFiles.remove = lambda *_: os.kill(  # type: ignore[method-assign]
        os.getpid(), signal.SIGKILL
    )
    direct.run([RpcRequest(Op.EVICT, ino, change=1)])


def test_a_kill_between_commit_and_unlink_leaves_nothing_behind(cold: Cold) -> None:
    [ino] = cold.save("run", 1, hours_ago=1)
    cold.namespace.close()
    process = context.Process(target=die_before_unlink, args=(cold.settings, ino))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert cold.settings.files_dir.joinpath(f"{ino % 256:02x}/{ino}.0").exists()
    assert cold.run("SELECT ino, epoch FROM eviction") == [(ino, 0)]
    database = Database(cold.settings.database_url)
    assert fsck.check(database, DataFiles(cold.settings.files_dir)) == []
    with cold.control():
        pass
    assert cold.absent() == {ino}
    assert cold.run("SELECT * FROM eviction") == []


def test_the_database_may_be_away(cold: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    cold.save("run", 4, hours_ago=1)

    def away(_settings: Settings) -> None:
        raise TryAgain

    monkeypatch.setattr("gateway.namespace.identity.require_surroundings", away)
    assert cold.evictor().step() == RETRY_SECONDS
    assert cold.absent() == set()


def test_only_the_look_at_the_tables_needs_a_rest(
    cold: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the bucket or the server is slow, a rest as long as that would let the disk fill."""
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    inos = cold.save("run", 4, hours_ago=1)
    for number in range(4):
        cold.write(f"dirty{number}", os.urandom(FILE_BYTES))
    now = [clock.monotonic_seconds()]
    surveys = []

    def slow_survey(session: Session) -> list[Directory]:
        now[0] += 5
        surveys.append(now[0])
        return survey(session)

    class Slow(Refusing):
        def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
            now[0] += 100
            return super().run(requests)

    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    monkeypatch.setattr(evictor_module, "survey", slow_survey)
    working = cold.evictor()
    working._open_control = lambda: closing(Slow(errno.EAGAIN))
    for passed, looks in ((0, 1), (4, 1), (2, 2)):
        now[0] += passed
        assert working.step() == LOOK_SECONDS
        assert len(surveys) == looks
    # Files are evicted, and the disk is still too full: a save continues.
    now[0] += 11
    working._open_control = cold.control
    working.step()
    assert cold.absent() == set(inos)
    working.step()
    assert len(surveys) == 4
    working.step()
    assert len(surveys) == 4, "nothing was evicted"


def wrong_key(site: Cold) -> Callable[[], None]:
    """Let a person write a wrong key into the credentials file."""
    site.set_credentials(credentials("x" * 40))
    return partial(site.set_credentials, credentials())


def no_bucket(site: Cold) -> Callable[[], None]:
    """Let the store answer as if the bucket were missing."""
    head = site.proxy.inject(
        lambda request: request.operation == "HEAD", Act.FAIL, math.inf, status=404
    )
    every = site.proxy.inject(
        lambda _one: True, Act.FAIL, math.inf, status=404, code="NoSuchBucket"
    )

    def mend() -> None:
        head.release()
        every.release()

    return mend


@pytest.mark.parametrize("break_", [wrong_key, no_bucket])
def test_a_bucket_that_refuses_us_is_said_once_and_skips_no_file(
    cold: Cold, caplog: pytest.LogCaptureFixture, break_: Callable[[Cold], Callable[[], None]]
) -> None:
    cold.configure("cache", evict_from=0.1, evict_to=0.0)
    inos = cold.save("run", 4, hours_ago=1)
    mend = break_(cold)
    working = cold.evictor()
    for _ in range(2):
        assert working.step() == RETRY_SECONDS
        working._look_at = 0.0
    said = [record.getMessage() for record in caplog.records if record.name == "cache"]
    assert len(said) == 1
    assert said[0].startswith("nothing is evicted now: ")
    assert working.counts == {}
    mend()
    working.step()
    assert cold.absent() == set(inos)


def test_a_key_that_shows_no_object_is_not_tried_at_every_file(
    cold: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictor_module, "TOGETHER", 2)
    cold.configure("cache", evict_from=0.05, evict_to=0.0)
    inos = cold.save("run", 8, hours_ago=1)
    now = [clock.monotonic_seconds()]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])
    refused = cold.proxy.inject(
        lambda request: request.operation == "HEAD",
        Act.FAIL,
        math.inf,
        status=403,
        code="AccessDenied",
    )
    working = cold.evictor()
    working.step()
    assert working.counts == {"refused": 2}
    assert working._store._connection is None, "the old key would be used for ever"
    # Objects that are refused for themselves do not keep the evictor from others.
    refused.release()
    now[0] += 5
    working.step()
    assert cold.absent() == set(inos[2:])
    now[0] += 61
    working.step()
    assert cold.absent() == set(inos)
