"""Two drains share the work by claims, and a drain that lost its lease publishes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.db.compiled import Session, Statement
from gateway.drain import statements as own
from gateway.drain.send.upload import BATCH_FILES
from tests.support.drain import Drain
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.postgres import PostgresServer
from tests.support.s3proxy import Act, Fault
from tests.support.s3server import RcloneServer
from tests.support.sites import MakeSite
from tests.support.stopping import stop_between_transactions
from tests.support.waiting import until

LONG_LEASE_SECONDS = 10
"""Longer than a busy machine holds a drain up. A drain that loses its lease sends files twice."""


@contextmanager
def paused(site: Site, operation: str) -> Iterator[tuple[subprocess.Popen[bytes], Fault]]:
    """Stop a drain while the proxy holds one of its requests, and run a second drain."""
    held = site.proxy.inject(lambda request: request.operation == operation, Act.HOLD)
    with site.process() as first:
        held.wait()
        stop_between_transactions(first.pid, site.namespace._database)
        with site.process():
            yield first, held


def leases(site: Site) -> int:
    return int(site.rows("SELECT count(*) FROM lease")[0][0])


def test_two_drains_send_every_file_once(rclone_site: Site) -> None:
    site = rclone_site
    site.configure(lease_seconds=LONG_LEASE_SECONDS)
    with site.process(), site.process():
        until(lambda: leases(site) == 2, "both drains have a lease")
        contents = {f"d{n % 3}/f{n}": b"%d" % n for n in range(60)}
        for path, data in contents.items():
            site.write(path, data)
        until(lambda: not site.left(), "everything is drained")
        for n in range(0, 60, 2):
            site.unlink(f"d{n % 3}/f{n}")
            del contents[f"d{n % 3}/f{n}"]
        site.rename("d1", "e1")
        until(lambda: not site.left(), "everything is drained")
    sent = site.uploads()
    assert len(sent) == 60
    assert set(sent.values()) == {1}
    moved = {path.replace("d1/", "e1/"): data for path, data in contents.items()}
    assert site.objects() == moved


def test_two_drains_on_postgres(
    rclone: RcloneServer, make_site: MakeSite, postgres: PostgresServer
) -> None:
    site: Site = make_site(rclone, database_url=postgres.create_database())
    site.configure(lease_seconds=LONG_LEASE_SECONDS)
    contents = {f"f{n}": b"%d" % n for n in range(30)}
    for path, data in contents.items():
        site.write(path, data)
    with site.process(), site.process():
        until(lambda: not site.left(), "everything is drained")
    assert set(site.uploads().values()) == {1}
    assert site.objects() == contents


def test_a_drain_that_was_killed_is_followed_at_once(rclone_site: Site) -> None:
    site = rclone_site
    contents = {f"f{n}": b"%d" % n for n in range(20)}
    held = site.proxy.inject(lambda r: r.operation == "PUT", Act.HOLD, times=2)
    for path, data in contents.items():
        site.write(path, data)
    with site.process() as first:
        held.wait()
        assert site.rows("SELECT count(*) FROM claim")[0][0] > 2
        with site.process():
            until(lambda: leases(site) == 2, "both drains have a lease")
            site.kill(first)
            held.discard()
            until(lambda: not site.left(), "the other one continues")
    assert site.objects() == contents
    assert "which is dead" in site.output.read_text()


def test_a_drain_that_starts_spares_the_uploads_that_another_one_begins(moto_site: Site) -> None:
    """Before the row with its id, only the drain that begins an upload knows of it."""
    site = moto_site
    data = os.urandom(11 * MIB)
    site.write("f", data)
    held = site.proxy.inject(lambda r: r.operation == "CREATE", Act.HOLD_ANSWER)
    with site.process():
        held.wait()
        assert site.rows("SELECT upload_id FROM upload") == [(None,)]
        site.proxy.forget()
        # The upload must be older than the second drain, and the server counts in whole seconds.
        time.sleep(1.1)
        second = Drain(site.settings)
        second.cycle()
        second.close()
        assert site.proxy.operations("LIST UPLOADS")
        assert site.proxy.operations("ABORT") == []
        held.release()
        until(lambda: not site.left(), "the first drain continues")
    assert site.objects() == {"f": data}
    assert site.multiparts() == 0


def test_a_drain_that_was_paused_for_too_long_harms_nothing(rclone_site: Site) -> None:
    """The last request of that drain reaches the bucket after a newer version."""
    site = rclone_site
    site.write("f", b"old version")
    with paused(site, "PUT") as (first, held):
        until(lambda: not site.left(), "the other one takes over when the lease has run out")
        assert "did not renew it" in site.output.read_text()
        site.write("f", b"new")
        until(lambda: not site.left(), "the new version is drained")
        assert site.objects() == {"f": b"new"}
        late = len(site.proxy.operations("PUT"))
        held.arrive()
        first.send_signal(signal.SIGCONT)
        until(lambda: len(site.proxy.operations("PUT")) > late, "the file is sent again")
        until(lambda: not site.left(), "everything is drained")
    assert site.objects() == {"f": b"new"}
    assert site.rows("SELECT key, content_version, size FROM object") == [(f"{PREFIX}/f", 2, 3)]
    assert "is not what was recorded" in site.output.read_text()


def test_what_a_paused_drain_sent_of_a_deleted_file_goes_again(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"data")
    with paused(site, "PUT") as (first, held):
        until(lambda: not site.left(), "the other one takes over")
        site.unlink("f")
        until(lambda: not site.left() and not site.objects(), "the object is deleted")
        held.arrive()
        first.send_signal(signal.SIGCONT)
        until(lambda: not site.objects(), "it is deleted again")
        until(lambda: not site.left(), "everything is settled")


def test_a_multipart_upload_of_a_paused_drain_is_never_completed(rclone_site: Site) -> None:
    site = rclone_site
    data = os.urandom(17 * MIB)
    site.write("f", data)
    with paused(site, "PART") as (first, held):
        until(lambda: not site.left(), "the other one takes over")
        held.release()
        first.send_signal(signal.SIGCONT)
        until(lambda: leases(site) == 2, "it has noticed, and works again")
        until(lambda: not site.left(), "everything is settled")
    assert len(site.proxy.operations("COMPLETE")) == 1
    assert site.multiparts() == 0
    assert site.objects() == {"f": data}


def test_an_object_that_is_not_ours_is_left_at_an_indeterminate_key(rclone_site: Site) -> None:
    site = rclone_site
    site.client.put_object(Bucket=site.bucket, Key=f"{PREFIX}/theirs", Body=b"foreign")
    connection = site.namespace._database.connect()
    connection.execute(
        "INSERT INTO indeterminate_write (key, ino, noted_ns) VALUES (?, 77, 1)",
        (f"{PREFIX}/theirs",),
    )
    connection.close()
    site.drain()
    assert site.left() == []
    assert site.objects() == {"theirs": b"foreign"}


def test_a_drain_that_stops_leaves_no_claim(rclone_site: Site) -> None:
    site = rclone_site
    site.write("f", b"data")
    with site.draining():
        until(site.is_clean, "the file is drained")
    assert site.rows("SELECT * FROM claim") == []
    assert leases(site) == 0
    with site.process() as process:
        until(lambda: leases(site) == 1, "it has a lease")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    # A dead drain is not enough: on another machine its death could not be seen.
    assert leases(site) == 0


_SIGNALLED_AT_ITS_START = """
import os, signal, sys
from gateway.processes import drain as module

class Drain(module.Drain):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        os.kill(os.getpid(), signal.SIGTERM)

module.Drain = Drain
sys.exit(module.main())
"""


def test_a_drain_that_is_stopped_as_it_starts_leaves_no_lease(rclone_site: Site) -> None:
    command = [sys.executable, "-c", _SIGNALLED_AT_ITS_START]
    arguments = ["--config", str(rclone_site.settings.source)]
    assert subprocess.run([*command, *arguments], timeout=60).returncode == 0
    assert leases(rclone_site) == 0


def test_claims_cost_few_transactions(rclone_site: Site) -> None:
    """There are two for a page of claims and two for a batch of uploads, not one for each file."""
    site = rclone_site
    count = 256
    for number in range(count):
        site.write(f"d/{number}", b"x")
    drain = Drain(site.settings)
    begun: list[None] = []
    backend = drain._context.database.backend
    begin = backend.begin

    def counted(connection: object) -> object:
        begun.append(None)
        return begin(connection)

    backend.begin = counted  # type: ignore[method-assign]
    drain.cycle()
    drain.close()
    assert len(site.objects()) == count
    assert len(begun) <= count // 8 + 10


def test_a_transaction_of_many_files_is_a_few_statements(
    rclone_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction waits for the interpreter after each, and the NFS server waits meanwhile."""
    site = rclone_site
    count = 2 * BATCH_FILES
    for number in range(count):
        site.write(f"d/{number}", b"x")
    executed: Counter[Statement] = Counter()
    execute = Session._execute

    def counted(self: Session, statement: Statement, params: dict[str, Any]) -> Any:
        executed[statement] += 1
        return execute(self, statement, params)

    def drained() -> int:
        """Drain, and return the number of statements for each file."""
        executed.clear()
        with monkeypatch.context() as patched:
            patched.setattr(Session, "_execute", counted)
            site.drain()
        return sum(executed.values()) // count

    assert drained() <= 3
    assert len(site.objects()) == count
    for statement in (own.UPLOAD_INSERT, own.UPLOAD_DELETE, own.OBJECT_INSERT, own.DRAINED):
        # The statement runs once for each batch. A batch has the files that are claimed by then.
        assert executed[statement] <= count // 4
    assert executed[own.CLAIM_INSERT] <= count // 4
    for number in range(count):
        site.rename(f"d/{number}", f"moved{number}")
    # Each rename becomes a move and the deletion of its source.
    assert drained() <= 12
    assert set(site.objects()) == {f"moved{number}" for number in range(count)}
    assert executed[own.OBJECT_MOVE] <= count // 2
    for number in range(count):
        site.unlink(f"moved{number}")
    assert drained() <= 6
    assert site.objects() == {}
