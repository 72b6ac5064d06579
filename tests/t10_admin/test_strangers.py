"""Callers without a token that was seen: how many are answered at once, and what time they have."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from admin_api import listener as listener_module
from admin_api import middleware
from admin_api.access.principal import Role
from admin_api.cpu_budget import BUCKET
from admin_api.listener import Connections, Listener
from gateway.service import bucket
from tests.support.adminsite import AdminSite, admin_site
from tests.support.t10.access import bearer
from tests.support.waiting import until

HEAD = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[AdminSite]:
    with admin_site(tmp_path, None) as site:
        yield site


@contextmanager
def listening(site: AdminSite, most: int) -> Iterator[tuple[str, int]]:
    """Serve as the process does. Yields host and port.

    Args:
        most: most of the connections.
    """
    limit = Connections(most)
    listener = Listener(socket.create_server(("127.0.0.1", 0)), limit)
    address = listener.getsockname()
    config = uvicorn.Config(
        site.app,
        http=limit.protocol(),
        loop="asyncio",
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join()


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(4096) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def answer_on(connection: socket.socket) -> bytes:
    connection.sendall(b"GET /api/v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.settimeout(30)
    data = b""
    while not data.endswith(b"}") and (more := connection.recv(4096)):
        data += more
    return data


@pytest.mark.parametrize("said", [b"", b"GET / HT", HEAD, HEAD + b"token"])
def test_the_connection_that_waits_longest_gives_way_to_a_new_one(
    site: AdminSite, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(listener_module, "CHANCE_SECONDS", 0.0)
    with ExitStack() as stack, listening(site, 4) as address:
        silent = [stack.enter_context(socket.create_connection(address)) for _ in range(4)]
        for connection in silent:
            connection.sendall(said)
        with socket.create_connection(address) as another:
            assert answer_on(another).startswith(b"HTTP/1.1 200 ")
            until(lambda: is_closed(silent[0]), "the first one is closed")
        assert not any(map(is_closed, silent[1:]))


def test_a_host_ends_none_of_its_young_connections_by_new_ones(
    site: AdminSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a crowd that comes back at once leaves no client the time to say something."""
    monkeypatch.setattr(listener_module, "CHANCE_SECONDS", 60.0)
    with ExitStack() as stack, listening(site, 4) as address:
        young = [stack.enter_context(socket.create_connection(address)) for _ in range(4)]
        for _ in range(2):
            with socket.create_connection(address) as connection:
                until(lambda: is_closed(connection), "the new one is closed")
        assert not any(map(is_closed, young))
        elsewhere = socket.create_connection(address, source_address=("127.0.0.2", 0))
        assert answer_on(stack.enter_context(elsewhere)).startswith(b"HTTP/1.1 200 ")
        until(lambda: is_closed(young[0]), "the first one gives way to another host")
        assert not any(map(is_closed, young[1:]))


def test_a_host_with_many_connections_gives_way_before_one_with_few(site: AdminSite) -> None:
    with ExitStack() as stack, listening(site, 4) as address:
        first = stack.enter_context(socket.create_connection(address))
        assert answer_on(first).startswith(b"HTTP/1.1 200 ")
        crowd = [
            stack.enter_context(socket.create_connection(address, source_address=("127.0.0.2", 0)))
            for _ in range(20)
        ]
        until(lambda: is_closed(crowd[16]), "most of the crowd is closed")
        assert answer_on(first).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("said", [b"", b"GET / HT"])
def test_a_connection_without_a_request_ends(
    site: AdminSite, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(listener_module, "HEAD_SECONDS", 0.1)
    with listening(site, 4) as address, socket.create_connection(address) as silent:
        silent.sendall(said)
        until(lambda: is_closed(silent), "the connection is closed")


def test_a_body_that_does_not_come_is_refused(
    site: AdminSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.1)
    known = site.token(Role.VIEWER)
    assert site.http.get("session", headers=bearer(known)).status_code == 200
    head = HEAD.replace(b"/login", b"/api/v1/pins").replace(
        b"\r\n\r\n", f"\r\nAuthorization: Bearer {known}\r\n\r\n".encode()
    )
    for asked in (HEAD, head):
        with listening(site, 4) as address, socket.create_connection(address) as slow:
            slow.settimeout(30)
            slow.sendall(asked)
            assert slow.recv(4096).startswith(b"HTTP/1.1 408 "), asked


def test_strangers_take_turns_and_who_is_known_passes(
    site: AdminSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "REFUSED_SECONDS", 0.0)
    known, unseen = site.token(Role.VIEWER), site.token(Role.VIEWER)
    assert site.http.get("session", headers=bearer(known)).status_code == 200
    verify = site.gateway.verifier.verify
    turn = threading.Event()
    running: list[str] = []

    def late(text: str, address: str) -> Any:
        if text == unseen:
            running.append(text)
            turn.wait(60)
        return verify(text, address)

    monkeypatch.setattr(site.gateway.verifier, "verify", late)
    found: list[int] = []

    def ask() -> None:
        url = str(site.http.base_url.join("session"))
        found.append(httpx.get(url, headers=bearer(unseen), timeout=60).status_code)

    threads = [threading.Thread(target=ask) for _ in range(listener_module.OF_ONE_HOST + 4)]
    for thread in threads:
        thread.start()
    until(lambda: found == [429] * 4, "what is too much is refused")
    assert len(running) == 1
    assert site.http.get("health/live").status_code == 200
    assert site.http.get("health/ready").status_code == 200
    assert site.http.get("session", headers=bearer(known)).status_code == 200
    refused = site.http.get("session")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    turn.set()
    for thread in threads:
        thread.join()
    assert sorted(found) == [200] * listener_module.OF_ONE_HOST + [429] * 4
    assert site.http.get("session").status_code == 401


def test_a_stream_of_a_token_that_was_not_seen_keeps_no_stranger_waiting(site: AdminSite) -> None:
    headers = bearer(site.token(Role.VIEWER))
    with site.http.stream("GET", "events", headers=headers) as events:
        assert events.status_code == 200
        assert site.http.get("session").status_code == 401


def test_a_bucket_that_does_not_answer_keeps_no_probe_waiting(
    site: AdminSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = bearer(site.token(Role.OPERATOR))
    answers = threading.Event()
    asked: list[float] = []

    def probe(_settings: object) -> bucket.Reachability:
        asked.append(time.monotonic())
        answers.wait(60)
        return bucket.Reachability(reachable=True, error=None)

    monkeypatch.setattr(bucket, "test", probe)

    async def ask() -> None:
        url = str(site.http.base_url.join("/"))
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as many:
            assert (await many.get("api/v1/session", headers=headers)).status_code == 200
            path = "api/v1/bucket/test"
            tests = [asyncio.create_task(many.post(path, headers=headers)) for _ in range(60)]
            while len(asked) < BUCKET:
                await asyncio.sleep(0.01)
            for address in ("api/v1/health/live", "api/v1/health/ready", "metrics"):
                assert (await many.get(address, headers=headers)).status_code == 200
            assert len(asked) == BUCKET
            assert not any(test.done() for test in tests)
            answers.set()
            for answer in await asyncio.gather(*tests):
                assert answer.json()["reachable"]

    try:
        asyncio.run(ask())
    finally:
        answers.set()
