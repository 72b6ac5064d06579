"""One client VM, one gateway and one watch for all saves through it. Saves that are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks import lab, savings
from tests.frameworks.lab import Launcher, Watch
from tests.frameworks.recorder import Recording
from tests.frameworks.savings import Record, Saving
from tests.support.gateway import Gateway, running
from tests.support.vm.build import build_image
from tests.support.vm.client import ClientVm

CACHE = Path(__file__).parents[2] / "build" / "vm"
MEMORY_MIB = 6144
PROCESSOR = "max"
"""jaxlib needs AVX."""


@pytest.fixture(scope="session")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientVm]:
    assert lab.PYTHON.exists(), "run it with make frameworks, which installs the libraries"
    console = tmp_path_factory.mktemp("vm") / "console.log"
    image = build_image(CACHE)
    with ClientVm.boot(
        image, console_log=console, memory_mib=MEMORY_MIB, processor=PROCESSOR
    ) as booted:
        yield booted


@pytest.fixture(scope="session")
def launchers(vm: ClientVm, request: pytest.FixtureRequest) -> Iterator[dict[str, Launcher]]:
    """Start the launchers of the chosen tests, by name. They import at the same time."""
    items: list[Any] = request.session.items
    cases = (item.callspec.params.get("case") for item in items if hasattr(item, "callspec"))
    names = dict.fromkeys(case.launcher for case in cases if case is not None)
    made = {name: Launcher(vm, name) for name in names}
    yield made
    for launcher in made.values():
        launcher.close()


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory, vm: ClientVm) -> Iterator[Gateway]:
    with running(tmp_path_factory.mktemp("gateway")) as made:
        vm.mount(made.port)
        yield made
        vm.umount()


@pytest.fixture(scope="session")
def watch(gateway: Gateway) -> Iterator[Watch]:
    with Watch(gateway.data_dir / "namespace.db") as made:
        yield made


Restore = Callable[[str], Path]


@pytest.fixture
def restore(gateway: Gateway, tmp_path: Path) -> Restore:
    """Return a function that copies a checkpoint from the bucket's objects to a directory."""

    def copy(path: str) -> Path:
        for key, body in gateway.objects().items():
            if key == path or key.startswith(f"{path}/"):
                to = tmp_path / key
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(body)
        return tmp_path / path

    return copy


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Return a function that records two saves, once in a session."""
    known: dict[str, Recording] = {}
    assert lab.PYTHON.exists(), "run it with make frameworks, which installs the libraries"

    def once(saving: Saving) -> Recording:
        if saving.call not in known:
            directory = tmp_path_factory.mktemp("recorded")
            known[saving.call] = savings.recorded(saving, directory / "root")
        return known[saving.call]

    return once
