"""Entry point of the command line: parses it, runs one command, turns errors into one line.

Exit status: 0 done; 1 the command found something that needs a person; 2 wrong usage or
configuration; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO, cast

from gateway.cli import (
    backup,
    bucket,
    caller,
    checkpoints,
    comparison,
    database,
    exports,
    files,
    first_boot,
    imports,
    init,
    jobs,
    plan,
    policies,
    promotions,
    queue,
    records,
    restore,
    scrub,
    status,
    support,
    target,
    tokens,
    trash,
    up,
    usage,
    webhooks,
)
from gateway.cli.examples import EXAMPLES, complete, completion_arguments
from gateway.cli.local import CommandGateway, require_gateway, without_library
from gateway.common import process
from gateway.common.errors import NotPossible, SpillwayError, StoreError, UserError
from gateway.config import loader
from gateway.config.settings import DEFAULT_CONFIG
from gateway.service.gateway import Gateway

EXIT_NEEDS_A_PERSON = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_WRONG_CHOICE = re.compile(
    r"(?P<what>.*invalid choice: '(?P<word>.*)') \(choose from (?P<list>.*)\)"
)


class Subcommand(NamedTuple):
    """A subcommand of ``spillway``."""

    name: str
    """A word, or a noun and a verb."""
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    """Declares its options, except --config."""
    run: Callable[[argparse.Namespace], int] | None = None
    """Returns the exit status. Raises UserError, StoreError."""
    act: Callable[[argparse.Namespace, Gateway], int] | None = None
    """The same, of a command that is for any gateway. It also raises NotPossible."""


SUBCOMMANDS = (
    Subcommand("init", "initialise a gateway", init.arguments, init.run),
    Subcommand("restore", "bring everything back from the bucket", restore.arguments, restore.run),
    Subcommand("backup", "copy names and settings to a directory", backup.arguments, backup.run),
    Subcommand("up", "run the gateway in the foreground", up.arguments, up.run),
    Subcommand("admin", "run the admin API alone", up.admin_arguments, up.run_admin),
    Subcommand("serve", "run one process, for systemd", up.serve_arguments, up.serve),
    Subcommand(
        "first-boot",
        "configure a machine that was started from an image",
        first_boot.arguments,
        first_boot.run,
    ),
    Subcommand("status", "show gateway health", status.arguments, act=status.run),
    Subcommand(
        "statistics",
        "show the NFS operations and their latency",
        status.statistics_arguments,
        act=status.show_statistics,
    ),
    Subcommand(
        "clients",
        "list clients and their open files",
        status.clients_arguments,
        act=status.show_clients,
    ),
    Subcommand(
        "usage",
        "show who has how many files and bytes",
        usage.arguments,
        act=usage.run,
    ),
    Subcommand("events", "follow events", records.events_arguments, act=records.follow),
    Subcommand(
        "history",
        "show metrics of an hour or more",
        records.history_arguments,
        act=records.show_history,
    ),
    Subcommand("audit", "show who changed what", records.audit_arguments, act=records.list_calls),
    Subcommand(
        "configuration",
        "show the settings in force",
        records.configuration_arguments,
        act=records.show_configuration,
    ),
    Subcommand(
        "support-bundle",
        "gather state, settings and logs into one file for a ticket",
        support.arguments,
        support.run,
    ),
    Subcommand(
        "checkpoint list", "list runs and checkpoints", checkpoints.arguments, act=checkpoints.run
    ),
    Subcommand(
        "checkpoint show", "show a checkpoint", checkpoints.show_arguments, act=checkpoints.show
    ),
    Subcommand(
        "checkpoint promote",
        "copy a checkpoint out of reach of retention",
        promotions.promote_arguments,
        act=promotions.promote,
    ),
    Subcommand(
        "checkpoint pin", "keep on the disk, and from policies", files.pin_arguments, act=files.pin
    ),
    Subcommand("checkpoint unpin", "end a pin", files.unpin_arguments, act=files.unpin),
    Subcommand("checkpoint pins", "list pins", files.pins_arguments, act=files.list_pins),
    Subcommand(
        "checkpoint delete",
        "delete a checkpoint: move it into the trash",
        checkpoints.delete_arguments,
        act=checkpoints.delete,
    ),
    Subcommand(
        "promotion list",
        "list promotions",
        promotions.promotions_arguments,
        act=promotions.promotions,
    ),
    Subcommand(
        "promotion remove",
        "remove a promoted copy for good, also from the bucket",
        promotions.demote_arguments,
        act=promotions.demote,
    ),
    Subcommand("trash list", "list deleted checkpoints", trash.list_arguments, act=trash.show),
    Subcommand(
        "trash restore", "restore a deleted checkpoint", trash.restore_arguments, act=trash.restore
    ),
    Subcommand(
        "trash release",
        "release what is held for a newer checkpoint",
        trash.release_arguments,
        act=trash.release,
    ),
    Subcommand(
        "trash empty", "remove deleted checkpoints for good", trash.empty_arguments, act=trash.empty
    ),
    Subcommand("policy", "manage retention policies", policies.arguments, act=policies.run),
    Subcommand("queue", "list and order uploads", queue.arguments, act=queue.run),
    Subcommand("drain", "wait until everything is uploaded", queue.drain_arguments, queue.drain),
    Subcommand("ls", "list names", files.ls_arguments, act=files.ls),
    Subcommand("stat", "show the details of a path", files.stat_arguments, act=files.stat),
    Subcommand("mkdir", "make directories", files.mkdir_arguments, act=files.mkdir),
    Subcommand("chown", "set owner and group", files.chown_arguments, act=files.chown),
    Subcommand("chmod", "set permissions", files.chmod_arguments, act=files.chmod),
    Subcommand("mv", "rename or move", files.mv_arguments, act=files.mv),
    Subcommand("rm", "remove files and trees", files.rm_arguments, act=files.rm),
    Subcommand(
        "evict", "drop local copies of uploaded files", files.evict_arguments, act=files.evict
    ),
    Subcommand("warm", "fetch evicted files from the bucket", files.warm_arguments, act=files.warm),
    Subcommand("wait", "wait until a path is durable", files.wait_arguments, act=files.wait),
    Subcommand(
        "export", "manage the exports beside the main one", exports.arguments, act=exports.run
    ),
    Subcommand("token", "manage the tokens of the admin API", tokens.arguments, act=tokens.run),
    Subcommand("job", "list and cancel jobs of the admin API", jobs.arguments, act=jobs.run),
    Subcommand("bucket test", "test access to the bucket", bucket.test_arguments, act=bucket.test),
    Subcommand(
        "bucket setup", "check the bucket's own settings", bucket.setup_arguments, act=bucket.set_up
    ),
    Subcommand(
        "bucket verify",
        "compare the bucket with its manifests",
        bucket.verify_arguments,
        bucket.verify,
    ),
    Subcommand("webhook test", "send a receiver an event", webhooks.test_arguments, webhooks.test),
    Subcommand("plan", "size a gateway, price checkpoints", plan.arguments, plan.run),
    Subcommand("upgrade", "migrate the database", database.upgrade_arguments, database.upgrade),
    Subcommand("adopt", "take over data files or a bucket", database.arguments, database.run),
    Subcommand("fsck", "check the namespace", database.fsck_arguments, database.run_fsck),
    Subcommand("scrub", "compare files and objects, and heal them", scrub.arguments, scrub.run),
    Subcommand(
        "reconcile",
        "have the names follow the bucket",
        comparison.arguments,
        comparison.run,
    ),
    Subcommand(
        "import",
        "show the objects of other programs as files",
        imports.arguments,
        imports.run,
    ),
    Subcommand(
        "completion", "print a completion script for a shell", completion_arguments, complete
    ),
)
NOUNS = {
    "checkpoint": "list, keep, promote and delete checkpoints",
    "promotion": "list and remove promotions",
    "trash": "restore deleted checkpoints, or remove them for good",
    "bucket": "test the bucket, its settings and its manifests",
    "webhook": "test the receivers of webhooks",
}
"""The nouns whose verbs are in ``SUBCOMMANDS``."""
RENAMED = {
    "checkpoints": ("checkpoint", "list"),
    "delete": ("checkpoint", "delete"),
    "promote": ("checkpoint", "promote"),
    "pin": ("checkpoint", "pin"),
    "unpin": ("checkpoint", "unpin"),
    "pins": ("checkpoint", "pins"),
    "promotions": ("promotion", "list"),
    "demote": ("promotion", "remove"),
    "undelete": ("trash", "restore"),
    "release": ("trash", "release"),
    "jobs": ("job",),
    "verify-manifest": ("bucket", "verify"),
}
"""The names of the release before, with those of today. They go with the next release."""


FOR_ANY_GATEWAY = frozenset(
    subcommand.name for subcommand in SUBCOMMANDS if subcommand.act is not None
)
NEEDS_NO_GATEWAY = frozenset({"plan", "bucket verify", "completion"})
"""They do the same whichever gateway is named."""
NEEDS_NO_LIBRARY = frozenset({"plan", "completion"})
"""They need nothing that the client lacks."""
KEEPS_USER = frozenset({"init", "restore", "up", "admin", "serve", "first-boot", "support-bundle"})
"""They make a gateway or run it, as the user who gives them. The last becomes the owner of the data
directory when it has read what only root may."""


OF_NAMES = frozenset({"drain", "export", "queue", "policy", "promotion remove", "job", "token"})
"""Commands that take a wrong name for wrong usage (exit status 2)."""


class _OutputLost(SpillwayError, OSError):
    """The standard output cannot be written: its disk is full, say. The supervisor, which continues
    without output, catches OSError."""


class _Output:
    """The standard output. ``write`` and ``flush`` raise _OutputLost, because an OSError does not
    say that it is about the output; BrokenPipeError passes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._telling():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._telling():
            self._stream.flush()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as exc:
            raise _OutputLost(exc.errno, exc.strerror) from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{_with_suggestion(message)}: see {self.prog} --help")


def _with_suggestion(message: str) -> str:
    """Return what argparse says of a wrong choice, with the nearest choice in place of all."""
    match = _WRONG_CHOICE.fullmatch(message)
    if match is None:
        return message
    choices = [choice.strip("'") for choice in match["list"].split(", ")]
    near = get_close_matches(match["word"], choices, 1)
    return f"{match['what']}: did you mean {near[0]}?" if near else message


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit status.

    Args:
        argv: argv without the program's name (default: sys.argv).
    """
    try:
        output = _Output(sys.stdout)
        with redirect_stdout(cast(TextIO, output)):
            try:
                args = _parsed(argv)
                with process.kept():
                    return _run(args)
            finally:
                # --help ends by SystemExit, and Python's flush at exit would print a traceback.
                output.flush()
    except (UserError, StoreError) as exc:
        return _fail(str(exc))
    except ModuleNotFoundError as exc:
        if (remedy := without_library(exc)) is None:
            raise
        return _fail(remedy)
    except KeyboardInterrupt as exc:
        if exc.args:  # work continues on another machine (gateway.cli.api)
            print(f"spillway: {exc}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # In `spillway status | head` the reader is gone.
        _drop_output()
        return EXIT_NEEDS_A_PERSON
    except _OutputLost as exc:
        _drop_output()
        return _fail(f"the output cannot be written: {exc.strerror}", EXIT_NEEDS_A_PERSON)
    except OSError as exc:
        if exc.filename is None:
            raise
        return _fail(f"cannot use {exc.filename}: {exc.strerror}: check the path and its mode")


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of a command. Raises UserError."""
    program = program_parser()
    given = sys.argv[1:] if argv is None else argv
    args, unknown = program.parse_known_args(_of_today(given))
    if unknown:
        # The message has only names: a value may be a URL with a password.
        names = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        problem = f"unknown option {', '.join(names)}" if names else "unexpected argument"
        if "--gateway" in names:
            problem = "--gateway goes before the command: spillway --gateway URL COMMAND"
        raise UserError(f"{problem}: see spillway --help")
    args.program = program
    args.words = given
    args.is_program = argv is None
    args.has_config = args.config is not None
    args.config = Path(args.config or _default_config()).expanduser().absolute()
    return args


def _drop_output() -> None:
    """Have what cannot be written go nowhere, or Python's flush at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(args: argparse.Namespace) -> int:
    """Run a command here, or against a gateway on another machine. Returns the exit status."""
    url = target.gateway_of(args)
    if url is None or args.command in NEEDS_NO_GATEWAY:
        if args.command not in NEEDS_NO_LIBRARY:
            require_gateway(args.command, args.subcommand.act is not None)
        # The process of a caller that gives the words keeps its user.
        if args.is_program and args.command not in NEEDS_NO_GATEWAY | KEEPS_USER:
            caller.become(args)
        with caller.recorded(args, args.words) as args.record:
            status_code = _here(args)
            args.record.status_code = status_code
        return status_code
    if args.subcommand.act is not None:
        args.record = caller.CommandRecord()  # the gateway's own log has its calls
        # The imports are here because httpx takes a tenth of a second.
        from gateway.cli.api import Api
        from gateway.cli.client import RemoteGateway

        with Api(target.reach_of(args, url)) as api:
            return _acted(args, RemoteGateway(api))
    raise UserError(
        f"spillway {args.command} runs on the gateway only: run it there, without --gateway "
        f"and {target.GATEWAY}"
    )


def _here(args: argparse.Namespace) -> int:
    """Run a command on this machine. Returns its exit status."""
    command: Subcommand = args.subcommand
    if command.run is not None:
        return _refused(args, partial(command.run, args))
    with CommandGateway(loader.load(args.config), caller.name()) as gateway:
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
        return files.refuse(exc)


def _fail(message: str, status_code: int = EXIT_USAGE) -> int:
    print(f"spillway: {' '.join(message.splitlines())}", file=sys.stderr)
    return status_code


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
    target.arguments(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    nouns: dict[str, Any] = {}
    for command in SUBCOMMANDS:
        noun, _, verb = command.name.partition(" ")
        if verb and noun not in nouns:
            above = _added(commands, noun, NOUNS[noun])
            nouns[noun] = above.add_subparsers(metavar="VERB", required=True)
        sub = _added(nouns[noun] if verb else commands, verb or noun, command.help, command.name)
        command.arguments(sub)
        sub.set_defaults(subcommand=command, command=command.name)
    return parser


def _added(above: Any, word: str, text: str, name: str = "") -> argparse.ArgumentParser:
    """Add the parser of a word of the command line. Args: name, of its command, if it is one."""
    sub: argparse.ArgumentParser = above.add_parser(
        word,
        help=text,
        description=text,
        epilog=_epilog(name) if name else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    sub.add_argument(
        "--config",
        metavar="PATH",
        # Without SUPPRESS the default of a verb would replace a --config before it.
        default=argparse.SUPPRESS if " " in name else None,
        help=f"the TOML file (default: SPILLWAY_CONFIG or {DEFAULT_CONFIG})",
    )
    return sub


def _of_today(words: Sequence[str]) -> list[str]:
    """Return a command line with the names of today, and say so if it has an earlier one."""
    at = _first(words, 0)
    if at is None:
        return [*words]
    named, verbs = words[at], {subcommand.name.partition(" ")[2] for subcommand in SUBCOMMANDS}
    new: Sequence[str] = RENAMED.get(named, ())
    path = _first(words, at + 1)
    if named == "checkpoint" and path is not None and words[path] not in verbs:
        new = ("checkpoint", "show")
    if not new:
        return [*words]
    print(
        f"spillway: {named} is spillway {' '.join(new)} now: the earlier name ends with the next "
        "release",
        file=sys.stderr,
    )
    return [*words[:at], *new, *words[at + 1 :]]


def _first(words: Sequence[str], begin: int) -> int | None:
    """Return the index of the first word that is no option, or None. Args: begin, the index of the
    first one that is looked at."""
    at = begin
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("--config", "--gateway", "--token-file", "--ca") else 1
    return at if at < len(words) else None


def command_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the subcommands of a parser, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _epilog(name: str) -> str:
    examples = (
        f"  # {example.does}\n  spillway {example.line}" for example in EXAMPLES.get(name, ())
    )
    return "\n".join(["examples:", *examples])
