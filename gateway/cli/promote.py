"""`spillway promote`, `promotions` and `demote`: copies of checkpoints that stay."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

from gateway import clock, config, state
from gateway.checkpoints.catalogue import catalogue_of
from gateway.cli import result, table, user
from gateway.cli.look import DONE, NOT_POSSIBLE, refuse
from gateway.cli.progress import Line, bar
from gateway.control import promotions as control
from gateway.control.paths import browsing, follow
from gateway.control.promotions import Promotion
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.opening import opened
from gateway.errors import START, NotPossible, UserError
from gateway.promotion import members, places, store
from gateway.promotion.store import Promotion as Row
from gateway.promotion.store import State
from gateway.promotion.wishes import NO_WISHES, Wishes, wishes_of
from gateway.serialize import to_json
from gateway.settings import Settings
from gateway.text import printable, shown
from gateway.units import size

COLUMNS = ("name", "state", ">files", ">size", "source", "by", "asked", "why")
POLL_SECONDS = 0.5
DEAD_SECONDS = 10.0
"""The time that the process of the catalogue may be away: `spillway up` restarts it."""


def promote_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--as", dest="name", required=True, metavar="NAME", help="its new name")
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for other people")
    tag = "of its objects, beside spillway=promoted; may be repeated"
    parser.add_argument("--tag", dest="tags", action="append", default=[], metavar="K=V", help=tag)
    parser.add_argument("--to", metavar="PREFIX", help="its keys begin so, outside of our prefix")
    parser.add_argument(
        "--legal-hold", action="store_true", help="no program deletes its objects (Object Lock)"
    )
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="until it is durable, and then until it is promoted (default)",
    )
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("path", metavar="PATH", help="a checkpoint, or any directory or file")


def promote(args: argparse.Namespace) -> int:
    """Promote a checkpoint. Returns exit status 1 if it cannot be promoted. Raises UserError."""
    settings = config.load(args.config)
    name = places.checked(args.name, settings.drain.hold_patterns)
    wishes = wishes_of(settings.bucket.prefix, args.legal_hold, args.tags, args.to)
    if wishes.legal_hold:
        control.require_lock(settings)
    with browsing(settings) as browser, opened(settings.database_url) as database:
        try:
            ino = follow(browser, settings, args.path).found().attr.ino
            waiting = _Waiting(settings, database, args.json)
            made = waiting.ask(ino, name, args.note, args.wait, wishes)
            if args.wait:
                made = waiting.until_ended(made)
            now, _files, copied = _counted(database, made)
            found = control.model(settings, now, copied)
        except NotPossible as exc:
            return refuse(exc)
    return show(found, args.json)


def show(found: Promotion, as_json: bool) -> int:
    """Print a promotion. Returns the exit status."""
    result.show(found, _line(found), as_json)
    return NOT_POSSIBLE if found.state == State.FAILED else DONE


def promotions_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def promotions(args: argparse.Namespace) -> int:
    """List the promotions. Raises UserError."""
    settings = config.load(args.config)
    with opened(settings.database_url) as database, database.snapshot() as connection:
        found = control.every(settings, Session(connection, database.dialect))
    return show_list(found, args.json)


def show_list(found: Sequence[Promotion], as_json: bool) -> int:
    """Print promotions. Returns the exit status."""
    return table.show_facts(found, as_json, COLUMNS, _cells, _line, "nothing is promoted")


def _cells(one: Promotion) -> tuple[str, ...]:
    files, length = f"{one.files:,}", size(one.size_bytes)
    why = shown(one.reason or one.note)
    return one.name, one.state, files, length, one.source, one.by, one.asked[:10], why


def demote_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="remove the copy, also in the bucket")
    parser.add_argument("--release-hold", action="store_true", help="end its legal hold first")
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="until it is removed (default)",
    )
    result.option(parser)
    parser.add_argument("name", metavar="NAME", help="as spillway promotions shows it")


def demote(args: argparse.Namespace) -> int:
    """Remove a promotion. Returns exit status 1 if it is not confirmed. Raises UserError."""
    settings = config.load(args.config)
    with opened(settings.database_url) as database:
        with database.writing() as session:
            try:
                found = control.named(session, args.name)
            except NotPossible as exc:
                raise UserError(str(exc)) from None
            _files, copied = store.counts(session, found.name)
            if not args.yes:
                return show_unconfirmed(control.model(settings, found, copied), args.json)
            try:
                after = store.demote(session, found, args.release_hold)
            except NotPossible as exc:
                return refuse(exc)
        if args.wait:
            _Waiting(settings, database, args.json).until_gone(found)
    return show_demoted(control.model(settings, after, copied), args.wait, args.json)


def show_unconfirmed(one: Promotion, as_json: bool) -> int:
    """Print what would be removed with --yes. Returns the exit status."""
    what = f"{one.files:,} files, {size(one.size_bytes)}"
    text = f"{one.name}: {what} would be removed, also from the bucket: add --yes"
    result.show({**to_json(one), "removed": False}, text, as_json)
    return NOT_POSSIBLE


def show_demoted(one: Promotion, is_gone: bool, as_json: bool) -> int:
    """Print that a promotion is or will be removed. Returns the exit status."""
    text = f"{one.name}: {'removed' if is_gone else 'is being removed'}"
    result.show({**to_json(one), "removed": is_gone}, text, as_json)
    return DONE


def line(facts: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yield label and value of the line for a person, if there is anything to say."""
    if counts := [f"{count} {name}" for name, count in facts.items() if count]:
        more = ": look with spillway promotions" if facts[State.FAILED] else ""
        yield "promotions", f"{', '.join(counts)}{more}"


def copied_text(copied: int, files: int, reason: str | None) -> str:
    """Return how far a promotion is."""
    text = f"{bar(copied / files)}  " if files else ""
    text += f"{copied:,} of {files:,} files copied"
    return text + (f": {shown(reason)}" if reason else "")


class _Waiting:
    """Waits for what other processes do, and shows it.

    Parameters: quiet, whether nothing is shown.
    """

    def __init__(self, settings: Settings, database: Database, quiet: bool) -> None:
        self._settings = settings
        self._database = database
        self._catalogue = catalogue_of(settings, database)
        self._line = Line(quiet)
        self._alive_at = clock.monotonic_seconds()

    def ask(self, ino: int, name: str, note: str, waits: bool, wishes: Wishes = NO_WISHES) -> Row:
        """Record a promotion, as soon as the bucket has all of its source. Raises NotPossible,
        UserError."""
        try:
            while True:
                began = clock.monotonic_seconds()
                source = control.source_of(self._catalogue, ino)
                if source is None:
                    raise NotPossible("it was removed meanwhile")
                why = control.why_not_yet(source)
                if why is None:
                    break
                if not waits:
                    raise NotPossible(f"{printable(source.path)}: {why}")
                rest = max(POLL_SECONDS, 5 * (clock.monotonic_seconds() - began))
                self._pause(f"waiting: {why}", "then promote it", rest)
        finally:
            self._line.end()
        prefix = self._settings.bucket.prefix
        with self._database.writing() as session:
            path, seen = source.path, source.seen
            return members.record(session, prefix, name, path, seen, note, user.name(), wishes)

    def until_ended(self, one: Row) -> Row:
        """Wait until a promotion is done or has failed. Raises NotPossible."""
        while True:
            now, files, copied = _counted(self._database, one)
            if now.state != State.COPYING:
                self._line.end()
                return now
            self._pause(copied_text(copied, files, now.reason), _continues(one))

    def until_gone(self, one: Row) -> None:
        """Wait until a promotion is removed. Raises UserError."""
        while True:
            with self._database.snapshot() as connection:
                now = store.one_named(Session(connection, self._database.dialect), one.name)
            if now is None or now.top != one.top:
                self._line.end()
                return
            if now.state != State.DEMOTING:
                self._line.end()
                raise UserError(
                    f"{one.name} is {now.state}, and is not removed: demote it again: "
                    f"spillway demote {one.name} --yes"
                )
            self._pause(f"removing: {shown(now.reason or 'files')}", _continues(one))

    def _pause(self, text: str, then: str, seconds: float = POLL_SECONDS) -> None:
        """Wait some seconds. Raises UserError if the gateway does not run.

        Parameters: text to be shown; then, what follows when the gateway runs again.
        """
        self._line.show(text)
        until = clock.monotonic_seconds() + seconds
        while (now := clock.monotonic_seconds()) < until:
            time.sleep(min(POLL_SECONDS, until - now))
            children = state.children(state.read(self._settings, state.UP))
            if state.alive(children.get("checkpoints")):
                self._alive_at = clock.monotonic_seconds()
        if now - self._alive_at > DEAD_SECONDS:
            self._line.end()
            raise UserError(f"the gateway does not run: start it: {START}; {then}")


def _continues(one: Row) -> str:
    return f"{one.name} then continues by itself"


def _counted(database: Database, one: Row) -> tuple[Row, int, int]:
    """Return a promotion as it is now, its files, and those that are copied."""
    with database.reading() as session:
        now = store.one_named(session, one.name)
        if now is None or now.top != one.top:
            raise NotPossible(f"{one.name}: it was demoted meanwhile")
        return now, *store.counts(session, one.name)


def _line(one: Promotion) -> str:
    head = f"{one.name}  {one.state}  {one.files} files, {size(one.size_bytes)}"
    text = f"{head}  {one.source}  ({one.by}, {one.asked[:10]})"
    if one.reason:
        text += f": {shown(one.reason)}"
    elif one.note:
        text += f": {shown(one.note)}"
    if one.legal_hold:
        text += "; under a legal hold"
    if one.run is None:
        text += "; no rule recognised it as a checkpoint"
    if one.state == State.DONE and not one.is_tagged:
        text += "; its objects have no tag"
    return text
