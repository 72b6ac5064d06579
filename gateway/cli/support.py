"""Command `spillway support-bundle`: one file with what a person needs who helps with this gateway.

Nothing is changed, and nothing needs to run: what does not answer is left out, and the list of the
parts says so. Of root the command reads the journal, and then becomes the owner of the data
directory, as other commands do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import IO, Any

from gateway.cli import caller, output
from gateway.cli.bundle import Bundle, NameMask, SecretMask
from gateway.common import clock
from gateway.common.errors import UserError
from gateway.common.models import from_json, to_json
from gateway.common.units import size
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.namespace import names_log
from gateway.service import configuration
from gateway.service.status import Status

UNITS = ("nfs", "drain", "cache", "checkpoints", "recovery", "admin")
LOG_MIB = 4
FILES_MAX = 20
"""The log files that are taken: those that were written last."""
JOURNAL_LINES = 200_000
AUDIT_ROWS = 200
COMMAND_SECONDS = 15.0
SECRET_NAMES = re.compile(r"(?i)secret|token|passw|_key")
"""The names of environment variables, and of keys of the credentials file, that have secrets."""
VARIABLE_MIN = 8
_MIB = 1 << 20


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        type=Path,
        help="the new .tar.gz, or a directory for it (default: the current directory); best on "
        "another disk than the gateway's",
    )
    parser.add_argument(
        "--names",
        action="store_true",
        help="leave the names of runs and files in status, alarms, metrics and reports; add the "
        "log of names and the parameters of audited calls",
    )
    parser.add_argument(
        "--no-logs",
        action="store_true",
        help="leave out logs/: the logs and the journal quote names of runs and files, also "
        "without --names",
    )
    parser.add_argument(
        "--log-mib",
        type=int,
        default=LOG_MIB,
        metavar="N",
        help=f"the last N MiB of each log and unit (1 to 64, default: {LOG_MIB})",
    )
    output.option(parser)


def run(args: argparse.Namespace) -> int:
    """Make a bundle. Returns 1 when a part is not in it. Raises UserError."""
    if not 1 <= args.log_mib <= 64:
        raise UserError(f"--log-mib {args.log_mib}: must be from 1 to 64")
    path = _target(args.file)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UserError(f"{path} is there already: name another file") from None
    except OSError as exc:
        raise _unwritten(path, exc) from None
    with os.fdopen(descriptor, "wb") as file:
        try:
            bundle = _filled(args, file)
        except BaseException as exc:
            _drop(path, file)
            if isinstance(exc, OSError):
                raise _unwritten(path, exc) from None
            raise
        length = os.fstat(file.fileno()).st_size
    facts = {"file": str(path), "bytes": length, "parts": bundle.sizes, "failed": bundle.failures}
    lines = [f"{path}: {len(bundle.sizes)} parts, {size(length)}"]
    lines += [f"NOT IN IT: {name}: {reason}" for name, reason in bundle.failures.items()]
    if not args.no_logs:
        lines.append("logs/ in it quotes names of runs and files: --no-logs leaves it out")
    output.show(facts, "\n".join(lines), args.json)
    return 1 if bundle.failures else 0


def _target(given: Path | None) -> Path:
    path = (given or Path()).expanduser().absolute()
    if not path.is_dir():
        return path
    moment = datetime.fromtimestamp(clock.now_ns() // clock.NS, UTC)
    return path / f"spillway-support-{socket.gethostname()}-{moment:%Y%m%dT%H%M%SZ}.tar.gz"


def _unwritten(path: Path, exc: OSError) -> UserError:
    return UserError(
        f"no bundle was made: cannot write {path}: {exc.strerror}: name a file on a disk with "
        "space: spillway support-bundle /DIRECTORY/FILE"
    )


def _drop(path: Path, file: IO[bytes]) -> None:
    """Remove what was begun. A directory of root's may refuse: the file is then empty."""
    with suppress(OSError):
        # What is buffered would be written when the file is closed.
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.ftruncate(file.fileno(), 0)
        os.dup2(null, file.fileno(), inheritable=False)
        os.close(null)
        path.unlink()


def _filled(args: argparse.Namespace, file: IO[bytes]) -> Bundle:
    """Gather all parts. Raises OSError if the archive cannot be written."""
    settings, why = _settings(args.config)
    bundle = Bundle(file, SecretMask(_secrets(settings)))
    if not args.no_logs:
        _add_journal(bundle, args.log_mib * _MIB)
    if settings is None:
        bundle.failures["configuration.json"] = bundle.mask(why)
    else:
        try:
            caller.become_owner(settings.data_dir, settings.credentials_file)
        except UserError as exc:
            bundle.failures["user"] = str(exc)
    bundle.add("versions.json", partial(_versions, settings))
    bundle.add("disk/df.txt", lambda: _printed("df", "-PTk", "-l") + _printed("df", "-Pil"))
    bundle.add("disk/mounts.txt", lambda: Path("/proc/self/mounts").read_text())
    if settings is not None:
        _Parts(bundle, settings, has_names=args.names).add()
        if not args.no_logs:
            _add_logs(bundle, settings, args.log_mib * _MIB, has_names=args.names)
    bundle.end(_about(args))
    return bundle


def _settings(path: Path) -> tuple[Settings | None, str]:
    """Return the settings, or None and why they cannot be read."""
    try:
        return loader.load(path), ""
    except UserError as exc:
        return None, str(exc)


def _about(args: argparse.Namespace) -> Iterator[str]:
    yield f"spillway {version('spillway')} support bundle, {clock.iso(clock.now_ns())}"
    yield "Credentials, tokens and passwords are masked everywhere."
    named = "are as they are" if args.names else "are masked (name-N)"
    yield f"Names of runs and files {named} in status, alarms, metrics, reports and audit."
    if not args.no_logs:
        yield "logs/ quotes names of runs and files."


def _secrets(settings: Settings | None) -> Iterator[str]:
    """Yield each secret that is known: of the environment, the configuration and its files."""
    # A shorter value of a variable is a switch, like that of TOKENIZERS_PARALLELISM.
    for name, value in os.environ.items():
        if SECRET_NAMES.search(name) and len(value) >= VARIABLE_MIN:
            yield value
    if settings is None:
        return
    with suppress(OSError):
        for line in settings.credentials_file.read_text(errors="replace").splitlines():
            name, equals, value = line.partition("=")
            if equals and SECRET_NAMES.search(name):
                yield value.strip()
    yield from configuration.secrets_of(settings)


def _add_journal(bundle: Bundle, most_bytes: int) -> None:
    if shutil.which("journalctl") is None:
        return  # without systemd the processes print into the output of spillway up
    for unit in UNITS:
        options = ("--no-pager", "--quiet", "--output=short-iso", f"--lines={JOURNAL_LINES}")
        command = ("journalctl", *options, f"--unit=spillway-{unit}")
        bundle.add(f"logs/journal-{unit}.txt", partial(_printed, *command, most_bytes=most_bytes))


def _printed(*command: str, most_bytes: int = _MIB) -> str:
    """Return the end of what a program prints. Raises UserError, OSError."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} did not end within {COMMAND_SECONDS:.0f} s") from None
    if done.returncode and not done.stdout:
        raise UserError(f"{command[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout[-most_bytes:].decode(errors="replace")


def _versions(settings: Settings | None) -> str:
    facts: dict[str, Any] = {
        "spillway": version("spillway"),
        "python": sys.version,
        "kernel": " ".join(platform.uname()),
        "libraries": {},
    }
    for requirement in requires("spillway") or ():
        if match := re.match(r"[\w.-]+", requirement):
            with suppress(PackageNotFoundError):
                facts["libraries"][match[0]] = version(match[0])
    with suppress(OSError):
        facts["system"] = platform.freedesktop_os_release().get("PRETTY_NAME")
    if settings is not None:
        try:
            facts["ganesha"] = _printed(str(settings.nfs.ganesha), "-v").strip()
        except (UserError, OSError) as exc:
            facts["ganesha"] = f"not known: {exc}"
    return _json(facts)


def _json(found: Any) -> str:
    return json.dumps(to_json(found), indent=1)


class _Parts:
    """The parts about a gateway whose configuration can be read.

    Args:
        bundle: that they are added to.
        settings: of the gateway.
        has_names: whether the names of runs and files stay.
    """

    def __init__(self, bundle: Bundle, settings: Settings, *, has_names: bool) -> None:
        self._bundle = bundle
        self._settings = settings
        self._has_names = has_names
        known = (str(settings.data_dir), str(settings.files_dir))
        self._names = NameMask(settings.nfs.export, known)
        self._status: Status | None = None

    def add(self) -> None:
        """Add them. Raises OSError if the archive cannot be written."""
        settings, add = self._settings, self._bundle.add
        add("configuration.json", lambda: _json(configuration.model(settings)))
        add("status.json", self._gathered)
        add("alarms.json", self._alarms)
        add("metrics.txt", self._metrics)
        add("bucket.json", self._bucket)
        add("database.json", lambda: _json(_database(settings)))
        add("audit.json", self._audit)
        add("disk/data-directory.txt", partial(_listing, settings.data_dir))
        add("disk/run.txt", partial(_listing, settings.run_dir))
        add("disk/log.txt", partial(_listing, settings.log_dir))
        with suppress(OSError):
            for report in sorted(settings.run_dir.glob("*.json"))[:FILES_MAX]:
                add(f"reports/{report.name}", partial(self._report, report))

    def _masked(self, document: Any) -> Any:
        return document if self._has_names else self._names.masked(document)

    def _gathered(self) -> str:
        from gateway.db.schema import opened, reading
        from gateway.service import status

        with opened(self._settings.database_url) as database:
            quick = status.gather_quickly(self._settings, database)
            with reading(database) as session:
                found = status.counted(quick, status.count(session))
        # Alarms and metrics are made of it too, and so have no other names.
        document = self._masked(to_json(found))
        self._status = from_json(Status, document)
        return _json(document)

    def _known_status(self) -> Status:
        if self._status is None:
            raise UserError("there is no status, of which it is made")
        return self._status

    def _alarms(self) -> str:
        from gateway.service import alarms

        found = self._known_status()
        texts = [alarm._asdict() for alarm in alarms.alarms_of(found)]
        return _json({"alarms": alarms.of(found), "texts": texts})

    def _metrics(self) -> str:
        # The import is here because an installation may lack the libraries of the admin API.
        from admin_api import metrics

        return metrics.text_of(metrics.of_gateway(self._known_status(), self._settings)).decode()

    def _bucket(self) -> str:
        from gateway.service import bucket

        return _json(bucket.probe(self._settings))

    def _audit(self) -> str:
        from admin_api import audit
        from gateway.db.engine import Database

        path = self._settings.admin_db
        if not path.exists():
            raise UserError(f"there is no {path}")
        with closing(Database(f"sqlite:///{path}")) as store, store.reading() as session:
            rows = audit.listed(session, most=AUDIT_ROWS)
            calls = [to_json(audit.model(row)) for row in rows]
        return _json(calls if self._has_names else [_without_parameters(call) for call in calls])

    def _report(self, report: Path) -> str:
        return _json(self._masked(json.loads(report.read_text())))


def _without_parameters(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call without what may name files: only what was called is left of its path."""
    words = str(call["path"]).split(" ")[:2] if call["method"] == "COMMAND" else None
    path = " ".join(words) if words else "/".join(str(call["path"]).split("/")[:4])
    left = {name: call[name] for name in ("id", "at", "who", "token_id", "address", "request_id")}
    return {**left, "method": call["method"], "path": path, "status": call["status"]}


def _database(settings: Settings) -> dict[str, Any]:
    """Return engine, schema and sizes. Raises UserError, TryAgain."""
    from sqlalchemy import cast, func, select
    from sqlalchemy.dialects.postgresql import REGCLASS

    from gateway.db import checkpoint_models, schema
    from gateway.db.compiled import Session, Statement
    from gateway.db.engine import Database

    with closing(Database(settings.database_url)) as database:
        if (reason := database.backend.missing()) is not None:
            raise UserError(reason)
        facts: dict[str, Any] = {
            "url": database.url,
            "engine": database.dialect.name,
            "schema": schema.current(database),
            "schema_of_this_program": schema.known()[-1],
        }
        is_sqlite = database.path is not None
        shown = func.sqlite_version() if is_sqlite else func.version()
        tables: dict[str, Any] = {}
        with database.reader() as connection:
            session = Session(connection, database.dialect)
            facts["engine_version"] = session.all(Statement(select(shown)))[0][0]
            for table in checkpoint_models.Base.metadata.sorted_tables:
                count = select(func.count()).select_from(table)
                try:
                    rows = session.all(Statement(count))[0][0]
                    tables[table.name] = {"rows": rows}
                    if not is_sqlite:
                        whole = func.pg_total_relation_size(cast(table.name, REGCLASS))
                        tables[table.name]["bytes"] = session.all(Statement(select(whole)))[0][0]
                except database.backend.errors as exc:
                    # A database of another release lacks some of the tables.
                    tables[table.name] = {"error": str(exc).partition("\n")[0]}
        facts["tables"] = tables
    if (path := database.path) is not None:
        ends = ("", "-wal", "-shm")
        files = [file for end in ends if (file := Path(f"{path}{end}")).exists()]
        facts["files"] = {file.name: file.stat().st_size for file in files}
    return facts


def _listing(directory: Path) -> str:
    """Return what is directly in a directory, a line each. Raises OSError."""
    lines = []
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        found = entry.stat(follow_symlinks=False)
        changed = clock.iso(found.st_mtime_ns)
        owner = f"{found.st_uid}:{found.st_gid}"
        mode = stat.filemode(found.st_mode)
        lines.append(f"{mode} {owner:>12} {found.st_size:>15} {changed} {entry.name}\n")
    return "".join(lines)


def _add_logs(bundle: Bundle, settings: Settings, most_bytes: int, *, has_names: bool) -> None:
    """Add the ends of the files in log/."""
    try:
        files = [path for path in settings.log_dir.iterdir() if path.is_file()]
        files.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except OSError as exc:
        bundle.failures["logs"] = f"cannot list {settings.log_dir}: {exc.strerror}"
        return
    for path in files[:FILES_MAX]:
        if has_names or not path.name.startswith(names_log.FILE):
            bundle.add(f"logs/{path.name}", partial(_end_of, path, most_bytes))


def _end_of(path: Path, most_bytes: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes).decode(errors="replace")
