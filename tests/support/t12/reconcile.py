"""Reconciliations of gateways on real S3 servers: backups, losses, and what holds afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from sqlalchemy import select

from gateway.common.types import InodeKind
from gateway.db import checkpoint_models
from gateway.db.engine import Database
from gateway.db.models import FIRST_FREE_INO, ROOT_INO
from gateway.drain import verify
from gateway.namespace import adopt, fsck, residency, usage
from gateway.recovery import reconcile as recovery
from gateway.recovery.reconcile_report import BucketReport
from tests.support.drainsite import PREFIX, Site
from tests.support.namespace import Namespace

COUNTED = ("directory_usage", "owner_usage")
"""Triggers fill them."""
TABLES = [
    table for table in checkpoint_models.Base.metadata.sorted_tables if table.name not in COUNTED
]
TABLES_BY_NAME = checkpoint_models.Base.metadata.tables
CHANGES = ("PUT", "PART", "PART COPY", "COPY", "CREATE", "COMPLETE", "DELETE")
"""Requests that change objects."""
NEVER_RESTORED = ("bucket_owner", "endpoint")
"""The claim to the bucket: another test is about an older one."""


def key_of(path: str) -> str:
    return f"{PREFIX}/{path}"


def adopt_files(site: Site) -> adopt.Adopted:
    """Do what ``spillway adopt files`` does. It moves the mark, as a start and a stop do."""
    with closing(Database(site.settings.database_url)) as database:
        files = site.namespace.files
        return adopt.adopt_files(database, files, partial(verify.is_unchanged, database, files))


def backup_of(site: Site) -> Callable[[], None]:
    """Make a backup of the database. Returns a function that puts it back and adopts the files."""
    site.namespace.close()
    adopt_files(site)
    site.namespace = Namespace(site.settings)
    with site.namespace._database.engine().begin() as connection:
        rows = {
            table.name: [dict(row._mapping) for row in connection.execute(select(table))]
            for table in TABLES
        }

    def restore() -> None:
        site.namespace.close()
        adopt_files(site)
        put(site, rows)
        adopt_files(site)
        site.namespace = Namespace(site.settings)

    return restore


def put(site: Site, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    """Replace all rows of the database by others."""
    with closing(Database(site.settings.database_url)) as database:
        tables = [table for table in TABLES if table.name not in NEVER_RESTORED]
        with database.engine().begin() as connection:
            for table in reversed(tables):
                connection.execute(table.delete())
            for table in tables:
                if rows[table.name]:
                    connection.execute(table.insert(), rows[table.name])
        with database.writing() as session:
            usage.count_again(session)


def forget_names(site: Site) -> None:
    """Lose database and disk: the namespace is a new one with the same id, and the data files are
    gone."""
    site.namespace.close()
    for ino, epoch in list(site.namespace.files.walk()):
        site.namespace.files.remove(ino, epoch)
    with closing(Database(site.settings.database_url)) as database:
        engine = database.engine()
    with engine.begin() as connection:
        for table in reversed(TABLES):
            if table.name in (*NEVER_RESTORED, "volume", "catalogue", "fence"):
                continue
            if table.name in ("dirent", "inode"):
                own = table.c.ino.between(ROOT_INO, FIRST_FREE_INO - 1)
                connection.execute(table.delete().where(~own))
            else:
                connection.execute(table.delete())
        inode = TABLES_BY_NAME["inode"]
        root = inode.c.ino == ROOT_INO
        connection.execute(inode.update().where(root).values(nlink=2))
        volume = TABLES_BY_NAME["volume"]
        connection.execute(volume.update().values(next_ino=FIRST_FREE_INO, gateway=None))
    with closing(Database(site.settings.database_url)) as database, database.writing() as session:
        usage.count_again(session)
    (site.settings.files_dir / "stamp.json").unlink(missing_ok=True)
    adopt_files(site)
    site.namespace = Namespace(site.settings)


def evict(site: Site, path: str) -> None:
    """Make a file absent, as the server does."""
    before = site.attr(path)
    ino = before.ino
    [(version,)] = site.rows(f"SELECT content_version FROM inode WHERE ino = {ino}")
    # The drain would look at the key again first: here it is certain.
    site.rows("DELETE FROM indeterminate_write RETURNING 1")
    site.namespace.run(residency.evict, ino, version, None)
    site.namespace.files.remove(ino, before.epoch)
    site.rows(f"DELETE FROM eviction WHERE ino = {ino} RETURNING 1")


def reconcile(site: Site, *also_ours: str, imports: bool = False) -> BucketReport:
    """Reconcile a gateway that is stopped."""
    site.namespace.close()
    try:
        with closing(Database(site.settings.database_url)) as database:
            files = site.namespace.files
            return recovery.reconcile(site.settings, database, files, also_ours, imports)
    finally:
        site.namespace = Namespace(site.settings)


def compare(site: Site, *also_ours: str) -> BucketReport:
    """Compare the bucket with the names, while the gateway may run."""
    with closing(Database(site.settings.database_url)) as database:
        return recovery.compare(site.settings, database, also_ours)


def problems(site: Site) -> list[str]:
    """Return what fsck finds, but the damaged files."""
    with closing(Database(site.settings.database_url)) as database:
        found = fsck.check(database, site.namespace.files)
    return [f"{one.check}: {one.detail}" for one in found if one.check != "damaged"]


def damaged(site: Site) -> dict[str, str]:
    """Return why files are damaged, by path."""
    reasons = dict(site.rows("SELECT ino, reason FROM damage"))
    return {path: reasons[ino] for path, ino in tree(site).items() if ino in reasons}


def tree(site: Site) -> dict[str, int]:
    """Return the inodes of all regular files of clients, by path."""
    found: dict[str, int] = {}

    def walk(directory: int, above: str) -> None:
        for entry in site.namespace.readdir(directory, 0, 10_000):
            path = f"{above}{entry.name.decode()}"
            if entry.attr.kind == InodeKind.DIRECTORY:
                walk(entry.attr.ino, f"{path}/")
            else:
                found[path] = entry.attr.ino

    walk(ROOT_INO, "")
    return found


def readable(site: Site) -> dict[str, bytes]:
    """Return the content of each file that has one: its local bytes if it is resident, or those of
    the object that its row names, which must be what the row says."""
    damaged_inos = {ino for (ino,) in site.rows("SELECT ino FROM damage")}
    recorded = {
        ino: rest
        for ino, *rest in site.rows("SELECT ino, key, etag, size, content_version FROM object")
    }
    contents: dict[str, bytes] = {}
    for path, ino in tree(site).items():
        if ino in damaged_inos:
            continue
        attr = site.namespace.getattr(ino)
        if attr.residency == 2:
            local = site.namespace.files.path(ino, attr.epoch)
            contents[path] = local.read_bytes() if local.exists() else b""
        else:
            key, etag, size, version = recorded[ino]
            answer = site.client.get_object(Bucket=site.bucket, Key=key)
            body = answer["Body"].read()
            assert answer["ETag"].strip('"') == etag, path
            assert len(body) == size == attr.size, path
            [(newest,)] = site.rows(f"SELECT content_version FROM inode WHERE ino = {ino}")
            assert newest == version, path
            contents[path] = body
    return contents


def assert_at_rest(site: Site, *, sends: bool = False) -> None:
    """Assert that fsck finds nothing wrong, and that the drain neither sends nor deletes.

    Args:
        sends: whether it may send or move something: the paths are what they are afterwards.
    """
    assert problems(site) == []
    before = site.objects()
    site.proxy.forget()
    site.drain()
    changes = [
        (request.operation, request.key)
        for request in site.proxy.operations()
        if request.operation in CHANGES
    ]
    if not sends:
        assert changes == []
        assert site.objects() == before
    assert problems(site) == []
    assert site.left() == []


def object_of(site: Site, path: str) -> tuple[str, int]:
    """Return the key below the prefix and the version of the object that a file has by its row."""
    ino = site.attr(path).ino
    [(key, version)] = site.rows(f"SELECT key, content_version FROM object WHERE ino = {ino}")
    return key.removeprefix(f"{PREFIX}/"), version


def put_object(site: Site, path: str, body: bytes, **metadata: str) -> None:
    """Store an object as another program does."""
    site.client.put_object(Bucket=site.bucket, Key=key_of(path), Body=body, Metadata=metadata)


def copy_object(site: Site, source: str, target: str) -> None:
    """Copy an object with its metadata, as a move that was interrupted, or a person, does."""
    site.client.copy_object(
        Bucket=site.bucket,
        Key=key_of(target),
        CopySource=f"{site.bucket}/{key_of(source)}",
    )


def delete_object(site: Site, path: str) -> None:
    site.client.delete_object(Bucket=site.bucket, Key=key_of(path))


def volume_of(site: Site) -> str:
    """Return the id of the namespace."""
    [(fs_id,)] = site.rows("SELECT fs_id FROM volume")
    return bytes(fs_id).hex()


def made_by(site: Site, ino: int, version: int, generation: int = 77) -> dict[str, str]:
    """Return the metadata of an object of this namespace."""
    return {
        "volume": volume_of(site),
        "ino": str(ino),
        "generation": str(generation),
        "content-version": str(version),
        "mode": "0640",
        "uid": "1000",
        "gid": "100",
        "mtime-ns": str(1_700_000_000_000_000_000),
    }
