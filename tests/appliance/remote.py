"""Runs commands of a gateway on its machine, and copies its data to this one."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from gateway.config import loader
from gateway.config.settings import Settings
from tests.appliance.machine import Machine

DATA_DIR = "/var/lib/spillway"


class RemoteGateway:
    """The gateway of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def spillway(
        self, *arguments: str, check: bool = True, timeout_seconds: float = 600.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a ``spillway`` command to its end."""
        command = f"runuser -u spillway -- spillway {shlex.join(arguments)}"
        return self._machine.ssh(command, check=check, seconds=timeout_seconds + 120.0)

    def status(self) -> dict[str, Any]:
        """Return the report of ``spillway status --json``."""
        document: dict[str, Any] = json.loads(self.spillway("status", "--json", check=False).stdout)
        return document

    def copied(self, directory: Path) -> Settings:
        """Copy database and data files of the stopped gateway. Returns settings for the copy."""
        packed = directory / "data.tar"
        with packed.open("wb") as file:
            command = self._machine.ssh_command(f"cd {DATA_DIR} && tar -cf - files namespace.db*")
            subprocess.run(command, stdout=file, check=True)
        data_dir = directory / "copy"
        data_dir.mkdir()
        subprocess.run(["tar", "-C", data_dir, "-xf", packed, "--no-same-owner"], check=True)
        values = {"gateway": {"data_dir": str(data_dir)}, "bucket": {"name": "copy"}}
        return loader.from_mapping(values, {})
