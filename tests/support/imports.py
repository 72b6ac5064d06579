"""A gateway beside a bucket of another program, and its imports."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gateway.common.types import Attr, InodeKind
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.recovery import import_orders, import_rows
from gateway.recovery.import_orders import ImportPlace, ImportSource
from gateway.recovery.import_rows import ImportRow, ImportState
from gateway.recovery.importer import Importer
from gateway.rpc.frames import RpcReply, RpcRequest
from tests.support.direct import Direct
from tests.support.drainsite import Site
from tests.support.namespace import Namespace

STEPS_MAX = 10_000
READS = ("GET", "HEAD")


class SharedControl(Direct):
    """The control socket of a server whose namespace a test has open."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self.asked: list[RpcRequest] = []

    def run(self, requests: Sequence[RpcRequest]) -> list[RpcReply]:
        self.asked += requests
        return super().run(requests)

    def close(self) -> None:
        """Do nothing: the namespace is the test's."""


class Imports:
    """The imports of a site.

    Args:
        site: the gateway.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.control = SharedControl(site.namespace)
        self.bucket = f"{site.bucket}-of-others"
        site.client.create_bucket(Bucket=self.bucket)
        self.database = Database(site.settings.database_url)

    def close(self) -> None:
        self.database.close()

    @contextmanager
    def _open(self) -> Iterator[SharedControl]:
        yield self.control

    # What the other program does.

    def put(self, key: str, body: bytes = b"") -> str:
        """Put an object. Returns its ETag."""
        answer = self.site.client.put_object(Bucket=self.bucket, Key=key, Body=body)
        return str(answer["ETag"]).strip('"')

    def delete(self, key: str) -> None:
        self.site.client.delete_object(Bucket=self.bucket, Key=key)

    def keys(self) -> dict[str, str]:
        """Return the keys of its bucket, with their ETags."""
        pages = self.site.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {entry["Key"]: entry["ETag"] for page in pages for entry in page.get("Contents", [])}

    # What the gateway does.

    def importer(self) -> Importer:
        return Importer(
            self.site.settings, self.database, threading.Event(), open_control=self._open
        )

    def begin(self, prefix: str = "set", path: str = "data") -> int:
        """Begin an import below the root. Returns the inode of its directory."""
        source = ImportSource(self.bucket, prefix)
        place = ImportPlace(ROOT_INO, path.encode(), f"/{path}")
        return import_orders.begin(self.database, self.control, source, place)

    def refresh(self, top: int, prefix: str = "set") -> None:
        import_orders.refresh(self.database, top, ImportSource(self.bucket, prefix), "/data")

    def remove(self, top: int) -> None:
        import_orders.remove(self.database, top, "/data")

    def run(self, importer: Importer | None = None) -> None:
        """Carry all imports out."""
        importer = importer or self.importer()
        for _step in range(STEPS_MAX):
            rows = self.rows()
            if all(row.state in (ImportState.WHOLE, ImportState.PLACING) for row in rows):
                return
            importer._not_before.clear()
            importer.step()
            errors = [row.error for row in self.rows() if row.error]
            assert not errors, errors
        raise AssertionError("the imports do not end")

    def all(self, prefix: str = "set", path: str = "data") -> int:
        """Import a prefix. Returns the inode of its directory."""
        top = self.begin(prefix, path)
        self.run()
        return top

    # What is there.

    def rows(self) -> list[ImportRow]:
        with self.database.reading() as session:
            return import_rows.every(session)

    def row(self) -> ImportRow:
        [row] = self.rows()
        return row

    def tree(self, ino: int, above: str = "") -> dict[str, Attr]:
        """Return what is below a directory, by path."""
        found: dict[str, Attr] = {}
        cookie = 0
        while entries := self.site.namespace.readdir(ino, cookie, 1000):
            for entry in entries:
                path = f"{above}{entry.name.decode()}"
                found[path] = entry.attr
                if entry.attr.kind == InodeKind.DIRECTORY:
                    found |= self.tree(entry.attr.ino, f"{path}/")
            cookie = entries[-1].cookie
        return found

    def files(self, ino: int) -> dict[str, int]:
        """Return the sizes of the files below a directory, by path."""
        return {
            path: attr.size
            for path, attr in self.tree(ino).items()
            if attr.kind == InodeKind.REGULAR
        }

    def writes(self) -> list[Any]:
        """Return the requests that reached the bucket of the other program, but for reads."""
        return [
            request
            for request in self.site.proxy.operations()
            if request.bucket == self.bucket and request.method not in READS
        ]
