"""A store that spells ETags with capital letters, and takes no other spelling in a condition."""

from __future__ import annotations

import os
import pickle

import pytest

from gateway.objectstore.objects import Etag
from gateway.objectstore.ranges import ObjectLocation, Ranges
from tests.support.drainsite import MIB, PREFIX, Site
from tests.support.s3proxy import Headers, Request

CONDITIONS = ("if-match", "x-amz-copy-source-if-match")


class Capitals:
    """Spells ETags in capital letters before a server that has them in small ones."""

    def refusal(self, request: Request, _body: bytes) -> str | None:
        wanted = [request.headers[name] for name in CONDITIONS if name in request.headers]
        return "PreconditionFailed" if any(one != one.upper() for one in wanted) else None

    def answered(
        self, _request: Request, _body: bytes, headers: Headers, content: bytes
    ) -> tuple[Headers, bytes]:
        spelled = [(name, v.upper() if name.lower() == "etag" else v) for name, v in headers]
        return spelled, content


@pytest.fixture
def capitals(rclone_site: Site) -> Site:
    rclone_site.proxy.verifier = Capitals()
    return rclone_site


def test_what_is_uploaded_can_be_moved_and_deleted(capitals: Site) -> None:
    site = capitals
    data = {"a": b"data", "large": os.urandom(3 * MIB)}
    for path, body in data.items():
        site.write(path, body)
    site.drain()
    recorded = [etag for (etag,) in site.rows("SELECT etag FROM object")]
    assert recorded == [etag.upper() for etag in recorded]
    for path in data:
        site.rename(path, f"{path} moved")
    site.drain()
    assert site.objects() == {f"{path} moved": body for path, body in data.items()}
    assert len(site.proxy.operations("PUT")) == 2
    for path in data:
        site.unlink(f"{path} moved")
    site.drain()
    assert site.objects() == {}
    assert site.left() == []


@pytest.mark.parametrize("is_old", [False, True])
def test_what_is_recorded_is_read(capitals: Site, is_old: bool) -> None:
    """Older releases recorded small letters."""
    site = capitals
    site.write("f", b"data")
    site.drain()
    if is_old:
        site.rows("UPDATE object SET etag = lower(etag) RETURNING 1")
    [(etag,)] = site.rows("SELECT etag FROM object")
    buffer = memoryview(bytearray(4))
    with Ranges(site.settings).get(ObjectLocation(f"{PREFIX}/f", etag), 0, 4) as incoming:
        assert incoming.readinto(buffer) == 4
    assert bytes(buffer) == b"data"


def test_what_was_recorded_in_small_letters_is_the_same_object(capitals: Site) -> None:
    site = capitals
    site.write("f", b"data")
    site.drain()
    site.rows("UPDATE object SET etag = lower(etag) RETURNING 1")
    site.rename("f", "g")
    site.drain()
    assert site.objects() == {"g": b"data"}
    assert len(site.proxy.operations("PUT")) == 1


def test_etags_are_equal_in_any_case() -> None:
    etag = Etag("AbC")
    assert etag == "abc"
    assert "aBc" == etag  # noqa: SIM300
    assert (1, etag) == (1, "ABC")
    assert etag not in ("ab", "")
    assert {etag: 1}[Etag("ABC")] == 1
    assert str(pickle.loads(pickle.dumps(etag))) == "AbC"
