"""A gateway whose promotions are carried out in this process, in place of a server."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pytest

from gateway.catalogue import manifest_check
from gateway.catalogue.store import rules_of
from gateway.common import failpoints
from gateway.common.errors import NotPossible
from gateway.common.types import ROOT_CRED, SetAttr
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.models import PROMOTED_INO, TRASH_INO
from gateway.lifecycle.promotion import members, store, task
from gateway.lifecycle.promotion.store import (
    NO_OPTIONS,
    PromotionOptions,
    PromotionRow,
    PromotionState,
)
from gateway.lifecycle.promotion.task import Promoter
from gateway.namespace import fsck
from gateway.namespace.data_files import DataFiles
from gateway.objectstore import key_mapper
from gateway.rpc.frames import RpcReply, RpcRequest
from tests.support.direct import Direct
from tests.support.drainsite import PREFIX, Site
from tests.support.namespace import Namespace
from tests.support.owner import OWNER
from tests.support.s3server import die_with_parent
from tests.support.volumes import query
from tests.support.waiting import until

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["gateway.lifecycle.promotion.task", "gateway.objectstore.holds"])


@contextmanager
def direct(settings: Settings) -> Iterator[Direct]:
    """Open the namespace in place of a server."""
    with closing(Direct(settings)) as control:
        yield control


class Promoting(Site):
    """A gateway whose namespace is closed while its promotions use the control socket."""

    on_control: Callable[[Sequence[RpcRequest]], None] = staticmethod(lambda _requests: None)
    """Hears of requests before they are answered."""

    @contextmanager
    def control(self) -> Iterator[Any]:
        self.namespace.close()
        try:
            with direct(self.settings) as opened:
                yield _Heard(opened, self)
        finally:
            self.namespace = Namespace(self.settings)

    def promoter(self) -> Promoter:
        database = Database(self.settings.database_url)
        return Promoter(self.settings, database, self.control, threading.Event())

    def ask(self, path: str, name: str, options: PromotionOptions = NO_OPTIONS) -> PromotionRow:
        """Record a promotion, as the command does."""
        ino = self.attr(path).ino
        database = Database(self.settings.database_url)
        prefix = self.settings.bucket.prefix
        with database.reader() as connection, database.transaction(connection):
            session = Session(connection, database.dialect)
            seen = members.look(session, ino, rules_of(self.settings))
            assert seen is not None
            of = path.encode()
            return members.record(session, prefix, name, of, seen, "", "me", options)

    def demote(self, name: str) -> None:
        query(self.settings, "UPDATE promotion SET state = 'demoting' WHERE name = :n", n=name)

    def end(self, name: str, *, releases: bool) -> None:
        """Demote a promotion, as the command does. Raises NotPossible."""
        with closing(Database(self.settings.database_url)) as database, database.writing() as to:
            row = store.one_named(to, name)
            assert row is not None
            store.demote(to, row, releases)

    def demoted_without_release(self, name: str) -> PromotionRow:
        """Try to demote a promotion without naming its hold, as a person and as another program
        that does not know of the hold. Returns what the promotion is then."""
        with pytest.raises(NotPossible, match="--release-hold"):
            self.end(name, releases=False)
        self.demote(name)
        self.settle()
        row = self.promotion(name)
        assert row is not None
        assert "--release-hold" in str(row.reason)
        return row

    def settle(self, promoter: Promoter | None = None) -> None:
        """Carry promotions out until there is nothing to do."""
        promoter = promoter or self.promoter()
        turning = promoter

        def is_settled() -> bool:
            turning.run_once()
            return not self.pending()

        until(is_settled, "promotions to end")

    def pending(self) -> list[PromotionRow]:
        rows: list[PromotionRow] = self._read(store.pending)
        return rows

    def promotion(self, name: str) -> PromotionRow | None:
        row: PromotionRow | None = self._read(lambda session: store.one_named(session, name))
        return row

    def failed(self, name: str) -> str:
        """Return why a promotion failed. Require that it did, and that it says what to do."""
        row = self.promotion(name)
        assert row is not None
        assert row.state == PromotionState.FAILED
        assert str(row.reason).endswith(f"spillway promotion remove {name} --yes")
        return str(row.reason)

    def _read(self, function: Callable[[Session], Any]) -> Any:
        database = Database(self.settings.database_url)
        try:
            with database.snapshot() as connection:
                return function(Session(connection, database.dialect))
        finally:
            database.close()

    def tree(self, ino: int = PROMOTED_INO) -> dict[str, tuple[int, ...]]:
        """Return what is below a directory: kind, mode, size, residency and reserved, by path."""
        tree: dict[str, tuple[int, ...]] = {}
        rows = query(
            self.settings,
            "SELECT d.name, i.ino, i.kind, i.mode, i.size, i.residency, i.reserved"
            " FROM dirent d JOIN inode i ON i.ino = d.ino WHERE d.parent = :ino",
            ino=ino,
        )
        for name, child, kind, *rest in rows:
            tree[bytes(name).decode()] = (kind, *rest)
            if kind == 7:
                below = self.tree(child).items()
                tree |= {f"{bytes(name).decode()}/{path}": facts for path, facts in below}
        return tree

    def copies(self) -> dict[str, bytes]:
        """Return the objects of copied files, by key below those of all."""
        start = ".spillway/promoted/"
        return {
            key.removeprefix(start): data
            for key, data in self.objects().items()
            if key.startswith(start) and not key.endswith(".json")
        }

    def described(self) -> set[str]:
        """Return the names of the copies that have a manifest. Require that each is true: the
        bucket has every byte that it names."""
        found = set()
        start = f"{key_mapper.promoted_below(PREFIX)}/"
        for key in manifest_check.promoted(self.client, self.bucket, start):
            manifest = manifest_check.read(self.client, self.bucket, key)
            assert list(manifest_check.differing(self.client, self.bucket, manifest, True)) == []
            found.add(key.removeprefix(start).removesuffix(".json"))
        return found

    def require_whole(self) -> None:
        """Require a namespace without problems, and nothing that a promotion left in the trash."""
        self.namespace.close()
        try:
            database = Database(self.settings.database_url)
            assert fsck.check(database, DataFiles(self.settings.files_dir)) == []
            database.close()
        finally:
            self.namespace = Namespace(self.settings)
        assert self.tree(TRASH_INO) == {}
        done = {one.name for one in self._read(store.every) if one.state == PromotionState.DONE}
        assert self.described() == done
        assert all(
            one.state in (PromotionState.DONE, PromotionState.FAILED)
            for one in self._read(store.every)
        )


class _Heard:
    def __init__(self, control: Direct, site: Promoting) -> None:
        self._control, self._site = control, site

    def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        self._site.on_control(requests)
        return self._control.run(requests)

    def close(self) -> None:
        self._control.close()


def save(site: Site) -> dict[str, bytes]:
    """Make a drained checkpoint. Returns the files below it."""
    data = {
        "__0_0.distcp": os.urandom(200_000),
        "deep/er/__1_0.distcp": b"b" * 1000,
        "empty": b"",
        ".metadata": b"all",
    }
    for path, text in data.items():
        site.write(f"job/step-5/{path}", text)
    top = site.directory("job/step-5")
    site.directory("job/step-5/nothing")
    site.namespace.symlink(ROOT_CRED, top, b"link", b"deep/er", SetAttr(mode=0o777))
    site.drain()
    return data


def lock(site: Site) -> None:
    """Give the new bucket Object Lock. moto wants it to be empty for that."""
    site.client.delete_object(Bucket=site.bucket, Key=f"{PREFIX}/{OWNER}")
    site.client.put_bucket_versioning(
        Bucket=site.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    site.client.put_object_lock_configuration(
        Bucket=site.bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled"}
    )
    site.own()


def held(site: Site) -> dict[str, bool]:
    """Return whether one of the versions at each key is under a legal hold."""
    found: dict[str, bool] = {}
    for one in site.client.list_object_versions(Bucket=site.bucket).get("Versions", []):
        key, version = one["Key"], one["VersionId"]
        if key.endswith(OWNER):
            continue
        head = site.client.head_object(Bucket=site.bucket, Key=key, VersionId=version)
        found[key] = found.get(key, False) or head.get("ObjectLockLegalHoldStatus") == "ON"
    return found


def work(settings: Settings, failpoint: str) -> None:
    """Carry promotions out until a failpoint kills this process."""
    die_with_parent()
    task.BATCH = 2
    task.NAMES = 2
    failpoints.arm(failpoint)
    database = Database(settings.database_url)
    promoter = Promoter(settings, database, lambda: direct(settings), threading.Event())
    for _ in range(60):
        promoter.run_once()
