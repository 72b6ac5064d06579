"""`spillway mkdir`, `mv` and `rm`: change names, through the NFS server or in its place.

All of them run in the name of root. What was done stays done, so a command can be run again after a
failure.
"""

from __future__ import annotations

import argparse
import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from gateway import clock, config
from gateway.cli.look import DONE, refuse
from gateway.cli.progress import Line
from gateway.control.paths import browsing, names_of, resolve, shown
from gateway.db.models import RESERVED_NAME
from gateway.door.door import Door, opened
from gateway.door.frames import Answer, Op, Request
from gateway.door.removal import Removal
from gateway.errors import DoorClosed, NotPossible, UserError
from gateway.namespace.browse import Browser
from gateway.settings import Settings
from gateway.text import printable
from gateway.types import SetAttr

Act = Callable[[Settings, Browser, "Asker", str], None]


def mkdir_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", dest="parents", action="store_true", help="with what leads to it")
    parser.add_argument(
        "-m", dest="mode", type=mode, default=0o755, metavar="MODE", help="default: 755"
    )
    parser.add_argument("paths", nargs="+", metavar="PATH")


def mkdir(args: argparse.Namespace) -> int:
    """Make directories. Returns exit status 1 if one could not be made. Raises UserError."""
    wanted = SetAttr(mode=args.mode)

    def make(settings: Settings, browser: Browser, asker: Asker, path: str) -> None:
        if args.parents:
            _make_path(settings, browser, asker, path, wanted)
            return
        place = resolve(browser, settings, path)
        if place.entry is not None:
            raise NotPossible(f"{shown(path)}: it is there already")
        asker.one(path, Request(Op.MKDIR, place.parent, place.name, wanted=wanted))

    return _each(args, args.paths, make)


def mv_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET", help="a new name, or a directory to move to")


def mv(args: argparse.Namespace) -> int:
    """Rename as rename(2) does, or move into a directory. Returns 1 if one failed. Raises
    UserError."""
    named = [PurePosixPath(source).name for source in args.sources]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise UserError(
            f"{shown(twice)} is named twice, and one would replace the other: move them apart"
        )

    def move(settings: Settings, browser: Browser, asker: Asker, path: str) -> None:
        _require_not_reserved(settings, args.target)
        source = resolve(browser, settings, path)
        source.found()
        if not source.name:
            raise NotPossible(f"{shown(path)}: the export's root cannot be moved")
        target = resolve(browser, settings, args.target)
        parent, name = target.parent, target.name
        if target.is_directory:
            parent, name = target.found().attr.ino, source.name
        elif len(args.sources) > 1:
            raise UserError(f"{shown(args.target)} is not a directory: make it: spillway mkdir")
        elif args.target.endswith("/") and not source.is_directory:
            raise NotPossible(f"{shown(args.target)}: no such directory: make it: spillway mkdir")
        asker.one(path, Request(Op.RENAME, source.parent, source.name, parent, name))

    return _each(args, args.sources, move)


def rm_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", dest="recursive", action="store_true", help="directories, with all")
    parser.add_argument("-f", dest="force", action="store_true", help="what is not there is fine")
    parser.add_argument("paths", nargs="+", metavar="PATH")


def rm(args: argparse.Namespace) -> int:
    """Remove files or trees. Returns exit status 1 if something is left. Raises UserError."""

    def remove(settings: Settings, browser: Browser, asker: Asker, path: str) -> None:
        try:
            place = resolve(browser, settings, path)
            entry = place.found()
        except NotPossible:
            if args.force:
                return
            raise
        if not place.name:
            raise NotPossible(f"{shown(path)}: the export's root cannot be removed")
        if not place.is_directory:
            asker.one(path, Request(Op.REMOVE, place.parent, place.name, entry.attr.ino))
        elif not args.recursive:
            raise NotPossible(f"{shown(path)}: it is a directory: spillway rm -r removes all of it")
        else:
            line = Line(quiet=False)
            removal = Removal(browser, asker.run, lambda n: line.show(f"{n:,} names removed"))
            try:
                removal.tree(place.parent, place.name, entry.attr.ino)
            finally:
                line.end()
            print(f"{shown(path)}: {removal.removed:,} names removed")
            for below, why in removal.failures:
                asker.fail(NotPossible(f"{shown(path)}{below}: {reason(why)}"))

    return _each(args, args.paths, remove)


BUSY_SECONDS = 60.0
PAUSE_SECONDS = 0.2
REASONS = {
    errno.EINVAL: "the name cannot be used, or a directory would be moved below itself",
    errno.ESTALE: "it is gone or was moved meanwhile: look with spillway ls",
    errno.ENOTEMPTY: "the directory is not empty, or is filled meanwhile",
    errno.EAGAIN: "the database does not answer: try again",
    errno.EPROTONOSUPPORT: "the NFS server is of another version: restart spillway up",
}


class Asker:
    """Asks at the door, repeats requests that must wait, and keeps the exit status."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.status = DONE

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Have requests answered. Raises DoorClosed."""
        answers = self._door.run(requests)
        until = clock.monotonic_seconds() + BUSY_SECONDS
        while clock.monotonic_seconds() < until:
            waiting = [at for at, answer in enumerate(answers) if answer.errno == errno.EAGAIN]
            if not waiting:
                break
            time.sleep(PAUSE_SECONDS)
            for at, answer in zip(
                waiting, self._door.run([requests[at] for at in waiting]), strict=True
            ):
                answers[at] = answer
        return answers

    def one(self, path: str, request: Request) -> None:
        """Have one request done. Raises NotPossible, DoorClosed."""
        [answer] = self.run([request])
        if answer.errno:
            raise NotPossible(f"{shown(path)}: {reason(answer.errno)}")

    def fail(self, exc: NotPossible) -> None:
        """Say why something was not done."""
        self.status = refuse(exc)


def reason(number: int) -> str:
    """Return an errno in words, with what to do where that is known."""
    return REASONS.get(number) or os.strerror(number).lower()


def _each(args: argparse.Namespace, paths: Sequence[str], act: Act) -> int:
    """Do the same with each path. A path that is not possible does not stop the others."""
    settings = config.load(args.config)
    with browsing(settings) as browser, opened(settings) as door:
        asker = Asker(door)
        try:
            for path in paths:
                try:
                    _require_not_reserved(settings, path)
                    act(settings, browser, asker, path)
                except NotPossible as exc:
                    asker.fail(exc)
        except DoorClosed as exc:
            asker.fail(
                NotPossible(f"{exc}: what was done stays done: look with spillway ls, and repeat")
            )
    return asker.status


def _make_path(
    settings: Settings, browser: Browser, asker: Asker, path: str, wanted: SetAttr
) -> None:
    names = names_of(settings.nfs.export, path)
    for count in range(1, len(names) + 1):
        above = "/".join(["", *map(os.fsdecode, names[:count])])
        place = resolve(browser, settings, f"{settings.nfs.export}{above}")
        if place.entry is None:
            asker.one(path, Request(Op.MKDIR, place.parent, place.name, wanted=wanted))
        elif not place.is_directory:
            raise NotPossible(f"{shown(path)}: {printable(place.name)} is not a directory")


def _require_not_reserved(settings: Settings, path: str) -> None:
    if names_of(settings.nfs.export, path)[:1] == [RESERVED_NAME]:
        raise NotPossible(
            f"{shown(path)}: {printable(RESERVED_NAME)} in the root is kept for the gateway"
        )


def mode(text: str) -> int:
    """Return permission bits from the octal form that people write. Raises ValueError."""
    bits = int(text, 8)
    if not 0 <= bits <= 0o7777:
        raise ValueError
    return bits
