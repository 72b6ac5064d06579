"""Parses the command line, runs one command, and turns errors into one line.

Exit status: 0 done; 1 the command found something that needs a person; 2 wrong usage or
configuration; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, NoReturn

from gateway import config, interrupt
from gateway.cli import (
    admin,
    adopt,
    audit,
    bucket,
    change,
    checkpoint,
    checkpoints,
    clients,
    completion,
    configuration,
    database,
    drain,
    events,
    evict,
    export,
    first_boot,
    history,
    init,
    jobs,
    look,
    manifest,
    owner,
    pin,
    plan,
    policy,
    promote,
    queue,
    reach,
    recording,
    serve,
    statistics,
    status,
    token,
    trash,
    up,
    user,
    wait,
    warm,
)
from gateway.cli.checks import without_library
from gateway.cli.examples import EXAMPLES
from gateway.cli.local import LocalGateway
from gateway.control.gateway import Gateway
from gateway.errors import NotPossible, StoreError, UserError
from gateway.settings import DEFAULT_CONFIG

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Subcommand(NamedTuple):
    """A subcommand of ``spillway``."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    """Declares its options, except --config."""
    run: Callable[[argparse.Namespace], int] | None = None
    """Returns the exit status. Raises UserError, StoreError."""
    act: Callable[[argparse.Namespace, Gateway], int] | None = None
    """The same, of a command that is for any gateway. It also raises NotPossible."""


SUBCOMMANDS = (
    Subcommand("init", "set a gateway up", init.arguments, init.run),
    Subcommand("up", "run the gateway in the foreground", up.arguments, up.run),
    Subcommand("admin", "run the admin API by itself", admin.arguments, admin.run),
    Subcommand("serve", "run one process, for systemd", serve.arguments, serve.run),
    Subcommand(
        "first-boot", "configure a machine of an image", first_boot.arguments, first_boot.run
    ),
    Subcommand("status", "show how the gateway is", status.arguments, act=status.run),
    Subcommand("statistics", "what clients ask for", statistics.arguments, act=statistics.run),
    Subcommand("clients", "who mounts, who has a file open", clients.arguments, act=clients.run),
    Subcommand(
        "export", "further directories that hosts may mount", export.arguments, act=export.run
    ),
    Subcommand("queue", "what waits for the bucket", queue.arguments, act=queue.run),
    Subcommand(
        "checkpoints", "list runs and checkpoints", checkpoints.arguments, act=checkpoints.run
    ),
    Subcommand("checkpoint", "one checkpoint", checkpoint.show_arguments, act=checkpoint.show),
    Subcommand("policy", "which checkpoints are kept", policy.arguments, act=policy.run),
    Subcommand(
        "delete",
        "put a checkpoint in the trash",
        checkpoint.delete_arguments,
        act=checkpoint.delete,
    ),
    Subcommand("trash", "list or empty the trash", trash.arguments, act=trash.run),
    Subcommand("undelete", "take a checkpoint back", trash.undelete_arguments, act=trash.undelete),
    Subcommand("release", "let go what was removed", trash.release_arguments, act=trash.release),
    Subcommand("ls", "list names", look.ls_arguments, act=look.ls),
    Subcommand("stat", "show what is known of a path", look.stat_arguments, act=look.stat),
    Subcommand("mkdir", "make directories", change.mkdir_arguments, act=change.mkdir),
    Subcommand("chown", "give to a user or group", change.chown_arguments, act=change.chown),
    Subcommand("chmod", "set permissions", change.chmod_arguments, act=change.chmod),
    Subcommand("mv", "rename or move", change.mv_arguments, act=change.mv),
    Subcommand("rm", "remove files and trees", change.rm_arguments, act=change.rm),
    Subcommand("evict", "free the disk of what the bucket has", evict.arguments, act=evict.run),
    Subcommand("warm", "bring evicted files back to the disk", warm.arguments, act=warm.run),
    Subcommand("promote", "copy to stay", promote.promote_arguments, act=promote.promote),
    Subcommand(
        "promotions", "list promotions", promote.promotions_arguments, act=promote.promotions
    ),
    Subcommand("demote", "remove a promotion", promote.demote_arguments, act=promote.demote),
    Subcommand("pin", "keep on the disk and from policies", pin.pin_arguments, act=pin.pin),
    Subcommand("unpin", "end a pin", pin.unpin_arguments, act=pin.unpin),
    Subcommand("pins", "list what is pinned", pin.pins_arguments, act=pin.list_pins),
    Subcommand("drain", "wait until the bucket has everything", drain.arguments, drain.run),
    Subcommand("wait", "wait until a path is durable", wait.arguments, act=wait.run),
    Subcommand("plan", "size a gateway, price checkpoints", plan.arguments, plan.run),
    Subcommand(
        "verify-manifest", "compare a bucket with its manifests", manifest.arguments, manifest.run
    ),
    Subcommand(
        "bucket", "ask the bucket, and look at its settings", bucket.arguments, act=bucket.run
    ),
    Subcommand("jobs", "long work of the admin API", jobs.arguments, act=jobs.run),
    Subcommand("events", "what changes, as it happens", events.arguments, act=events.run),
    Subcommand("history", "figures of an hour or more", history.arguments, act=history.run),
    Subcommand("audit", "who changed what", audit.arguments, act=audit.run),
    Subcommand(
        "configuration",
        "the keys as they are in force",
        configuration.arguments,
        act=configuration.run,
    ),
    Subcommand("token", "who may use the admin API", token.arguments, act=token.run),
    Subcommand("upgrade", "migrate the database", database.upgrade_arguments, database.upgrade),
    Subcommand("adopt", "take over data files or a bucket", adopt.arguments, adopt.run),
    Subcommand("fsck", "check the namespace", database.fsck_arguments, database.run_fsck),
    Subcommand("completion", "complete commands in a shell", completion.arguments, completion.run),
)


FOR_ANY_GATEWAY = frozenset(one.name for one in SUBCOMMANDS if one.act is not None)
NEEDS_NO_GATEWAY = frozenset({"plan", "verify-manifest", "completion"})
"""They do the same whichever gateway is named."""
KEEPS_USER = frozenset({"init", "up", "admin", "serve", "first-boot"})
"""They make a gateway or run it, as the user who gives them."""


OF_NAMES = frozenset({"drain", "export", "queue", "policy", "demote", "jobs", "token"})
"""Commands that take a wrong name for wrong usage (exit status 2)."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}: see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Parameters: argv without the program's name (default: sys.argv).

    Returns the exit status.
    """
    try:
        program = program_parser()
        args, unknown = program.parse_known_args(argv)
        if unknown:
            # The message has only names: a value may be a URL with a password.
            names = [word.partition("=")[0] for word in unknown if word.startswith("-")]
            what = f"unknown option {', '.join(names)}" if names else "unexpected argument"
            if "--gateway" in names:
                what = "--gateway goes before the command: spillway --gateway URL COMMAND"
            raise UserError(f"{what}: see spillway --help")
        args.program = program
        args.words = sys.argv[1:] if argv is None else argv
        args.is_program = argv is None
        args.has_config = args.config is not None
        args.config = Path(args.config or _default_config()).expanduser().absolute()
        with interrupt.kept():
            status_code = _run(args)
        sys.stdout.flush()
        return status_code
    except (UserError, StoreError) as exc:
        return _fail(str(exc))
    except ModuleNotFoundError as exc:
        if (remedy := without_library(exc)) is None:
            raise
        return _fail(remedy)
    except KeyboardInterrupt as exc:
        if exc.args:  # work continues on another machine (gateway.cli.jobfollower)
            print(f"spillway: {exc}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # In `spillway status | head` the reader is gone, and Python's flush at exit would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as exc:
        if exc.filename is None:
            raise
        return _fail(f"cannot use {exc.filename}: {exc.strerror}: check the path and its mode")


def _run(args: argparse.Namespace) -> int:
    """Run a command here, or against a gateway on another machine. Returns the exit status."""
    url = reach.gateway_of(args)
    if url is None or args.command in NEEDS_NO_GATEWAY:
        # The process of a caller that gives the words keeps its user.
        if args.is_program and args.command not in NEEDS_NO_GATEWAY | KEEPS_USER:
            owner.become(args)
        with recording.recorded(args, args.words) as args.record:
            status_code = _here(args)
            args.record.status_code = status_code
        return status_code
    if args.subcommand.act is not None:
        args.record = recording.Record()  # the gateway's own log has its calls
        # The imports are here because httpx takes a tenth of a second.
        from gateway.cli.api import Api
        from gateway.cli.client import RemoteGateway

        with Api(reach.reach_of(args, url)) as api:
            return _acted(args, RemoteGateway(api))
    raise UserError(
        f"spillway {args.command} runs on the gateway only: run it there, without --gateway "
        f"and {reach.GATEWAY}"
    )


def _here(args: argparse.Namespace) -> int:
    """Run a command on this machine. Returns its exit status."""
    command: Subcommand = args.subcommand
    if command.run is not None:
        return _refused(args, partial(command.run, args))
    with LocalGateway(config.load(args.config), user.name()) as gateway:
        return _acted(args, gateway)


def _acted(args: argparse.Namespace, gateway: Gateway) -> int:
    """Run a command that is for any gateway. Returns its exit status."""
    command: Subcommand = args.subcommand
    assert command.act is not None
    return _refused(args, partial(command.act, args, gateway))


def _refused(args: argparse.Namespace, act: Callable[[], int]) -> int:
    """Run a command, and say why it is not possible. Returns its exit status."""
    try:
        return act()
    except NotPossible as exc:
        if args.command in OF_NAMES:
            raise UserError(str(exc)) from None
        return look.refuse(exc)


def _fail(message: str) -> int:
    print(f"spillway: {' '.join(message.splitlines())}", file=sys.stderr)
    return EXIT_USAGE


def _default_config() -> str:
    return os.environ.get("SPILLWAY_CONFIG") or str(DEFAULT_CONFIG)


def program_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="spillway",
        description="An NFS write-back gateway that drains to an S3 bucket.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"spillway {version('spillway')}")
    reach.arguments(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for command in SUBCOMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            epilog=_epilog(command.name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.add_argument(
            "--config",
            metavar="PATH",
            help=f"the TOML file (default: SPILLWAY_CONFIG or {DEFAULT_CONFIG})",
        )
        command.arguments(sub)
        sub.set_defaults(subcommand=command)
    return parser


def command_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the subcommands of a parser, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _epilog(name: str) -> str:
    examples = (f"  # {one.does}\n  spillway {one.line}" for one in EXAMPLES.get(name, ()))
    return "\n".join(["examples:", *examples])
