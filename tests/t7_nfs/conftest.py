"""One client VM for the layer, and for each test a gateway and an S3 server behind a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.config.settings import NfsSettings
from gateway.nfs import ganesha_conf
from tests.support.gateway import Gateway, running
from tests.support.namespace import Namespace
from tests.support.vm.build import build_image
from tests.support.vm.client import ClientVm

RELEASE = ganesha_conf.ganesha_release(NfsSettings().ganesha)
OFFERED = ("4.0", "4.1", "4.2")[: 3 if RELEASE >= ganesha_conf.TELLS_OF_READ_PLUS else 2]
"""The versions of NFS that a gateway serves here by default."""
CACHE = Path(__file__).parents[2] / "build" / "vm"
MIB = 1024 * 1024


@pytest.fixture(scope="session")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientVm]:
    """Boot a client VM. Each test mounts and unmounts in it."""
    console = tmp_path_factory.mktemp("vm") / "console.log"
    with ClientVm.boot(build_image(CACHE), console_log=console) as booted:
        yield booted


MakeGateway = Callable[..., Gateway]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Keep what must outlive the gateway: a test names this fixture before ``make_gateway``."""
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def make_gateway(tmp_path: Path, vm: ClientVm) -> Iterator[MakeGateway]:
    """Start S3 server, proxy and gateway, and mount it. All of this is undone after the test."""
    with ExitStack() as stack:

        def make(
            prepare: Callable[[Namespace], None] | None = None, **values: dict[str, Any]
        ) -> Gateway:
            gateway = stack.enter_context(running(tmp_path, values, prepare))
            vm.mount(gateway.port)
            stack.callback(vm.umount)
            return gateway

        yield make
