"""Has a command that root gives run as the user of the gateway.

What root makes in the data directory, like a lock or a log of SQLite, would keep the gateway's own
processes from working.
"""

from __future__ import annotations

import argparse
import os
import pwd
from contextlib import suppress
from pathlib import Path

from gateway import config, early
from gateway.cli import user
from gateway.errors import UserError

FILES = ("file", "policy")
"""The options that name a file that is read."""


def become(args: argparse.Namespace) -> None:
    """Read what only root may read, and become the owner of the data directory, if this is root.

    Without a data directory nothing is done: the command says that it is not there. Raises
    UserError for a configuration that cannot be used.
    """
    if os.geteuid() != 0:
        return
    settings = config.load(args.config)
    try:
        found = settings.data_dir.stat()
    except OSError:
        return
    if found.st_uid == 0:
        return
    early.keep(settings.credentials_file)
    for name in FILES:
        if isinstance(given := getattr(args, name, None), str):
            early.keep(Path(given))
    user.keep()
    try:
        _become(found.st_uid, found.st_gid)
    except PermissionError:
        raise UserError(
            f"cannot become user {found.st_uid}, who owns {settings.data_dir}: allow CAP_SETUID "
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
