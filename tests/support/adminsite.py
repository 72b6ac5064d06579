"""Admin API on a namespace of its own: the real application, database and data directory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import httpx
import uvicorn
from fastapi import FastAPI

from admin_api.access.authentication import authenticate
from admin_api.access.principal import Principal, Role
from admin_api.access.tokens import create
from admin_api.app import create_app
from admin_api.requests import GovernedGateway
from gateway.cli.main import main
from gateway.config import loader
from gateway.config.settings import Settings
from tests.support.direct import answering

ADMIN = Principal("tests", Role.ADMIN, "t1")


class AdminSite(NamedTuple):
    """A gateway whose processes do not run, with its admin API on a loopback port."""

    settings: Settings
    app: FastAPI
    http: httpx.Client

    @property
    def gateway(self) -> GovernedGateway:
        """What the routes get."""
        gateway: GovernedGateway = self.app.state.gateway
        return gateway

    def token(self, role: Role, expires_ns: int | None = None) -> str:
        """Make a token. Returns the text that its owner sends."""
        with self.gateway.store.writing() as session:
            return create(session, role.word, role, expires_ns, "tests")[1]


@contextmanager
def admin_site(directory: Path, principal: Principal | None = ADMIN) -> Iterator[AdminSite]:
    """Set a gateway up and serve its admin API. The namespace itself answers over the control
    socket.

    Args:
        directory: empty, for everything that the gateway keeps.
        principal: who sends every request, or None to have each request say it.
    """
    path = directory / "spillway.toml"
    status = main(
        ["init", "--config", str(path), "--data-dir", str(directory / "data"), "--bucket", "b"]
    )
    assert status == 0
    found = loader.load(path)
    # The machine of the tests is always busy.
    settings = replace(found, admin=replace(found.admin, busy_share=1.0))
    app = create_app(settings)
    if principal is not None:
        app.dependency_overrides[authenticate] = lambda: principal
    with (
        answering(),
        serving(app) as url,
        httpx.Client(base_url=f"{url}/api/v1", timeout=30) as http,
    ):
        made = AdminSite(settings, app, http)
        if principal is not None:
            # A body that cannot be read is not looked at for who sends no token.
            http.headers["Authorization"] = f"Bearer {made.token(principal.role)}"
        yield made


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an application by uvicorn, in a thread. Yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as admin_api.listener does
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        # The listener is open already: requests wait until the server takes them.
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
