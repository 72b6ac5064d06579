"""An object that this gateway did not put at a key stays there, and the file waits."""

from __future__ import annotations

import os

import pytest

from gateway.drain.send import foreign
from gateway.service import alarms
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Act, Request
from tests.support.t4.ceph import ON_CEPH
from tests.support.volumes import alarms_in, status_of

REPLACES = ("PUT", "COPY", "COMPLETE")


def put_theirs(site: Site, path: str, **metadata: str) -> None:
    site.client.put_object(
        Bucket=site.bucket, Key=f"{PREFIX}/{path}", Body=b"theirs", Metadata=metadata
    )


def taken(site: Site, path: str) -> list[Request]:
    """Return the requests that the store took and that made an object at a key."""
    return [
        request
        for request in site.proxy.operations(*REPLACES)
        if request.key == f"{PREFIX}/{path}" and request.status is not None and request.status < 300
    ]


@pytest.mark.parametrize("size", [0, 100, 2 * MIB, 11 * MIB])
def test_an_object_of_others_is_never_overwritten_by_an_upload(site: Site, size: int) -> None:
    put_theirs(site, "f")
    site.write("f", os.urandom(size))
    site.write("g", b"data")
    for _ in range(3):
        site.drain()
    assert site.objects() == {"f": b"theirs", "g": b"data"}
    assert taken(site, "f") == []
    assert site.multiparts() == 0
    facts = status_of(site.settings)
    assert alarms_in(facts)[alarms.FILES_STUCK] == 1
    [stuck] = facts["stuck"]["first"]
    assert stuck["path"].endswith("/f")
    assert f"{PREFIX}/f: an object that this gateway did not put there" in stuck["reason"]
    assert "move it away" in stuck["reason"]
    # A person moves it away.
    site.client.delete_object(Bucket=site.bucket, Key=f"{PREFIX}/f")
    site.drain()
    assert len(site.objects()["f"]) == size
    assert site.left() == []


def test_an_object_of_another_namespace_is_never_overwritten(site: Site) -> None:
    put_theirs(site, "f", volume="0" * 32, ino="20", generation="1")
    site.write("f", b"data")
    site.drain()
    assert site.objects() == {"f": b"theirs"}
    assert taken(site, "f") == []


@pytest.mark.parametrize("size", [100, 11 * MIB])
def test_an_object_of_others_is_never_overwritten_by_a_move(site: Site, size: int) -> None:
    data = os.urandom(size)
    site.write("f", data)
    site.drain()
    put_theirs(site, "g")
    site.rename("f", "g")
    for _ in range(3):
        site.drain()
    assert site.objects() == {"f": data, "g": b"theirs"}
    assert taken(site, "g") == []
    assert alarms_in(status_of(site.settings))[alarms.FILES_STUCK] == 1
    site.client.delete_object(Bucket=site.bucket, Key=f"{PREFIX}/g")
    site.drain()
    assert site.objects() == {"g": data}
    assert site.left() == []


def test_what_a_file_replaces_that_was_ours_is_no_foreign_object(site: Site) -> None:
    """A rename over it, or a file made in place of one that was deleted."""
    for number in range(3):
        site.write("new", f"version {number}".encode())
        site.rename("new", "f")
        site.write("g", f"version {number}".encode())
        site.drain()
        site.unlink("g")
    site.write("g", b"last")
    site.drain()
    assert site.objects() == {"f": b"version 2", "g": b"last"}
    assert site.left() == []


@pytest.mark.parametrize("size", [100, 2 * MIB, 11 * MIB])
def test_what_an_earlier_try_put_there_is_no_foreign_object(site: Site, size: int) -> None:
    """The answer is lost, and so is the next one, if the drain sends the file again."""
    lost = site.proxy.inject(
        lambda r: r.operation in ("PUT", "COMPLETE") and r.key.endswith("/f"), Act.DROP_ANSWER, 3
    )
    data = os.urandom(size)
    site.write("f", data)
    for _ in range(4):
        site.drain()
    assert lost.times < 3
    assert site.objects() == {"f": data}
    assert alarms_in(status_of(site.settings))[alarms.FILES_STUCK] == 0


@pytest.mark.parametrize("size", [100, 2 * MIB])
@pytest.mark.parametrize("then", [503, 500])
def test_what_an_earlier_try_put_there_goes_with_its_file(site: Site, size: int, then: int) -> None:
    """The answer is lost, the key is found occupied, the store takes nothing up after that, and the
    file is deleted before the next try."""
    looked: list[Request] = []

    def is_after_a_look(request: Request) -> bool:
        looked.extend([request] * (request.operation == "HEAD"))
        return request.operation == "PUT" and bool(looked)

    site.proxy.inject(lambda r: r.operation == "PUT", Act.DROP_ANSWER, 1)
    code = "SlowDown" if then == 503 else "InternalError"
    busy = site.proxy.inject(is_after_a_look, Act.FAIL, 1000, then, code)
    site.write("f", os.urandom(size))
    site.drain(1)
    site.unlink("f")
    busy.times = 0
    site.drain()
    assert site.objects() == {}


def test_what_an_earlier_try_put_there_is_replaced_by_a_newer_version(site: Site) -> None:
    site.proxy.inject(lambda r: r.operation == "PUT", Act.DROP_ANSWER, 2)
    site.write("f", b"first")
    site.drain()
    site.write("f", b"second")
    site.drain()
    assert site.objects() == {"f": b"second"}


@pytest.mark.skipif(ON_CEPH, reason="moto heeds If-Match")
@pytest.mark.parametrize("size", [100, 2 * MIB])
def test_what_comes_between_the_look_and_the_request_stays(
    moto_site: Site, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The store heeds the condition: an object that was looked at is replaced only if it is still
    that one."""
    site = moto_site
    site.write("f", b"old")
    site.drain()
    site.unlink("f")
    site.write("f", os.urandom(size))
    honest = foreign.look

    def late(*args: object) -> str:
        found = honest(*args)  # type: ignore[arg-type]
        put_theirs(site, "f")
        monkeypatch.setattr(foreign, "look", honest)
        return found

    monkeypatch.setattr(foreign, "look", late)
    site.drain()
    site.drain()
    assert site.objects() == {"f": b"theirs"}


@pytest.mark.skipif(ON_CEPH, reason="its copies have no condition")
def test_new_files_cost_no_look_where_conditions_are_heeded(moto_site: Site) -> None:
    site = moto_site
    for number in range(20):
        site.write(f"f{number}", b"data")
    site.drain()
    assert len(site.objects()) == 20
    assert site.proxy.operations("HEAD") == []
    assert all(request.headers["if-none-match"] == "*" for request in site.proxy.operations("PUT"))
    site.proxy.forget()
    site.write("f1", b"more")
    site.drain()
    [again] = site.proxy.operations("PUT", "HEAD")
    assert "if-none-match" not in again.headers, "the row says whose the object is"
