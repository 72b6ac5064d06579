"""Identity of who gives a command: change of user, name of the person, record in the audit log.

Of root, a command becomes the user of the gateway: what root makes in the data directory, like a
lock or a log of SQLite, would keep the gateway's own processes from working.

Commands on the gateway are recorded in the audit log, where the calls of the admin API are. As with
a call, the row is there before the command begins and is completed after it: a row without a status
says that the command was ended. A command is not refused because the log cannot be written: on a
full disk a person must be able to delete.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shlex
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gateway.common import retry
from gateway.common.errors import SpillwayError, StoreError, UserError
from gateway.common.models import to_json
from gateway.common.text import shown
from gateway.config import loader

_kept: list[str] = []


def keep() -> None:
    """Keep the name: the process becomes another user."""
    _kept.append(name())


def name() -> str:
    """Return the name of the user who runs the command, or who called sudo."""
    if _kept:
        return _kept[0]
    if user := os.environ.get("SUDO_USER"):
        return shown(user)
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


FILES = ("file", "policy")
"""The options that name a file that is read."""


def become(args: argparse.Namespace) -> None:
    """Read what only root may read, and become the owner of the data directory, if this is root.

    Without a data directory nothing is done: the command says that it is not there. Raises
    UserError for a configuration that cannot be used.
    """
    if os.geteuid() != 0:
        return
    settings = loader.load(args.config)
    given = [getattr(args, name, None) for name in FILES]
    files = [Path(file) for file in given if isinstance(file, str)]
    become_owner(settings.data_dir, settings.credentials_file, *files)


def become_owner(data_dir: Path, *files: Path) -> None:
    """Read what only root may read, and become the owner of a data directory, if this is root and
    it is there. Raises UserError.

    Args:
        data_dir: the data directory.
        files: what is read.
    """
    try:
        stat = data_dir.stat()
    except OSError:
        return
    if os.geteuid() != 0 or stat.st_uid == 0:
        return
    for file in files:
        retry.keep(file)
    keep()
    try:
        _become(stat.st_uid, stat.st_gid)
    except PermissionError:
        raise UserError(
            f"cannot become user {stat.st_uid}, who owns {data_dir}: allow CAP_SETUID "
            "and CAP_SETGID, or run as that user"
        ) from None


def _become(uid: int, gid: int) -> None:
    groups = [gid]
    with suppress(KeyError):  # a user that has no name here
        known = pwd.getpwuid(uid)
        gid, groups = known.pw_gid, os.getgrouplist(known.pw_name, known.pw_gid)
        os.environ["HOME"] = known.pw_dir
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)


CHANGING: dict[str, frozenset[str] | None] = {
    **dict.fromkeys(("mkdir", "chown", "chmod", "mv", "rm", "evict", "warm")),
    **dict.fromkeys(f"checkpoint {verb}" for verb in ("promote", "pin", "unpin", "delete")),
    **dict.fromkeys(("promotion remove", "trash restore", "trash release", "trash empty")),
    **dict.fromkeys(("bucket setup", "upgrade", "adopt", "reconcile", "fsck", "scrub")),
    **dict.fromkeys(("backup", "import")),
    "policy": frozenset({"set", "remove", "enable", "disable", "approve", "clock"}),
    "export": frozenset({"set", "remove", "reload"}),
    "job": frozenset({"cancel"}),
    "token": frozenset({"create", "add", "revoke"}),
    "queue": frozenset({"bump", "hold", "cancel", "release", "retry"}),
}
"""The commands that change something, with the verbs that do (None: all)."""
ONLY_WITH = {"fsck": "repair", "bucket setup": "apply", "import": "source"}
"""The option or argument without which a command changes nothing."""
HASH = "$argon2"
"""How the hash of a token begins (spillway token add)."""
TEXT_MAX = 4096
FAILURES = (SpillwayError, sqlite3.Error)
DONE, NOT_DONE = 200, 409
"""How a command ended, as the status of HTTP that a call of the admin API would have."""


class CommandRecord:
    """What a command says of itself."""

    after: Any = None
    """What was changed, as it is now."""
    status_code: int | None = None
    """Its exit status."""


def changes(args: argparse.Namespace) -> bool:
    """Return whether a command is one that changes something."""
    if args.command not in CHANGING:
        return False
    verbs = CHANGING[args.command]
    if verbs is not None and args.verb not in verbs:
        return False
    if args.command == "policy" and args.verb == "clock":
        return bool(args.confirm)
    return bool(getattr(args, ONLY_WITH.get(args.command, "command")))


@contextmanager
def recorded(args: argparse.Namespace, words: Sequence[str]) -> Iterator[CommandRecord]:
    """Record a command that changes something.

    Args:
        words: words of its command line.
    """
    record = CommandRecord()
    if not changes(args):
        yield record
        return
    with _log(args, words) as complete:
        try:
            yield record
        except (UserError, StoreError) as exc:
            complete(NOT_DONE, shown(str(exc)), record)
            raise
        complete(NOT_DONE if record.status_code else DONE, None, record)


@contextmanager
def _log(args: argparse.Namespace, words: Sequence[str]) -> Iterator[Any]:
    """Add the row of a command. Yields what completes it."""
    # The imports are here because every command imports this module.
    from admin_api import audit
    from admin_api.store import open_store

    settings = loader.load(args.config)
    if not settings.run_dir.is_dir() or settings.data_dir.stat().st_uid != os.geteuid():
        # The disk is not mounted, or another user's: no log may be made there. The command says so.
        yield lambda *_: None
        return
    origin = audit.CallOrigin(name(), None, "", "", "COMMAND", _text(words))
    try:
        store = open_store(settings)
        try:
            with store.writing() as session:
                entry = audit.begin_row(session, origin)
        except FAILURES:
            store.close()
            raise
    except FAILURES as exc:
        _warn(exc)
        yield lambda *_: None
        return

    def complete(status: int, detail: str | None, record: CommandRecord) -> None:
        after = None if record.after is None else json.dumps(to_json(record.after))
        try:
            with store.writing() as session:
                audit.complete(session, entry, audit.CallOutcome(status, detail, after=after))
        except FAILURES as exc:
            _warn(exc)

    try:
        yield complete
    finally:
        store.close()


def _text(words: Sequence[str]) -> str:
    visible = ("…" if word.startswith(HASH) else word for word in words)
    return shown(f"spillway {shlex.join(visible)}")[:TEXT_MAX]


def _warn(exc: Exception) -> None:
    print(f"spillway: the audit log lacks this command: {exc}", file=sys.stderr)
