"""One client VM for the layer, and for each test a gateway and an S3 server behind a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway import config
from tests.support.gateway import Gateway
from tests.support.namespace import Namespace
from tests.support.s3proxy import S3Proxy
from tests.support.s3server import ACCESS_KEY, SECRET_KEY, RcloneServer
from tests.support.vm.build import build_image
from tests.support.vm.client import ClientVm

CACHE = Path(__file__).parents[2] / "build" / "vm"
BUCKET = "checkpoints"
MIB = 1024 * 1024


class Site(NamedTuple):
    """A gateway that is mounted in the client VM, and the bucket behind it."""

    gateway: Gateway
    server: RcloneServer
    proxy: S3Proxy

    def objects(self) -> dict[str, bytes]:
        """Return the bucket's objects from the disk of the S3 server."""
        root = self.server.directory / BUCKET
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="session")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientVm]:
    """Boot a client VM. Each test mounts and unmounts in it."""
    console = tmp_path_factory.mktemp("vm") / "console.log"
    with ClientVm.boot(build_image(CACHE), console_log=console) as booted:
        yield booted


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(tmp_path: Path, vm: ClientVm) -> Iterator[MakeSite]:
    """Start S3 server, proxy and gateway, and mount it. All of this is undone after the test."""
    with ExitStack() as stack:

        def make(
            prepare: Callable[[Namespace], None] | None = None, **values: dict[str, Any]
        ) -> Site:
            server = stack.enter_context(RcloneServer(tmp_path / "s3"))
            server.client().create_bucket(Bucket=BUCKET)
            proxy = stack.enter_context(S3Proxy(server.port))
            gateway = Gateway(
                tmp_path / "gateway",
                bucket=BUCKET,
                endpoint_url=proxy.url,
                access_key_id=ACCESS_KEY,
                secret_access_key=SECRET_KEY,
                values=values,
                say=print,  # shown by pytest when the test fails
            )
            if prepare is not None:
                namespace = Namespace(config.load(gateway.config, {}))
                prepare(namespace)
                namespace.close()
            stack.enter_context(gateway)
            vm.mount(gateway.port)
            stack.callback(vm.umount)
            return Site(gateway, server, proxy)

        yield make
