"""`spillway mkdir`, `mv` and `rm`: change names, through the NFS server or in its place."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePosixPath

from gateway import config
from gateway.cli.look import DONE, refuse
from gateway.cli.progress import Line
from gateway.control.names import Asker, Names, reason
from gateway.control.paths import browsing, shown
from gateway.door.door import opened
from gateway.errors import DoorClosed, NotPossible, NotThere, UserError

Act = Callable[[Names, str], None]


def mkdir_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", dest="parents", action="store_true", help="with what leads to it")
    parser.add_argument(
        "-m", dest="mode", type=mode, default=0o755, metavar="MODE", help="default: 755"
    )
    parser.add_argument("paths", nargs="+", metavar="PATH")


def mkdir(args: argparse.Namespace) -> int:
    """Make directories. Returns exit status 1 if one could not be made. Raises UserError."""

    def make(names: Names, path: str) -> None:
        (names.make_all if args.parents else names.make)(path, args.mode)

    return _each(args, args.paths, make)


def mv_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET", help="a new name, or a directory to move to")


def mv(args: argparse.Namespace) -> int:
    """Rename as rename(2) does, or move into a directory. Returns 1 if one failed. Raises
    UserError."""
    require_different(args.sources)

    def move(names: Names, path: str) -> None:
        names.move(path, args.target, is_alone=len(args.sources) == 1)

    return _each(args, args.sources, move)


def require_different(sources: Sequence[str]) -> None:
    """Raise UserError if two sources would get one name in the directory they are moved to."""
    named = [PurePosixPath(source).name for source in sources]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise UserError(
            f"{shown(twice)} is named twice, and one would replace the other: move them apart"
        )


def rm_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", dest="recursive", action="store_true", help="directories, with all")
    parser.add_argument("-f", dest="force", action="store_true", help="what is not there is fine")
    parser.add_argument("paths", nargs="+", metavar="PATH")


def rm(args: argparse.Namespace) -> int:
    """Remove files or trees. Returns exit status 1 if something is left. Raises UserError."""
    left = []

    def remove(names: Names, path: str) -> None:
        try:
            place = names.find(path)
        except NotThere:
            if args.force:
                return
            raise
        if not place.is_directory:
            names.remove(place)
            return
        if not args.recursive:
            raise is_a_directory(path)
        line = Line(quiet=False)
        try:
            removal = names.remove_tree(place, lambda n: line.show(f"{n:,} names removed"))
        finally:
            line.end()
        failures = [f"{shown(path)}{below}: {reason(why)}" for below, why in removal.failures]
        left.append(show_removal(path, removal.removed, failures))

    status = _each(args, args.paths, remove)
    return max([status, *left])


def is_a_directory(path: str) -> NotPossible:
    """Return why a directory is not removed."""
    return NotPossible(f"{shown(path)}: it is a directory: spillway rm -r removes all of it")


def show_removal(path: str, removed: int, failures: Sequence[str]) -> int:
    """Print what became of a tree. Returns the exit status. Parameters: removed, names; failures,
    why others are left."""
    print(f"{shown(path)}: {removed:,} names removed")
    return max((refuse(NotPossible(one)) for one in failures), default=DONE)


def _each(args: argparse.Namespace, paths: Sequence[str], act: Act) -> int:
    """Do the same with each path. A path that is not possible does not stop the others."""
    settings = config.load(args.config)
    with browsing(settings) as browser, opened(settings) as door:
        names = Names(settings, browser, Asker(door))
        try:
            return each(paths, partial(act, names))
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
