"""What the drain does with absent files: it moves their objects, and never calls them dirty."""

from __future__ import annotations

import pytest

from gateway.common.types import Residency
from gateway.config import settings as settings_module
from gateway.db.engine import Database
from gateway.drain import verify
from gateway.rpc.frames import Op, RpcRequest
from tests.support.drainsite import PREFIX
from tests.support.s3proxy import Act
from tests.support.t8.evicting import Cold


def evict(site: Cold, path: str, data: bytes) -> int:
    """Make an absent file."""
    ino = site.write(path, data)
    site.drain()
    with site.control() as control:
        [answer] = control.run([RpcRequest(Op.EVICT, ino, change=1)])
    assert answer.errno == 0
    assert ino in site.absent()
    return ino


def arrive(site: Cold, ino: int, data: bytes) -> None:
    """Bring the bytes of a file back, as the hydrator does."""
    attr = site.namespace.getattr(ino)
    site.put_data(attr, data)
    assert site.namespace.arrived(ino, attr.epoch, 1).residency == Residency.RESIDENT


def versions(site: Cold, ino: int) -> list[tuple[int, ...]]:
    return site.run(
        "SELECT content_version, drained_version, residency FROM inode WHERE ino = :ino", ino=ino
    )


def test_the_object_of_an_absent_file_moves_and_goes_with_it(cold: Cold) -> None:
    ino = evict(cold, "a/f", b"only here")
    cold.rename("a", "b")
    cold.drain()
    assert cold.objects() == {"b/f": b"only here"}
    assert versions(cold, ino) == [(1, 1, Residency.ABSENT)]
    assert cold.left() == []
    cold.unlink("b/f")
    cold.drain()
    assert cold.objects() == {}
    assert cold.left() == []


def test_an_object_that_cannot_be_moved_waits_for_its_bytes(cold: Cold) -> None:
    ino = evict(cold, "a", b"only here")
    refusal = cold.proxy.inject(
        lambda request: request.operation == "COPY", Act.FAIL, 1e9, 400, "InvalidObjectState"
    )
    cold.rename("a", "b")
    cold.drain()
    assert cold.objects() == {"a": b"only here"}
    assert versions(cold, ino) == [(1, 1, Residency.ABSENT)]
    [(error,)] = cold.run("SELECT error FROM retry")
    assert error.startswith("the move is deferred until its object is back from the archive")
    assert cold.run("SELECT ino FROM warm_request") == [(ino,)]
    arrive(cold, ino, b"only here")
    cold.drain()
    assert cold.objects() == {"b": b"only here"}
    assert cold.left() == []
    refusal.release()


def test_a_lost_object_of_an_absent_file_is_not_sent_again(
    cold: Cold, caplog: pytest.LogCaptureFixture
) -> None:
    """There is nothing to send but holes."""
    absent = evict(cold, "absent", b"only here")
    resident = cold.write("resident", b"here too")
    cold.drain()
    for name in ("absent", "resident"):
        cold.client.put_object(Bucket=cold.bucket, Key=f"{PREFIX}/{name}", Body=b"somebody's")
        cold.run(
            "INSERT INTO indeterminate_write (key, ino, noted_ns, check_after_ns)"
            " VALUES (:key, 0, 1, 1)",
            key=f"{PREFIX}/{name}",
        )
    cold.drain()
    assert cold.objects() == {"absent": b"somebody's", "resident": b"here too"}
    assert versions(cold, absent) == [(1, 1, Residency.ABSENT)]
    assert versions(cold, resident) == [(1, 1, Residency.RESIDENT)]
    assert f"{PREFIX}/absent is not what was recorded, and its bytes are not on" in caplog.text


def test_a_late_deletion_does_not_take_the_last_copy_of_an_absent_file(
    cold: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict(cold, "a", b"only here")
    cold.rename("a", "b")
    # A drain was killed while it deleted what was at the new key.
    cold.run("INSERT INTO lease (id, owner, expires_ns) VALUES (7, 'another machine 1 1', 1)")
    for insert in (
        "INSERT INTO tombstone (key, ino, content_version, deleted_ns) VALUES (:key, 9999, 1, 1)",
        "INSERT INTO claim (name, lease) VALUES ('k' || :key, 7)",
    ):
        cold.run(insert, key=f"{PREFIX}/b")
    cold.drain()
    assert cold.objects() == {"a": b"only here", "b": b"only here"}
    cold.client.delete_object(Bucket=cold.bucket, Key=f"{PREFIX}/b")
    for _ in range(2):
        cold.run("UPDATE indeterminate_write SET check_after_ns = 1")
        cold.drain()
        assert cold.objects() == {"a": b"only here"}
    # A person copies it back.
    cold.client.put_object(Bucket=cold.bucket, Key=f"{PREFIX}/b", Body=b"only here")
    cold.run("UPDATE indeterminate_write SET check_after_ns = 1")
    monkeypatch.setattr(settings_module, "LATE_FACTOR", 0)
    cold.drain()
    assert cold.objects() == {"b": b"only here"}
    assert cold.left() == []


def test_local_bytes_of_absent_files_are_not_read(cold: Cold) -> None:
    ino = evict(cold, "a", b"only here")
    attr = cold.namespace.getattr(ino)
    # Some blocks are here, as far as they are fetched: they are no damage.
    cold.put_data(attr, bytes(attr.size))
    database = Database(cold.settings.database_url)
    assert list(verify.changed(database, cold.namespace.files)) == []
