"""Receipts below ``/.spillway``: which ones a run has, the requests that put them, ``status.json``.

The names of a run become directories below ``runs`` and ``checkpoints``, so that ``a/b`` has
``runs/a/b/latest-complete``. A name that a receipt could have is escaped as in object keys.

Receipts are changed over the control socket of the NFS server. Clients see each change as a whole:
a link is made under another name and renamed over the old one, and a document is installed in its
place.

``/.spillway/status.json`` tells what would be lost with the gateway now. It is written when a fact
changed, every 5 s at most. The passing of time is no such change: a reader adds the time since
``time`` to ``seconds_at_risk``. Nor is a copy of the names: the file would change with each copy,
and be copied itself.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import exists, func, select

from gateway.catalogue.display_state import shown_state
from gateway.catalogue.facts import CheckpointState
from gateway.catalogue.manifests import name_of
from gateway.common import clock
from gateway.common.errors import ControlSocketClosed, SpillwayError
from gateway.common.text import printable
from gateway.common.types import GATEWAY_CRED, Attr, InodeKind, SetAttr
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.db import statements as sql
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.db.models import CHECKPOINTS_INO, RESERVED_INO, RESERVED_NAME, ROOT_INO, RUNS_INO
from gateway.db.statements import IS_DIRTY, TRASH_TREE, dirent, inode
from gateway.namespace.data_files import DataFiles
from gateway.rpc.control import ControlSocket, Remote
from gateway.rpc.frames import Op, RpcRequest

Path = tuple[bytes, ...]
"""Names below ``/.spillway``."""

LATEST_COMPLETE = b"latest-complete"
LATEST_DURABLE = b"latest-durable"
_ESCAPED = {
    b".": b"%2E",
    b"..": b"%2E%2E",
    LATEST_COMPLETE: b"%6Catest-complete",
    LATEST_DURABLE: b"%6Catest-durable",
}
_END = b".json"


class ReceiptFacts(NamedTuple):
    """What is told of a checkpoint: the columns of its row."""

    ino: int
    path: bytes
    """Path below the export's root."""
    run: bytes
    step: int | None
    state: str
    complete_ns: int | None
    durable_ns: int | None
    storage_class: str | None = None
    completion: int | None = None
    """Its place in the order in which checkpoints became complete. None: it has none yet."""


@dataclass(frozen=True)
class ReceiptLink:
    """A symbolic link."""

    target: bytes
    ino: int = field(default=0, compare=False)
    """The checkpoint to which it leads, or 0 if it was read."""
    seen: int = field(default=0, compare=False)
    """The number of the fingerprint of that checkpoint while it was complete, or 0."""


class Document(NamedTuple):
    """A file."""

    text: bytes


Receipt = ReceiptLink | Document


def receipts(run: bytes, facts: Collection[ReceiptFacts]) -> dict[Path, Receipt]:
    """Return the receipts of a run, by path.

    Broken ones are not.

    Args:
        facts: facts of its checkpoints that are complete or more.
    """
    names = _names(run)
    receipts_by_path: dict[Path, Receipt] = {}
    durable = [
        receipt_facts for receipt_facts in facts if receipt_facts.state == CheckpointState.DURABLE
    ]
    for name, among in ((LATEST_COMPLETE, facts), (LATEST_DURABLE, durable)):
        if among:
            # Relative, because clients mount the export where they like.
            latest = _latest(among)
            target = b"../" * (len(names) + 2) + latest.path
            receipts_by_path[b"runs", *names, name] = ReceiptLink(target, latest.ino)
    taken: set[bytes] = set()
    for receipt_facts in sorted(facts, key=lambda receipt_facts: receipt_facts.ino):
        name = name_of(receipt_facts.path, receipt_facts.step)
        if name in taken:
            name = name_of(receipt_facts.path, receipt_facts.step, receipt_facts.ino)
        taken.add(name)
        receipts_by_path[b"checkpoints", *names, name] = Document(document(receipt_facts))
    return receipts_by_path


def links(run: bytes) -> list[Path]:
    """Return the paths of the links that a run can have."""
    return [(b"runs", *_names(run), name) for name in (LATEST_COMPLETE, LATEST_DURABLE)]


def document(fact: ReceiptFacts) -> bytes:
    """Return the text of a checkpoint's document: only what nothing else on a mount tells. Its name
    is that of the manifest in the bucket, which has everything else."""
    facts = {
        "path": printable(fact.path),
        "state": shown_state(fact.state, fact.storage_class),
        "complete_ns": fact.complete_ns,
        "durable_ns": fact.durable_ns,
    }
    return json.dumps(facts, indent=1).encode() + b"\n"


def _latest(facts: Iterable[ReceiptFacts]) -> ReceiptFacts:
    """Return the newest checkpoint: the one that was complete last, whatever its step is. One that
    has no place in the order yet counts only among its like."""
    return max(facts, key=_place)


def _place(facts: ReceiptFacts) -> tuple[int, int, int]:
    completion = -1 if facts.completion is None else facts.completion
    return completion, facts.complete_ns or 0, facts.ino


def _names(run: bytes) -> Path:
    return tuple(_escaped(name) for name in run.split(b"/") if name)


def _escaped(name: bytes) -> bytes:
    if name.endswith(_END):
        return name[: -len(_END)] + b"%2Ejson"
    return _ESCAPED.get(name, name)


TOPS: dict[Path, int] = {(b"runs",): RUNS_INO, (b"checkpoints",): CHECKPOINTS_INO}
_NEW = b".new~"
"""Begins the name of a link that is about to replace another one."""
_IN = Statement(
    select(
        sql.dirent.c.name, sql.inode.c.ino, sql.inode.c.kind, sql.inode.c.target, sql.inode.c.epoch
    )
    .select_from(sql.dirent.join(sql.inode, sql.dirent.c.ino == sql.inode.c.ino))
    .where(sql.dirent.c.parent == b("parent"))
)


_LINK = Statement(
    select(sql.inode.c.target)
    .select_from(sql.dirent.join(sql.inode, sql.dirent.c.ino == sql.inode.c.ino))
    .where(sql.dirent.c.parent == b("parent"), sql.dirent.c.name == b("name"))
)


class ReceiptRefused(SpillwayError):
    """The control socket did not do what was asked.

    Args:
        number: an errno.
    """

    def __init__(self, subject: str, number: int) -> None:
        super().__init__(f"{subject}: {os.strerror(number)}")
        self.errno = number


class Tree:
    """The receipts of one namespace."""

    def __init__(self, database: Database, files: DataFiles) -> None:
        self._database = database
        self._files = files
        self._directories = {(): RESERVED_INO, **TOPS}

    def is_ours(self) -> bool:
        """Return whether the namespace has the gateway's own directory. Raises TryAgain."""
        with self._session() as session:
            row = session.one(sql.ENTRY, parent=ROOT_INO, name=RESERVED_NAME)
        return row is not None and row[0] == RESERVED_INO

    def read(self) -> dict[Path, Receipt]:
        """Return all receipts of checkpoints, and remember their directories. Raises TryAgain."""
        self._directories = {(): RESERVED_INO, **TOPS}
        receipts_by_path: dict[Path, Receipt] = {}
        waiting = list(TOPS.items())
        while waiting:
            above, directory = waiting.pop()
            with self._session() as session:
                rows = session.all(_IN, parent=directory)
            for name, ino, kind, target, epoch in rows:
                path = (*above, bytes(name))
                if kind == InodeKind.DIRECTORY:
                    self._directories[path] = ino
                    waiting.append((path, ino))
                elif kind == InodeKind.SYMLINK:
                    receipts_by_path[path] = ReceiptLink(bytes(target))
                else:
                    receipts_by_path[path] = Document(self._text(ino, epoch))
        return receipts_by_path

    def links(self, paths: Sequence[Path]) -> dict[Path, Receipt]:
        """Return the links that are there. Raises TryAgain.

        If its directory has none of them, the first one is returned without a target, so that the
        directory is removed with it.

        Args:
            paths: paths of the links that a run can have.
        """
        parent = self._directories.get(paths[0][:-1])
        if parent is None:
            return {}
        with self._session() as session:
            rows = {path: session.one(_LINK, parent=parent, name=path[-1]) for path in paths}
        receipts_by_path: dict[Path, Receipt] = {
            path: ReceiptLink(bytes(row[0])) for path, row in rows.items() if row is not None
        }
        return receipts_by_path or {paths[0]: ReceiptLink(b"")}

    def text(self, name: bytes) -> bytes:
        """Return the text of a document directly in ``/.spillway``, or b"". Raises TryAgain."""
        with self._session() as session:
            row = session.one(sql.LOOKUP, parent=RESERVED_INO, name=name)
        if row is None:
            return b""
        attr = Attr(*row)
        return self._text(attr.ino, attr.epoch)

    def _text(self, ino: int, epoch: int) -> bytes:
        with suppress(FileNotFoundError):
            return self._files.path(ino, epoch).read_bytes()
        return b""  # as if it had another text: it is written again

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with self._database.reader() as connection:
            yield Session(connection, self._database.dialect)

    def put(
        self, control: ControlSocket, receipts: Iterable[tuple[Path, Receipt]]
    ) -> list[ReceiptRefused]:
        """Make or replace receipts. The server does it at once for all of them, so they share its
        commits. Returns why some were refused. Raises ControlSocketClosed, OSError."""
        refused: list[ReceiptRefused] = []
        requests: list[RpcRequest] = []
        seen: dict[tuple[int, bytes], int] = {}
        with ExitStack() as prepared:
            for path, receipt in receipts:
                try:
                    parent = self._directory(control, path[:-1])
                except ReceiptRefused as exc:
                    refused.append(exc)
                    continue
                if isinstance(receipt, Document):
                    requests.append(self._install(prepared, parent, path[-1], receipt.text))
                else:
                    requests.append(_symlink(parent, path[-1], receipt.target))
                    seen[parent, requests[-1].name] = receipt.seen
            made = [
                request for request in _done(control, requests, refused) if request.op is Op.SYMLINK
            ]
        renames = [_renamed(request, seen[request.ino, request.name]) for request in made]
        done = _done(control, renames, refused)
        for rename in renames:
            if rename not in done:
                _ask(control, rename._replace(op=Op.REMOVE, ino2=0, change=0), errno.ENOENT)
        return refused

    def _install(self, prepared: ExitStack, parent: int, name: bytes, text: bytes) -> RpcRequest:
        """Prepare a document. Returns the request that gives it its name."""
        self._files.incoming.mkdir(mode=0o700, exist_ok=True)
        path = self._files.incoming / secrets.token_hex(8)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        prepared.callback(path.unlink, missing_ok=True)
        with os.fdopen(fd, "wb") as file:
            file.write(text)
        wanted = SetAttr(mode=0o444)
        return RpcRequest(
            Op.INSTALL, parent, name, 0, os.fsencode(path.name), 0, wanted, GATEWAY_CRED
        )

    def remove(self, control: ControlSocket, path: Path) -> None:
        """Remove a receipt, and then the directories above that are empty. Raises Refused,
        ControlSocketClosed."""
        parent = self._directories.get(path[:-1])
        if parent is None:
            return
        _ask(control, RpcRequest(Op.REMOVE, parent, path[-1], cred=GATEWAY_CRED), errno.ENOENT)
        for depth in range(len(path) - 1, 1, -1):
            above = self._directories.get(path[: depth - 1])
            if above is None:
                return
            request = RpcRequest(Op.REMOVE, above, path[depth - 1], cred=GATEWAY_CRED)
            if _ask(control, request, errno.ENOENT, errno.ENOTEMPTY) == errno.ENOTEMPTY:
                return
            self._directories.pop(path[:depth], None)

    def _directory(self, control: ControlSocket, path: Path) -> int:
        if (known := self._directories.get(path)) is not None:
            return known
        above = self._directory(control, path[:-1])
        wanted = SetAttr(mode=0o555)
        make = RpcRequest(Op.MKDIR, above, path[-1], wanted=wanted, cred=GATEWAY_CRED)
        look = RpcRequest(Op.LOOKUP, above, path[-1], cred=GATEWAY_CRED)
        for request in (make, look):
            [answer] = control.run([request])
            if answer.errno == 0 and answer.attr is not None:
                self._directories[path] = answer.attr.ino
                return answer.attr.ino
            if answer.errno != errno.EEXIST:
                break
        raise ReceiptRefused(_shown(path), answer.errno)


def _symlink(parent: int, name: bytes, target: bytes) -> RpcRequest:
    # What a crash left under this name was removed by the comparison that came first.
    return RpcRequest(Op.SYMLINK, parent, _NEW + name, name2=target, cred=GATEWAY_CRED)


def _renamed(made: RpcRequest, seen: int) -> RpcRequest:
    """Return the request that puts a new link in its place, while it leads to what was seen."""
    name = made.name.removeprefix(_NEW)
    return RpcRequest(Op.RENAME, made.ino, made.name, made.ino, name, seen, cred=GATEWAY_CRED)


def _done(
    control: ControlSocket, requests: Sequence[RpcRequest], refused: list[ReceiptRefused]
) -> list[RpcRequest]:
    """Have requests done at once. Returns those that were, and adds the others to ``refused``.
    Raises ControlSocketClosed."""
    done: list[RpcRequest] = []
    for request, answer in zip(requests, control.run(requests), strict=True):
        if answer.errno:
            refused.append(_refusal(request, answer.errno))
        else:
            done.append(request)
    return done


def _ask(control: ControlSocket, request: RpcRequest, *accepted: int) -> int:
    """Have a request done. Returns 0, or an errno that is accepted. Raises Refused,
    ControlSocketClosed."""
    [answer] = control.run([request])
    if answer.errno and answer.errno not in accepted:
        raise _refusal(request, answer.errno)
    return answer.errno


def _refusal(request: RpcRequest, number: int) -> ReceiptRefused:
    return ReceiptRefused(f"{request.op.name} {_shown((request.name,))}", number)


def _shown(path: Path) -> str:
    return printable(b"/".join(path))


log = logging.getLogger("checkpoints")

SECONDS = 5.0
NAME = b"status.json"
PASSING = ("time", "seconds_at_risk", "names_as_of")

_WAITS = (
    *IS_DIRTY,
    inode.c.nlink > 0,
    # What is only in the trash is not sent.
    exists().where(dirent.c.ino == inode.c.ino, dirent.c.parent.not_in(select(TRASH_TREE.c.ino))),
)
SEALED = Statement(
    select(
        func.count(),
        func.coalesce(func.sum(inode.c.size), 0),
        func.min(func.coalesce(func.nullif(inode.c.drain_after_ns, 0), inode.c.mtime_ns)),
    ).where(*_WAITS, inode.c.write_open == 0)
)
WRITTEN = Statement(
    select(inode.c.ino, inode.c.epoch, inode.c.drained_version, inode.c.btime_ns).where(
        *_WAITS, inode.c.write_open == 1
    )
)


class StatusFile:
    """A background task (gateway.catalogue.background).

    Args:
        stop: after which it changes nothing.
    """

    name = "status"

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._database = Database(settings.database_url)
        self._files = DataFiles(settings.files_dir)
        self._tree = Tree(self._database, self._files)
        self._written: dict[str, Any] | None = None
        """The facts that clients see. None: they are not known."""
        self._at = -SECONDS

    def run_once(self) -> float:
        """Write the facts if they changed. Raises TryAgain."""
        left = self._at + SECONDS - clock.monotonic_seconds()
        if left > 0 or self._stop.is_set():
            return max(left, 0.0)  # the catalogue changed: this is not asked at each of its rounds
        self._at = clock.monotonic_seconds()
        facts = self._facts()
        if self._written is None:
            self._written = _of(self._tree.text(NAME))
        if _lasting(facts) == _lasting(self._written):
            return SECONDS
        self._written = None
        try:
            with closing(Remote(self._settings)) as control:
                if self._tree.is_ours():
                    text = json.dumps(facts, indent=1).encode() + b"\n"
                    for refused in self._tree.put(control, [((NAME,), Document(text))]):
                        raise refused
        except (FileNotFoundError, ConnectionRefusedError):
            pass  # no server runs, so no client reads
        except (ReceiptRefused, ControlSocketClosed, OSError) as exc:
            log.warning("%s was not written: %s", NAME.decode(), exc)
        return SECONDS

    def _facts(self) -> dict[str, Any]:
        now_ns = clock.now_ns()
        with self._database.reading() as session:
            sealed = session.one(SEALED)
            written = session.all(WRITTEN)
        assert sealed is not None, "a query without groups has one row"
        files, size, oldest_ns = sealed
        settle_ns = int(self._settings.drain.settle_seconds * clock.NS)
        since = [] if oldest_ns is None else [oldest_ns - settle_ns]
        size = int(size)  # on PostgreSQL it is a Decimal
        for ino, epoch, drained_version, btime_ns in written:
            length, mtime_ns = self._on_disk(ino, epoch)
            size += length
            # Of a file that was there before, it is not known when its first byte was rewritten.
            since.append(mtime_ns if drained_version and mtime_ns else btime_ns)
        since_ns = max(0, min((now_ns, *since)))
        is_waiting = bool(files or written)
        return {
            "format": 1,
            "time": _time(now_ns),
            "files_at_risk": files + len(written),
            "bytes_at_risk": size,
            "oldest_unsaved": _time(since_ns) if is_waiting else None,
            "seconds_at_risk": round((now_ns - since_ns) / clock.NS, 1) if is_waiting else 0.0,
            "drain": self._drain(),
            **self._names(now_ns),
        }

    def _on_disk(self, ino: int, epoch: int) -> tuple[int, int]:
        try:
            stat = self._files.path(ino, epoch).stat()
        except FileNotFoundError:
            return 0, 0
        return stat.st_size, stat.st_mtime_ns

    def _drain(self) -> str:
        """Return ``stopped``, ``starting``, or the drain's state of the bucket (BucketState)."""
        report = datadir.read(self._settings, datadir.DRAIN)
        if report is None or not datadir.alive(report):
            return "stopped"
        bucket = report.get("bucket")
        return str(bucket["state"]) if isinstance(bucket, dict) else "starting"

    def _names(self, now_ns: int) -> dict[str, Any]:
        """Return how old the copy of the names is. A time far ahead says nothing: the clock was set
        back."""
        report = datadir.read(self._settings, datadir.RECOVERY) or {}
        as_of_ns = (report.get("names") or {}).get("copied_ns") or 0
        age_seconds = (now_ns - as_of_ns) / clock.NS
        recovery = self._settings.recovery
        return {
            "names_as_of": _time(as_of_ns) if as_of_ns else None,
            "names_late": recovery.names_in_bucket and abs(age_seconds) > recovery.late_seconds,
        }


def _of(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _lasting(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in PASSING}


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / clock.NS, UTC).isoformat(timespec="milliseconds")
