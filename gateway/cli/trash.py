"""Command `spillway trash`: what policies and people deleted, and how it is restored."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from gateway.cli import output
from gateway.cli.files import DONE, each, refuse_each
from gateway.cli.output import showing
from gateway.cli.policies import moment
from gateway.common.errors import NotThere, UserError
from gateway.common.text import display
from gateway.common.units import duration, size
from gateway.lifecycle.trash.held import HELD
from gateway.service.gateway import Gateway
from gateway.service.trash import Expired, TrashBin, Trashed, TrashSummary

_ID = re.compile("t[0-9]{1,19}")
COLUMNS = ("id", ">size", "time left", "deleted", "path, by whom, and why")


def list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def restore_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="ID|PATH", help="its id, or the path that it had")
    parser.add_argument("--to", metavar="PATH", help="another path than the one that it had")
    output.option(parser)


def release_arguments(parser: argparse.ArgumentParser) -> None:
    output.option(parser)
    parser.add_argument(
        "what",
        nargs="+",
        metavar="ID|PATH",
        help="its id, or the path of a checkpoint that clients removed, or of its run",
    )


def empty_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all", action="store_true", help="everything that is in the trash, except what is held"
    )
    parser.add_argument("--yes", action="store_true", help="do it: it cannot be undone")
    output.option(parser)
    parser.add_argument("ids", nargs="*", metavar="ID")


def show(args: argparse.Namespace, gateway: Gateway) -> int:
    """List what is in the trash."""
    entries = list(gateway.trash.every())
    if args.json:
        output.print_json({"trash": entries})
    elif entries:
        output.show_table(COLUMNS, map(_cells, entries))
        for line in chain.from_iterable(map(_remarks, entries)):
            print(line)
    else:
        print("the trash is empty")
    return DONE


def release(args: argparse.Namespace, gateway: Gateway) -> int:
    """Let go what is held for a newer checkpoint. Returns exit status 1 if something stays. Raises
    UserError."""
    trash, entries = gateway.trash, list[Expired]()
    for path in args.what:
        entries += _with_ids(trash, [path]) if _ID.fullmatch(path) else trash.held_at(path)
    return _let_go(trash, entries, args)


def _let_go(trash: TrashBin, entries: Sequence[Expired], args: argparse.Namespace) -> int:
    def act(trash_id: str) -> None:
        made = trash.release(trash_id)
        results.add(
            made,
            f"{trash_id}: released: it leaves the bucket within some minutes",
        )

    with output.Results(args.json) as results:
        return each([entry.id for entry in entries], act)


def empty(args: argparse.Namespace, gateway: Gateway) -> int:
    """Remove checkpoints for good. Returns exit status 1 if something stays. Raises UserError."""
    trash, status = gateway.trash, DONE
    chosen = _confirmed(trash, args)
    with output.Results(args.json) as results:
        for entry in chosen:
            with showing(args.json) as tell:
                done = trash.remove(entry, tell)
            results.add(done, f"{entry.id}: removed for good" if done.removed else None)
            status = max(status, refuse_each(done.failures))
    return status


def _confirmed(trash: TrashBin, args: argparse.Namespace) -> list[Expired]:
    """Return what is to be removed. Raises UserError if it is not said, not there, or without
    --yes."""
    if bool(args.ids) == args.all:
        raise UserError("name what is to be removed: spillway trash empty ID ..., or --all")
    # What is held for a newer checkpoint may be all that the bucket has of its run.
    chosen = [entry for entry in _with_ids(trash, args.ids or None) if args.ids or not entry.held]
    if not args.yes:
        total = size(sum(entry.size_bytes for entry in chosen))
        raise UserError(f"{len(chosen)} checkpoints, {total}, would be removed for good: add --yes")
    return chosen


def _with_ids(trash: TrashBin, ids: Sequence[str] | None) -> list[Expired]:
    """Return what has some ids. None: everything. Raises UserError if one is not there."""
    try:
        return trash.find(ids)
    except NotThere as exc:
        raise UserError(str(exc)) from None


def restore(args: argparse.Namespace, gateway: Gateway) -> int:
    """Restore a checkpoint. Returns exit status 1 if it stays in the trash. Raises UserError."""
    made = gateway.trash.undelete(args.what, args.to)
    path = display(made.path)
    text = (
        f"{path}: it is back\npolicies may delete it again: spillway checkpoint pin PATH keeps it"
    )
    output.show(made, text, args.json)
    return DONE


def lines(found: TrashSummary) -> Iterator[tuple[str, str]]:
    """Yield label and value of a line for a person."""
    if count := found.entries:
        noun = "checkpoint" if count == 1 else "checkpoints"
        text = f"{count} {noun}, {size(found.local_bytes)} on the disk, "
        text += f"{size(found.bucket_bytes)} in the bucket"
        if found.next_expiry_seconds is not None:
            text += f"; the next is removed for good in {duration(found.next_expiry_seconds)}"
        if found.early:
            text += f"; {size(found.size_bytes)} are more than retention.trash_max_bytes, "
            text += f"{size(found.max_bytes)}: the oldest {found.early} go early"
        if found.held:
            text += f"; {found.held} held for a newer checkpoint"
        if found.staying:
            text += f"; {found.staying} stay although they were to be removed: spillway trash list"
        yield "trash", text


def _cells(entry: Trashed) -> tuple[str, ...]:
    left = duration(entry.left_seconds)
    if entry.is_expiring:
        left = "being removed for good"
    elif entry.stays:
        left = "stays"
    elif entry.early:
        left = "goes early"
    # In one column, which a narrow terminal wraps: reasons are long.
    what = f"{display(entry.path)}: {entry.by}: {entry.reason}"
    return entry.id, size(entry.size_bytes), left, moment(entry.deleted_ns)[:10], what


def _remarks(entry: Trashed) -> Iterator[str]:
    """Yield why something leaves the trash earlier or later than its grace says, and what to do."""
    if entry.early:
        yield f"{entry.id} goes early: {entry.early}: restore it: spillway trash restore {entry.id}"
    if entry.held:
        yield f"{entry.id} is {HELD}: let it go: spillway trash release {entry.id}"
    if entry.stays:
        yield (
            f"{entry.id} stays: {entry.stays}: restore it: spillway trash restore {entry.id}, or "
            f"remove it for good: spillway trash empty {entry.id} --yes"
        )
