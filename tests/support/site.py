"""Whole gateway, the S3 server that has its bucket, and a proxy between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gateway.config import loader
from tests.support.gateway import Gateway, Values
from tests.support.namespace import Namespace
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer

BUCKET = "checkpoints"


class Site(NamedTuple):
    """A running gateway, and the bucket behind it."""

    gateway: Gateway
    server: RcloneServer
    proxy: S3Proxy

    def stored(self, path: str) -> Path:
        """Return where the S3 server keeps an object."""
        return self.server.directory / BUCKET / path

    def objects(self) -> dict[str, bytes]:
        """Return the bucket's objects, without manifests, from the disk of the S3 server."""
        return {
            key: body
            for key, body in self.server.files(BUCKET).items()
            if not key.startswith(".spillway/checkpoints/")
        }


@contextmanager
def running(
    directory: Path,
    values: Values | None = None,
    prepare: Callable[[Namespace], None] | None = None,
) -> Iterator[Site]:
    """Run S3 server, proxy and gateway.

    Args:
        directory: directory of all their files.
        values: configuration by section and key.
        prepare: called with the namespace before the gateway starts.
    """
    with RcloneServer(directory / "s3") as server, S3Proxy(server.port) as proxy:
        server.client().create_bucket(Bucket=BUCKET)
        gateway = Gateway(
            directory / "gateway",
            bucket=BUCKET,
            endpoint_url=proxy.url,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            values=values,
            say=print,  # shown by pytest when the test fails
        )
        if prepare is not None:
            namespace = Namespace(loader.load(gateway.config, {}))
            prepare(namespace)
            namespace.close()
        with gateway:
            yield Site(gateway, server, proxy)


def flip(path: Path, offset: int) -> None:
    """Flip a byte of an object. The time stays, of which rclone makes the ETag: only the digest can
    tell."""
    found = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        [byte] = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
