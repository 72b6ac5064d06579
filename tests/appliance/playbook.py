"""Runs the playbooks against the machine, as an operator does."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.appliance.machine import Machine

ROLES = Path(__file__).parents[2] / "ansible"


class Recap(NamedTuple):
    """What a run did: the counts of its last line, its exit status, and all it said."""

    changed: int
    failed: int
    exit_status: int
    output: str


def succeeded(done: Recap) -> None:
    """Require that a run changed what it had to. Raises AssertionError with what it said."""
    assert done.exit_status == 0 and done.failed == 0, done.output


class Operator:
    """Runs playbooks.

    Args:
        ansible: the directory of its programs.
        directory: for the inventory.
        values: the variables of the gateway.
    """

    def __init__(
        self, ansible: Path, directory: Path, machine: Machine, values: Mapping[str, Any]
    ) -> None:
        self._ansible = ansible
        self._inventory = directory / "inventory.json"
        self._machine = machine
        self.values = dict(values)

    def play(self, playbook: str, *options: str, **more: Any) -> Recap:
        """Run a playbook.

        Args:
            options: options of ansible-playbook.
            more: variables of this run.
        """
        host = {
            "ansible_host": "127.0.0.1",
            "ansible_port": self._machine.ports[22],
            "ansible_user": "root",
            "ansible_ssh_common_args": " ".join(self._machine.ssh_options()),
            **self.values,
            **more,
        }
        self._inventory.write_text(json.dumps({"gateways": {"hosts": {"appliance": host}}}))
        done = subprocess.run(
            [self._ansible / "ansible-playbook", "-i", self._inventory, playbook, *options],
            cwd=ROLES,
            env={
                **os.environ, "ANSIBLE_HOME": str(self._inventory.parent / "home"),
                "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_CONFIG": str(ROLES / "ansible.cfg"),
                "ANSIBLE_TIMEOUT": "60",
            },
            capture_output=True,
            text=True,
        )  # fmt: skip
        counts = dict(re.findall(r"(\w+)=(\d+)", done.stdout.rpartition("PLAY RECAP")[2]))
        changed, failed = (int(counts.get(name, -1)) for name in ("changed", "failed"))
        return Recap(changed, failed, done.returncode, done.stdout + done.stderr)
