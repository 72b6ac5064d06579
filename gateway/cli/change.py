"""`spillway mkdir`, `chown`, `chmod`, `mv` and `rm`: change names and who may use them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from gateway.cli import result
from gateway.cli.look import DONE, refuse, refuse_each
from gateway.cli.progress import showing
from gateway.control.gateway import Gateway
from gateway.control.guarding import Removed
from gateway.control.paths import shown
from gateway.errors import DoorClosed, NotPossible, NotThere, UserError
from gateway.escapes import display, encoded
from gateway.serialize import to_json
from gateway.types import SetAttr

LARGEST_ID = (1 << 32) - 2
"""The largest number of a user or group. The one above it means "no user" (chown(2))."""


class Owner(NamedTuple):
    """A user and a group, by number. None: as it is."""

    uid: int | None
    gid: int | None


def mkdir_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", dest="parents", action="store_true", help="with what leads to it")
    parser.add_argument(
        "-m", dest="mode", type=mode, default=0o755, metavar="MODE", help="default: 755"
    )
    parser.add_argument(
        "--owner", type=owner, default=Owner(None, None), metavar="UID:GID", help="default: root"
    )
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def mkdir(args: argparse.Namespace, gateway: Gateway) -> int:
    """Make directories. Returns exit status 1 if one could not be made. Raises UserError."""
    wanted = SetAttr(args.mode, *args.owner)

    def make(path: str) -> None:
        results.add(gateway.files.make(path, wanted, parents=args.parents))

    with result.Results(args.json) as results:
        return each(args.paths, make)


def chown_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("owner", type=owner, metavar="UID:GID", help="also UID, or :GID")
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def chmod_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mode", type=mode, metavar="MODE", help="octal, like 2775")
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def chown(args: argparse.Namespace, gateway: Gateway) -> int:
    """Give files and directories to a user or group. Returns 1 if one failed. Raises UserError."""
    return _set(args, gateway, SetAttr(None, *args.owner))


def chmod(args: argparse.Namespace, gateway: Gateway) -> int:
    """Set the permissions of files and directories. Returns 1 if one failed. Raises UserError."""
    return _set(args, gateway, SetAttr(args.mode))


def _set(args: argparse.Namespace, gateway: Gateway, wanted: SetAttr) -> int:
    with result.Results(args.json) as results:
        return each(
            args.paths, lambda path: results.add(gateway.files.set_attributes(path, wanted))
        )


def mv_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="a checkpoint in the bucket to a name that is held"
    )
    result.option(parser)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET", help="a new name, or a directory to move to")


def mv(args: argparse.Namespace, gateway: Gateway) -> int:
    """Rename as rename(2) does, or move into a directory. Returns 1 if one failed. Raises
    UserError."""
    _require_different(args.sources)
    is_alone = len(args.sources) == 1

    def move(path: str) -> None:
        made = gateway.files.move(path, args.target, is_alone=is_alone, force=args.force)
        results.add({"from": encoded(path), **to_json(made)})

    with result.Results(args.json) as results:
        return each(args.sources, move)


def _require_different(sources: Sequence[str]) -> None:
    """Raise UserError if two sources would get one name in the directory they are moved to."""
    named = [PurePosixPath(source).name for source in sources]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise UserError(
            f"{shown(twice)} is named twice, and one would replace the other: move them apart"
        )


def rm_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", dest="recursive", action="store_true", help="directories, with all")
    parser.add_argument("-f", dest="is_calm", action="store_true", help="what is not there is fine")
    parser.add_argument(
        "--force", action="store_true", help="although it has the newest checkpoint of a run in it"
    )
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def rm(args: argparse.Namespace, gateway: Gateway) -> int:
    """Remove files or trees. Returns exit status 1 if something is left. Raises UserError."""
    left: list[int] = []

    def remove(path: str) -> None:
        try:
            with showing(args.json) as tell:
                done = gateway.files.remove(path, tell, recursive=args.recursive, force=args.force)
        except NotThere:
            if not args.is_calm:
                raise
            done = Removed(encoded(path), False, 0, [], {})
        results.add(done, _removed(path, done) if done.was_directory else None)
        left.append(refuse_each(done.failures))

    with result.Results(args.json) as results:
        return max([each(args.paths, remove), *left])


def _removed(path: str, done: Removed) -> str:
    """Return what people are told of a tree that was removed."""
    lines = [
        f"{display(at)}: in the trash as {id}: spillway undelete {id}"
        for id, at in done.trashed.items()
    ]
    return "\n".join([*lines, f"{shown(path)}: {done.removed_names:,} names removed"])


def each(paths: Sequence[str], act: Callable[[str], object]) -> int:
    """Do the same with each path. Returns the exit status: a path that is not possible does not
    stop the others."""
    status = DONE
    for path in paths:
        try:
            act(path)
        except NotPossible as exc:
            status = refuse(exc)
        except DoorClosed as exc:
            stays = f"{exc}: what was done stays done: look with spillway ls, and repeat"
            return refuse(NotPossible(stays))
    return status


def mode(text: str) -> int:
    """Return permission bits from the octal form that people write. Raises ValueError."""
    bits = int(text, 8)
    if not 0 <= bits <= 0o7777:
        raise ValueError
    return bits


def owner(text: str) -> Owner:
    """Return the owner that ``UID``, ``UID:GID`` or ``:GID`` names. Raises ArgumentTypeError.

    Names would be those of this machine, and the gateway tells clients numbers.
    """
    uid, _, gid = text.partition(":")
    parts = [int(part) if part.isascii() and part.isdigit() else None for part in (uid, gid)]
    named = [part for part in (uid, gid) if part]
    numbers = [part for part in parts if part is not None and part <= LARGEST_ID]
    if not named or len(numbers) != len(named):
        raise argparse.ArgumentTypeError(
            f"{text!r}: numbers, UID:GID, UID or :GID, as `id` shows them on a client"
        )
    return Owner(*parts)
