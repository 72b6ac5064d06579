"""`spillway trash` and `spillway undelete`: what retention deleted, and how it is taken back."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gateway import config
from gateway.cli.look import DONE, refuse
from gateway.cli.progress import Line
from gateway.control import trash as control
from gateway.control.paths import names_of, shown
from gateway.db import schema
from gateway.db.engine import Database
from gateway.errors import DoorClosed, NamespaceError, NotPossible, TrashRefused, UserError
from gateway.namespace import identity
from gateway.settings import Settings
from gateway.text import printable
from gateway.trash.rows import Entry
from gateway.trash.trash import Trash
from gateway.units import duration, size


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    listing = commands.add_parser("list", help="list what is in the trash", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="the same facts as JSON")
    empty = commands.add_parser("empty", help="remove it for good", allow_abbrev=False)
    empty.add_argument("--all", action="store_true", help="everything that is in the trash")
    empty.add_argument("--yes", action="store_true", help="do it: it cannot be taken back")
    empty.add_argument("ids", nargs="*", metavar="ID")


def undelete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="ID|PATH", help="its id, or the path that it had")
    parser.add_argument("--to", metavar="PATH", help="another path than the one that it had")


def run(args: argparse.Namespace) -> int:
    """List or empty the trash. Returns exit status 1 if something stays. Raises UserError."""
    settings = config.load(args.config)
    if args.action == "list":
        return _list(settings, args.json)
    if bool(args.ids) == args.all:
        raise UserError("name what is to be removed: spillway trash empty ID ..., or --all")
    with _opened(settings) as trash:
        trash.reconcile()
        chosen = {entry.id: entry for entry in trash.entries()}
        if unknown := [one for one in args.ids if one not in chosen]:
            raise UserError(f"{shown(unknown[0])} is not in the trash: see spillway trash list")
        entries = [chosen[one] for one in dict.fromkeys(args.ids)] if args.ids else chosen.values()
        if not args.yes:
            total = size(sum(entry.size for entry in entries))
            raise UserError(
                f"{len(entries)} checkpoints, {total}, would be removed for good: add --yes"
            )
        return _empty(trash, list(entries))


def undelete(args: argparse.Namespace) -> int:
    """Take a checkpoint back. Returns exit status 1 if it stays in the trash. Raises UserError."""
    settings = config.load(args.config)
    export = settings.nfs.export
    with _opened(settings) as trash:
        try:
            trash.reconcile()
            entry = _chosen(trash.entries(), export, args.what)
            path = control.undelete(settings, trash, entry.id, args.to)
        except (NotPossible, TrashRefused) as exc:
            return refuse(NotPossible(str(exc)))
    print(f"{export}/{printable(path)}: it is back")
    print("policies may delete it again: spillway pin PATH keeps it")
    return DONE


def lines(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and value of a line for a person, from ``control.trash.summary``."""
    if count := found["entries"]:
        noun = "checkpoint" if count == 1 else "checkpoints"
        text = f"{count} {noun}, {size(found['local_bytes'])} on the disk, "
        text += f"{size(found['bucket_bytes'])} in the bucket"
        if found["next_expiry_seconds"] is not None:
            text += f"; the next is removed in {duration(found['next_expiry_seconds'])}"
        if found["staying"]:
            text += f"; {found['staying']} stay although their grace is over: spillway trash list"
        yield "trash", text


@contextmanager
def _opened(settings: Settings) -> Iterator[Trash]:
    """Open the trash. Raises UserError."""
    database = Database(settings.database_url)
    try:
        schema.require_current(database)
        yield Trash(settings, database)
    except NamespaceError as exc:
        raise UserError(f"cannot use the database {database.url}: {exc}: try again") from None
    except DoorClosed as exc:
        raise UserError(f"{exc}: see spillway trash list, and try again") from None
    finally:
        database.close()


def _list(settings: Settings, as_json: bool) -> int:
    with _opened(settings) as trash:
        found = control.facts(settings, trash)
    if as_json:
        print(json.dumps({"trash": found}, indent=2))
        return DONE
    for one in found:
        left = "being removed" if one["is_expiring"] else f"{duration(one['left_seconds'])} left"
        left = "stays" if one["stays"] else left
        print(f"{one['id']:<8} {size(one['size_bytes']):>10}  {left:<14} {one['path']}")
        print(f"{'':<8} {one['deleted'][:19].replace('T', ' ')}  {one['by']}: {one['reason']}")
        if one["stays"]:
            print(
                f"{'':<8} {one['stays']}: take it back: spillway undelete {one['id']}, or "
                f"remove it: spillway trash empty {one['id']} --yes"
            )
    if not found:
        print("the trash is empty")
    return DONE


def _chosen(entries: Sequence[Entry], export: str, what: str) -> Entry:
    """Return the entry with an id, or with the path that it had. Raises NotPossible."""
    path = b"/".join(names_of(export, what))
    found = [one for one in entries if one.id == what] or [
        one for one in entries if one.path == path
    ]
    if not found:
        raise NotPossible(f"{shown(what)} is not in the trash: see spillway trash list")
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise NotPossible(f"{shown(what)} is in the trash {len(found)} times: name one: {ids}")
    return found[0]


def _empty(trash: Trash, entries: Sequence[Entry]) -> int:
    identity.require_surroundings(trash.settings)
    status = DONE
    line = Line(quiet=False)
    for entry in entries:
        try:
            trash.remove(entry, lambda count: line.show(f"{count:,} names removed"))
        except TrashRefused as exc:
            status = refuse(NotPossible(str(exc)))
            continue
        finally:
            line.end()
        print(f"{entry.id}: removed")
    return status
