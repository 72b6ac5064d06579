"""The routes of exports. tests/t7_nfs/test_exports.py has a server that takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.nfs.export_service import ExportService, WantedExport
from tests.support.adminsite import admin_site
from tests.support.t10.filled import Filled, tag

HOSTS = ["10.0.0.0/8 rw"]
DATASETS: dict[str, Any] = {"path": "datasets", "clients": HOSTS}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with admin_site(tmp_path_factory.mktemp("admin")) as served:
        made = Filled(served)
        with made.world() as world:
            world.directory("datasets")
            world.directory("team/new")
            world.write("file", b"1")
        yield made


def recorded(site: Filled) -> dict[str, Any]:
    item: dict[str, Any] = site.ask("GET", "audit?limit=1")["items"][0]
    return item


def test_exports_are_made_replaced_and_removed(
    site: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = site.http.post("exports", json={"name": "/datasets", **DATASETS})
    assert made.status_code == 201, made.text
    assert (made.headers["Location"], made.headers["ETag"]) == ("/api/v1/exports/datasets", '"1"')
    assert made.json()["path"] == "/checkpoints/datasets" and made.json()["served"] is None
    assert recorded(site)["after"] == made.json()
    taken = site.ask("POST", "exports", 409, json={"name": "/datasets", **DATASETS})
    assert taken["current"] == made.json()
    site.ask("POST", "exports", 201, json={"name": "/team/data", **DATASETS, "path": "team/new"})
    first = site.ask("GET", "exports?limit=1")
    second = site.ask("GET", f"exports?limit=1&cursor={first['next']}")
    names = [item["name"] for item in first["items"] + second["items"]]
    assert names == ["/datasets", "/team/data"] and second["next"] is None
    assert site.ask("GET", "exports/team/data") == site.ask("GET", "exports/team%2Fdata")
    # A change is made for what was read, and shows what is there otherwise.
    changed = {**DATASETS, "clients": ["10.1.0.0/16 ro", "10.2.0.0/16 rw all_squash"]}
    site.ask("PUT", "exports/datasets", 428, json=changed)
    stored = site.http.put("exports/datasets", json=changed, headers=tag(made))
    assert (stored.status_code, stored.json()["clients"]) == (200, changed["clients"])
    entry = recorded(site)
    assert (entry["before"], entry["after"]) == (made.json(), stored.json())
    late = site.ask("PUT", "exports/datasets", 412, json=DATASETS, headers=tag(made))
    assert late["current"] == stored.json()
    site.ask("DELETE", "exports/datasets", 412, headers=tag(made))
    # So is one that comes between the look and the change.
    put, settings = ExportService.put, site.site.settings

    def overtaken(
        exports: ExportService, wanted: WantedExport, author: str, version: int | None
    ) -> Any:
        put(exports, WantedExport("/datasets", b"datasets", ["10.9.0.0/16 ro"], "none"), "other")
        return put(exports, wanted, author, version)

    monkeypatch.setattr(ExportService, "put", overtaken)
    between = site.ask("PUT", "exports/datasets", 412, json=DATASETS, headers=tag(stored))
    assert between["current"]["clients"] == ["10.9.0.0/16 ro"]
    monkeypatch.undo()
    assert ExportService(settings, site.site.gateway.database).get("/datasets") is not None
    seen = site.http.get("exports/datasets")
    assert site.http.delete("exports/datasets", headers=tag(seen)).status_code == 204
    assert recorded(site)["before"]["version"] == 3
    for verb in ("GET", "DELETE", "PUT"):
        body = DATASETS if verb == "PUT" else None
        answer = site.ask(verb, "exports/datasets", 404, json=body, headers=tag(seen))
        assert "there is no export /datasets" in answer["detail"]


@pytest.mark.parametrize(
    ("change", "status", "why"),
    [
        ({"name": "datasets"}, 422, "name"),
        ({"name": "/../x"}, 409, "must look like"),
        ({"name": "/checkpoints/x"}, 409, "would hide the other"),
        ({"name": "/.spillway/x"}, 409, "gateway's own"),
        ({"path": "nothing"}, 409, "no directory nothing"),
        ({"path": "file"}, 409, "is no directory"),
        ({"path": ".spillway"}, 409, "gateway's own"),
        ({"clients": []}, 422, "clients"),
        ({"clients": ["10.0.0.0/33 rw"]}, 422, "10.0.0.0/33"),
        ({"clients": ["* rw; } EXPORT {"]}, 422, "must look like"),
        ({"squash": "some"}, 422, "squash"),
        ({"more": 1}, 422, "more"),
    ],
)
def test_a_wrong_export_changes_nothing(
    site: Filled, change: dict[str, Any], status: int, why: str
) -> None:
    before = site.ask("GET", "exports")
    body = {"name": "/wrong", **DATASETS, **change}
    assert why in site.ask("POST", "exports", status, json=body)["detail"]
    answer = site.ask("POST", "exports/validate", 422 if status == 422 else 200, json=body)
    if status == 409:
        assert answer["valid"] is False and why in answer["error"]
    assert site.ask("GET", "exports") == before


def test_a_preview_says_what_a_change_does(site: Filled) -> None:
    site.ask("POST", "exports", 201, json={"name": "/seen", **DATASETS})

    def preview(**change: Any) -> Any:
        return site.ask("POST", "exports/validate", json={"name": "/seen", **DATASETS, **change})

    same = preview()
    assert (same["valid"], same["is_new"], same["is_news"]) == (True, False, False)
    assert same["at_once"] is False and same["disconnects"] is False
    hosts = preview(clients=["10.0.0.0/8 ro"])
    assert hosts["is_news"] and not hosts["disconnects"]
    assert (hosts["clients_added"], hosts["clients_removed"]) == (["10.0.0.0/8 ro"], HOSTS)
    for line in ('Pseudo = "/seen";', "Access_Type = RO;", "Clients = 10.0.0.0/8;"):
        assert line in hosts["ganesha"]
    assert "Revision" not in hosts["ganesha"]
    assert preview(path="team")["disconnects"] is True
    assert (preview(squash="all")["squash_was"], hosts["squash_was"]) == ("none", None)
    assert preview(name="/new")["is_new"] is True
    assert [item["name"] for item in site.ask("GET", "exports")["items"]].count("/new") == 0
