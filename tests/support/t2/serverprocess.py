"""Namespace in a process of its own, as in the NFS server: it can be killed, or end itself.

``python -m tests.support.t2.serverprocess <data directory> <database URL> [<constant>=<JSON> …]``
reads changes (``rename a b``, ``save a bytes``) and makes them. It prints ``ok`` or the name of the
error for each. The constants are those of ``gateway.db.postgres``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from gateway.common.errors import NotFound, SpillwayError, TryAgain
from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.config.settings import Settings
from gateway.db import postgres
from gateway.namespace import identity
from tests.support.namespace import Namespace
from tests.support.volumes import make_settings
from tests.support.waiting import until

ROOT = 2


def save(namespace: Namespace, name: bytes, text: bytes) -> None:
    """Write a file in place, put it on stable storage and close it."""
    try:
        attr = namespace.open_write(namespace.lookup(ROOT, name).ino)
    except NotFound:
        attr = namespace.create(ROOT_CRED, ROOT, name, SetAttr())
    path = namespace.files.path(attr.ino, attr.epoch)
    path.write_bytes(text)
    stat = namespace.files.sync(attr.ino, attr.epoch)
    assert stat is not None
    data = Sealed(stat.st_size, stat.st_blocks * 512, stat.st_mtime_ns, 1)
    namespace.seal(attr.ino, data)


def evict(namespace: Namespace, name: bytes) -> None:
    """Evict a clean file of version 1, as the server does."""
    attr = namespace.lookup(ROOT, name)
    namespace.evict(attr.ino, 1)
    namespace.files.remove(attr.ino, attr.epoch)


def move_mark(namespace: Namespace) -> None:
    """Move the mark as after a minute."""
    identity.MARK_SECONDS = 0.0
    namespace.keep_mark_now()


VERBS: dict[str, Callable[..., object]] = {
    "create": lambda ns, name: ns.create(ROOT_CRED, ROOT, name, SetAttr()),
    "rename": lambda ns, old, new: ns.rename(ROOT_CRED, ROOT, old, ROOT, new),
    "lookup": lambda ns, name: ns.lookup(ROOT, name),
    "save": save,
    "evict": evict,
    "mark": move_mark,
    "stop": lambda ns: ns.close(),
}


class ServerProcess:
    """The process; a context manager that is entered when the namespace is open.

    Args:
        constants: constants in seconds, by name.
    """

    def __init__(self, settings: Settings, **constants: object) -> None:
        where = str(settings.data_dir), settings.database_url
        pairs = (f"{name}={json.dumps(value)}" for name, value in constants.items())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.t2.serverprocess", *where, *pairs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    def ask(self, *words: str) -> str:
        """Make a change. Returns the answer, or an empty text if the process ended instead."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def persist(self, *words: str) -> str:
        """Make a change as an NFS client does: repeat it while the answer is TryAgain."""

        def answered() -> list[str]:
            answer = self.ask(*words)
            return [] if answer == TryAgain.__name__ else [answer]

        return until(answered, "an answer", 60.0)[0]

    def line(self) -> str:
        """Return the next line that the process says on stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def ended(self) -> tuple[int, str]:
        """Wait until the process ends. Returns its exit status and its stderr."""
        assert self.process.stderr is not None
        said = self.process.stderr.read()
        return self.process.wait(30), said

    def __enter__(self) -> Self:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "open\n":
            raise AssertionError(self.ended()[1])
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def main() -> None:
    directory, url, *constants = sys.argv[1:]
    for constant in constants:
        name, value = constant.split("=")
        assert hasattr(postgres, name)
        setattr(postgres, name, json.loads(value))
    namespace = Namespace(make_settings(Path(directory), {"namespace": {"url": url}}))
    print("open", flush=True)
    for line in sys.stdin:
        verb, *names = line.split()
        try:
            VERBS[verb](namespace, *(name.encode() for name in names))
            print("ok", flush=True)
        except SpillwayError as exc:
            print(type(exc).__name__, flush=True)


if __name__ == "__main__":
    main()
