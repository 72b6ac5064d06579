"""The routes of pins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.t10.filled import Filled, filled


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with filled(tmp_path_factory.mktemp("admin")) as made:
        with made.world() as world:
            world.write("odd %41\n.bin", b"1")
        yield made


def test_pins_are_made_listed_and_ended(site: Filled) -> None:
    for path in ("/checkpoints/jobs/a", "jobs/b", "/checkpoints/odd %2541%0A.bin"):
        made = site.ask("POST", "pins", 201, json={"path": path, "note": "mine"})
        assert made["path"] == "/checkpoints/" + path.removeprefix("/checkpoints/")
        assert (made["pinned_by"], made["note"]) == ("tests", "mine")
    assert site.ask("GET", f"checkpoints/{site.ino('a/step-1')}")["pinned"]
    first = site.ask("GET", "pins?limit=2")
    rest = site.ask("GET", f"pins?cursor={first['next']}")
    found = first["items"] + rest["items"]
    assert [entry["path"].rpartition("/")[2] for entry in found] == ["a", "b", "odd %2541%0A.bin"]
    assert rest["next"] is None
    for entry in found:
        assert site.http.delete(f"pins/{entry['ino']}").status_code == 204
        site.ask("DELETE", f"pins/{entry['ino']}", 404)
    assert site.ask("GET", "pins")["items"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"path": "nothing"}, 404),
        ({"path": "nothing/at/all"}, 404),
        ({"path": "/checkpoints"}, 409),
        ({"path": "jobs/a/step-1/.metadata/below"}, 409),
        ({"path": ""}, 422),
        ({"path": "jobs", "mode": 1}, 422),
        ({"path": "jobs", "note": 1001 * "x"}, 422),
        ({"path": "jobs", "note": 1}, 422),
        ({"path": "jobs", "note": "a\0b"}, 422),
        ([], 422),
        ("x", 422),
        ({"path": "a%00b"}, 422),
        ({}, 422),
    ],
)
def test_a_wrong_pin_is_refused(site: Filled, body: Any, status: int) -> None:
    assert site.ask("POST", "pins", status, json=body)["detail"]
    assert site.ask("GET", "pins")["items"] == []
