"""The services of a gateway: each process by itself, under systemd, in place of ``spillway up``.

The services hold the data directory together. So no ``up``, no migration and no change without a
server runs beside one of them, and each lock ends with the process that has it. run/up.json names
them, as it names the children of ``up``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from gateway import atomic, clock, datadir, filelock, state
from gateway.errors import UserError
from gateway.proc import start_ticks
from gateway.settings import Settings

JOIN_SECONDS = 10.0
"""The time to wait for a command that changes names in place of the server."""
SUCCESS = "success"
"""What systemd calls the end of a service that was stopped (SERVICE_RESULT, systemd.exec(5))."""


def join(settings: Settings, name: str) -> None:
    """Make this process, and the program that it becomes, a service of the gateway.

    Parameters: name of the process, as in ``status``. Raises: InUse while ``up`` or another command
    has the data directory; UserError when this service runs already.
    """
    datadir.share(settings, JOIN_SECONDS)
    _be_the_only_one(settings, name)

    def note(entries: dict[str, Any]) -> None:
        before = entries.get(name, {})
        failed = before.get("phase") == "waiting"
        entries[name] = {
            "pid": os.getpid(),
            "start_ticks": start_ticks(os.getpid()),
            "phase": "starting",
            "restarts": before.get("restarts", 0) + 1 if failed else 0,
            "started_ns": clock.now_ns(),
            "last_exit": before.get("last_exit", "") if failed else "",
        }

    _change(settings, note)


def ready(settings: Settings, name: str) -> None:
    """Note that a service serves."""

    def note(entries: dict[str, Any]) -> None:
        if name in entries:
            entries[name]["phase"] = "ready"

    _change(settings, note)


def ended(settings: Settings, name: str, result: Mapping[str, str]) -> None:
    """Note how a service ended, after its end.

    Parameters: result, the environment with SERVICE_RESULT, EXIT_CODE and EXIT_STATUS
    (systemd.exec(5)).
    """
    how = result.get("SERVICE_RESULT", SUCCESS)
    status = result.get("EXIT_STATUS", "?")
    died = f"exit code {status}" if result.get("EXIT_CODE") == "exited" else f"killed by {status}"

    def note(entries: dict[str, Any]) -> None:
        if name in entries:
            entries[name]["phase"] = "stopped" if how == SUCCESS else "waiting"
            entries[name]["last_exit"] = "" if how == SUCCESS else f"{died} ({how})"

    _change(settings, note)


def _be_the_only_one(settings: Settings, name: str) -> None:
    """Take the lock of a kind of service, for the life of this process. Raises UserError."""
    fd = filelock.open_lock(settings.run_dir / f"service-{name}.lock")
    os.set_inheritable(fd, True)
    if not filelock.try_lock(fd):
        raise UserError(
            f"this service of {settings.data_dir} runs already: systemctl status 'spillway-*'"
        )


def _change(settings: Settings, note: Callable[[dict[str, Any]], None]) -> None:
    """Change the entries of the services in up.json. Those of an ``up`` that ended are dropped."""
    with filelock.held(filelock.open_lock(settings.run_dir / "services.lock")):
        found = state.read(settings, state.UP)
        entries = state.children(found) if state.is_of_services(found) else {}
        note(entries)
        if not entries:
            return  # the file may be that of an ``up``
        facts = {"services": True, "config": str(settings.source), "children": entries}
        text = json.dumps(facts, indent=2)
        atomic.replace(settings.run_dir / state.UP, text, 0o644, durable=False)
