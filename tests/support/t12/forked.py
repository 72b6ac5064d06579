"""Processes of a gateway, forked from one that has imported everything.

The start of a process is a second or two of processor time, nearly all of it imports. A round of
loss starts some twenty.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.support.s3server import die_with_parent

MODULES = (
    *(f"gateway.processes.{name}" for name in ("cache", "checkpoints", "drain", "recovery")),
    *("gateway.cli.main", "gateway.drain.worker", "gateway.recovery.restore"),
    *("gateway.objectstore.ownership", "psycopg", "tests.support.t12.losing"),
)


class Nursery:
    """The process that forks; a context manager. What it forked ends with it.

    Args:
        output: file of its own output.
    """

    def __init__(self, output: Path) -> None:
        self._output = output

    def __enter__(self) -> Self:
        with self._output.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                preexec_fn=die_with_parent,
            )
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()

    def start(self, function: Callable[..., object], output: Path, *arguments: Any) -> int:
        """Fork a process. Returns its id.

        Args:
            function: of a module, which the process calls.
            output: file to which its output is appended.
            arguments: those of the function, which JSON can express.
        """
        name = [function.__module__, function.__qualname__]
        return self._ask({"call": name, "output": str(output), "arguments": arguments})

    def wait(self, pid: int) -> int:
        """Wait for the end of a process.

        Returns:
            Its exit status, or the negative number of the signal that ended it.
        """
        return self._ask({"wait": pid})

    def has_ended(self, pid: int) -> bool:
        """Return whether a process that was not waited for has ended."""
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "Z"

    def _ask(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._output.read_text()
        return int(answer)


def process(name: str, config: str) -> object:
    """Be a process of the gateway. Returns its exit status."""
    sys.argv = [f"gateway.processes.{name}", "--config", config]
    module = importlib.import_module(f"gateway.processes.{name}")
    return module.main()


def command(failpoint: str, *arguments: str) -> object:
    """Be the command ``spillway``. Returns its exit status."""
    from gateway.cli import main
    from gateway.common import failpoints

    failpoints.arm(failpoint)
    return main.main(arguments)


def _serve() -> None:
    # The models of botocore are read once.
    import botocore.session

    botocore.session.create_loader = cache(botocore.session.create_loader)
    for name in MODULES:
        importlib.import_module(name)
    botocore.session.get_session().get_service_model("s3")
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _pid, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        elif not (answer := os.fork()):
            _be(request["call"], request["output"], request["arguments"])
        print(answer, flush=True)


def _be(call: Sequence[str], output: str, arguments: Sequence[Any]) -> None:
    """Be a process that was forked."""
    status = 1
    try:
        die_with_parent()
        with Path(output).open("ab") as file, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        function = getattr(importlib.import_module(call[0]), call[1])
        status = int(function(*arguments) or 0)
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 1
        if isinstance(exc.code, str):
            print(exc.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
