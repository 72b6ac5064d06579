"""After kill -9 of an import at each of its steps, the next process makes the rest, and nothing
twice."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from gateway.common import failpoints
from gateway.config import loader
from gateway.db.engine import Database
from gateway.namespace import fsck
from gateway.recovery import import_rows
from gateway.recovery import importer as recovery
from gateway.recovery.import_rows import ImportState
from gateway.recovery.importer import Importer
from tests.support.direct import Direct, reclaim
from tests.support.drainsite import Site
from tests.support.imports import Imports
from tests.support.namespace import Namespace
from tests.support.s3server import Server, die_with_parent

TOGETHER = 4
"""Objects of one transaction."""
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([__name__])
LISTING = (
    *(f"import.rows.{n}" for n in (1, 2, 3)),
    *(f"import.told.{n}" for n in (1, 2, 3)),
    "import.listed.1",
    "import.2",
)
REFRESH = (
    *("import.rows.1", "import.rows.2", "import.told.1", "import.changed.1", "import.listed.1"),
    *("writer.before-commit", "writer.after-commit", "rename.2"),
)
REMOVAL = ("writer.before-commit", "writer.after-commit", "rename.2", "remove.2", "remove.3")


def carry_out(config: Path, failpoint: str) -> None:
    """Carry imports out in this process, with a control socket of its own."""
    die_with_parent()
    recovery.TOGETHER = TOGETHER
    settings = loader.load(config, {})
    database = Database(settings.database_url)
    control = Direct(settings)
    one = Importer(settings, database, threading.Event(), lambda: nullcontext(control))
    failpoints.arm(failpoint)
    while True:
        with database.reading() as session:
            if all(row.state == ImportState.WHOLE for row in import_rows.every(session)):
                break
        one._not_before.clear()
        one.step()
    sys.exit(0)


class Killed:
    """Imports that are carried out by a process that is killed.

    Args:
        imports: of a gateway whose namespace is closed meanwhile.
    """

    def __init__(self, imports: Imports) -> None:
        self.imports = imports

    def at(self, failpoint: str) -> None:
        """Carry the imports out until a place kills the process, and then to their end."""
        site = self.imports.site
        site.namespace.close()
        process = context.Process(target=carry_out, args=(site.settings.source, failpoint))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, f"{failpoint} is never passed"
        site.namespace = Namespace(site.settings)
        self.imports.control._namespace = site.namespace
        self.imports.run()

    def require(self, top: int, files: dict[str, bytes]) -> None:
        """Require that an import has these files, each once, and nothing else is left of it."""
        imports, site = self.imports, self.imports.site
        assert imports.files(top) == {name: len(body) for name, body in files.items()}
        reclaim(site.namespace)
        rows = site.rows("SELECT key FROM imported_object")
        assert sorted(key for (key,) in rows) == sorted(f"set/{name}" for name in files)
        self.require_sound()

    def require_sound(self) -> None:
        site = self.imports.site
        site.namespace.close()
        found = fsck.check(self.imports.database, site.namespace.files)
        site.namespace = Namespace(site.settings)
        self.imports.control._namespace = site.namespace
        assert found == [], found
        assert self.imports.writes() == []


@pytest.fixture
def killed(make_site: Callable[..., Site], rclone: Server) -> Iterator[Killed]:
    imports = Imports(make_site(rclone))
    yield Killed(imports)
    imports.close()


def first(imports: Imports) -> dict[str, bytes]:
    """Put some objects. Returns them by name."""
    bodies = {f"d{n % 3}/{n}": b"x" * n for n in range(10)}
    for name, body in bodies.items():
        imports.put(f"set/{name}", body)
    imports.site.proxy.forget()
    return bodies


@pytest.mark.parametrize("place", LISTING)
def test_a_listing(killed: Killed, place: str) -> None:
    imports = killed.imports
    bodies = first(imports)
    top = imports.begin()
    killed.at(place)
    row = imports.row()
    assert (row.files, row.size, row.state) == (10, 45, "whole")
    killed.require(top, bodies)


@pytest.mark.parametrize("place", REFRESH)
def test_a_refresh(killed: Killed, place: str) -> None:
    imports = killed.imports
    bodies = first(imports)
    top = imports.all()
    for name, body in {"d0/0": b"changed", "d2/8": b"changed too", "d1/new": b"new"}.items():
        imports.put(f"set/{name}", body)
        bodies[name] = body
    imports.delete("set/d1/1")
    imports.site.proxy.forget()
    imports.refresh(top)
    killed.at(place)
    row = imports.row()
    # A listing that was killed begins again: so it knows what is gone.
    assert (row.files, row.gone, row.state) == (11, 1, "whole")
    killed.require(top, bodies)


@pytest.mark.parametrize("place", REMOVAL)
def test_a_removal(killed: Killed, place: str) -> None:
    imports = killed.imports
    first(imports)
    keys = imports.keys()
    top = imports.all()
    imports.site.proxy.forget()
    imports.remove(top)
    killed.at(place)
    assert imports.rows() == []
    reclaim(imports.site.namespace)
    assert imports.site.rows("SELECT * FROM imported_object") == []
    killed.require_sound()
    assert imports.keys() == keys


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_beginning_that_was_cut_off_is_continued(
    killed: Killed, monkeypatch: pytest.MonkeyPatch, is_renamed: bool
) -> None:
    imports = killed.imports
    bodies = first(imports)

    class Killing(Exception):
        pass

    def run(requests: object) -> None:
        if is_renamed:
            Direct.run(imports.control, requests)  # type: ignore[arg-type]
        raise Killing

    with monkeypatch.context() as patch:
        patch.setattr(imports.control, "run", run)
        with pytest.raises(Killing):
            imports.begin()
    assert imports.row().state == "placing"
    if is_renamed:
        top = imports.row().top
        imports.refresh(top)
    else:
        top = imports.begin()
    imports.run()
    killed.require(top, bodies)
