"""A server of names with a job, which are killed together: the NFS server's part in a round of
loss, without NFS.

The namespace is opened as the NFS server opens it, and answers on the control socket. The job saves
checkpoints, rotates them and changes files of old ones. It logs each operation and its answer in a
file outside of the gateway.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from gateway.catalogue.store import rules_of
from gateway.common import clock
from gateway.common.errors import NotFound, SpillwayError
from gateway.common.types import ROOT_CRED, Sealed, SetAttr
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.db.models import ROOT_INO
from gateway.lifecycle.promotion import members
from gateway.rpc import frames
from gateway.rpc.frames import Op, RpcRequest
from gateway.service import deletion, pins
from tests.support.direct import Direct, _decoded, reclaim
from tests.support.fake_control_socket import FakeControlSocket, Told, encoded
from tests.support.namespace import Namespace
from tests.support.t12 import saves
from tests.support.t12.saves import Operation

MTIME_NS = 1_700_000_000_000_000_000
PAUSE_SECONDS = 0.004
"""After each operation of the job, so that the bucket keeps up with some of them, and a fast disk
makes no round longer."""
KEPT_STEPS = 3
_OF_CACHE = (Op.WANTED, Op.PRESENT, Op.ARRIVED, Op.FAILED)


class _Opened(Direct):
    """Answers requests with a namespace that is open."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def close(self) -> None:
        """Delete the bytes of the files that lost their names."""
        reclaim(self._namespace)


class ServingSocket(FakeControlSocket):
    """The control socket of a namespace that is open in this process.

    Args:
        namespace: which is open.
        settings: of the gateway.
    """

    def __init__(self, namespace: Namespace, settings: Settings) -> None:
        super().__init__(namespace, settings.run_dir)
        self.direct = _Opened(namespace)
        self._one_at_a_time = threading.Lock()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while head := stream.read(frames._HEAD.size):
                _, _, op, length, _, number = frames._HEAD.unpack(head)
                body = stream.read(length - frames._HEAD.size)
                if op in _OF_CACHE:
                    ino, ino2, change, offset, size, *_ = frames._BODY.unpack_from(body)
                    answer = self._answer(Told(Op(op), ino, ino2, offset, size, change))
                    connection.sendall(encoded(op, number, *answer))
                    continue
                if not self._change(connection, number, _decoded(op, body)):
                    return

    def _change(self, connection: socket.socket, number: int, request: RpcRequest) -> bool:
        """Answer a request for a change. Returns whether it is known."""
        with self._one_at_a_time:
            [answer] = self.direct.run([request])
            if request.op is Op.REMOVE:
                self.direct.close()
        if answer.errno == errno.ENOTSUP:
            return False  # as if it were no server: it has neither exports nor clients
        connection.sendall(encoded(request.op, number, *answer[:4]))
        return True


class Job:
    """The job, and its log.

    Args:
        settings: of the gateway.
        namespace: which is open.
        log: which it continues.
        seed: of what it does.
    """

    def __init__(self, settings: Settings, namespace: Namespace, log: Path, seed: str) -> None:
        self._settings = settings
        self._namespace = namespace
        self._database = Database(settings.database_url)
        self._draw = random.Random(seed)
        self._open = _Opened(namespace)
        operations = saves.read(log) if log.exists() else []
        self._log = log.open("ab", buffering=0)
        self._number = max((one.number for one in operations), default=0)
        unsettled = operations.pop() if operations and operations[-1].was_done is None else None
        self._tree = saves.replayed(operations)
        self._pause = threading.Event()
        self._spoilt: set[str] = set()
        """What the job leaves alone: a deletion of it got no answer."""
        if unsettled is not None:
            self._settle(unsettled)

    def run(self) -> None:
        """Work until the process is killed."""
        if "run" not in self._tree.names:
            self._do("mkdir", "run")
        actions: list[tuple[Callable[[], None], int]] = [
            *((self._save, 8), (self._rotate, 4), (self._overwrite, 3), (self._link, 2)),
            *((self._describe, 3), (self._move, 2), (self._replace, 2), (self._keep, 1)),
            (self._discard, 1),
        ]
        while True:
            [(action, _weight)] = self._draw.choices(actions, [weight for _, weight in actions])
            action()

    # What it does.

    def _save(self) -> None:
        step = self._number + 1
        held = f"run/step-{step}.tmp"
        self._do("mkdir", held)
        for shard in range(self._draw.randint(1, 3)):
            self._write(f"{held}/__{shard}_0.distcp")
        self._write(f"{held}/.metadata")
        self._do("rename", held, held.removesuffix(".tmp"))
        if "run/latest.tmp" in self._tree.names:
            self._do("unlink", "run/latest.tmp")  # a kill left it
        self._do("symlink", "run/latest.tmp", f"step-{step}")
        self._do("rename", "run/latest.tmp", "run/newest")

    def _write(self, path: str) -> None:
        if path not in self._tree.names:
            self._do("create", path, self._draw.choice((20, 3000, 70_000)))
        self._do("write", path)

    def _steps(self) -> list[str]:
        return [
            path
            for path, node in self._tree.names.items()
            if node.entry.kind == "dir" and path != "run" and path not in self._spoilt
        ]

    def _file(self) -> str | None:
        files = [path for path in self._tree.files() if not self._is_spoilt(path)]
        return self._draw.choice(files) if files else None

    def _is_spoilt(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") for one in self._spoilt)

    def _rotate(self) -> None:
        steps = self._steps()
        if len(steps) <= KEPT_STEPS:
            return
        for path in reversed(self._tree.below(steps[0])):
            is_directory = self._tree.names[path].entry.kind == "dir"
            self._do("rmdir" if is_directory else "unlink", path)

    def _overwrite(self) -> None:
        if (path := self._file()) is not None:
            self._do("write", path)

    def _link(self) -> None:
        if (path := self._file()) is not None:
            self._do("link", path, f"run/link-{self._number + 1}")

    def _describe(self) -> None:
        if (path := self._file()) is None:
            return
        match self._draw.randrange(3):
            case 0:
                self._do("xattr", path, f"note {self._number}")
            case 1:
                self._do("chmod", path, self._draw.choice((0o600, 0o644, 0o755)))
            case _:
                self._do("chown", path, self._draw.randint(1, 9), self._draw.randint(1, 9))

    def _move(self) -> None:
        if steps := self._steps():
            self._do("rename", self._draw.choice(steps), f"run/kept-{self._number + 1}")

    def _replace(self) -> None:
        """Save a file beside another one, which it replaces."""
        if (path := self._file()) is not None:
            self._write(f"{path}.new")
            self._do("rename", f"{path}.new", path)

    def _keep(self) -> None:
        if steps := self._steps():
            path = self._draw.choice(steps)
            if self._draw.random() < 0.5:
                self._do("pin", path)
            else:
                self._do("promote", path, f"best-{self._number + 1}")

    def _discard(self) -> None:
        if steps := self._steps():
            self._do("trash", steps[0])

    # How it does it.

    def _do(self, name: str, *arguments: Any) -> None:
        self._number += 1
        asked = Operation(self._number, name, list(arguments), clock.now_ns(), None, 0, True)
        self._note(n=asked.number, op=[name, *arguments], ns=asked.begun_ns)
        ino, is_done = 0, True
        try:
            ino = getattr(self, f"_do_{name}")(*arguments) or 0
        except SpillwayError:
            # A person is refused, for instance while the catalogue does not know the checkpoint.
            if name not in ("pin", "promote", "trash"):
                raise
            is_done = False
        self._answered(asked._replace(ino=ino), is_done)
        self._pause.wait(PAUSE_SECONDS)

    def _answered(self, asked: Operation, is_done: bool, **more: Any) -> None:
        self._note(n=asked.number, done=is_done, ino=asked.ino, ns=clock.now_ns(), **more)
        if is_done:
            self._tree.apply(asked)

    def _note(self, **facts: Any) -> None:
        self._log.write(json.dumps(facts).encode() + b"\n")

    def _settle(self, asked: Operation) -> None:
        """Say whether an operation was done that got no answer."""
        path = asked.arguments[0]
        match asked.name:
            case "mkdir" | "create" | "symlink":
                is_done = self._has(path)
            case "link":
                is_done = self._has(asked.arguments[1])
            case "rename" | "unlink" | "rmdir":
                is_done = not self._has(path)
            case "write":
                is_done = True
            case "trash":
                is_done = not self._has(path)
                self._spoilt.add(path)
            case "xattr" | "chmod" | "chown":
                is_done = self._is_described(asked)
            case _:
                is_done = False
        ino = self._at(path).ino if asked.name in ("mkdir", "create", "symlink") and is_done else 0
        self._answered(asked._replace(ino=ino), is_done, acked=False)
        if asked.name == "write":
            self._do("write", path)

    def _is_described(self, asked: Operation) -> bool:
        attr = self._at(asked.arguments[0])
        match asked.name, asked.arguments[1:]:
            case "xattr", [value]:
                try:
                    found = self._namespace.getxattr(ROOT_CRED, attr.ino, b"user.note")
                except SpillwayError:
                    return False
                return bool(found == value.encode())
            case "chmod", [mode]:
                return bool(attr.mode == mode)
            case _, [uid, gid]:
                return (attr.uid, attr.gid) == (uid, gid)
        raise AssertionError(asked)

    def _has(self, path: str) -> bool:
        try:
            self._at(path)
        except NotFound:
            return False
        return True

    def _at(self, path: str) -> Any:
        attr = self._namespace.getattr(ROOT_INO)
        for name in path.split("/"):
            attr = self._namespace.lookup(attr.ino, name.encode())
        return attr

    def _split(self, path: str) -> tuple[int, bytes]:
        above, _slash, name = path.rpartition("/")
        return self._at(above).ino if above else ROOT_INO, name.encode()

    def _do_mkdir(self, path: str) -> int:
        made = self._namespace.mkdir(ROOT_CRED, *self._split(path), SetAttr(mode=0o755))
        return int(made.ino)

    def _do_create(self, path: str, _size: int) -> int:
        wanted = SetAttr(mode=0o640, uid=1000, gid=100)
        return self._namespace.create(ROOT_CRED, *self._split(path), wanted).ino

    def _do_write(self, path: str) -> None:
        attr = self._namespace.open_write(self._at(path).ino)
        data = saves.content(self._number, self._tree.names[path].size)
        file = self._namespace.files.path(attr.ino, attr.epoch)
        mtime_ns = MTIME_NS + self._number
        with file.open("r+b" if file.exists() else "wb") as to:
            to.write(data)
            to.flush()
            os.fdatasync(to.fileno())
        self._namespace.files.set_mtime(attr.ino, attr.epoch, mtime_ns)
        self._namespace.seal(attr.ino, Sealed(len(data), len(data), mtime_ns, 1))

    def _do_symlink(self, path: str, target: str) -> int:
        parent, name = self._split(path)
        wanted = SetAttr(mode=0o777)
        return int(self._namespace.symlink(ROOT_CRED, parent, name, target.encode(), wanted).ino)

    def _do_link(self, old: str, new: str) -> None:
        self._namespace.link(ROOT_CRED, self._at(old).ino, *self._split(new))

    def _do_rename(self, old: str, new: str) -> None:
        _attr, replaced = self._namespace.rename(ROOT_CRED, *self._split(old), *self._split(new))
        if replaced is not None and replaced.nlink == 0:
            self._namespace.reclaim(replaced.ino, replaced.epoch)

    def _do_unlink(self, path: str) -> None:
        removed = self._namespace.remove(ROOT_CRED, *self._split(path))
        if removed.nlink == 0:
            self._namespace.reclaim(removed.ino, removed.epoch)

    def _do_rmdir(self, path: str) -> None:
        self._namespace.remove(ROOT_CRED, *self._split(path))

    def _do_xattr(self, path: str, value: str) -> None:
        self._namespace.setxattr(ROOT_CRED, self._at(path).ino, b"user.note", value.encode())

    def _do_chmod(self, path: str, mode: int) -> None:
        self._namespace.setattr(self._at(path).ino, SetAttr(mode=mode))

    def _do_chown(self, path: str, uid: int, gid: int) -> None:
        self._namespace.setattr(self._at(path).ino, SetAttr(uid=uid, gid=gid))

    def _do_pin(self, path: str) -> None:
        with self._database.writing() as session:
            pins.pin(session, self._at(path), path, "", "a person")

    def _do_promote(self, path: str, name: str) -> None:
        with self._database.writing() as session:
            seen = members.look(session, self._at(path).ino, rules_of(self._settings))
            assert seen is not None
            prefix = self._settings.bucket.prefix
            members.record(session, prefix, name, path.encode(), seen, "", "a person")

    def _do_trash(self, path: str) -> None:
        deletion.delete(
            *(self._settings, self._database, self._at(path).ino),
            author="a person",
            reason="",
            insists=True,
            open_control=lambda: closing(self._open),
        )


def serve(config: str, log: str, seed: str) -> None:
    """Be the server and the job, until the process is killed."""
    settings = loader.load(Path(config))
    namespace = Namespace(settings)
    with ServingSocket(namespace, settings):
        Job(settings, namespace, Path(log), seed).run()
