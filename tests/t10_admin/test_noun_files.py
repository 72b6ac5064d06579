"""The commands about files, on the gateway and by its admin API: the same result, in the same
form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.cache.eviction import EvictionVerdict
from gateway.cli.main import main
from gateway.common.text import text_of
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.service import residency
from tests.support.t10.afar import Afar, afar

ODD = b"odd\x1b\xff%41"
WAYS = ("here", "afar")
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Afar]:
    with afar(tmp_path_factory.mktemp("files")) as made:
        with made.world() as world:
            for way in WAYS:
                for name in ("drained", "evicted", "open/f"):
                    world.write(f"{way}/{name}", b"12345678")
                for name in ("drained", "evicted"):
                    world.drain(f"{way}/{name}")
                world.evict(f"{way}/evicted")
                above = world.directory(way)
                world.namespace.mkdir(ROOT_CRED, above, ODD, SetAttr(mode=0o700))
                world.namespace.symlink(ROOT_CRED, above, b"link", b"drained", SetAttr())
                above = world.directory(f"{way}/open")
                for link in (b"first", b"second"):
                    world.namespace.symlink(ROOT_CRED, above, link, link, SetAttr())
        yield made


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def ask(gateway: Afar, way: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run a command with ``--json`` in one of the ways. Returns the document that it prints."""

    def asked(*words: str, status: int = 0, error: str = "") -> Any:
        verb, *rest = words
        here = [verb, "--config", str(gateway.site.settings.source), *rest]
        ended = main([*(here if way == "here" else [*gateway.options(), *words]), "--json"])
        out, err = capsys.readouterr()
        assert ended == status, (words, out, err)
        assert error in err if error else err == "", (words, err)
        return json.loads(out)

    return asked


def test_what_is_listed_has_the_paths_of_the_api(ask: Ask, gateway: Afar, way: str) -> None:
    listed = ask("ls", way)
    odd = text_of(ODD)
    assert [entry["name"] for entry in listed] == ["drained", "evicted", "link", odd, "open"]
    path = f"/checkpoints/{way}"
    asked = {"path": path, "details": True}
    assert listed == gateway.ask("GET", "directories", params=asked)["items"]
    assert [entry["path"] for entry in listed][3] == f"{path}/{odd}"
    [alone] = ask("ls", f"{way}/evicted")
    assert alone == listed[1] and (alone["bytes"], alone["on_disk"]) == ("absent", False)
    assert ask("ls", f"{way}/none", status=1, error="no such file") == []
    for name in ("drained", "evicted", "link", "open/f"):
        [told] = ask("stat", f"{way}/{name}")
        known = gateway.ask("GET", "files", params={"path": f"{path}/{name}"})
        for entry in (told, known):
            (entry["waiting"] or {}).pop("age_seconds", None)
        assert told == known
    assert ask("stat", f"{way}/link")[0]["target"] == "drained"


def test_names_are_changed(ask: Ask, way: str) -> None:
    top = f"/checkpoints/{way}"
    made = ask("mkdir", "-p", "-m", "2770", "--owner", "1000:2000", f"{way}/new/x", f"{way}/y")
    assert made == [{"path": f"{top}/{name}"} for name in ("new/x", "y")]
    told = [ask("stat", entry["path"])[0] for entry in made]
    assert [(one["mode"], one["uid"], one["gid"]) for one in told] == [("2770", 1000, 2000)] * 2
    assert ask("chown", ":7", f"{way}/y") == ask("chmod", "700", f"{way}/y") == [made[1]]
    [one] = ask("stat", f"{way}/y")
    assert (one["mode"], one["gid"]) == ("0700", 7)
    [moved] = ask("mv", f"{way}/y", f"{way}/new")
    assert (moved["from"], moved["path"]) == (f"{way}/y", f"{top}/new/y")
    [moved] = ask("mv", f"{way}/new/y", f"{way}/new/z")
    assert moved["path"] == f"{top}/new/z"
    assert ask("mv", f"{way}/new", f"{way}/new/x", status=1, error="below itself") == []
    [moved] = ask("mv", f"{way}/open/first", f"{way}/open/second")
    assert ask("stat", moved["path"])[0]["target"] == "first"
    assert ask("rm", f"{way}/new", status=1, error="spillway rm -r removes all of it") == []
    one = {"was_directory": False, "removed_names": 1, "failures": [], "trashed": {}}
    assert ask("rm", f"{way}/link") == [{**one, "path": f"{way}/link"}]
    told = ask("rm", "-rf", f"{way}/new", f"{way}/none")
    assert [(t["was_directory"], t["removed_names"]) for t in told] == [(True, 3), (False, 0)]
    assert ask("rm", f"{way}/none", status=1, error="no such file") == []


class Differing:
    """Evicts nothing: the bucket has something else."""

    def run(self, _ask: object, wanted: list[object]) -> list[EvictionVerdict]:
        return [EvictionVerdict.DIFFERS for _one in wanted]


def test_bytes_are_evicted(ask: Ask, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def eviction_of(*_: object) -> Iterator[Differing]:
        yield Differing()

    monkeypatch.setattr(residency, "eviction_of", eviction_of)
    paths = (way, f"{way}/open/f", f"{way}/none")
    told = ask("evict", *paths, status=1, error="not drained yet")
    assert (told["evicted_files"], told["absent_before_files"]) == (0, 1)
    assert {entry["path"]: entry["reason"] for entry in told["skipped_first"]} == {
        f"{way}/drained": str(EvictionVerdict.DIFFERS),
        f"{way}/open/f": "not drained yet",
    }
    assert told["failures"] == [
        f"{way}/open/f: not drained yet",
        f"{way}/none: there is no none: spillway ls shows what is",
    ]


def test_bytes_are_asked_for_and_waited_for(ask: Ask, way: str) -> None:
    begun = ask("warm", f"{way}/drained")
    assert (begun["job"] is None) == (way == "here")
    assert begun["resident_before_files"] == (1 if way == "here" else None)
    told = ask("warm", "--wait", f"{way}/drained", f"{way}/none", status=1, error="no none")
    assert (told["files"], told["resident_before_files"], told["error"]) == (0, 1, None)
    [missing] = told["failures"]
    assert missing.startswith(f"{way}/none: there is no none")
    assert ask("wait", "--durable", f"{way}/drained")["error"] is None
    late = ask("wait", "--durable", "--timeout", "0.3", f"{way}/open", status=1)
    assert late["durable"] is False and f"{way}/open is not durable after 0.3 s" in late["error"]
    gone = ask("wait", "--durable", f"{way}/none", status=1)
    assert gone["error"].startswith(f"{way}/none: there is no none")
