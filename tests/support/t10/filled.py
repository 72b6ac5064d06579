"""The admin API on a namespace with checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from admin_api.jobs import rows
from gateway.service import deletion
from tests.support.adminsite import AdminSite, admin_site
from tests.support.checkpoints.keeping import Present, catch_up, save
from tests.support.checkpoints.world import World
from tests.support.namespace import Namespace
from tests.support.waiting import until


class Filled:
    """A site, and the world in it. The world is closed while the control socket of the site is
    used."""

    def __init__(self, site: AdminSite) -> None:
        self.site = site
        self.http = site.http

    @contextmanager
    def world(self) -> Iterator[World]:
        """Open the namespace as clients have it. The catalogue follows at the end."""
        made = World(self.site.settings, Namespace(self.site.settings))
        try:
            yield made
            catch_up(made)
        finally:
            made.end()
            made.namespace.close()

    def ask(self, verb: str, path: str, status: int = 200, **more: Any) -> Any:
        """Send a request, and require its status. Returns the document of the answer."""
        answer = self.http.request(verb, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json()

    def page(self, path: str, /, **query: str) -> str:
        """Return a page, as HTML."""
        answer = self.open(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def open(self, path: str, /, **query: str) -> httpx.Response:
        """Ask for a page. Returns the answer, which may be the place of another page."""
        url = self.http.base_url.join(path)
        return httpx.get(url, headers=self.http.headers, params=query, timeout=30)

    def ino(self, path: str) -> int:
        """Return the inode of a checkpoint."""
        [item] = [
            one for one in self.ask("GET", "checkpoints")["items"] if one["path"].endswith(path)
        ]
        ino: int = item["ino"]
        return ino


@contextmanager
def filled(directory: Path) -> Iterator[Filled]:
    """Serve the admin API of a gateway with two runs, whose bucket has every object."""
    with pytest.MonkeyPatch.context() as patch, admin_site(directory) as site:
        patch.setattr(deletion, "BucketHeads", lambda _settings, _stop: Present())
        made = Filled(site)
        with made.world() as world:
            save(world, *(f"jobs/a/step-{step}" for step in range(1, 5)))
            save(world, "jobs/b/step-1", durable=False)
            world.write("jobs/b/step-2/__0_0.distcp", b"1")
        yield made


def tag(answer: httpx.Response) -> dict[str, str]:
    """Return the header by which a change is made for what an answer has."""
    return {"If-Match": answer.headers["ETag"]}


def job(site: Filled, verb: str, path: str, **more: Any) -> dict[str, Any]:
    """Begin a job. Returns it when it has ended."""
    answer = site.http.request(verb, path, **more)
    assert answer.status_code == 202, answer.text
    assert answer.headers["Location"] == f"/api/v1/jobs/{answer.json()['id']}"
    return ended(site, answer.json()["id"])


def ended(site: Filled, id: str) -> dict[str, Any]:
    def state() -> Any:
        return site.ask("GET", f"jobs/{id}")["state"] not in (rows.WAITING, rows.RUNNING)

    until(state, f"the end of job {id}")
    document: dict[str, Any] = site.ask("GET", f"jobs/{id}")
    return document
