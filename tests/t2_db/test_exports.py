"""The rows of exports: versions, numbers that are never used twice, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.cli import up
from gateway.common.errors import ExportChanged, ExportRefused
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.nfs import export_blocks, ganesha_conf
from gateway.nfs.export_service import ExportService, WantedExport, at_start
from tests.support import trash
from tests.support.namespace import Namespace

HOSTS = ("10.0.0.0/8 rw",)


def test_one_of_several_changes_of_a_version_is_made(exports: ExportService) -> None:
    exports.put(wanted("/one", b"a"), "me", 0)

    def change(number: int) -> str:
        try:
            return str(exports.put(wanted("/one", b"a", f"10.0.0.{number} rw"), "me", 1).version)
        except ExportChanged as exc:
            return str(exc)

    with ThreadPoolExecutor(4) as pool:
        answers = sorted(pool.map(change, range(4)))
    assert answers == ["/one has version 2, not 1: look at it again"] * 3 + ["2"]


WRONG: list[tuple[str, bytes, tuple[str, ...], str, str]] = [
    ("datasets", b"a", HOSTS, "none", "must look like"),
    ("/", b"a", HOSTS, "none", "must look like"),
    ("/a/", b"a", HOSTS, "none", "must look like"),
    ("/a//b", b"a", HOSTS, "none", "must look like"),
    ("/a/../b", b"a", HOSTS, "none", "must look like"),
    ('/a"; }', b"a", HOSTS, "none", "must look like"),
    ("/a\n", b"a", HOSTS, "none", "must look like"),
    ("/.spillway", b"a", HOSTS, "none", "gateway's own"),
    ("/.spillway/x", b"a", HOSTS, "none", "gateway's own"),
    ("/checkpoints", b"a", HOSTS, "none", "beside /checkpoints"),
    ("/checkpoints/a", b"a", HOSTS, "none", "beside /checkpoints"),
    ("/team", b"a", HOSTS, "none", "beside /team/data"),
    ("/team/data/more", b"a", HOSTS, "none", "beside /team/data"),
    ("/x", b"missing", HOSTS, "none", "no directory missing"),
    ("/x", b"a/missing", HOSTS, "none", "no directory a/missing"),
    ("/x", b"..", HOSTS, "none", "no directory"),
    ("/x", b"file", HOSTS, "none", "file is no directory"),
    ("/x", b".spillway", HOSTS, "none", "gateway's own"),
    ("/x", b".spillway/trash", HOSTS, "none", "gateway's own"),
    ("/x", b"a", (), "none", "needs hosts"),
    ("/x", b"a", ("10.0.0.0/33 rw",), "none", "10.0.0.0/33"),
    ("/x", b"a", ("10.0.0.0/8",), "none", "must look like"),
    ("/x", b"a", ("10.0.0.0/8 rw", "x; } rw"), "none", "x;"),
    ("/x", b"a", ("10.0.0.0/8 rw",) * 257, "none", "at most 256"),
    ("/x", b"a", HOSTS, "some", "squash must be"),
]


@pytest.fixture
def exports(settings: Settings, namespace: Namespace) -> Iterator[ExportService]:
    """Return exports of a gateway whose server does not run, with a few directories."""
    for name in (b"a", b"b", b"c"):
        namespace.mkdir(ROOT_CRED, ROOT_INO, name, SetAttr(mode=0o755))
    a = namespace.lookup(ROOT_INO, b"a").ino
    namespace.mkdir(ROOT_CRED, a, b"below", SetAttr(mode=0o755))
    namespace.create(ROOT_CRED, ROOT_INO, b"file", SetAttr(mode=0o644))
    database = Database(settings.database_url)
    yield ExportService(settings, database)
    database.close()


def wanted(name: str, path: bytes, *clients: str, squash: str = "none") -> WantedExport:
    return WantedExport(name, path, clients or HOSTS, squash)


def test_versions_and_numbers(exports: ExportService, settings: Settings) -> None:
    first = exports.put(wanted("/one", b"a"), "me", 0)
    assert (first.version, first.number, first.squash) == (1, 2, "none")
    assert exports.put(wanted("/one", b"a"), "me", 1) == first, "nothing is new"
    changed = exports.put(wanted("/one", b"a", "10.0.0.1 ro", squash="all"), "me", 1)
    assert (changed.version, changed.number) == (2, 2)
    for stale in (0, 1, 3):
        with pytest.raises(ExportChanged, match="has version 2"):
            exports.put(wanted("/one", b"b"), "me", stale)
        with pytest.raises(ExportChanged, match="has version 2"):
            exports.remove("/one", "me", stale)
    with pytest.raises(ExportChanged, match="does not exist"):
        exports.put(wanted("/two", b"b"), "me", 1)
    # A number belongs to one name and one directory, also after both were given up.
    assert exports.put(wanted("/one", b"b"), "me").number == 3
    exports.remove("/one", "me", 3)
    assert exports.get("/one") is None
    with pytest.raises(KeyError):
        exports.remove("/one", "me")
    assert exports.put(wanted("/two", b"c"), "me", 0).number == 4
    back = exports.put(wanted("/one", b"/a/."), "me", 0)
    assert (back.version, back.number) == (5, 2)
    served, left_out = at_start(settings)
    assert [(directory.name, directory.number) for directory in served] == [
        ("/one", 2),
        ("/two", 4),
    ]
    assert left_out == []
    written = export_blocks.read(
        ganesha_conf.render(settings, served).partition(export_blocks.MARK)[2]
    )
    assert written.directories == {1: 0, 2: back.directory, 4: served[1].directory}


def test_wrong_input_changes_nothing(exports: ExportService) -> None:
    exports.put(wanted("/team/data", b"a"), "me")
    before = exports.listed()
    for name, path, clients, squash, why in WRONG:
        with pytest.raises(ExportRefused, match=why):
            exports.put(WantedExport(name, path, clients, squash), "me")
    assert exports.listed() == before


def test_an_export_follows_its_directory(
    exports: ExportService, settings: Settings, namespace: Namespace
) -> None:
    """It keeps the directory over renames, and is left out while the directory is not there."""
    exports.put(wanted("/one", b"a/below"), "me")
    exports.put(wanted("/two", b"b"), "me")
    namespace.rename(ROOT_CRED, ROOT_INO, b"a", ROOT_INO, b"moved")
    namespace.mkdir(ROOT_CRED, ROOT_INO, b"a", SetAttr(mode=0o755))
    assert [export.path for export in exports.listed()] == [b"moved/below", b"b"]
    trash.discard(settings, namespace, ROOT_INO, b"moved", b"1")
    namespace.remove(ROOT_CRED, ROOT_INO, b"b")
    assert [(export.path, export.is_served) for export in exports.listed()] == [(None, None)] * 2
    assert [directory.name for directory in at_start(settings)[1]] == ["/one", "/two"]
    warning, _ = up.further_exports(settings)
    assert warning.startswith("warning: /one is not exported: its directory was removed")
    trash.take_back(settings, namespace, b"1", ROOT_INO, b"back")
    assert [directory.name for directory in at_start(settings)[0]] == ["/one"]
