"""Export of the audit log: each entry becomes a line of JSON in a file, or a message of syslog
(``admin.audit_export``).

A thread reads the rows of ``audit`` and remembers how far it is in ``run/audit-export.json``. No
request waits for it. The position is stored when the receiver has the lines, so each entry is
delivered at least once, in the order of the entries: a crash between the two delivers some again.

An entry that is under way makes the next ones wait for PATIENCE_SECONDS, so most entries are
delivered once, with their status. A command may take hours: its entry is then delivered without a
status, and once more when it has ended.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sqlalchemy import func, select

from admin_api import audit
from admin_api import store as tables
from admin_api.audit import AuditRow
from gateway.common import clock, files
from gateway.common.errors import SpillwayError
from gateway.common.models import to_json
from gateway.config.settings import AUDIT_SYSLOG, Settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database

log = logging.getLogger("admin.audit")

STATE = "audit-export.json"
BATCH = 200
"""The entries that are delivered before the position is stored."""
PATIENCE_SECONDS = 30.0
"""A request takes no longer, nearly always."""
OPEN_MAX = 200
OPEN_SECONDS = 7 * 86_400.0
"""For so long the end of a command is waited for. The entry of a process that was killed never gets
one."""
POLL_SECONDS = 1.0
RETRY_SECONDS = 5.0
TOLD_SECONDS = 60.0

_audit: Any = tables.AuditTable.__table__
_COLUMNS = tuple(_audit.c[name] for name in AuditRow._fields)
_AFTER = Statement(
    select(*_COLUMNS).where(_audit.c.id > b("after")).order_by(_audit.c.id).limit(b("most"))
)
_FIND = Statement(select(*_COLUMNS).where(_audit.c.id == b("wanted")))
_LAST = Statement(select(func.coalesce(func.max(_audit.c.id), 0)))


class Receiver(Protocol):
    """What gets the entries."""

    def deliver(self, lines: Sequence[bytes]) -> int:
        """Deliver lines, each without its end. Returns how many the receiver has. Raises OSError if
        it has none."""


class FileReceiver:
    """Appends to a file. One that was renamed or removed, as by logrotate, is opened again.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def deliver(self, lines: Sequence[bytes]) -> int:
        """Append lines durably: all of them, or none. Raises OSError."""
        fd = self._opened()
        begin = os.fstat(fd).st_size
        left = memoryview(b"".join(line + b"\n" for line in lines))
        try:
            while left:
                left = left[os.write(fd, left) :]
            os.fdatasync(fd)
        except OSError:
            # A full disk took a part of it.
            with suppress(OSError):
                if os.fstat(fd).st_size > begin:
                    os.ftruncate(fd, begin)
            raise
        return len(lines)

    def _opened(self) -> int:
        if self._fd is not None and not self._is_there(self._fd):
            os.close(self._fd)
            self._fd = None
        if self._fd is None:
            # To write only, the open of a FIFO would wait for its reader.
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(errno.EINVAL, "it is no regular file", str(self._path))
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                os.write(fd, b"\n")  # a process was killed in the middle of a line
            self._fd = fd
        return self._fd

    def _is_there(self, fd: int) -> bool:
        """Return whether the path still leads to the file that is open."""
        try:
            there, ours = self._path.stat(), os.fstat(fd)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


class SyslogReceiver:
    """Sends to the syslog of this machine, with the facility authpriv.

    Args:
        path: of its socket.
    """

    SOCKET = Path("/dev/log")
    PRIORITY = 10 * 8 + 6
    """authpriv.info (RFC 3164, 4.1.1)."""
    BYTES_MAX = 8000
    """rsyslog cuts longer messages, and what is cut is no JSON."""
    SECONDS = 5.0

    def __init__(self, path: Path | None = None) -> None:
        self._path = self.SOCKET if path is None else path

    def deliver(self, lines: Sequence[bytes]) -> int:
        """Send each line as a message. Raises OSError if the first is not taken."""
        head = f"<{self.PRIORITY}>spillway-audit[{os.getpid()}]: ".encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(self.SECONDS)
            sender.connect(str(self._path))
            for number, line in enumerate(lines):
                try:
                    sender.send(head + self._short(line))
                except OSError:
                    if not number:
                        raise
                    return number
        return len(lines)

    def _short(self, line: bytes) -> bytes:
        if len(line) <= self.BYTES_MAX:
            return line
        entry = json.loads(line) | {"before": None, "after": None, "asked": None}
        for name in ("path", "detail"):
            entry[name] = None if entry[name] is None else entry[name][:1000]
        return json.dumps({**entry, "shortened": True}).encode()


def receiver_of(settings: Settings) -> Receiver:
    """Return the receiver that the configuration names."""
    target = settings.admin.audit_export
    return SyslogReceiver() if target == AUDIT_SYSLOG else FileReceiver(Path(target))


class ExportState(NamedTuple):
    """How far the export is."""

    target: str
    """``admin.audit_export`` then: another receiver gets everything."""
    id: int = 0
    """The last entry that was delivered."""
    at_ns: int = 0
    """Its time, by which another database in the place of this one is known."""
    open: tuple[int, ...] = ()
    """The entries that were delivered without a status."""


class AuditExport:
    """The export of one gateway. Not safe to use from several threads.

    Args:
        settings: of the gateway.
        store: the admin API's own database.
        receiver: what gets the entries.
    """

    def __init__(self, settings: Settings, store: Database, receiver: Receiver) -> None:
        self._path = settings.run_dir / STATE
        self._store = store
        self._receiver = receiver
        self._state = self._read(settings.admin.audit_export)
        self._saved: ExportState | None = None
        self.waiting: Sequence[AuditRow] = ()
        """The next entries, while they cannot be delivered."""
        self.error = ""
        """Why not."""

    def step(self) -> int:
        """Deliver what is next. Returns how many entries. Raises OSError, SpillwayError."""
        with self._store.reading() as session:
            state = self._known(session)
            rows = self._next(session, state)
        delivered = 0
        if rows:
            self.waiting = rows
            delivered = self._receiver.deliver([_line(row) for row in rows])
            self.waiting = ()
        # In memory too: while the position cannot be stored, nothing is delivered over and over.
        self._state = _after(state, rows[:delivered])
        if self._state != self._saved:
            files.replace(self._path, json.dumps(self._state._asdict()), 0o600)
            self._saved = self._state
        return delivered

    def report(self) -> dict[str, Any]:
        """Return how far it is, for the report of this process."""
        waiting = self.waiting
        oldest_ns = waiting[0].at_ns if waiting and self.error else None
        return {"waiting": len(waiting), "oldest_ns": oldest_ns, "error": self.error}

    def _known(self, session: Session) -> ExportState:
        """Return the state, from the begin if the database is another one than that of the
        state."""
        state = self._state
        row = session.one(_FIND, wanted=state.id)
        ((last,),) = session.all(_LAST)
        is_other = last < state.id if row is None else AuditRow(*row).at_ns != state.at_ns
        if not state.id or not is_other:
            return state
        log.warning("the audit log is another one than before: all of it is exported")
        return ExportState(state.target)

    def _next(self, session: Session, state: ExportState) -> list[AuditRow]:
        rows = []
        for id in state.open:
            row = session.one(_FIND, wanted=id)
            if row is not None and (found := AuditRow(*row)).status is not None:
                rows.append(found)
        for row in session.all(_AFTER, after=state.id, most=BATCH):
            entry = AuditRow(*row)
            # A time in the future was noted before the clock was set back.
            if entry.status is None and 0 <= _age_seconds(entry) < PATIENCE_SECONDS:
                break
            rows.append(entry)
        return rows

    def _read(self, target: str) -> ExportState:
        """Return the state of the process before. Without one, all entries are delivered."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            state = ExportState(**found)._replace(open=tuple(found["open"]))
        except (OSError, ValueError, TypeError, KeyError):
            return ExportState(target)
        return state if state.target == target else ExportState(target)


def _after(state: ExportState, rows: Sequence[AuditRow]) -> ExportState:
    """Return the state when rows were delivered."""
    ended = {row.id for row in rows if row.status is not None}
    begun = [row.id for row in rows if row.status is None and _age_seconds(row) < OPEN_SECONDS]
    left = tuple(id for id in (*state.open, *begun) if id not in ended)
    new = [row for row in rows if row.id > state.id]
    if new:
        state = state._replace(id=new[-1].id, at_ns=new[-1].at_ns)
    return state._replace(open=left[-OPEN_MAX:])


def _age_seconds(row: AuditRow) -> float:
    return (clock.now_ns() - row.at_ns) / clock.NS


def _line(row: AuditRow) -> bytes:
    return json.dumps(to_json(audit.model(row))).encode()


def keep_exporting(export: AuditExport, stop: threading.Event) -> None:
    """Export until stop is set. What fails is tried again."""
    told = float("-inf")
    while not stop.is_set():
        seconds = POLL_SECONDS
        try:
            if export.step() >= BATCH:
                seconds = 0.0
            export.error = ""
        except (OSError, SpillwayError) as exc:
            seconds = RETRY_SECONDS
            export.error = str(exc)
            if (now := clock.monotonic_seconds()) - told >= TOLD_SECONDS:
                told = now
                log.warning("the audit log is not exported, and is tried again: %s", exc)
        except Exception:
            # What is not foreseen must not end the export: its next step may succeed.
            log.exception("unexpected")
            seconds = TOLD_SECONDS
        stop.wait(seconds)
