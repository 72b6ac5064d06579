"""Gateways whose stores verify newer checksums, beside those that all suites share."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.support.drainsite import Site
from tests.support.s3server import MotoServer
from tests.support.sites import (
    MakeSite,
    ceph,
    each_site,
    make_site,
    moto,
    moto_site,
    rclone,
    rclone_site,
    site,
    weed,
)
from tests.support.t4.negotiated import configured, remembered
from tests.support.verifier import Verifier

__all__ = [
    "ceph",
    "each_site",
    "make_site",
    "moto",
    "moto_site",
    "rclone",
    "rclone_site",
    "site",
    "weed",
]

Counted = Callable[[], int]


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Return a function that tells how many bytes were read with ``os.preadv`` since the start of
    the test."""
    honest = os.preadv
    counts: list[int] = []

    def counting(fd: int, buffers: list[memoryview], offset: int) -> int:
        counts.append(honest(fd, buffers, offset))
        return counts[-1]

    monkeypatch.setattr(os, "preadv", counting)
    return lambda: sum(counts)


@pytest.fixture
def verifier() -> Verifier:
    return Verifier()


@pytest.fixture
def verifying_site(moto: MotoServer, make_site: MakeSite, verifier: Verifier) -> Site:
    return configured(make_site(moto, verifier=verifier), "auto")


@pytest.fixture(params=["crc64nvme", "crc32c"])
def newer_site(request: pytest.FixtureRequest, moto: MotoServer, make_site: MakeSite) -> Site:
    """A store that verifies one newer checksum, and was found to."""
    site = configured(make_site(moto, verifier=Verifier([request.param])), "auto")
    site.drain()
    assert remembered(site) == [request.param]
    site.proxy.forget()
    return site


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the transport wait for an answer, however long a busy machine takes, before the body."""
    monkeypatch.setattr("gateway.objectstore.transport.CONTINUE_SECONDS", 30.0)
