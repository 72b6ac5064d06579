"""A crowd without tokens keeps no other out: idle connections, slow bodies, loops of requests."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from admin_api.access.principal import Role
from admin_api.access.tokens import create
from admin_api.store import open_store
from gateway.cli.main import main
from tests.support.clisite import PROGRAM, Running, Site, environ
from tests.support.ports import free_port

SECONDS_MAX = 1.0
ROUNDS = 8


@contextmanager
def crowd(port: int, tls: str) -> Iterator[None]:
    """Have a crowd without tokens use the port."""
    command = [sys.executable, "-m", "tests.support.t10.crowd", str(port)]
    if tls != "off":
        command.append("tls")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "under way\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.alone
@pytest.mark.parametrize("tls", ["off", "self-signed"])
def test_a_crowd_without_tokens_keeps_no_other_out(tmp_path: Path, tls: str) -> None:
    site = Site(tmp_path, free_port())
    data = str(tmp_path / "data")
    assert main(["init", "--config", str(site.config), "--data-dir", data, "--bucket", "b"]) == 0
    port = free_port()
    site.edit("admin", "port", str(port))
    site.edit("admin", "tls", f'"{tls}"')
    store = open_store(site.settings)
    with store.writing() as session:
        token = create(session, "prometheus", Role.VIEWER, None, "tests")[1]
    store.close()
    url = f"http{'' if tls == 'off' else 's'}://127.0.0.1:{port}"
    bearer = {"Authorization": f"Bearer {token}"}
    with (
        Running([str(PROGRAM), "admin", "--config", str(site.config)], environ()) as admin,
        # The crowd comes from another host than the others: of that one connections are ended.
        httpx.Client(
            base_url=url,
            transport=httpx.HTTPTransport(verify=False, local_address="127.0.0.2"),
            timeout=60,
        ) as http,
    ):
        admin.expect("listening on")
        assert http.get("/metrics", headers=bearer).status_code == 200
        assert http.post("/api/v1/login", json={"token": token}).status_code == 200
        with crowd(port, tls):
            for _ in range(ROUNDS):
                for address in ("/api/v1/health/live", "/api/v1/health/ready", "/metrics", "/"):
                    headers = {**(bearer if address == "/metrics" else {}), "Connection": "close"}
                    started = time.monotonic()
                    answer = http.get(address, headers=headers)
                    seconds = time.monotonic() - started
                    assert answer.status_code == 200, (address, answer.status_code, answer.text)
                    assert seconds < SECONDS_MAX, (address, seconds)
                time.sleep(0.25)
