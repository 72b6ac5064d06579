"""`spillway trash` and `spillway undelete`: what retention deleted, and how it is taken back."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

from gateway import config
from gateway.cli import result, table, user, verbs
from gateway.cli.look import DONE, refuse
from gateway.cli.progress import Line
from gateway.control import trash as control
from gateway.control.paths import names_of, shown
from gateway.control.trash import Trashed, TrashSummary
from gateway.db.opening import opened
from gateway.errors import DoorClosed, NotPossible, TrashRefused, UserError
from gateway.namespace import identity
from gateway.settings import Settings
from gateway.text import printable
from gateway.trash.rotated import HELD
from gateway.trash.rows import Entry
from gateway.trash.trash import Trash
from gateway.units import duration, size

COLUMNS = ("id", ">size", "time", "path", "deleted", "by", "why")


def arguments(parser: argparse.ArgumentParser) -> None:
    verb = verbs.adder(parser)
    listing = verb("list", "what is in the trash", _list)
    listing.add_argument("--json", action="store_true", help="the same facts as JSON")
    release = verb("release", "let go what is held for a newer checkpoint", _release)
    result.option(release)
    release.add_argument("ids", nargs="+", metavar="ID")
    empty = verb("empty", "remove it for good", _remove)
    empty.add_argument(
        "--all", action="store_true", help="everything that is in the trash, except what is held"
    )
    empty.add_argument("--yes", action="store_true", help="do it: it cannot be taken back")
    result.option(empty)
    empty.add_argument("ids", nargs="*", metavar="ID")


def undelete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="ID|PATH", help="its id, or the path that it had")
    parser.add_argument("--to", metavar="PATH", help="another path than the one that it had")
    result.option(parser)


def release_arguments(parser: argparse.ArgumentParser) -> None:
    result.option(parser)
    parser.add_argument("path", metavar="PATH", help="of a checkpoint that was removed, or its run")


def run(args: argparse.Namespace) -> int:
    """List or empty the trash, or let something go. Returns 1 if something stays. Raises
    UserError."""
    status: int = args.act(config.load(args.config), args)
    return status


def _remove(settings: Settings, args: argparse.Namespace) -> int:
    require_named(args)
    with _opened(settings) as trash:
        trash.reconcile()
        # What is held for a newer checkpoint may be all that the bucket has of its run.
        found = [one for one in trash.entries() if not (args.all and control.is_held(one))]
        entries = {entry.id: entry for entry in found}
        chosen = confirmed({one.id: one.size for one in entries.values()}, args)
        return _empty(trash, [entries[one] for one in chosen], args.json)


def require_named(args: argparse.Namespace) -> None:
    """Raise UserError unless it is said what is to be removed."""
    if bool(args.ids) == args.all:
        raise UserError("name what is to be removed: spillway trash empty ID ..., or --all")


def confirmed(sizes: Mapping[str, int], args: argparse.Namespace) -> list[str]:
    """Return the ids that are to be removed. Raises UserError if one is not there, or without
    --yes. Parameters: sizes in bytes of what is in the trash, by id."""
    if unknown := [one for one in args.ids if one not in sizes]:
        raise UserError(f"{shown(unknown[0])} is not in the trash: see spillway trash list")
    chosen = list(dict.fromkeys(args.ids or sizes))
    if not args.yes:
        total = size(sum(sizes[one] for one in chosen))
        raise UserError(f"{len(chosen)} checkpoints, {total}, would be removed for good: add --yes")
    return chosen


def _release(settings: Settings, args: argparse.Namespace) -> int:
    with _opened(settings) as trash:
        entries = {entry.id: entry for entry in trash.entries()}
        if unknown := [one for one in args.ids if one not in entries]:
            raise UserError(f"{shown(unknown[0])} is not in the trash: see spillway trash list")
        return _let_go(trash, [entries[one] for one in dict.fromkeys(args.ids)], args.json)


def release(args: argparse.Namespace) -> int:
    """Let the checkpoints go that were removed at or below a path. Returns exit status 1 if none is
    held. Raises UserError."""
    settings = config.load(args.config)
    path = b"/".join(names_of(settings.nfs.export, args.path))
    with _opened(settings) as trash:
        try:
            entries = control.held_at(trash, path)
        except NotPossible as exc:
            return refuse(exc)
        return _let_go(trash, entries, args.json)


def _let_go(trash: Trash, entries: Sequence[Entry], as_json: bool) -> int:
    status = DONE
    with result.Results(as_json) as results:
        for entry in entries:
            failures = []
            try:
                trash.release(entry, by=user.name())
            except TrashRefused as exc:
                failures = [str(exc)]
            status = max(status, show_released(results, entry.id, failures))
    return status


def show_released(results: result.Results, trash_id: str, failures: Sequence[str]) -> int:
    """Tell whether a checkpoint need not wait any more. Returns the exit status. Parameters:
    failures, why it waits."""
    facts = {"id": trash_id, "released": not failures, "failures": list(failures)}
    text = f"{trash_id}: released: it leaves the bucket within some minutes"
    results.add(facts, None if failures else text)
    return max((refuse(NotPossible(why)) for why in failures), default=DONE)


def undelete(args: argparse.Namespace) -> int:
    """Take a checkpoint back. Returns exit status 1 if it stays in the trash. Raises UserError."""
    settings = config.load(args.config)
    export = settings.nfs.export
    with _opened(settings) as trash:
        try:
            trash.reconcile()
            places = [(one.id, one.path) for one in trash.entries()]
            what = chosen(places, export, args.what)
            path = control.undelete(settings, trash, what, args.to, by=user.name())
        except (NotPossible, TrashRefused) as exc:
            return refuse(NotPossible(str(exc)))
    return show_back(what, f"{export}/{printable(path)}", args.json)


def show_back(trash_id: str, path: str, as_json: bool) -> int:
    """Print that a checkpoint is back. Returns the exit status. Parameters: trash_id, which it had
    in the trash; path, which it has now."""
    text = f"{path}: it is back\npolicies may delete it again: spillway pin PATH keeps it"
    result.show({"id": trash_id, "path": path}, text, as_json)
    return DONE


def lines(found: TrashSummary) -> Iterator[tuple[str, str]]:
    """Yield label and value of a line for a person."""
    if count := found.entries:
        noun = "checkpoint" if count == 1 else "checkpoints"
        text = f"{count} {noun}, {size(found.local_bytes)} on the disk, "
        text += f"{size(found.bucket_bytes)} in the bucket"
        if found.next_expiry_seconds is not None:
            text += f"; the next is removed in {duration(found.next_expiry_seconds)}"
        if found.early:
            text += f"; {size(found.size_bytes)} are more than retention.trash_max_bytes, "
            text += f"{size(found.max_bytes)}: the oldest {found.early} go early"
        if found.held:
            text += f"; {found.held} held for a newer checkpoint"
        if found.staying:
            text += f"; {found.staying} stay although they were to be removed: spillway trash list"
        yield "trash", text


@contextmanager
def _opened(settings: Settings) -> Iterator[Trash]:
    """Open the trash. Raises UserError."""
    with opened(settings.database_url) as database:
        try:
            yield Trash(settings, database)
        except DoorClosed as exc:
            raise UserError(f"{exc}: see spillway trash list, and try again") from None


def _list(settings: Settings, args: argparse.Namespace) -> int:
    with _opened(settings) as trash:
        found = control.model(settings, trash)
    return show(found, args.json)


def show(found: Sequence[Trashed], as_json: bool) -> int:
    """Print what is in the trash. Returns the exit status."""
    if as_json:
        result.print_json({"trash": found})
        return DONE
    if found:
        table.show(COLUMNS, map(_cells, found), chain.from_iterable(map(_lines, found)))
    else:
        print("the trash is empty")
    return DONE


def _cells(one: Trashed) -> tuple[str, ...]:
    left = "being removed" if one.is_expiring else f"{duration(one.left_seconds)} left"
    left = "goes early" if one.early and not one.is_expiring else left
    left = f"stays: {one.stays}" if one.stays else left
    when = one.deleted[:19].replace("T", " ")
    return one.id, size(one.size_bytes), left, one.path, when, one.by, one.reason


def _lines(one: Trashed) -> Iterator[str]:
    id, length, left, path, when, by, reason = _cells(one)
    left = "stays" if one.stays else left
    yield f"{id:<8} {length:>10}  {left:<14} {path}"
    yield f"{'':<8} {when}  {by}: {reason}"
    if one.early:
        yield f"{'':<8} goes early: {one.early}: take it back: spillway undelete {id}"
    if one.held:
        yield f"{'':<8} {HELD}: let it go: spillway trash release {id}"
    if one.stays:
        yield (
            f"{'':<8} {one.stays}: take it back: spillway undelete {id}, or "
            f"remove it: spillway trash empty {id} --yes"
        )


def chosen(places: Sequence[tuple[str, bytes]], export: str, what: str) -> str:
    """Return the id of what has an id in the trash, or had a path. Raises NotPossible.

    Parameters: places, ids and paths below the export of what is in the trash.
    """
    path = b"/".join(names_of(export, what))
    found = [id for id, _path in places if id == what] or [id for id, at in places if at == path]
    if not found:
        raise NotPossible(f"{shown(what)} is not in the trash: see spillway trash list")
    if len(found) > 1:
        ids = ", ".join(found)
        raise NotPossible(f"{shown(what)} is in the trash {len(found)} times: name one: {ids}")
    return found[0]


def _empty(trash: Trash, entries: Sequence[Entry], as_json: bool) -> int:
    identity.require_surroundings(trash.settings)
    status = DONE
    line = Line(quiet=as_json)

    def told(count: int) -> None:
        line.show(f"{count:,} names removed")

    with result.Results(as_json) as results:
        for entry in entries:
            failures = []
            try:
                trash.remove(entry, told, by=user.name(), reason=control.BY_HAND)
            except TrashRefused as exc:
                failures = [str(exc)]
            finally:
                line.end()
            status = max(status, show_removed(results, entry.id, failures))
    return status


def show_removed(results: result.Results, trash_id: str, failures: Sequence[str]) -> int:
    """Tell whether a checkpoint was removed for good. Returns the exit status. Parameters:
    failures, why it stays."""
    facts = {"id": trash_id, "removed": not failures, "failures": list(failures)}
    results.add(facts, None if failures else f"{trash_id}: removed")
    return max((refuse(NotPossible(why)) for why in failures), default=DONE)
