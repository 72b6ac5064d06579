"""Commands that run processes: `spillway up`, `serve` and `admin`.

`up` checks the machine, then runs the NFS server, the drain, the cache (hydrator and evictor), the
catalogue, and the admin API unless it is switched off. It decides the order of starting and
stopping, handles the signals, and writes run/up.json, which `status` reads.

`serve` becomes one of these processes; the units of systemd start it. What `up` does for all of
them, each service then does for itself: it takes its part of the lock of the data directory and is
named in run/up.json. What must hold before the NFS server starts is checked by its own service.

`admin` runs the admin API by itself, without `spillway up`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from gateway.cli import local
from gateway.cli.init import make_directories, make_files_directory
from gateway.common import clock, files, logs, process
from gateway.common.errors import UserError
from gateway.common.network import ClientRule, Squash, parse
from gateway.common.process import start_ticks
from gateway.config import datadir, loader
from gateway.config.loader import variable_of
from gateway.config.settings import SYS, Settings
from gateway.db.engine import Database
from gateway.db.schema import explained
from gateway.namespace import identity
from gateway.nfs import ganesha_conf, server
from gateway.nfs.export_service import at_start
from gateway.processes import daemon
from gateway.processes.supervisor import ChildProcess, Command, Phase, Say

MODULE = "admin_api"


def admin_arguments(_parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command has no options of its own."""


def run_admin(args: argparse.Namespace) -> NoReturn:
    """Become the process of the admin API. Raises UserError."""
    settings = loader.load(args.config)
    local.require_data_dir(settings)
    os.environ["PYTHONUNBUFFERED"] = "1"
    os.execv(sys.executable, argv(settings, MODULE))


def argv(settings: Settings, module: str) -> tuple[str, ...]:
    """Return the command line of a process of the gateway."""
    # With -P a directory named gateway in the working directory is not taken for the program.
    return (sys.executable, "-P", "-m", module, "--config", str(settings.source))


GANESHA_STOP_SECONDS = 30.0
DRAIN_STOP_SECONDS = 15.0
CACHE_STOP_SECONDS = 10.0
CHECKPOINTS_STOP_SECONDS = 10.0
RECOVERY_STOP_SECONDS = 10.0
ADMIN_STOP_SECONDS = 10.0
COMMAND_SECONDS = 10.0
"""The time to wait for a command that changes names in place of the server."""
PROBE_TIMEOUT_SECONDS = 1.0

_COMPLAINT = re.compile(r":(?!DBUS|NFS CB|DISP)[A-Z0-9_ ]+ :(FATAL|MAJ|CRIT) :")
"""A line of Ganesha's log that may say why it does not serve. It complains in every log that there
is no D-Bus, no rpcbind and no keytab for callbacks."""
_USERS = {
    Squash.NONE: "root is root",
    Squash.ROOT: "root is nobody",
    Squash.ALL: "every user is nobody",
}


def arguments(_parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command has no options of its own."""


def run(args: argparse.Namespace) -> int:
    """Run the gateway until a signal. Raises UserError when a check before the start fails."""
    settings = loader.load(args.config)
    say = logs.Output(settings.gateway.log_format, has_times=True).say
    with prepared(settings):
        for secrets in (settings.credentials_file, settings.nfs.keytab):
            if local.readable_secrets(secrets):
                say("spillway", f"warning: others can read {secrets}: chmod 600 {secrets}")
        say("spillway", who_may_mount(settings))
        for line in further_exports(settings):
            say("spillway", line)
        Supervisor(settings, commands(settings), say).run()
    return 0


@contextmanager
def prepared(settings: Settings) -> Iterator[None]:
    """Check what must hold before the first process starts, and hold the lock while they run."""
    local.require_data_dir(settings)
    local.require_libraries(settings)
    make_directories(settings)
    with datadir.locked(settings, datadir.UP_PROGRAM, COMMAND_SECONDS):
        check(settings)
        yield


def check(settings: Settings) -> None:
    """Check what must hold before the NFS server starts, and write its configuration.

    The caller holds the lock of the data directory. Raises UserError.
    """
    with closing(Database(settings.database_url)) as database, explained(database):
        identity.require_surroundings(settings)
    make_files_directory(settings)
    local.require_programs(settings)
    local.require_kerberos(settings)
    # Edits of the TOML file take effect here. A bad edit stops the start before the port check.
    exports, _left_out = at_start(settings)
    ganesha_conf.write(settings, exports)
    datadir.await_orphaned_children(settings)
    with local.alone(Database(settings.database_url)):
        pass  # the error names a server on another machine; else each start would fail
    local.require_free_port(settings)


def commands(settings: Settings) -> list[Command]:
    """Return the commands of the processes, in the order of starting."""
    children = [ganesha(settings), drain(settings), cache(settings), checkpoints(settings)]
    children.append(recovery(settings))
    return [*children, admin(settings)] if settings.admin.enabled else children


def ganesha(settings: Settings, log: str | None = None) -> Command:
    """Return the command of the NFS server.

    Args:
        log: where its lines go, as its -L takes it (default: log/ganesha.log).
    """
    nfs = settings.nfs
    file = settings.log_dir / "ganesha.log"
    plugin = nfs.plugins_dir / ganesha_conf.PLUGIN
    return Command(
        name="ganesha",
        argv=(
            *(str(nfs.ganesha), "-F", "-f", str(settings.ganesha_conf)),
            *("-L", log or str(file), "-p", str(settings.run_dir / "ganesha.pid"), "-N", "EVENT"),
        ),
        environ=ganesha_conf.environ(),
        stop_seconds=GANESHA_STOP_SECONDS,
        advice=f"read {file}; was {plugin} built for this nfs-ganesha and this Python "
        f"({sys.executable})?",
        ready=partial(_serves, settings),
        ready_text=f" on {_host(nfs.bind)}:{nfs.port}; mount it: {mount_command(settings)}",
        log=file,
        complaint=_COMPLAINT,
    )


def drain(settings: Settings) -> Command:
    return _module("drain", settings, DRAIN_STOP_SECONDS)


def cache(settings: Settings) -> Command:
    return _module("cache", settings, CACHE_STOP_SECONDS)


def checkpoints(settings: Settings) -> Command:
    return _module("checkpoints", settings, CHECKPOINTS_STOP_SECONDS)


def recovery(settings: Settings) -> Command:
    return _module("recovery", settings, RECOVERY_STOP_SECONDS)


def admin(settings: Settings) -> Command:
    return _module("admin", settings, ADMIN_STOP_SECONDS, MODULE)


def _module(
    name: str, settings: Settings, stop_seconds: float, module: str | None = None
) -> Command:
    return Command(
        name=name,
        argv=argv(settings, module or f"gateway.processes.{name}"),
        # With a buffer, lines would come late, and the last lines before a kill never.
        environ={**os.environ, "PYTHONUNBUFFERED": "1"},
        stop_seconds=stop_seconds,
        advice="read its lines above",
    )


def mount_command(settings: Settings) -> str:
    """Return the mount command of a client, with the host name that this machine has for itself."""
    nfs = settings.nfs
    host = socket.gethostname() if nfs.bind in ("0.0.0.0", "::") else _host(nfs.bind)
    options = [] if nfs.port == 2049 else [f"port={nfs.port}"]
    options += [] if SYS in nfs.security else [f"sec={nfs.security[0]}"]
    given = f" -o {','.join(options)}" if options else ""
    return f"mount -t nfs4{given} {host}:{nfs.export} /mnt"


def who_may_mount(settings: Settings) -> str:
    """Return one line with the hosts that may mount, in order, their rights and their identity."""

    def rights(client: ClientRule) -> str:
        access = "read and write" if client.writes else "read"
        return f"{access}, {_USERS[client.squash or Squash(settings.nfs.squash)]}"

    listed = "; ".join(
        f"{', '.join(client.hosts for client in group)} ({kind})"
        for kind, group in groupby(map(parse, settings.nfs.clients), rights)
    )
    proof = ", ".join(settings.nfs.security)
    return f"hosts that may mount: {listed}; no others (nfs.clients, nfs.squash); users by {proof}"


def further_exports(settings: Settings) -> Iterator[str]:
    """Yield a line for each export beside ``nfs.export``."""
    exports, left_out = at_start(settings)
    for export in exports:
        yield (
            f"hosts that may mount {export.name}: {', '.join(export.clients)} (squash "
            f"{export.squash})"
        )
    for directory in left_out:
        yield (
            f"warning: {directory.name} is not exported: its directory was removed, or nfs.export "
            f"hides it: spillway export show {directory.name}"
        )


def _host(address: str) -> str:
    """Return an address in the form that it has before a colon."""
    return f"[{address}]" if ":" in address else address


def _serves(settings: Settings) -> bool:
    """Return whether the NFS server answers calls and has the export. Without its plugin it
    answers calls too, and has none."""
    limit = PROBE_TIMEOUT_SECONDS
    return server.answers(settings, limit) and server.serves(settings, limit)


class Supervisor:
    """Runs the children until a signal ends them.

    It must be made and run on the main thread: signals and the children's lives are tied to it.

    Args:
        commands: commands in the order of starting (they are stopped in reverse).
        say: prints lines.
    """

    def __init__(self, settings: Settings, commands: Sequence[Command], say: Say) -> None:
        self._say = say
        self._state_path = settings.run_dir / datadir.UP
        self._source = settings.source
        self._children = [ChildProcess(command, say) for command in commands]
        self._started_ns = clock.now_ns()
        self._signals: list[int] = []
        self._stopping = False
        self._published: dict[str, Any] = {}
        self._publish_failed = False

    def run(self) -> None:
        """Run the children. Returns after all of them have ended on request."""
        with _signals_to(self._signals) as wakeup:
            try:
                while not self._step(wakeup):
                    pass
            finally:
                # Children are alive here only after an error of the supervisor. They must end.
                for child in self._children:
                    child.reap()
                self._publish("stopped")
        self._say("spillway", "stopped")

    def _step(self, wakeup: int) -> bool:
        """Handle signals, children and state file, then wait. Returns True if all have stopped."""
        while self._signals:
            self._signalled(self._signals.pop(0))
        for child in self._children:
            child.tick()
        if self._stopping:
            self._stop_next()
        if all(child.phase is Phase.STOPPED for child in self._children):
            return True
        self._publish("stopping" if self._stopping else "running")
        self._wait(wakeup)
        return False

    def _wait(self, wakeup: int) -> None:
        due = [at for child in self._children if (at := child.due()) is not None]
        timeout = max(0.0, min(due) - clock.monotonic_seconds()) if due else None
        outputs = [child.output for child in self._children]
        pipes = [pipe.fileno() for pipe in outputs if pipe is not None]
        ready, _, _ = select.select([wakeup, *pipes], [], [], timeout)
        if wakeup in ready:
            with suppress(BlockingIOError):
                os.read(wakeup, 4096)
        for child, pipe in zip(self._children, outputs, strict=True):
            if pipe is not None and pipe.fileno() in ready:
                child.read_output()

    def _signalled(self, number: int) -> None:
        if self._stopping:
            self._say("spillway", "second signal: killing")
            for child in self._children:
                child.stop()
                child.kill()
            return
        self._say("spillway", f"stopping ({signal.Signals(number).name})")
        self._stopping = True
        for child in self._children:
            child.retire()

    def _stop_next(self) -> None:
        """Stop one child at a time: the drain releases its work while the server still runs."""
        for child in reversed(self._children):
            if child.phase is not Phase.STOPPED:
                child.stop()
                return

    def _publish(self, whole: str) -> None:
        """Write the state for `status`, if something changed."""
        children = {
            child.command.name: {
                "pid": child.pid,
                "start_ticks": None if child.pid is None else start_ticks(child.pid),
                "phase": str(child.phase),
                "restarts": child.restarts,
                "started_ns": child.started_ns,
                "last_exit": child.last_exit,
            }
            for child in self._children
        }
        facts = {
            "state": whole,
            "pid": os.getpid(),
            "start_ticks": start_ticks(os.getpid()),
            "started_ns": self._started_ns,
            "config": str(self._source),
            "children": children,
        }
        if facts == self._published:
            return
        try:
            files.replace(self._state_path, json.dumps(facts, indent=2), 0o644, durable=False)
        except OSError as exc:
            # A full disk must not end the server, which keeps the clients' data reachable.
            if not self._publish_failed:
                self._say("spillway", f"cannot write {self._state_path}: {exc.strerror}; going on")
            self._publish_failed = True
            return
        self._published = facts
        self._publish_failed = False


@contextmanager
def _signals_to(received: list[int]) -> Iterator[int]:
    """Collect the signals that mean stop. Yields a descriptor that any signal makes readable."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    def wake(_number: int, _frame: FrameType | None) -> None:
        """Do nothing when a child ended: the write to the descriptor is enough."""

    handlers: dict[int, Any] = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGCHLD: wake}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup keeps its meaning
        handlers[signal.SIGHUP] = stop
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    wakeup_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


CREDENTIAL = "bucket"
"""The name of the credentials file that systemd hands over (LoadCredential)."""

SERVICES: dict[str, Callable[[Settings], Command]] = {
    # The journal of the machine keeps and rotates what the server says.
    "nfs": partial(ganesha, log="STDERR"),
    "drain": drain,
    "cache": cache,
    "checkpoints": checkpoints,
    "recovery": recovery,
    "admin": admin,
}
SWITCHED_OFF = 77
"""The exit status by which a unit knows that the configuration switched its process off."""


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", choices=tuple(SERVICES), help="the process")
    parser.add_argument(
        "--ended", action="store_true", help="note how the service ended (for the unit)"
    )


def serve(args: argparse.Namespace) -> int:
    """Become the process. Returns with --ended, or if it is switched off. Raises UserError."""
    _take_credentials()
    settings = loader.load(args.config)
    say = logs.Output(settings.gateway.log_format).say
    command = SERVICES[args.service](settings)
    if args.ended:
        daemon.ended(settings, command.name, os.environ)
        return 0
    if args.service == "admin" and not settings.admin.enabled:
        say("spillway", "the admin API is switched off (admin.enabled)")
        process.tell(process.READY)
        return SWITCHED_OFF
    local.require_data_dir(settings)
    make_directories(settings)
    daemon.join(settings, command.name)
    if args.service == "nfs":
        check(settings)
        say("spillway", who_may_mount(settings))
        say("spillway", f"mount it: {mount_command(settings)}")
    become(command)
    return 1


def become(command: Command) -> None:
    """Replace this process by a program. Raises UserError."""
    sys.stdout.flush()
    try:
        os.execve(command.argv[0], command.argv, {**command.environ})
    except OSError as exc:
        raise UserError(f"cannot start {command.argv[0]}: {exc.strerror}: install it") from None


def _take_credentials() -> None:
    """Use the bucket's credentials that systemd handed over, if it did. A comment alone stands
    for none: then the keys of the configuration, the environment or the role of the machine
    count."""
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    if directory is None:
        return
    file = Path(directory) / CREDENTIAL
    if file.is_file() and file.read_text(encoding="utf-8").strip("# \n"):
        os.environ[variable_of("bucket", "credentials_file")] = str(file)
