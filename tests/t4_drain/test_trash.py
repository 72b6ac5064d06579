"""Files in the trash are not sent, and their objects stay, but give way to other files."""

from __future__ import annotations

from gateway.cache.eviction import Candidates, survey
from gateway.common.types import GATEWAY_CRED
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import TRASH_INO
from gateway.drain import queue
from gateway.drain.context import Context
from gateway.objectstore.s3 import S3Store
from tests.support import trash
from tests.support.drainsite import PREFIX, Site
from tests.support.t4.rename import watch

CHANGES = ("PUT", "COPY", "DELETE")


def discard(site: Site, path: str, name: bytes) -> None:
    trash.discard(site.settings, site.namespace, *site.split(path), name)


def take_back(site: Site, name: bytes, path: str) -> None:
    trash.take_back(site.settings, site.namespace, name, *site.split(path))


def changes(site: Site) -> list[str]:
    """Return the changes of the bucket since the last call."""
    operations = [
        request.operation for request in site.proxy.operations() if request.operation in CHANGES
    ]
    site.proxy.forget()
    return operations


def waiting(site: Site) -> list[bytes]:
    """Return the files that wait for the bucket, as `spillway queue` shows them."""
    database = Database(site.settings.database_url)
    entries = queue.entries(Context(site.settings, database, S3Store(site.settings)))
    names = [entry.path[-1] for entry in entries]
    database.close()
    return names


def test_objects_stay_until_their_keys_are_needed(rclone_site: Site) -> None:
    site = rclone_site
    for name in ("x", "y"):
        site.write(f"run/a/{name}", name.encode())
    site.drain()
    site.write("run/a/dirty", b"dirty")
    changes(site)
    discard(site, "run/a", b"t1")
    assert waiting(site) == []
    site.drain()
    assert changes(site) == []
    assert site.objects() == {"run/a/x": b"x", "run/a/y": b"y"}
    assert site.rows("SELECT * FROM rekey") == []
    # A new file at one of the keys: its object makes way before anything is sent there.
    lost = watch(site, {b"x", b"y"})
    site.write("run/a/x", b"newer")
    site.drain()
    moved = {"run/a/x": b"newer", ".spillway/trash/t1/x": b"x", "run/a/y": b"y"}
    assert site.objects() == moved
    assert lost == []
    # Of a file that gives way again nothing else is needed.
    site.drain()
    changes(site)
    site.drain()
    assert changes(site) == []
    take_back(site, b"t1", "run/b")
    site.drain()
    back = {"run/b/x": b"x", "run/b/y": b"y", "run/b/dirty": b"dirty", "run/a/x": b"newer"}
    assert site.objects() == back
    assert site.left() == []
    # Removed from the trash, the objects go, wherever they are.
    discard(site, "run/b", b"t1")
    site.write("run/b/y", b"newer")
    site.drain()
    directory = site.namespace.lookup(TRASH_INO, b"t1", is_gateway=True).ino
    for name in ("x", "y", "dirty"):
        removed = site.namespace.remove(GATEWAY_CRED, directory, name.encode())
        site.namespace.reclaim(removed.ino, removed.epoch)
    site.namespace.remove(GATEWAY_CRED, TRASH_INO, b"t1")
    site.drain()
    assert site.objects() == {"run/a/x": b"newer", "run/b/y": b"newer"}
    assert site.left() == []


def test_a_file_with_another_name_is_not_in_the_trash(rclone_site: Site) -> None:
    site = rclone_site
    site.write("old/shared", b"shared")
    site.write("old/own", b"own")
    site.drain()
    site.directory("new")
    site.link("old/shared", "new/shared")
    discard(site, "old", b"t1")
    site.drain()
    assert site.objects() == {"new/shared": b"shared", "old/own": b"own"}
    assert site.left() == []


def test_what_is_in_the_trash_leaves_the_disk_first(rclone_site: Site) -> None:
    site = rclone_site
    for name in ("a/1", "b/1", "b/2"):
        site.write(name, b"x" * 4096)
    site.drain()
    discard(site, "b", b"t1")
    site.drain()
    site.write("b/1", b"newer")
    site.drain()
    database = Database(site.settings.database_url)
    with database.reader() as connection:
        session = Session(connection, database.dialect)
        candidates = Candidates(session, site.settings)
        first = {candidate.key for candidate in candidates.trashed()}
        others = {candidate.key for candidate in candidates.inside(survey(session))}
    database.close()
    assert first == {f"{PREFIX}/b/2", f"{PREFIX}/.spillway/trash/t1/1"}
    assert others == {f"{PREFIX}/a/1", f"{PREFIX}/b/1"}
