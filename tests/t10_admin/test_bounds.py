"""What one token can make the admin API keep, and how many jobs wait at once."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from admin_api.access.principal import Role
from admin_api.access.tokens import SESSIONS_MAX
from admin_api.audit import KEY
from admin_api.jobs import rows, runner
from admin_api.jobs.kinds import JobKind, RunningJob
from admin_api.jobs.runner import JobThreads
from admin_api.requests import LOGINS, REFUSALS
from tests.support.adminsite import ADMIN, AdminSite, admin_site
from tests.support.waiting import until


def stored(site: AdminSite, statement: str) -> list[Any]:
    """Return the first column of rows of the admin API's own database."""
    with closing(sqlite3.connect(site.settings.admin_db)) as connection:
        return [row[0] for row in connection.execute(statement)]


def count(site: AdminSite, table: str) -> int:
    [found] = stored(site, f"SELECT count(*) FROM {table}")
    return int(found)


def test_a_viewer_does_not_grow_the_database(tmp_path: Path) -> None:
    with admin_site(tmp_path, None) as site:
        text = site.token(Role.VIEWER)
        viewer = {"Authorization": f"Bearer {text}"}
        for at in range(3):
            key = {KEY: str(at)}
            plan = site.http.post("retention/plan", json={}, headers={**viewer, **key})
            assert plan.status_code == 200, plan.text
            out = site.http.post("logout", headers={**viewer, **key})
            assert out.status_code == 204, out.text
        assert (count(site, "audit"), count(site, "idempotency")) == (0, 0)
        for _ in range(SESSIONS_MAX + LOGINS):
            site.http.cookies.clear()
            assert site.http.post("login", json={"token": text}).status_code == 200
        assert count(site, "session") == SESSIONS_MAX
        assert site.http.get("session").status_code == 200, "the newest one stays"
        assert count(site, "audit") == LOGINS
        site.http.cookies.clear()
        for _ in range(REFUSALS + 10):
            assert site.http.get("tokens", headers=viewer).status_code == 403
        assert count(site, "audit") <= LOGINS + REFUSALS + 5


def test_a_logout_is_in_the_audit(tmp_path: Path) -> None:
    with admin_site(tmp_path, None) as site:
        opened = site.http.post("login", json={"token": site.token(Role.VIEWER)}).json()
        site.http.post("logout", headers={"X-CSRF-Token": opened["csrf_token"]})
        found = stored(site, "SELECT detail FROM audit ORDER BY id")
        assert found == ["logged in", "logged out"]


def test_jobs_that_wait_give_their_thread_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "WAITERS", 2)
    monkeypatch.setattr(runner, "SLICE_SECONDS", 0.0)
    ends = threading.Event()
    begun: list[str] = []

    def wait(work: RunningJob) -> dict[str, Any]:
        if not work.memory:
            work.memory["name"] = work.arguments["name"]
            begun.append(work.memory["name"])
        while not ends.is_set():
            work.rest(0.01)
        return {"name": work.memory["name"]}

    with admin_site(tmp_path) as site:
        kinds = [JobKind("waits", wait, waits=True)]
        jobs = JobThreads(site.settings, site.gateway.database, site.gateway.store, kinds)
        made = [jobs.submit("waits", {"name": f"{at}"}, ADMIN, "r").id for at in range(7)]
        until(lambda: len(begun) == 7, "all have begun")
        assert jobs.cancel(made[0]).cancel_asked
        ends.set()

        def states() -> list[str]:
            with site.gateway.store.reading() as session:
                return [row.state for id in made if (row := rows.get(session, id))]

        until(lambda: states() == [rows.CANCELLED] + [rows.DONE] * 6, "all have ended")
        assert sorted(begun) == [str(at) for at in range(7)], "each has begun once"
        jobs.stop()
