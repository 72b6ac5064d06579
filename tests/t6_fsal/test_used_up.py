"""What a server does that has no descriptors left, and with cookies that no directory gave out."""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.cli.status import lines
from gateway.common.models import from_json
from gateway.service import alarms
from gateway.service.status import Status
from tests.support import nfs4
from tests.support.t6.cold import Site, drained, start, tried
from tests.support.volumes import alarms_in, status_of
from tests.support.waiting import until


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        yield start(stack, tmp_path_factory.mktemp("cookies"))


KEPT = 64
"""KEPT_DESCRIPTORS of fd.c."""


def first_free(pid: int) -> int:
    taken = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in range(len(taken) + 1) if number not in taken)


def test_a_server_without_descriptors_says_so(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = start(stack, tmp_path)
        file = drained(site, "f", 10)
        limits = resource.prlimit(site.server.pid, resource.RLIMIT_NOFILE)
        assert limits[0] == limits[1]
        assert status_of(site.settings)["disk"]["has_descriptors"]
        # The next data file would take one of the descriptors that are kept for other things.
        soft = first_free(site.server.pid) + KEPT
        resource.prlimit(site.server.pid, resource.RLIMIT_NOFILE, (soft, limits[1]))
        assert tried(site.client, file, 0) == nfs4.DELAY
        # Names, and new connections, need a few too.
        with nfs4.Client(site.server.port) as client:
            client.mkdir(client.handle("export"), "made meanwhile")
        until(lambda: not status_of(site.settings)["disk"]["has_descriptors"], "the report", 30)
        resource.prlimit(site.server.pid, resource.RLIMIT_NOFILE, limits)
        assert tried(site.client, file, 0) == file.data
    facts = status_of(site.settings)
    assert not facts["healthy"]
    assert alarms_in(facts)[alarms.DESCRIPTORS_GONE] == 1
    told = list(lines(from_json(Status, facts)))
    assert "USED UP" in next(text for label, text in told if label == "descriptors")


@pytest.mark.parametrize("cookie", [2**63 - 1, 2**63, 2**64 - 1])
def test_no_entry_comes_after_a_cookie_that_no_directory_gives_out(site: Site, cookie: int) -> None:
    top = site.client.handle("export")
    listing = struct.pack(">Q8sII", cookie, b"\0" * 8, 8192, 32768) + struct.pack(">I", 0)
    reply = site.client.call(nfs4.putfh(top), nfs4.op(nfs4.READDIR) + listing)
    reply.unpack("IIIIII")
    assert (reply.number(), reply.number()) == (0, 1)
    assert "Traceback" not in site.server.log.with_suffix(".stderr").read_text()
