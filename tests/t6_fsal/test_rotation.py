"""Clients of a real NFS server that remove members of a checkpoint which the bucket must keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from gateway.common.types import GATEWAY_CRED
from gateway.db.engine import Database
from gateway.db.models import TRASH_INO
from gateway.namespace import fingerprint
from gateway.rpc.frames import Op, RpcRequest
from tests.support import nfs4
from tests.support.records import record
from tests.support.t6.reserved import Site
from tests.support.t6.serving import serving
from tests.support.volumes import query
from tests.support.waiting import until


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("rotation")
    with serving(directory) as (server, control), nfs4.Client(server.port) as client:
        yield Site(server, control, client)


def save(site: Site, run: str, *names: str) -> bytes:
    """Save a checkpoint, and record that the bucket has it. Returns the handle of its directory."""
    root = site.client.handle("export")
    site.client.mkdir(root, run)
    top = site.client.handle("export", run)
    settings = site.server.settings
    for name in names:
        with site.client.opened(top, name) as file:
            file.write(name.encode())
        ino = site.client.lookup(top, name).fileid
        sealed = "SELECT 1 FROM inode WHERE ino = :ino AND write_open = 0"
        until(partial(query, settings, sealed, ino=ino), "the seal")
        query(
            settings, "UPDATE inode SET drained_version = content_version WHERE ino = :ino", ino=ino
        )
        query(
            settings,
            "INSERT INTO object SELECT ino, :key, content_version, size, 'e', 'md5:c', 1, NULL"
            " FROM inode WHERE ino = :ino",
            ino=ino,
            key=f"{run}/{name}",
        )
    record(settings, site.client.lookup(root, run).fileid, run.encode(), 1)
    return top


def is_kept(site: Site, ino: int) -> bool:
    return any(site.server.settings.files_dir.glob(f"*/{ino}.*"))


def test_a_member_that_is_read_keeps_its_bytes_and_takes_no_more(site: Site) -> None:
    top = save(site, "read", "a", "b")
    handle = site.client.handle("export", "read", "a")
    before = site.client.getattr(handle)
    with site.client.opened(top, "b") as file:
        # What is open for writing is no member as the bucket has it: it goes, and takes writes.
        file.write(b"written before")
        site.client.remove(top, "b")
        file.write(b"written after")
        assert site.client.read(file.handle, 0, 20) == b"written aftere"
        orphan = file.handle
    with site.client.opened(top, "a", reads=True) as reader:
        site.client.remove(top, "a")
        assert reader.read() == b"a"
    assert site.client.names(top) == []
    assert site.client.is_absent(top, "a")
    assert site.client.read(handle, 0, 10) == b"a"
    after = site.client.getattr(handle)
    assert (after.fileid, after.size) == (before.fileid, 1) and after.change > before.change
    # A client that still has the handle changes nothing.
    changes: list[Callable[[], object]] = [
        lambda: site.client.truncate(handle, 0),
        lambda: site.client.link(handle, top, "again"),
    ]
    for change in changes:
        with pytest.raises(nfs4.Status) as refused:
            change()
        assert refused.value.number == nfs4.ROFS
    assert is_kept(site, before.fileid)
    until(lambda: is_gone(site, orphan), "the end of the other one")
    entry = query(site.server.settings, "SELECT id, files FROM trash")
    assert [files for _id, files in entry] == [1]


def is_gone(site: Site, handle: bytes) -> bool:
    try:
        site.client.getattr(handle)
    except nfs4.Status as exc:
        return exc.number == nfs4.STALE
    return False


def test_a_save_over_a_member_and_the_way_back(site: Site) -> None:
    """The new file has the name, and the old one comes back over the control socket to another."""
    top = save(site, "again", "a")
    old = site.client.lookup(top, "a").fileid
    with site.client.opened(top, "a.new") as file:
        file.write(b"newer")
    site.client.rename(top, "a.new", "a")
    assert site.client.lookup(top, "a").fileid != old and is_kept(site, old)
    [(parent, name)] = query(
        site.server.settings, "SELECT parent, name FROM dirent WHERE ino = :ino", ino=old
    )
    assert parent != TRASH_INO and bytes(name) == b"a"
    into = site.client.lookup(site.client.handle("export"), "again").fileid
    url = site.server.settings.database_url
    with closing(Database(url)) as database, database.reading() as session:
        seen = fingerprint.of(session, old).number
    [answer] = site.control.run(
        [RpcRequest(Op.RENAME, parent, b"a", into, b"a.old", change=seen, cred=GATEWAY_CRED)]
    )
    assert answer.errno == 0
    back = site.client.handle("export", "again", "a.old")
    assert site.client.read(back, 0, 10) == b"a"
    # It is a file as any other again.
    with site.client.opened(top, "a.old") as file:
        file.write(b"A")
    assert site.client.read(back, 0, 10) == b"A"
    assert sorted(site.client.names(top)) == ["a", "a.old"]
