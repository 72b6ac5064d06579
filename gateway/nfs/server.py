"""The running NFS server: whether it answers on its port, and which exports it has in force.

``taken`` has the server take other exports. Ganesha reads its configuration again on SIGHUP, and
does not tell what became of it. If it refuses one block, it takes the others and drops the refused
export. What would do worse is refused before (export_blocks.py). Afterwards the server is asked
which exports there are: each has the revision of the text that the plugin read, and the last
reading that Ganesha took (fsal/native/export.h). Only if all have both, and there are no others,
the text is in force.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import NamedTuple

from gateway.common import clock, files
from gateway.common.errors import RESTART, ControlSocketClosed, ExportRefused, InUse, UserError
from gateway.common.text import shown
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.nfs import export_blocks
from gateway.rpc.control import ANSWER_SECONDS, Remote
from gateway.rpc.frames import Op, RpcRequest

PORT_ANSWER_SECONDS = 10.0
_NULL_CALL = struct.pack(">I10I", 0x8000_0000 | 40, 1, 0, 2, 100_003, 4, 0, 0, 0, 0, 0)
"""The procedure that does nothing, of NFS version 4, without credentials (RFC 5531 sections 9, 11;
RFC 7530 section 16.1)."""
_ACCEPTED = struct.pack(">II", 1, 1) + bytes(16)
"""The answer after its length: the same number, a reply, accepted, successful."""


def bind_error(settings: Settings) -> OSError | None:
    """Return why the NFS server could not listen, or None if it could."""
    address, number = settings.nfs.bind, settings.nfs.port
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, number))
        except OSError as exc:
            return exc
    return None


def answers(settings: Settings, seconds: float | None = None) -> bool:
    """Return whether the NFS server answers a call that does nothing.

    Args:
        seconds: the time that it has (default: ANSWER_SECONDS).
    """
    bind = settings.nfs.bind
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)
    try:
        limit = PORT_ANSWER_SECONDS if seconds is None else seconds
        with socket.create_connection((host, settings.nfs.port), limit) as server:
            server.sendall(_NULL_CALL)
            with server.makefile("rb") as lines:
                return lines.read(4 + len(_ACCEPTED))[4:] == _ACCEPTED
    except OSError:
        return False


RELOAD_SECONDS = 15.0
"""The time that the server has to take a text. It looks up the roots of new exports, and closes the
files that are open on removed ones."""
START_SECONDS = 30.0
"""The time to wait for a server that starts or stops."""
POLL_SECONDS = 0.1

_EXPORTED = struct.Struct("=IIQQQ")


class Exported(NamedTuple):
    """An export, as the server tells it."""

    number: int
    is_mounted: int
    """Whether clients find it by its name."""
    directory: int
    """The inode of its root; 0: the namespace's root."""
    revision: int
    reading: int


class ServedExports(NamedTuple):
    """The exports of a running server."""

    pid: int
    exports: list[Exported]

    def has(self, written: export_blocks.Written, before: ServedExports) -> bool:
        """Return whether a text is in force.

        Args:
            before: the exports before it was.
        """
        # Another process counts its readings from the beginning.
        last = before.last_reading if before.pid == self.pid else 0
        directories = {export.number: export.directory for export in self.exports}
        return directories == written.directories and all(
            export.is_mounted and export.revision == written.revision and export.reading > last
            for export in self.exports
        )

    @property
    def last_reading(self) -> int:
        return max((export.reading for export in self.exports), default=0)


def serves(settings: Settings, seconds: float) -> bool:
    """Return whether the running server has ``nfs.export``: its plugin is loaded, and clients find
    the export.

    Args:
        seconds: the time that it has for the answer.
    """
    try:
        now = served_exports(settings, seconds)
    except UserError:
        return False
    return now is not None and any(
        export.number == export_blocks.MAIN_NUMBER and export.is_mounted for export in now.exports
    )


def served_exports(settings: Settings, seconds: float = ANSWER_SECONDS) -> ServedExports | None:
    """Return the exports that the running server has, or None if none answers.

    Raises UserError.

    Args:
        seconds: the time that it has for the answer.
    """
    try:
        with closing(Remote(settings, seconds)) as control:
            [answer] = control.run([RpcRequest(Op.EXPORTS, 0)])
            pid = control.server_pid()
    except (FileNotFoundError, ConnectionRefusedError, ControlSocketClosed):
        return None
    except OSError as exc:
        raise UserError(
            f"cannot reach the NFS server in {settings.run_dir}: {exc.strerror or exc}: run as "
            "root or as the user that owns it"
        ) from None
    return ServedExports(pid, [Exported(*fields) for fields in _EXPORTED.iter_unpack(answer.data)])


@contextmanager
def found(settings: Settings) -> Iterator[bool]:
    """Find the running server, or keep it from starting meanwhile. Yields whether it runs.

    Raises UserError if a server starts or stops for too long, or cannot be reached.
    """
    until = clock.monotonic_seconds() + START_SECONDS
    with ExitStack() as stack:
        while (is_running := served_exports(settings) is not None) is False:
            datadir.require_ours(settings)
            try:
                stack.enter_context(datadir.locked(settings, datadir.COMMAND))
                break
            except InUse as exc:
                if clock.monotonic_seconds() >= until:
                    raise UserError(
                        f"the NFS server does not answer (pid {exc.pid} has the data directory): "
                        "look at spillway status, and try again; nothing was changed"
                    ) from None
            time.sleep(POLL_SECONDS)
        yield is_running


@contextmanager
def taken(settings: Settings, text: str) -> Iterator[None]:
    """Have the server take exports; if it does not take them, or the body fails, the former ones.

    Raises ExportRefused, OSError.

    Args:
        text: text of ``export_blocks.render``.
    """
    whole, changed = changed_conf(settings, text)
    former = whole.partition(export_blocks.MARK)[2]
    log_bytes = _log_bytes(settings)
    with _process(settings) as (process, before):
        try:
            files.replace(settings.ganesha_conf, changed, 0o644)
            if not _reload(settings, process, before, text):
                why = _complaint(settings, log_bytes)
                raise ExportRefused(f"the NFS server did not take the exports{why}")
            yield
        except BaseException as exc:
            files.replace(settings.ganesha_conf, whole, 0o644)
            if not _reload(settings, process, served_exports(settings) or before, former):
                raise ExportRefused(
                    f"{exc}; the NFS server has not told that the former ones are in force: look "
                    f"at spillway export list, and if one is missing: {RESTART}"
                ) from exc
            if isinstance(exc, ExportRefused):
                raise ExportRefused(f"{exc}: the former ones are in force") from None
            raise


def changed_conf(settings: Settings, text: str) -> tuple[str, str]:
    """Return ganesha.conf as it is, and as it would be. Nothing is changed.

    Raises ExportRefused if a running server must not read it, OSError.

    Args:
        text: text of ``export_blocks.render``.
    """
    whole = settings.ganesha_conf.read_text(encoding="utf-8")
    head, mark, former = whole.partition(export_blocks.MARK)
    if not mark or _needs_a_restart(former, text):
        raise ExportRefused(
            "nfs.export, nfs.max_io_bytes, nfs.security or the program is not what the NFS server "
            f"was started with; first: {RESTART}"
        )
    if (line := export_blocks.unsound(head + mark + text)) is not None:
        raise ExportRefused(f"ganesha.conf would have the line {shown(line)}, which is not written")
    return whole, head + mark + text


@contextmanager
def _process(settings: Settings) -> Iterator[tuple[int, ServedExports]]:
    """Open the process of the server, so that no other process of its number gets a signal."""
    before = served_exports(settings)
    with suppress(ProcessLookupError), ExitStack() as stack:
        if before is not None:
            process = os.pidfd_open(before.pid)
            stack.callback(os.close, process)
            # It answers after its process was opened, so what was opened is the server.
            again = served_exports(settings)
            if again is not None and again.pid == before.pid:
                yield process, again
                return
    raise ExportRefused("the NFS server ended: try again when spillway status shows it ready")


def _needs_a_restart(former: str, text: str) -> bool:
    """Return whether a running server must not get a text after the former one."""
    before, after = export_blocks.read(former).fixed, export_blocks.read(text).fixed
    all_have = {
        (fixed_settings.io_bytes, fixed_settings.security)
        for fixed_settings in (*before.values(), *after.values())
    }
    return len(all_have) > 1 or any(
        before.get(number, fixed) != fixed for number, fixed in after.items()
    )


def _reload(settings: Settings, process: int, before: ServedExports, text: str) -> bool:
    """Have the server read its configuration. Returns whether it took these exports."""
    with suppress(ProcessLookupError):  # the next one reads it at its start
        signal.pidfd_send_signal(process, signal.SIGHUP)
    until = clock.monotonic_seconds() + RELOAD_SECONDS
    while clock.monotonic_seconds() < until:
        time.sleep(POLL_SECONDS)
        now = served_exports(settings)
        if now is not None and now.has(export_blocks.read(text), before):
            return True
    return False


def _log_bytes(settings: Settings) -> int:
    with suppress(OSError):
        return (settings.log_dir / "ganesha.log").stat().st_size
    return 0


def _complaint(settings: Settings, start_bytes: int) -> str:
    """Return what the server's log says since it had ``start_bytes``, or where that is."""
    if datadir.is_of_services(datadir.read(settings, datadir.UP)):
        return " (its log says why: journalctl -u spillway-nfs)"
    with suppress(OSError), (settings.log_dir / "ganesha.log").open("rb") as log:
        log.seek(start_bytes)
        lines = log.read(65_536).decode(errors="replace").splitlines()
        complaints = [line.rpartition(":CRIT :")[2] for line in lines if ":CRIT :" in line]
        if complaints:
            return f" ({shown(complaints[0])})"
    return ""
