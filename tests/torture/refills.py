"""The clients of the cold torture: they save checkpoints and meanwhile read older ones."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from tests.support.client import MOUNT, start_program
from tests.support.gateway import Gateway
from tests.support.s3server import die_with_parent
from tests.support.vm.build import build_image
from tests.support.vm.client import ClientVm, Command
from tests.torture.run import NFSLOAD

IMAGES = Path(__file__).parents[2] / "build" / "vm"
MIB = 1 << 20
TOP = "run"
SAVE_MIB = 24
SHARDS = 4
PAUSE_SECONDS = 0.5
"""The pause of the load generator after each save. It writes faster than the drain sends: without
pauses the writers would be slowed, as they should be."""
LIMIT_SECONDS = 3600.0


class Work(NamedTuple):
    """What a client does.

    Args:
        seed: seed of its content and choices.
        saves: the number of checkpoints of SAVE_MIB.
        readers: the number of readers at the same time.
    """

    seed: int
    saves: int
    readers: int


class Report(NamedTuple):
    reads: int
    read_bytes: int
    wrong: Sequence[str]
    """The errors and wrong bytes of reads."""
    longest_write_seconds: float
    longest_read_seconds: float


class Refill(Protocol):
    """A client, as a context manager that ends it."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def start(self, gateway: Gateway, work: Work) -> None:
        """Begin to work on the export of a gateway."""

    @property
    def done(self) -> bool:
        """Whether all is saved, or the client has failed."""

    def report(self) -> Report:
        """Wait for the end and leave the gateway. Raises an error if the client failed."""


class VmRefill:
    """The NFS client of a kernel, in a virtual machine.

    Args:
        directory: directory of its log.
    """

    def __init__(self, directory: Path) -> None:
        self._vm = ClientVm.boot(build_image(IMAGES), console_log=directory / "console.log")
        self._program: Command | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._vm.close()

    def start(self, gateway: Gateway, work: Work) -> None:
        """Mount the export, and start the program."""
        self._vm.mount(gateway.port)
        self._program = start_program(
            *(self._vm, "refill.py", MOUNT / TOP, "--mib", str(SAVE_MIB)),
            *("--seed", str(work.seed % 1000), "--total-mib", str(work.saves * SAVE_MIB)),
            *("--readers", str(work.readers)),
            timeout_seconds=LIMIT_SECONDS,
        )

    @property
    def done(self) -> bool:
        """Whether the program has ended."""
        assert self._program is not None
        return self._program.done

    def report(self) -> Report:
        """Wait for the program, and unmount. Raises ClientError if it failed."""
        assert self._program is not None
        said = json.loads(self._program.wait().stdout)
        self._vm.umount()
        return Report(**{name: said[name] for name in Report._fields})


class LoadRefill:
    """The load generator: a connection for the saves, and one for each reader."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def start(self, gateway: Gateway, work: Work) -> None:
        """Start the program."""
        export = gateway.settings.nfs.export
        self._process = subprocess.Popen(
            [
                *(NFSLOAD, "127.0.0.1", str(gateway.port), export, "refill", "--dir", TOP),
                *("--connections", str(1 + work.readers), "--count", str(work.saves)),
                *("--file", str(SAVE_MIB * MIB // SHARDS), "--pause", str(PAUSE_SECONDS)),
                *("--seed", str(work.seed)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )

    @property
    def done(self) -> bool:
        """Whether the program has ended."""
        assert self._process is not None
        return self._process.poll() is not None

    def report(self) -> Report:
        """Wait for the program. Raises AssertionError if a save or an open failed."""
        assert self._process is not None
        printed, said = self._process.communicate(timeout=LIMIT_SECONDS)
        # Status 1 means wrong bytes, which the report has.
        if self._process.returncode not in (0, 1):
            raise AssertionError(f"the client ended with {self._process.returncode}: {said}")
        document = json.loads(printed)
        return Report(
            reads=document["ops"],
            read_bytes=document["bytes"],
            wrong=[document["first_error"]] if document["errors"] else [],
            longest_write_seconds=document["longest_write_ms"] / 1000,
            longest_read_seconds=document["max_ms"] / 1000,
        )
