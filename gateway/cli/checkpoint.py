"""`spillway checkpoint` and `spillway delete`: one checkpoint, and its way into the trash."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from gateway import config
from gateway.checkpoints.shown import MEANING
from gateway.cli import look, result, user
from gateway.cli.change import each
from gateway.control import checkpoints, deletion
from gateway.control.checkpoints import OneCheckpoint
from gateway.control.paths import browsing, resolve
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.opening import opened
from gateway.errors import DoorClosed, NotPossible, NotThere, TrashRefused, UserError
from gateway.namespace.browse import Browser
from gateway.settings import Settings
from gateway.text import shown

Delete = Callable[[str], dict[str, str]]
"""Puts the checkpoint with a path into the trash, and returns its id there and the path."""


def show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a checkpoint")


def show(args: argparse.Namespace) -> int:
    """Show what is known of checkpoints. Returns exit status 1 if a path is none. Raises
    UserError."""
    settings = config.load(args.config)
    with browsing(settings) as browser, opened(settings.database_url) as database:

        def found(path: str) -> OneCheckpoint:
            with database.reading() as session:
                return _found(settings, session, browser, path)

        return show_found(found, args)


def show_found(find: Callable[[str], OneCheckpoint], args: argparse.Namespace) -> int:
    """Print checkpoints. Returns the exit status. Parameters: find, as of ``look.show_found``."""
    return look.show_found(find, args, {"state": _meaning, "grade": _meaning})


def _meaning(word: str | None) -> Iterator[str]:
    """Yield a state or grade, with what it means."""
    yield str(word) if word is None else f"{word}: {MEANING[word]}"


def delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="although it is the newest, or no newer one is durable"
    )
    parser.add_argument("--reason", type=shown, metavar="TEXT", help="why, for other people")
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a checkpoint")


def delete(args: argparse.Namespace) -> int:
    """Put checkpoints into the trash. Returns exit status 1 if one stays. Raises UserError."""
    settings = config.load(args.config)
    with browsing(settings) as browser, opened(settings.database_url) as database:
        return delete_each(args, lambda path: _deleted(args, settings, database, browser, path))


def delete_each(args: argparse.Namespace, act: Delete) -> int:
    """Put checkpoints into the trash, and print what became of each. Returns the exit status."""
    with result.Results(args.json) as results:

        def one(path: str) -> None:
            made = act(path)
            id = made["id"]
            text = f"{made['path']}: in the trash as {id}: spillway undelete {id} takes it back"
            results.add(made, text)

        return each(args.paths, one)


def none_of(path: str) -> NotThere:
    """Return the error of a path that is no checkpoint. Parameters: path, as it can be shown."""
    return NotThere(f"{path} is no checkpoint: spillway checkpoints lists them")


def _deleted(
    args: argparse.Namespace, settings: Settings, database: Database, browser: Browser, path: str
) -> dict[str, str]:
    with database.reading() as session:
        seen = _found(settings, session, browser, path)
    try:
        made = deletion.delete(
            settings,
            database,
            seen.ino,
            author=user.name(),
            reason=deletion.BY_HAND if args.reason is None else args.reason,
            insists=args.force,
            seen=[seen.evidence],
        )
    except TrashRefused as exc:
        raise NotPossible(str(exc)) from None
    except DoorClosed as exc:
        raise UserError(f"{exc}: see spillway trash list, and try again") from None
    return {"id": made, "path": seen.path}


def _found(settings: Settings, session: Session, browser: Browser, path: str) -> OneCheckpoint:
    """Return the checkpoint with a path. Raises NotPossible."""
    place = resolve(browser, settings, path)
    found = checkpoints.one(session, settings, place.found().attr.ino)
    if found is None:
        raise none_of(place.path)
    return checkpoints.whole(session, found)
