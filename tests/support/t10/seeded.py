"""A seeded site that is served, and a browser that looks at it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from fastapi import FastAPI
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from admin_api.app import create_app
from gateway.cli.main import main
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.nfs import server
from gateway.nfs.export_service import ExportService
from tests.support.adminsite import serving
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer
from tests.support.t10.places import PLACES, STATUS
from tests.support.t10.seed import seed
from tests.support.t10.seedstore import fill
from tests.support.volumes import query

_NAMED = {
    "checkpoint": "SELECT ino FROM checkpoint WHERE state = 'draining'",
    "durable": "SELECT max(ino) FROM checkpoint WHERE state = 'durable'",
    "trash": "SELECT id FROM trash ORDER BY id",
}


class Seeded(NamedTuple):
    settings: Settings
    app: FastAPI
    url: str
    secret: str
    """The secret of a token of an admin."""

    def address(self, path: str) -> str:
        """Return the address of a page. ``{checkpoint}`` is the inode of one that drains,
        ``{durable}`` of one that the bucket has, ``{trash}`` the id of one in the trash."""
        for name, statement in _NAMED.items():
            if f"{{{name}}}" in path:
                [value] = query(self.settings, statement)[0]
                path = path.format(**{name: value})
        return self.url + path


@contextmanager
def seeded_site(directory: Path) -> Iterator[Seeded]:
    """Serve a site as a week of training leaves it, with a bucket that answers."""
    with RcloneServer(directory / "s3") as server:
        server.client().create_bucket(Bucket="checkpoints")
        values: dict[str, dict[str, Any]] = {
            "gateway": {"data_dir": directory / "data"},
            "bucket": {
                "name": "checkpoints",
                "prefix": "",
                "endpoint_url": f"http://127.0.0.1:{server.port}",
            },
            # The machine of the tests is always busy: a page would wait for its share.
            "admin": {"busy_share": 1.0},
            # Its checkpoints were saved in one moment, and would have to be quiet for a minute.
            "checkpoints": {"rpo_seconds": 3 * 3600.0, "quiet_seconds": 0.0},
            "space": {"dirty_limit_bytes": 2_000_000_000_000},
        }
        path = directory / "spillway.toml"
        path.write_text(loader.render(values))
        credentials = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        with patch.dict(os.environ, credentials):
            assert main(["init", "--config", str(path)]) == 0
        settings = loader.load(path)
        seed(settings)
        app = create_app(settings)
        secret = fill(app.state.gateway)
        with serving(app) as url:
            yield Seeded(settings, app, url, secret)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Debian's Chromium. The sandbox needs a user that is not root."""
    expect.set_options(timeout=30_000)  # milliseconds
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def log_in(page: Page, site: Seeded) -> None:
    """Log in as a person does."""
    page.goto(site.address("/login"))
    page.get_by_label("Token").fill(site.secret)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(site.address("/"))


def visit(page: Page, site: Seeded, name: str) -> None:
    """Go to a page of PLACES."""
    if name == "login":
        page.context.clear_cookies()
    answer = page.goto(site.address(PLACES[name]), wait_until="load")
    if name == "policy-conflict":
        with page.expect_navigation() as navigation:
            page.get_by_role("button", name="Save and apply").click()
        answer = navigation.value
    assert answer is not None and answer.status == STATUS.get(name, 200), name


@contextmanager
def served_exports(site: Seeded) -> Iterator[None]:
    """Have the pages find an NFS server that has all exports. None runs."""
    database = Database(site.settings.database_url)
    exports = [export.export for export in ExportService(site.settings, database).listed()]
    database.close()
    served = server.ServedExports(
        os.getpid(),
        [server.Exported(export.number, 1, export.directory, 0, 0) for export in exports],
    )
    with patch.object(server, "served_exports", lambda *_: served):
        yield


class Watched:
    """What a page complains of: errors on its console, and requests to another host.

    Args:
        url: url of the site.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.complaints: list[str] = []
        self._url = url
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self._url, "data:")):
            self.complaints.append(f"a request to {request.url}")
