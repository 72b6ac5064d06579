"""Who mounts a real NFS server, what each client did, and who has a file open."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from admin_api.access.authentication import authenticate
from admin_api.app import create_app
from gateway.cli.main import main
from gateway.db.schema import opened
from gateway.rpc import clients
from gateway.rpc.clients import ClientCounts, Opened
from gateway.service import alarms
from gateway.service.alarms import alarms_of
from gateway.service.clients import gather_shared_names
from gateway.service.status import gather_quickly
from tests.support import nfs4
from tests.support.adminsite import ADMIN, serving
from tests.support.nfsserver import LEASE_SECONDS, Server
from tests.support.t6.serving import await_control_socket
from tests.support.waiting import until

KIB = 1024
ONE, TWO = "127.0.0.2", "127.0.0.3"
NAMES = {ONE: b"Linux NFSv4.0 one\x1b[31m", TWO: b"two" * 100}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("clients")
    with Server("spillway", directory, directory / "log") as started:
        await_control_socket(started)
        yield started


@pytest.fixture
def one(server: Server) -> Iterator[nfs4.Client]:
    with nfs4.Client(server.port, ONE, NAMES[ONE]) as client:
        yield client


@pytest.fixture
def two(server: Server) -> Iterator[nfs4.Client]:
    with nfs4.Client(server.port, TWO, NAMES[TWO]) as client:
        yield client


def counts(server: Server, address: str) -> ClientCounts:
    return clients.read(server.settings).counts.get(address, clients.NOTHING)


def said(server: Server, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Return what ``spillway clients`` prints."""
    assert main(["clients", "--config", str(server.settings.source), *options]) == 0
    return capsys.readouterr().out


def told(server: Server, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(said(server, capsys, "--json", *options))
    return document


def test_bytes_and_operations_are_counted_by_address(
    server: Server, one: nfs4.Client, two: nfs4.Client
) -> None:
    before = counts(server, ONE), counts(server, TWO)
    top = one.handle("export")
    with one.opened(top, "counted") as file:
        for at in range(5):
            file.write(b"x" * KIB, at * KIB)
    with two.opened(top, "counted", reads=True) as file:
        for _ in range(3):
            two.read(file.handle, 0, 2 * KIB)
    after = counts(server, ONE), counts(server, TWO)
    moved = [
        (new.bytes_read - old.bytes_read, new.bytes_written - old.bytes_written)
        for old, new in zip(before, after, strict=True)
    ]
    assert moved == [(0, 5 * KIB), (6 * KIB, 0)]
    assert after[0].operations - before[0].operations >= 7, "create, 5 writes, close"
    assert after[1].operations - before[1].operations >= 5, "open, 3 reads, close"
    # The gateway asks itself too, and is no client.
    assert clients.read(server.settings).counts[""].operations == 0


def test_who_mounts_is_shown_with_the_name_that_it_gave_itself(
    server: Server, one: nfs4.Client, two: nfs4.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    top = one.handle("export")
    with one.opened(top, "mine"), two.opened(top, "theirs"):
        rows = {row["address"]: row for row in told(server, capsys)["clients"]}
        lines = said(server, capsys)
    assert rows[ONE]["name"] == "Linux NFSv4.0 one%1B[31m"
    assert rows[TWO]["name"] == ("two" * 100)[:152]
    assert rows[ONE]["minor_version"] == 0
    assert 0 <= rows[ONE]["seen_seconds"] <= LEASE_SECONDS
    assert (rows[ONE]["open_reading"], rows[ONE]["open_writing"]) == (1, 1)
    assert f"{ONE}  Linux NFSv4.0 one" in lines and "\x1b" not in lines


def test_the_page_shows_who_mounts(server: Server, one: nfs4.Client) -> None:
    app = create_app(server.settings)
    app.dependency_overrides[authenticate] = lambda: ADMIN
    with one.opened(one.handle("export"), "shown") as file, serving(app) as url:
        file.write(b"x" * KIB)
        text = httpx.get(f"{url}/clients", timeout=30).text
    [row] = re.findall(rf">{ONE}</th>.*?</tr>", text, re.DOTALL)
    assert r"Linux NFSv4.0 one\x1b[31m" in row and "1 for writing" in row


def test_a_rate_shows_and_passes(server: Server, one: nfs4.Client) -> None:
    with one.opened(one.handle("export"), "fast") as file:
        file.write(b"x" * 64 * KIB)
        until(lambda: counts(server, ONE).written_rate > 0, "the rate")
        until(lambda: counts(server, ONE).written_rate == 0, "its end")


def test_who_has_a_file_open_is_known(
    server: Server, one: nfs4.Client, two: nfs4.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    top = one.handle("export")
    one.mkdir(top, "run")
    run = one.handle("export", "run")
    third = nfs4.Client(server.port, TWO)
    with (
        third,
        one.opened(run, "model"),
        two.opened(run, "model", reads=True),
        third.opened(top, "top"),
    ):
        for path in ("run/model", "/export/run", "run"):
            rows = told(server, capsys, "--open", path)["opens"]
            assert rows == [
                {"path": "/export/run/model", "address": ONE, "open_reading": 1, "open_writing": 1},
                {"path": "/export/run/model", "address": TWO, "open_reading": 1, "open_writing": 0},
            ]
        assert len(told(server, capsys, "--open", "/export")["opens"]) == 3
        head, row = said(server, capsys, "--open", "top").splitlines()
        assert head.split() == ["path", "address", "for", "reading", "for", "writing"]
        assert row.split() == ["/export/top", TWO, "1", "1"]
    assert said(server, capsys, "--open", "run") == "no client has it open\n"
    assert main(["clients", "--config", str(server.settings.source), "--open", "none"]) == 1


def test_two_machines_with_one_name_are_told(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each SETCLIENTID has another verifier, as after a restart: it ends the lease of the other."""
    assert gather_shared_names(server.settings) == []
    with (
        nfs4.Client(server.port, ONE, b"twin\n") as first,
        nfs4.Client(server.port, TWO, b"twin\n") as second,
    ):
        turns = cycle([first, second, second])

        def seen() -> bool:
            next(turns).file(b"", "")
            return bool(gather_shared_names(server.settings))

        until(seen, "the report: the server looks once a second", 60)
    [name] = gather_shared_names(server.settings)
    assert (name.name, name.addresses) == ("twin%0A", [ONE, TWO])
    assert "SHARED NAME: 127.0.0.2 and 127.0.0.3 share the name twin" in said(server, capsys)
    with opened(server.settings.database_url) as database:
        facts = gather_quickly(server.settings, database)
    assert alarms.of(facts)[alarms.CLIENTS_SHARE_NAME] == 1 and not facts.healthy
    [told] = [alarm for alarm in alarms_of(facts) if "share the name" in alarm.text]
    assert told.kind == "bad" and "nfs4_unique_id" in told.remedy


def test_a_second_open_and_an_end_of_the_lease_are_counted(
    server: Server, two: nfs4.Client
) -> None:
    """Ganesha's reaper closes what a client that is gone had open, in a thread of its own."""
    before = counts(server, ONE)
    assert (before.open_reading, before.open_writing) == (0, 0)
    with nfs4.Client(server.port, ONE, b"goes away") as gone:
        top = gone.handle("export")
        with two.opened(two.handle("export"), "left"):
            ino = two.lookup(top, "left").fileid
        file = gone.open(top, "left", reads=True)
        assert clients.opened(server.settings, ino, 10) == [Opened(ino, ONE, True, False)]
        file.reads = False
        file.open()
        assert counts(server, ONE).open_writing == 1
    until(
        lambda: (counts(server, ONE).open_reading, counts(server, ONE).open_writing) == (0, 0),
        "the reaper",
        6 * LEASE_SECONDS,
    )
    assert all(lease.name != b"goes away" for lease in clients.read(server.settings).leases)
    assert clients.opened(server.settings, ino, 10) == []
