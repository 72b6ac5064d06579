"""`spillway usage`: what directories and owners have."""

from __future__ import annotations

import json

import pytest

from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.db.models import ROOT_INO
from tests.support.clisite import Site, spillway
from tests.support.namespace import Namespace


@pytest.fixture
def filled(site: Site) -> Site:
    """Make a file in each of three directories."""
    namespace = Namespace(site.settings)
    for number, uid in enumerate((1000, 1001, 1000), 1):
        wanted = SetAttr(mode=0o755)
        parent = namespace.mkdir(ROOT_CRED, ROOT_INO, b"run%d" % number, wanted).ino
        attr = namespace.create(ROOT_CRED, parent, b"f", SetAttr(mode=0o644, uid=uid))
        namespace.files.path(attr.ino, attr.epoch).write_bytes(bytes(number << 20))
        namespace.seal(attr.ino, Sealed(number << 20, number << 20, 1, 1))
    namespace.close()
    return site


def shown(site: Site, *words: str) -> str:
    ended = spillway("usage", *words, "--config", site.config)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_largest_come_first(filled: Site) -> None:
    lines = [line.split() for line in shown(filled).splitlines()]
    paths = [cells[-1] for cells in lines if cells and cells[-1].startswith("/checkpoints")]
    root = "/checkpoints"
    assert paths == [root, f"{root}/run3", f"{root}/run2", f"{root}/run1"]
    owners = shown(filled, "--owners")
    assert "/checkpoints" not in owners
    assert owners.index("1000") < owners.index("1001")


def test_what_is_not_shown_is_said(filled: Site) -> None:
    text = shown(filled, "--limit", "1")
    assert "... and 2 more directories: --limit N shows N" in text
    assert "... and 1 more owners: --limit N shows N" in text


def test_it_is_json_too(filled: Site) -> None:
    facts = json.loads(shown(filled, "--json", "run2"))
    assert facts["directory"]["path"] == "/checkpoints/run2"
    assert facts["directory"]["only_here_bytes"] == 2 << 20
    assert {one["uid"]: one["size_bytes"] for one in facts["owners"]} == {
        1000: 4 << 20,
        1001: 2 << 20,
    }


def test_a_path_that_is_not_there(filled: Site) -> None:
    ended = spillway("usage", "none", "--config", filled.config)
    assert ended.returncode == 1
    assert "no such file or directory" in ended.stderr
