"""`spillway export`: lets hosts mount further directories, changed while clients work."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway import config
from gateway.cli import user, verbs
from gateway.clients import Squash
from gateway.control import exports as control
from gateway.control.paths import names_of
from gateway.db.engine import Database
from gateway.errors import NamespaceError, NotThere, UserError
from gateway.exports.keeper import Exports, Listed, Wanted
from gateway.settings import Settings

_Act = Callable[[Settings, Exports, argparse.Namespace], int]


def arguments(parser: argparse.ArgumentParser) -> None:
    verb = verbs.adder(parser)

    def named(name: str, text: str, act: _Act) -> argparse.ArgumentParser:
        sub = verb(name, text, act)
        sub.add_argument("name", metavar="NAME", help="what clients mount, like /datasets")
        return sub

    listing = verb("list", "all exports", _list)
    showing = named("show", "one export", _show)
    for sub in (listing, showing):
        sub.add_argument("--json", action="store_true", help="the same facts as JSON")
    setting = named("set", "add or change an export; what is not given stays", _set)
    setting.add_argument("--path", help="its directory (a new export: the whole namespace)")
    setting.add_argument(
        "--client",
        action="append",
        metavar="ENTRY",
        help='hosts that may mount it, like "10.0.0.0/8 ro"; again for more, in order',
    )
    setting.add_argument("--squash", choices=list(Squash), help="users that become nobody")
    removing = named("remove", "end an export; its clients lose what they have open", _remove)
    for sub in (setting, removing):
        sub.add_argument(
            "--version", type=int, metavar="N", help="only if it has this version (0: is new)"
        )
    verb("reload", "have the server take all exports and nfs.clients again", _reload)


def run(args: argparse.Namespace) -> int:
    """Run one verb. Returns its exit status. Raises UserError."""
    settings = config.load(args.config)
    with _opened(settings) as exports:
        act: _Act = args.act
        return act(settings, exports, args)


@contextmanager
def _opened(settings: Settings) -> Iterator[Exports]:
    database = Database(settings.database_url)
    try:
        yield Exports(settings, database)
    except NamespaceError as exc:
        raise UserError(f"cannot use {database.url}: {exc}: try again") from None
    finally:
        database.close()


def _list(settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    found = exports.listed()
    if args.json:
        print(json.dumps([control.facts(settings, one) for one in found], indent=2))
        return 0
    print(f"{settings.nfs.export}: everything, to {_hosts(settings.nfs.clients)} (nfs.clients)")
    for one in found:
        print(_line(settings, one))
    return 0


def _show(settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    found = _found(exports, args.name)
    facts = control.facts(settings, found)
    print(json.dumps(facts, indent=2) if args.json else _line(settings, found))
    return 0


def _set(settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    before = exports.get(args.name)
    path: bytes | None = b""
    clients, squash = args.client, args.squash
    if before is not None:
        path = before.path
        clients = clients or before.export.clients
        squash = squash or before.export.squash
    if args.path is not None:
        path = b"/".join(names_of(settings.nfs.export, args.path))
    if path is None:
        raise UserError(f"the directory of {args.name} is not there any more: name one with --path")
    wanted = Wanted(args.name, path, clients or (), squash or Squash.NONE)
    made = exports.put(wanted, user.name(), args.version)
    print(f"{made.name}: version {made.version}")
    return 0


def _remove(_settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    _found(exports, args.name)
    exports.remove(args.name, user.name(), args.version)
    print(f"{args.name}: removed")
    return 0


def _reload(_settings: Settings, exports: Exports, _args: argparse.Namespace) -> int:
    exports.reload()
    _served, left_out = exports.servable()
    for one in left_out:
        print(f"{one.name}: left out: spillway export show {one.name}")
    print("the exports are in force")
    return 1 if left_out else 0


def _found(exports: Exports, name: str) -> Listed:
    try:
        return control.found(exports, name)
    except NotThere as exc:
        raise UserError(str(exc)) from None


def _line(settings: Settings, found: Listed) -> str:
    export = found.export
    gone = "its directory is gone"
    where = gone if found.path is None else control.path_of(settings, found.path)
    line = (
        f"{export.name}: {where}, to {_hosts(export.clients)}, squash {export.squash}, "
        f"version {export.version}"
    )
    return f"{line} (not served: spillway export reload)" if found.is_served is False else line


def _hosts(clients: tuple[str, ...]) -> str:
    return ", ".join(clients)
