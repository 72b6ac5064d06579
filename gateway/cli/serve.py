"""`spillway serve`: becomes one process of the gateway. The units of systemd start it.

What ``up`` does for all processes, each service does for itself: it takes its part of the lock of
the data directory and is named in run/up.json. What must hold before the NFS server starts is
checked by its own service.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gateway import config, logs, notify, services
from gateway.cli import checks, up
from gateway.cli.child import Command
from gateway.cli.init import make_directories
from gateway.config import variable_of
from gateway.errors import UserError
from gateway.settings import Settings

CREDENTIAL = "bucket"
"""The name of the credentials file that systemd hands over (LoadCredential)."""

SERVICES: dict[str, Callable[[Settings], Command]] = {
    # The journal of the machine keeps and rotates what the server says.
    "nfs": partial(up.ganesha, log="STDERR"),
    "drain": up.drain,
    "cache": up.cache,
    "checkpoints": up.checkpoints,
    "admin": up.admin,
}
SWITCHED_OFF = 77
"""The exit status by which a unit knows that the configuration switched its process off."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", choices=tuple(SERVICES), help="the process")
    parser.add_argument(
        "--ended", action="store_true", help="note how the service ended (for the unit)"
    )


def run(args: argparse.Namespace) -> int:
    """Become the process. Returns with --ended, or if it is switched off. Raises UserError."""
    _take_credentials()
    settings = config.load(args.config)
    say = logs.Output(settings.gateway.log_format).say
    command = SERVICES[args.service](settings)
    if args.ended:
        services.ended(settings, command.name, os.environ)
        return 0
    if args.service == "admin" and not settings.admin.enabled:
        say("spillway", "the admin API is switched off (admin.enabled)")
        notify.tell(notify.READY)
        return SWITCHED_OFF
    checks.require_data_dir(settings)
    make_directories(settings)
    services.join(settings, command.name)
    if args.service == "nfs":
        up.check(settings)
        say("spillway", up.who_may_mount(settings))
        say("spillway", f"mount it: {up.mount_command(settings)}")
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
