"""Runs saves and loads as processes of their own, and kills them at chosen moments.

``python -m tests.frameworks.launcher HOST PORT NAME`` runs in a client VM. The import of a library
takes a minute there, so it imports once, and forks for each request of the host (a line of JSON).
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.frameworks import libraries

LOG = Path("/run/frameworks.log")
WATCH_SECONDS = 0.002
LOG_TAIL = 4000
RESULT_BYTES = 4096


def start(call: str, arguments: list[Any]) -> tuple[int, int]:
    """Start a call in a process group of its own. Returns its pid, and a pipe with its result."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        # Both do it: a kill of the group must not come before the group is there.
        with suppress(OSError):
            os.setpgid(pid, pid)
        os.close(writing)
        return pid, reading
    status = 1
    try:
        os.setpgid(0, 0)
        log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.write(writing, libraries.CALLS[call](*arguments).encode())
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def has_come(moment: dict[str, Any], group: int) -> bool:
    """Return whether a name is there, and the processes have written so many bytes."""
    directory, _, pattern = moment["name"].rpartition("/")
    try:
        is_there = any(fnmatch.fnmatch(path.name, pattern) for path in Path(directory).iterdir())
    except FileNotFoundError:
        is_there = False
    return is_there and (not moment["written"] or written_by(group) >= moment["written"])


def written_by(group: int) -> int:
    """Return the bytes that the processes of a group have handed to the kernel."""
    total = 0
    for directory in Path("/proc").glob("[0-9]*"):
        # It may end meanwhile.
        with suppress(OSError):
            if os.getpgid(int(directory.name)) == group:
                total += int((directory / "io").read_text().split("wchar: ")[1].split()[0])
    return total


def is_running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def sizes(root: Path) -> dict[str, int]:
    """Return the sizes of the files of a checkpoint, by paths in it. A single file has its own
    name."""
    if root.is_file():
        return {root.name: root.stat().st_size}
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.stat().st_size for path in files}


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Do a request: a call, its arguments, and the moment of its kill, if any."""
    moment = request["moment"]
    pid, reading = start(request["call"], request["arguments"])
    status = None
    while status is None:
        if moment is not None and has_come(moment, pid):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            moment = None
        done, code = os.waitpid(pid, os.WNOHANG if moment is not None else 0)
        if done:
            status = os.waitstatus_to_exitcode(code)
        else:
            time.sleep(WATCH_SECONDS)
    # The kernel writes back what a killed process had not, and closes its files, before it ends.
    while is_running(pid):
        time.sleep(WATCH_SECONDS)
    result = os.read(reading, RESULT_BYTES).decode()
    os.close(reading)
    log = LOG.read_text(errors="replace")[-LOG_TAIL:] if LOG.exists() else ""
    files = sizes(Path(request["arguments"][0]))
    return {"status": status, "result": result, "files": files, "log": log}


def main() -> None:
    host, port, name = sys.argv[1:]
    started = time.monotonic()
    for module in libraries.MODULES[name]:
        importlib.import_module(module)
    with socket.create_connection((host, int(port))) as link, link.makefile("rw") as lines:
        answer: dict[str, Any] = {"name": name, "seconds": time.monotonic() - started}
        while True:
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
            line = lines.readline()
            if not line:
                return
            answer = run(json.loads(line))


if __name__ == "__main__":
    main()
