"""The exports of a gateway, asked on its machine and by its admin API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.common.errors import ExportRefused, NotThere, SpillwayError
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.db.models import ROOT_INO
from gateway.service.exports import Exports, ReloadedExports, RemovedExport, Rights
from tests.support.t10.afar import Afar, afar
from tests.support.t10.either import WAYS, either

HOSTS = ["10.0.0.0/8 rw"]
ODD = b"odd\x1b\xff%41"
ENCODED = "/checkpoints/odd%1B%FF%2541"
RIGHTS = Rights("odd\x1b\udcff%41", HOSTS, "root")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Afar]:
    with afar(tmp_path_factory.mktemp("exports")) as made:
        with made.world() as world:
            world.directory("team/new")
            world.namespace.mkdir(ROOT_CRED, ROOT_INO, ODD, SetAttr(mode=0o755))
        yield made


@pytest.fixture(params=WAYS)
def exports(site: Afar, request: pytest.FixtureRequest) -> Iterator[Exports]:
    with either(site, request.param) as gateway:
        yield gateway.exports


def test_exports_are_made_replaced_and_removed(exports: Exports) -> None:
    assert list(exports.every()) == [] and exports.find("/one") is None
    assert exports.main().name == "/checkpoints" and "10.0.0.0/8 rw" in exports.main().clients
    first = exports.set("/one", RIGHTS, 0)
    assert (first.path, first.clients, first.squash, first.served) == (ENCODED, HOSTS, "root", None)
    second = exports.set("/one", RIGHTS._replace(path="team", squash="none"), first.version)
    assert (second.version, second.path) == (first.version + 1, "/checkpoints/team")
    assert exports.find("/one") == second and list(exports.every()) == [second]
    with pytest.raises(SpillwayError):
        exports.set("/one", RIGHTS, first.version)
    with pytest.raises(SpillwayError):
        exports.remove("/one", first.version)
    assert exports.reload() == ReloadedExports([])
    assert exports.remove("/one", second.version) == RemovedExport("/one")
    for name in ("/one", "one", "/", "", "no name", "/a/../b"):
        assert exports.find(name) is None
        with pytest.raises(NotThere, match="there is no export"):
            exports.remove(name, 1)


def test_a_change_is_tried(exports: Exports) -> None:
    news = exports.validate("/two", RIGHTS)
    assert (news.valid, news.is_new, news.clients_added, news.at_once) == (True, True, HOSTS, False)
    assert news.ganesha is not None and 'Pseudo = "/two";' in news.ganesha
    for name, rights, why in (
        ("/two", RIGHTS._replace(path="none"), "there is no directory none"),
        ("/two", RIGHTS._replace(clients=["10.0.0.0/99 rw"]), "10.0.0.0/99"),
        ("/two", RIGHTS._replace(clients=()), "needs hosts"),
        ("no name", RIGHTS, "cannot be named 'no name'"),
        ("/checkpoints/x", RIGHTS, "would hide the other"),
    ):
        validity = exports.validate(name, rights)
        assert not validity.valid and why in (validity.error or ""), name
    with pytest.raises(ExportRefused, match="cannot be named 'no name'"):
        exports.set("no name", RIGHTS, 0)
    assert list(exports.every()) == []
