"""`spillway mkdir`, `chown`, `chmod`, `mv` and `rm`: change names and who may use them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from gateway import config
from gateway.cli import result, user
from gateway.cli.look import DONE, refuse
from gateway.cli.progress import Line
from gateway.control.guarding import Guarded, require_not_hidden
from gateway.control.names import Asker, Names
from gateway.control.paths import PathInfo, browsing, model, resolve, shown
from gateway.db.engine import Database
from gateway.door.door import opened
from gateway.errors import DoorClosed, NotPossible, NotThere, UserError
from gateway.namespace.browse import Browser
from gateway.serialize import to_json
from gateway.settings import Settings
from gateway.types import SetAttr

Act = Callable[["Changing", str], None]
LARGEST_ID = (1 << 32) - 2
"""The largest number of a user or group. The one above it means "no user" (chown(2))."""


class Owner(NamedTuple):
    """A user and a group, by number. None: as it is."""

    uid: int | None
    gid: int | None


class Changing(NamedTuple):
    """What a command needs to change names."""

    settings: Settings
    browser: Browser
    names: Names
    results: result.Results
    trees: Guarded

    def tell(self, path: str, say: Callable[[PathInfo], result.Found] = lambda info: info) -> None:
        """Tell a script what a path is now. A person is not told it: then nothing is read.

        Args:
            path: what was changed.
            say: makes what the script is told.

        Raises:
            NotPossible: there is nothing.
        """
        if self.results.as_json:
            place = resolve(self.browser, self.settings, path)
            self.results.add(say(model(self.browser, place.path, place.found())))


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


def mkdir(args: argparse.Namespace) -> int:
    """Make directories. Returns exit status 1 if one could not be made. Raises UserError."""

    def make(changing: Changing, path: str) -> None:
        names, wanted = changing.names, SetAttr(args.mode, *args.owner)
        (names.make_all if args.parents else names.make)(path, wanted)
        changing.tell(path)

    return _each(args, args.paths, make)


def chown_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("owner", type=owner, metavar="UID:GID", help="also UID, or :GID")
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def chmod_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mode", type=mode, metavar="MODE", help="octal, like 2775")
    result.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def chown(args: argparse.Namespace) -> int:
    """Give files and directories to a user or group. Returns 1 if one failed. Raises UserError."""
    return _set(args, SetAttr(None, *args.owner))


def chmod(args: argparse.Namespace) -> int:
    """Set the permissions of files and directories. Returns 1 if one failed. Raises UserError."""
    return _set(args, SetAttr(args.mode))


def _set(args: argparse.Namespace, wanted: SetAttr) -> int:
    def change(changing: Changing, path: str) -> None:
        changing.names.set_attributes(path, wanted)
        changing.tell(path)

    return _each(args, args.paths, change)


def mv_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="a checkpoint in the bucket to a name that is held"
    )
    result.option(parser)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET", help="a new name, or a directory to move to")


def mv(args: argparse.Namespace) -> int:
    """Rename as rename(2) does, or move into a directory. Returns 1 if one failed. Raises
    UserError."""
    require_different(args.sources)

    def move(changing: Changing, path: str) -> None:
        to = changing.names.move(path, args.target, is_alone=len(args.sources) == 1)
        changing.tell(to, partial(moved, path))

    return _each(args, args.sources, move)


def moved(path: str, info: PathInfo) -> dict[str, Any]:
    """Return what a script is told of a move. Parameters: path, the former one; info, of the new
    one."""
    return {"from": shown(path), **to_json(info)}


def require_different(sources: Sequence[str]) -> None:
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


def rm(args: argparse.Namespace) -> int:
    """Remove files or trees. Returns exit status 1 if something is left. Raises UserError."""
    left = []

    def remove(changing: Changing, path: str) -> None:
        names, results = changing.names, changing.results
        try:
            place = names.find(path)
        except NotThere:
            if args.is_calm:
                results.add(removed(path, 0))
                return
            raise
        if not place.is_directory:
            names.remove(place)
            results.add(removed(path, 1))
            return
        if not args.recursive:
            raise is_a_directory(path)
        line = Line(quiet=args.json)
        try:
            done = changing.trees.remove(
                place,
                lambda n: line.show(f"{n:,} names removed"),
                author=user.name(),
                insists=args.force,
            )
        finally:
            line.end()
        told = done.removed_names, done.failures, done.trashed
        left.append(show_removal(results, path, *told))

    status = _each(args, args.paths, remove)
    return max([status, *left])


def is_a_directory(path: str) -> NotPossible:
    """Return why a directory is not removed."""
    return NotPossible(f"{shown(path)}: it is a directory: spillway rm -r removes all of it")


def removed(
    path: str, names: int, failures: Sequence[str] = (), trashed: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what a script is told of a removal. Parameters: names that were removed; failures, why
    others are left; trashed, paths of the checkpoints that are in the trash, by id."""
    told = {"path": shown(path), "removed_names": names, "failures": list(failures)}
    return {**told, "trashed": dict(trashed or {})}


def show_removal(
    results: result.Results,
    path: str,
    names: int,
    failures: Sequence[str],
    trashed: Mapping[str, str],
) -> int:
    """Tell what became of a tree. Returns the exit status. Parameters: those of ``removed``."""
    lines = [
        *(f"{at}: in the trash as {id}: spillway undelete {id}" for id, at in trashed.items()),
        f"{shown(path)}: {names:,} names removed",
    ]
    results.add(removed(path, names, failures, trashed), "\n".join(lines))
    return max((refuse(NotPossible(one)) for one in failures), default=DONE)


def _each(args: argparse.Namespace, paths: Sequence[str], act: Act) -> int:
    """Do the same with each path. A path that is not possible does not stop the others."""
    settings = config.load(args.config)
    with (
        browsing(settings) as browser,
        opened(settings) as door,
        closing(Database(settings.database_url)) as database,
        result.Results(args.json) as results,
    ):
        insists = getattr(args, "force", False)
        guard = partial(require_not_hidden, settings, database, insists=insists)
        names = Names(settings, browser, Asker(door), guard)
        trees = Guarded(settings, database, browser, names, door)
        changing = Changing(settings, browser, names, results, trees)
        try:
            return each(paths, partial(act, changing))
        except DoorClosed as exc:
            return refuse(
                NotPossible(f"{exc}: what was done stays done: look with spillway ls, and repeat")
            )


def each(paths: Sequence[str], act: Callable[[str], object]) -> int:
    """Do the same with each path. Returns the exit status: a path that is not possible does not
    stop the others."""
    status = DONE
    for path in paths:
        try:
            act(path)
        except NotPossible as exc:
            status = refuse(exc)
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
