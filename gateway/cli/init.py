"""Command `spillway init`: makes everything a gateway needs before its first start.

Every step checks what is there and makes only what is missing. So the command can be run again at
any time, after an upgrade for instance. It never deletes anything.
"""

from __future__ import annotations

import argparse
import configparser
import getpass
import io
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gateway.cli import comparison, database, local
from gateway.common.errors import IdentityError, NamespaceError, SchemaError, StoreError, UserError
from gateway.common.files import replace
from gateway.config import loader
from gateway.config.checks import in_the_clear
from gateway.config.settings import SECTIONS, Settings
from gateway.db import schema
from gateway.db.engine import Database
from gateway.namespace import identity
from gateway.namespace.data_files import DataFiles
from gateway.nfs import ganesha_conf
from gateway.nfs.export_service import at_start

OWN_NAMES = {
    "files",
    "log",
    "run",
    "recovery",
    "ganesha.conf",
    "credentials",
    "namespace.db",
    "lost+found",
    "set-aside",
}
"""Names that a data directory may have before a gateway takes it over."""

OPTIONS = (
    ("data-dir", "gateway", "data_dir", "DIR", "directory of all local data (on the NVMe)"),
    ("bucket", "bucket", "name", "NAME", "bucket to drain to"),
    ("endpoint-url", "bucket", "endpoint_url", "URL", "URL of the S3 server (none: AWS)"),
    ("region", "bucket", "region", "NAME", "region, as the S3 server names it"),
    ("prefix", "bucket", "prefix", "PREFIX", "objects are <prefix>/<path>"),
    ("port", "nfs", "port", "N", "TCP port of the NFS server"),
    ("bind", "nfs", "bind", "ADDRESS", "IP address the NFS server listens on"),
    ("export", "nfs", "export", "PATH", "path that clients mount"),
    ("namespace-url", "namespace", "url", "URL", "database (none: SQLite in the data directory)"),
)
"""Option, section, key, name of the value, help."""

Values = Mapping[str, Mapping[str, Any]]
"""Keys of the configuration, by section."""
FORMER = ".before-restore"
"""The end of the name of a configuration as it was before it was completed."""

_KEY_NAMES = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


class Completion(Protocol):
    """What completes a configuration that a person gave."""

    def complete(self, settings: Settings, given: Values) -> Values:
        """Return the values with which a gateway is made.

        Args:
            settings: as they were given.
            given: their values.

        Raises:
            UserError, StoreError: it cannot be completed.
        """

    def refused(self, reason: str) -> None:
        """Note that the file cannot be changed, so that it stays as it is."""


class Keys(NamedTuple):
    """Bucket credentials. The secret is never printed and never part of an error."""

    key_id: str
    secret: str
    token: str | None
    """Session token of temporary credentials."""

    def __repr__(self) -> str:
        return f"Keys({self.key_id!r})"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of which a configuration is made."""
    for option, _section, _key, metavar, text in OPTIONS:
        kind = int if option == "port" else str
        parser.add_argument(f"--{option}", metavar=metavar, help=text, type=kind)
    parser.add_argument(
        "--access-key-id",
        metavar="ID",
        help="key id of the bucket (default: AWS_ACCESS_KEY_ID); "
        "its secret is taken from AWS_SECRET_ACCESS_KEY or asked for",
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    setup_arguments(parser)
    parser.add_argument(
        "--new",
        action="store_true",
        help="make a new namespace although this configuration has had one, whose database is gone",
    )
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="take the prefix also if it has another owner, or objects and no owner",
    )
    parser.add_argument(
        "--import",
        dest="imports",
        action="store_true",
        help="also make files of the objects there, where they are (with --adopt)",
    )


def run(args: argparse.Namespace) -> int:
    """Set the gateway up and print what was done. Raises UserError."""
    if args.imports and not args.adopt:
        raise UserError(
            "--import makes files of the objects of a prefix that is taken: add --adopt"
        )
    settings = prepared(args, _say, adopts=args.adopt, is_new=args.new)
    _say(database.make_current(settings))
    _say(identity.remember(settings))
    _say(_files(settings))
    if warning := in_the_clear(settings.bucket.endpoint_url):
        _say(f"bucket.endpoint_url {warning}")
    exports, _left_out = at_start(settings)
    written = ganesha_conf.write(settings, exports)
    _say(f"NFS server configuration {settings.ganesha_conf}: {'written' if written else 'current'}")
    _say(_bucket(settings, args.adopt))
    if args.imports:
        _say(comparison.import_objects(settings))
    _say(f"next: spillway up --config {settings.source}")
    return 0


def prepared(
    args: argparse.Namespace,
    say: Callable[[str], None],
    adopts: bool = True,
    is_new: bool = True,
    completion: Completion | None = None,
) -> Settings:
    """Make the configuration, the directories and the credentials file, as far as they are missing.

    Args:
        args: with the options of ``setup_arguments``.
        say: takes a line for each.
        adopts: whether the bucket may have objects.
        is_new: whether the configuration may have had a namespace whose database is gone.
        completion: completes the configuration when the bucket can be reached.

    Returns:
        The settings.

    Raises:
        UserError: something cannot be made, or is another's.
    """
    path: Path = args.config
    keys = _keys(args.access_key_id)
    text = None if path.exists() else loader.render(_new_values(args, path))
    settings = (
        loader.load(path)
        if text is None
        else loader.from_mapping(tomllib.loads(text), os.environ, path)
    )
    # This raises for a value that Ganesha's syntax cannot express, before anything is made.
    ganesha_conf.render(settings)
    if settings.data_dir.is_dir():
        # Another user cannot read the database there, so the look at it would give that reason.
        local.require_data_dir(settings)
    if not is_new:
        identity.require_database(settings)
    _require_free(settings, keys, adopts)
    # The directory is first: if data_dir cannot be made, no file that names it may be left behind.
    say(_data_dir(settings))
    if completion is None:
        say(_configuration(args, text))
    say(_directories(settings))
    say(_credentials(settings, keys))
    if completion is not None:
        settings = _completed(args, text, settings, completion, say)
    return settings


def _configuration(args: argparse.Namespace, text: str | None) -> str:
    """Write the configuration, if there is none. Raises UserError."""
    path: Path = args.config
    if text is None:
        return f"configuration {path}: exists, kept as it is{_ignored(args)}"
    _write_config(path, text)
    taken = ", ".join(_variables().values())
    return f"configuration {path}: written{f', with {taken}' if taken else ''}"


def _completed(
    args: argparse.Namespace,
    text: str | None,
    settings: Settings,
    completion: Completion,
    say: Callable[[str], None],
) -> Settings:
    """Write the configuration, with what completes it. Returns the settings. Raises UserError."""
    path: Path = args.config
    given = tomllib.loads(path.read_text(encoding="utf-8") if text is None else text)
    values = completion.complete(settings, given)
    if values == given:
        say(_configuration(args, text))
        return settings
    whole = loader.render(values)
    completed = loader.from_mapping(tomllib.loads(whole), os.environ, path)
    ganesha_conf.render(completed)
    if text is not None:
        say(_configuration(args, whole))
        return completed
    former = path.with_name(f"{path.name}{FORMER}")
    try:
        with suppress(FileExistsError):
            os.link(path, former)
        replace(path, whole, path.stat().st_mode & 0o777)
    except OSError as exc:
        say(f"configuration {path}: exists, and cannot be changed ({exc.strerror}): kept as it is")
        completion.refused(f"{path} cannot be changed")
        return settings
    say(f"configuration {path}: completed; as it was: {former}{_ignored(args)}")
    return completed


def make_directories(settings: Settings) -> bool:
    """Make the directories below data_dir; `up` calls it too. Raises UserError.

    It does not make that of the data files: if their disk is not mounted, it would be in the wrong
    place. Returns False if all were there.
    """
    with _explained(settings):
        missing = [
            path
            for path in (settings.log_dir, settings.run_dir, settings.recovery_dir)
            if not path.is_dir()
        ]
        for path in missing:
            path.mkdir(mode=0o700)
    return bool(missing)


def make_files_directory(settings: Settings) -> bool:
    """Make the directory of the data files. Returns False if it was there. Raises UserError."""
    with _explained(settings):
        files = DataFiles(settings.files_dir)
        if files.is_made:
            return False
        files.create()
    return True


@contextmanager
def _explained(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise UserError(
            f"cannot make {exc.filename}: {exc.strerror}: check mode and owner of "
            f"{settings.data_dir}"
        ) from None


def _say(line: str) -> None:
    print(line, flush=True)


def _new_values(args: argparse.Namespace, path: Path) -> dict[str, dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {}
    for option, section, key, _metavar, _text in OPTIONS:
        given = getattr(args, option.replace("-", "_"))
        if given is None:
            continue
        if not str(given).isprintable():
            raise UserError(f"--{option} holds characters that cannot be written: correct it")
        if key == "data_dir":
            given = str(Path(given).expanduser().absolute())
        values.setdefault(section, {})[key] = given
    if "name" not in values.get("bucket", {}) and "SPILLWAY_BUCKET_NAME" not in os.environ:
        raise UserError(
            f"no bucket given: run: spillway init --bucket NAME --config {path} "
            "(see spillway init --help)"
        )
    # Without these the next command, which may lack the variables, would use another gateway.
    for (section, key), value in _from_environment(values, path).items():
        values.setdefault(section, {})[key] = value
    return values


def _variables() -> dict[tuple[str, str], str]:
    """Return the environment variables that override a key, by section and key."""
    return {
        (section, key.name): variable
        for section, cls in SECTIONS.items()
        for key in fields(cls)
        if (variable := loader.variable_of(section, key.name)) in os.environ
    }


def _from_environment(given: dict[str, dict[str, Any]], path: Path) -> dict[tuple[str, str], Any]:
    """Return the values that the environment sets, by section and key.

    Args:
        given: the values of options.

    Raises:
        UserError: an option differs.
    """
    variables = _variables()
    for (section, key), variable in variables.items():
        text = os.environ[variable]
        if str(given.get(section, {}).get(key, text)) != text:
            option = next(option for option, *where in OPTIONS if where[:2] == [section, key])
            raise UserError(f"--{option} and {variable} differ: give one of them")
        if not text.isprintable():
            raise UserError(f"{variable} holds characters that cannot be written: correct it")
    settings = loader.from_mapping(given, os.environ, path)
    return {(section, key): getattr(getattr(settings, section), key) for section, key in variables}


def _ignored(args: argparse.Namespace) -> str:
    given = [
        f"--{option}"
        for option, *_ in OPTIONS
        if getattr(args, option.replace("-", "_")) is not None
    ]
    note = f"; {', '.join(given)} ignored: edit the file instead" if given else ""
    if variables := _variables():
        note += f"; {', '.join(variables.values())} not written to it: needed by each command"
    return note


def _write_config(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # namespace.url may hold a password.
        replace(path, text, 0o600)
    except OSError as exc:
        raise UserError(
            f"cannot write {path}: {exc.strerror}: choose another place with --config or the "
            "environment's SPILLWAY_CONFIG"
        ) from None


def _data_dir(settings: Settings) -> str:
    """Make the data directory private and ours. Raises UserError if other programs use it."""
    path = settings.data_dir
    try:
        made = not path.is_dir()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        wrong_mode = path.stat().st_mode & 0o777 != 0o700
        beside = {settings.source.name, identity.id_file(settings).name}
        foreign = {entry.name for entry in path.iterdir()} - OWN_NAMES - beside
    except OSError as exc:
        raise UserError(
            f"cannot use data directory {path}: {exc.strerror}: choose a directory that you may "
            "write with --data-dir (or gateway.data_dir)"
        ) from None
    if wrong_mode and foreign and not (path / "namespace.db").exists():
        # To take a directory such as /tmp or a home from its users would be worse than any error.
        raise UserError(
            f"data directory {path} holds other files ({min(foreign)}): give one of its own"
        )
    local.require_data_dir(settings)
    if wrong_mode:
        path.chmod(0o700)
    state = "made" if made else "mode set to 0700" if wrong_mode else "exists"
    return f"data directory {path}: {state}"


def _directories(settings: Settings) -> str:
    made = make_directories(settings)
    return f"directories log, run, recovery: {'made' if made else 'exist'}"


def _files(settings: Settings) -> str:
    """Make the directory of the data files and stamp it as this namespace's, once."""
    where = f"data files {settings.files_dir}"
    database = Database(settings.database_url)
    try:
        made = identity.claim(
            database, DataFiles(settings.files_dir), lambda: make_files_directory(settings)
        )
    except IdentityError as exc:
        # The remaining steps can still be done. `up` refuses to start.
        return f"data files: {exc}"
    finally:
        database.close()
    return f"{where}: {'stamped' if made else 'exist'}"


def _require_free(settings: Settings, keys: Keys | None, adopts: bool) -> None:
    """Raise UserError if a namespace that is not made yet would share its prefix. A bucket that
    cannot be asked now is asked by the drain, before it sends anything."""
    has_keys = keys is not None or settings.credentials_file.exists()
    if adopts or not has_keys or _is_made(settings):
        return
    if keys is not None:
        # They are not in the file yet. boto takes them from the environment then.
        os.environ.update(AWS_ACCESS_KEY_ID=keys.key_id, AWS_SECRET_ACCESS_KEY=keys.secret)
    # The import is here because boto3 takes half a second to import.
    from gateway.objectstore.ownership import problem_of_new

    try:
        why = problem_of_new(settings)
    except StoreError:
        return
    if why is not None:
        raise UserError(why)


def _is_made(settings: Settings) -> bool:
    try:
        schema.require_made(Database(settings.database_url))
    except SchemaError:
        return False
    return True


def _bucket(settings: Settings, adopts: bool) -> str:
    """Claim the bucket and prefix. Raises UserError if they are another's."""
    where = f"bucket {settings.bucket.name}, prefix {settings.bucket.prefix!r}"
    later = f"{where}: not asked now, the drain claims it before it sends anything"
    if not adopts and not settings.credentials_file.exists():
        return f"{later}: there are no credentials yet"
    # The import is here because boto3 takes half a second to import.
    from gateway.objectstore.ownership import Ownership

    with closing(Database(settings.database_url)) as database:
        ownership = Ownership(settings, database)
        try:
            survey = ownership.survey()
            why = survey.problem or ownership.problem()
            if why is not None and not adopts:
                raise UserError(why)
            if survey.is_owned and why is None:
                return f"{where}: this gateway's"
            ownership.take()
        except (StoreError, NamespaceError) as exc:
            if adopts:
                raise UserError(f"{where} is not adopted: {exc}") from None
            return f"{later}: {exc}"
    return f"{where}: claimed"


def _keys(key_id: str | None) -> Keys | None:
    """Return the bucket's keys, from option and environment. Raises UserError if one is missing."""
    key_id = key_id or os.environ.get("AWS_ACCESS_KEY_ID")
    secret = os.environ.get("AWS_SECRET_ACCESS_KEY")
    token = os.environ.get("AWS_SESSION_TOKEN") if secret else None
    if not key_id and not secret:
        return None
    if not key_id:
        raise UserError("AWS_SECRET_ACCESS_KEY is set without a key id: give --access-key-id ID")
    if not secret and sys.stdin.isatty():
        secret = getpass.getpass(f"Secret key of {key_id}: ")
    if not secret:
        raise UserError(
            f"no secret for key id {key_id}: set AWS_SECRET_ACCESS_KEY or run this on a terminal"
        )
    keys = Keys(key_id.strip(), secret.strip(), token)
    if not all(part.isprintable() for part in keys if part is not None):
        raise UserError("the bucket's keys hold control characters: check how they are set")
    return keys


def _credentials(settings: Settings, keys: Keys | None) -> str:
    path = settings.credentials_file
    if keys is None:
        if path.exists():
            return f"credentials {path}: exist"
        return (
            f"credentials {path}: none given; run this again with AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY set, or leave it to the drain's environment or instance role"
        )
    wanted = {"aws_access_key_id": keys.key_id, "aws_secret_access_key": keys.secret}
    if keys.token:
        wanted["aws_session_token"] = keys.token
    profiles = configparser.RawConfigParser()
    try:
        profiles.read(path, encoding="utf-8")
        if not profiles.has_section("default"):
            profiles.add_section("default")
        key_pair = {k: v for k, v in profiles.items("default") if k in _KEY_NAMES}
        written = key_pair != wanted
        if written:
            for name in _KEY_NAMES:
                profiles.remove_option("default", name)
            profiles["default"].update(wanted)
            text = io.StringIO()
            profiles.write(text)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace(path, text.getvalue(), 0o600)
        elif path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as exc:
        raise UserError(
            f"cannot write {path}: {exc.strerror}: correct bucket.credentials_file"
        ) from None
    except (configparser.Error, UnicodeDecodeError):
        # The parser's message is not shown: it quotes lines of the file, which hold secrets.
        raise UserError(f"{path} is not a credentials file: move it away") from None
    return f"credentials {path}: {'written' if written else 'current'} (mode 0600)"
