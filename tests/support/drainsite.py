"""Gateway without NFS: namespace, data files, a bucket behind the proxy, and the drain."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from botocore.exceptions import ResponseStreamingError

from gateway.common import clock
from gateway.common.errors import NotFound
from gateway.common.types import ROOT_CRED, Attr, Sealed, SetAttr
from gateway.db.models import RESERVED_NAME, ROOT_INO
from gateway.objectstore.request import Conditions
from gateway.objectstore.s3 import S3Store
from tests.support.drain import Drain
from tests.support.namespace import Namespace
from tests.support.owner import OWNER, own
from tests.support.processes import process
from tests.support.s3proxy import DEADLINE_SECONDS, S3Proxy
from tests.support.s3server import (
    MotoServer,
    Server,
    WeedServer,
    credentials,
)
from tests.support.volumes import forget_reserved, make_volume, query, write_settings

MIB = 1024 * 1024
PART_BYTES = 5 * MIB
PREFIX = "team/run"
REPLACED_SECONDS = 10.0

MTIME_NS = 1_700_000_000_123_456_789


class Site:
    """One gateway and one bucket.

    Args:
        bucket: which is created here.
        proxy: proxy in front of the server.
        database_url: empty for SQLite in the data directory.
    """

    def __init__(
        self,
        directory: Path,
        server: Server,
        bucket: str,
        proxy: S3Proxy,
        database_url: str = "",
    ) -> None:
        self.server, self.bucket, self.proxy = server, bucket, proxy
        self.client = server.client()
        self.client.create_bucket(Bucket=bucket)
        values: dict[str, dict[str, Any]] = {
            "bucket": {
                "name": bucket,
                "prefix": PREFIX,
                "endpoint_url": proxy.url,
                # Asking the store would be requests that no test of the rest expects.
                "checksum": "md5",
                "connect_timeout_seconds": 2.0,
                "read_timeout_seconds": 15.0,
            },
            "drain": {
                "settle_seconds": 0.0,
                "workers": 2,
                "processes": 0,
                "part_bytes": PART_BYTES,
                "poll_seconds": 0.05,
                "retry_max_seconds": 0.3,
                "lease_seconds": 1.0,
            },
            "namespace": {"url": database_url},
        }
        self.values = values
        self.settings = write_settings(directory / "data", values)
        make_volume(self.settings)
        self.set_credentials(credentials())
        self.namespace = Namespace(self.settings)
        self.output = directory / "drain.log"
        self.own()

    def own(self) -> None:
        """Claim the bucket, so that no test of the rest waits for it."""
        heeds = isinstance(self.server, MotoServer | WeedServer)
        own(self.settings, Conditions.REPLACE if heeds else Conditions.NONE)
        self.proxy.forget()

    def delete_bucket(self) -> None:
        """Delete the bucket, which has no objects of files."""
        self.client.delete_object(Bucket=self.bucket, Key=f"{PREFIX}/{OWNER}")
        self.client.delete_bucket(Bucket=self.bucket)

    def close(self) -> None:
        self.namespace.close()
        self.client.close()

    def configure(self, section: str = "drain", /, **keys: Any) -> None:
        """Set keys of a section of the configuration for processes that start later."""
        self.values.setdefault(section, {}).update(keys)
        self.settings = write_settings(self.settings.data_dir, self.values)

    def set_credentials(self, text: str) -> None:
        """Replace the credentials file as a person does."""
        scratch = self.settings.credentials_file.with_suffix(".new")
        scratch.touch(0o600)
        scratch.write_text(text)
        scratch.replace(self.settings.credentials_file)

    # The work of clients.

    def directory(self, path: str) -> int:
        """Return the inode of a directory. Make the directory and its parents if missing."""
        at = ROOT_INO
        for name in [os.fsencode(part) for part in path.split("/") if part]:
            try:
                at = self.namespace.lookup(at, name).ino
            except NotFound:
                at = self.namespace.mkdir(ROOT_CRED, at, name, SetAttr(mode=0o755)).ino
        return at

    def split(self, path: str) -> tuple[int, bytes]:
        parent, _, name = path.rpartition("/")
        return self.directory(parent), os.fsencode(name)

    def attr(self, path: str) -> Attr:
        return self.namespace.lookup(*self.split(path))

    def write(self, path: str, data: bytes) -> int:
        """Make or rewrite a file as a client's open, write and close do. Returns its inode."""
        parent, name = self.split(path)
        try:
            attr = self.namespace.open_write(self.namespace.lookup(parent, name).ino)
        except NotFound:
            wanted = SetAttr(mode=0o640, uid=1000, gid=100)
            attr = self.namespace.create(ROOT_CRED, parent, name, wanted)
        self.put_data(attr, data)
        self.seal(attr.ino, data)
        return attr.ino

    def write_reserved(self, data: bytes) -> None:
        """Make a file at /.spillway, as clients could before the name was reserved."""
        forget_reserved(self.settings)
        ino = self.write("any other name", data)
        rename = "UPDATE dirent SET name = :name WHERE ino = :ino"
        query(self.settings, rename, name=RESERVED_NAME, ino=ino)

    def put_data(self, attr: Attr, data: bytes) -> None:
        self.namespace.files.path(attr.ino, attr.epoch).write_bytes(data)
        # Clients that set the mtime of an open file set that of its data file.
        self.namespace.files.set_mtime(attr.ino, attr.epoch, MTIME_NS)

    def seal(self, ino: int, data: bytes) -> None:
        self.namespace.seal(ino, Sealed(len(data), len(data), MTIME_NS, 1))

    @staticmethod
    def sealed_unchanged(data: bytes) -> Sealed:
        """Return the values with which a last close without a write seals."""
        return Sealed(len(data), len(data), MTIME_NS, 0)

    def rename(self, old: str, new: str) -> None:
        self.namespace.rename(ROOT_CRED, *self.split(old), *self.split(new))

    def link(self, old: str, new: str) -> None:
        self.namespace.link(ROOT_CRED, self.attr(old).ino, *self.split(new))

    def unlink(self, path: str) -> None:
        removed = self.namespace.remove(ROOT_CRED, *self.split(path))
        if removed.nlink == 0:
            self.namespace.reclaim(removed.ino, removed.epoch)

    # The state of the bucket and of the database.

    def objects(self) -> dict[str, bytes]:
        """Return all objects by key below the prefix. A leading ! marks a key outside of it."""
        objects = {}
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
            for entry in page.get("Contents", []):
                key = entry["Key"]
                if key.endswith(f"/{OWNER}"):
                    continue
                if (body := self._body(key)) is None:
                    continue  # a drain has deleted the object since it was listed
                below = key.startswith(PREFIX + "/")
                objects[key.removeprefix(PREFIX + "/") if below else "!" + key] = body
        return objects

    def _body(self, key: str) -> bytes | None:
        """Return the content of the object at a key, or None if there is no object.

        rclone replaces an object in place. If it has begun an answer before, the answer has the old
        length and its body ends early. Then the request is repeated, until a deadline.
        """
        deadline = time.monotonic() + REPLACED_SECONDS
        while True:
            try:
                answer = self.client.get_object(Bucket=self.bucket, Key=key)
                return bytes(answer["Body"].read())
            except self.client.exceptions.NoSuchKey:
                return None
            except ResponseStreamingError:
                if time.monotonic() > deadline:
                    raise

    def etags(self) -> dict[str, str]:
        """Return the ETag of every object, by key below the prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {
            entry["Key"].removeprefix(PREFIX + "/"): entry["ETag"].strip('"')
            for page in pages
            for entry in page.get("Contents", [])
            if not entry["Key"].endswith(f"/{OWNER}")
        }

    def metadata(self, path: str) -> dict[str, str]:
        answer = self.client.head_object(Bucket=self.bucket, Key=f"{PREFIX}/{path}")
        return {name.lower(): value for name, value in answer["Metadata"].items()}

    def multiparts(self) -> int:
        try:
            multipart_uploads = self.client.list_multipart_uploads(Bucket=self.bucket)
        except self.client.exceptions.NoSuchUpload:
            return 0  # rclone answers this before the first upload to a bucket
        return len(multipart_uploads.get("Uploads", []))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = self.namespace._database.connect()
        try:
            return list(connection.execute(sql).fetchall())
        finally:
            connection.close()

    def left(self) -> list[tuple[Any, ...]]:
        """Return some of the work that is left: dirty files, and rows that ask for work."""
        dirty = "inode WHERE kind = 1 AND content_version > drained_version"
        # An indeterminate write whose key was looked at waits until its drain has known it for long
        # enough.
        indeterminate = "indeterminate_write WHERE check_after_ns = 0"
        tables = (dirty, "upload", "tombstone", "rekey", indeterminate)
        return [
            (table, *row)
            for table in tables
            for row in self.rows(f"SELECT * FROM {table} LIMIT 10")
        ]

    def is_clean(self) -> bool:
        return not self.left()

    def uploads(self) -> Counter[str]:
        """Return how often each object was uploaded. Those that failed with 500 do not count:
        rclone answers so now and then, while it makes a directory for another upload.
        """
        return Counter(
            request.key for request in self.proxy.operations("PUT") if request.status != 500
        )

    def report(self) -> dict[str, Any]:
        """Return the content of drain.json, or an empty report if there is no such file."""
        try:
            document: dict[str, Any] = json.loads(
                (self.settings.run_dir / "drain.json").read_text()
            )
        except FileNotFoundError:
            return {}
        return document

    # The drain.

    def drain(self, cycles: int = 12) -> None:
        """Run passes in this process until one does nothing. Failed jobs are due at once."""
        self.rows(f"UPDATE retry SET next_ns = {clock.now_ns()} RETURNING 1")
        drain = Drain(self.settings)
        try:
            for _ in range(cycles):
                if drain.cycle() == 0:
                    return
            raise AssertionError(f"still busy after {cycles} passes")
        finally:
            drain.close()

    @contextmanager
    def draining(self, store: S3Store | None = None) -> Iterator[Drain]:
        """Run the drain's own loop on a thread of this process, with its own store if none is
        given."""
        drain = Drain(self.settings, store)
        thread = threading.Thread(target=drain.run)
        thread.start()
        try:
            yield drain
        finally:
            drain.report_stopped()
            drain.wake()
            thread.join(DEADLINE_SECONDS)
            drain.close()

    def process(self, name: str = "drain") -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Run the drain, or another process of the gateway, by itself."""
        return process(name, self.settings, self.output)

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """Kill a process with SIGKILL, and wait for its end."""
        process.send_signal(signal.SIGKILL)
        process.wait()
