"""Runner of programs inside a client VM that has a gateway mounted, for tests and the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.vm.client import ClientVm, Command

PYTHON = "/usr/bin/python3"
GUEST = Path(__file__).with_name("guest")
MOUNT = Path("/mnt/ckpt")


def start_program(
    vm: ClientVm, name: str, *arguments: str | Path, timeout_seconds: float = 240.0
) -> Command:
    """Start a program of ``guest/`` in the VM.

    The text of the program is sent, because the VM may not see our checkout.
    """
    argv = [PYTHON, "-", *map(str, arguments)]
    return vm.start(argv, stdin=(GUEST / name).read_text(), timeout_seconds=timeout_seconds)


def start_save(
    vm: ClientVm,
    directory: str,
    *,
    ranks: int = 8,
    mib: int = 16,
    shards: int = 1,
    seed: int = 0,
    timeout_seconds: float = 240.0,
) -> Command:
    """Begin to save a checkpoint below the mount; ``saved`` waits for the result."""
    options = {"ranks": ranks, "mib": mib, "shards": shards, "seed": seed}
    flags = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    return start_program(
        vm, "checkpoint.py", "save", MOUNT / directory, *flags, timeout_seconds=timeout_seconds
    )


def saved(command: Command) -> tuple[dict[str, str], float]:
    """Wait for a save. Returns the sha256 by file name, and the seconds that it took."""
    result: dict[str, Any] = json.loads(command.wait().stdout)
    return result["files"], result["seconds"]


def save(vm: ClientVm, directory: str, **options: Any) -> tuple[dict[str, str], float]:
    """Save a checkpoint below the mount. Returns the same as ``saved``."""
    return saved(start_save(vm, directory, **options))


def read_back(vm: ClientVm, directory: str) -> dict[str, str]:
    """Return the sha256 by file name, read from the server and not from the client's cache."""
    vm.drop_caches()
    done = start_program(vm, "checkpoint.py", "read", MOUNT / directory).wait()
    files: dict[str, str] = json.loads(done.stdout)["files"]
    return files
