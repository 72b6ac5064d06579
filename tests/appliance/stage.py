"""A bare machine with two empty disks, the bucket's server, and an operator with the roles."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from package.base import Base
from tests.appliance.machine import HOST, Machine, bare
from tests.appliance.packages import PREVIOUS
from tests.appliance.playbook import Operator
from tests.appliance.saves import BUCKET, Saves
from tests.appliance.steps import timed
from tests.appliance.variables import variables
from tests.support.s3server import RcloneServer

DISK_BYTES = 1024**3


class Stage(ExitStack):
    """A stage is a context manager: it boots the machine, and ends what was entered into it.

    Args:
        base: the machine.
        packages: by version, of which the previous one is installed first.
        ansible: ansible with its programs.
        directory: a new one.
        console: the file for the machine's.
    """

    def __init__(
        self, base: Base, packages: dict[str, Path], ansible: Path, directory: Path, console: Path
    ) -> None:
        super().__init__()
        directory.mkdir()
        self.directory = directory
        self.packages = packages
        disks = [directory / f"disk{number}" for number in range(2)]
        for disk in disks:
            with disk.open("wb") as file:
                file.truncate(DISK_BYTES)
        server = self.enter_context(RcloneServer(directory / "s3"))
        server.client().create_bucket(Bucket=BUCKET)
        self.machine = Machine(bare(base, disks), base.key, console)
        values = variables(f"http://{HOST}:{server.port}", packages[PREVIOUS])
        self.operator = Operator(ansible.absolute() / "bin", directory, self.machine, values)
        self.saves = Saves(self.machine, server)
        timed("boot", lambda: self.enter_context(self.machine))
