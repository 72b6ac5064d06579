"""The health of the admin API, and how it answers what does not exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_api import problems
from tests.support.adminsite import AdminSite, admin_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminSite]:
    with admin_site(tmp_path_factory.mktemp("admin")) as site:
        yield site


def test_it_lives_and_is_ready(site: AdminSite) -> None:
    assert site.http.get("health/live").json() == {"status": "ok"}
    assert site.http.get("health/ready").json() == {"status": "ok"}


def test_without_a_database_it_lives_and_is_not_ready(tmp_path: Path) -> None:
    with admin_site(tmp_path) as site:
        site.settings.data_dir.joinpath("namespace.db").unlink()
        answer = site.http.get("health/ready")
        assert (answer.status_code, answer.headers["content-type"]) == (409, problems.MEDIA_TYPE)
        assert "mount its disk" in answer.json()["detail"]
        assert site.http.get("health/live").status_code == 200


def test_an_unknown_path_is_a_problem_with_the_id_of_the_request(site: AdminSite) -> None:
    answer = site.http.get("nothing")
    assert answer.headers["content-type"] == problems.MEDIA_TYPE
    assert answer.json()["status"] == 404
    assert answer.json()["instance"] == answer.headers["x-request-id"]
