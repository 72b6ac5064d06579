"""`spillway export`: lets hosts mount further directories, changed while clients work."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from gateway import config
from gateway.cli import result, table, user, verbs
from gateway.clients import Squash
from gateway.control import exports as control
from gateway.control.exports import Export, ExportValidity
from gateway.control.paths import names_of
from gateway.db.engine import Database
from gateway.db.opening import explained
from gateway.errors import NotThere, UserError
from gateway.exports.keeper import Exports, Listed, Wanted
from gateway.settings import Settings
from gateway.text import shown

COLUMNS = ("export", "directory", "hosts", "squash", ">version", "served")
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
    validating = named("validate", "say what set would do, and change nothing", _validate)
    validating.add_argument("--json", action="store_true", help="the same facts as JSON")
    for sub in (setting, validating):
        sub.add_argument("--path", help="its directory (a new export: the whole namespace)")
        sub.add_argument(
            "--client",
            action="append",
            metavar="ENTRY",
            help='hosts that may mount it, like "10.0.0.0/8 ro"; again for more, in order',
        )
        sub.add_argument(
            "--squash", choices=list(Squash), help="map these users to the user nobody"
        )
    removing = named("remove", "end an export; its clients lose what they have open", _remove)
    for sub in (setting, removing):
        sub.add_argument(
            "--version", type=int, metavar="N", help="only if it has this version (0: is new)"
        )
    reloading = verb("reload", "have the server take all exports and nfs.clients again", _reload)
    for sub in (setting, removing, reloading):
        result.option(sub)


def run(args: argparse.Namespace) -> int:
    """Run one verb. Returns its exit status. Raises UserError."""
    settings = config.load(args.config)
    with _opened(settings) as exports:
        act: _Act = args.act
        return act(settings, exports, args)


@contextmanager
def _opened(settings: Settings) -> Iterator[Exports]:
    with closing(Database(settings.database_url)) as database, explained(database):
        yield Exports(settings, database)


def _list(settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    found = [control.model(settings, one) for one in exports.listed()]
    return show_list(found, settings.nfs.export, settings.nfs.clients, args.json)


def show_list(found: Sequence[Export], export: str, clients: Sequence[str], as_json: bool) -> int:
    """Print the exports. Returns the exit status. Parameters: export and clients, of nfs.export."""
    if as_json:
        result.print_json(found)
        return 0
    print(f"{export}: everything, to {', '.join(clients)} (nfs.clients)")
    if found:
        table.show(COLUMNS, map(_cells, found), map(_line, found))
    return 0


def _show(settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    return show_one(control.model(settings, _found(exports, args.name)), args.json)


def show_one(one: Export, as_json: bool) -> int:
    """Print an export. Returns the exit status."""
    result.show(one, _line(one), as_json)
    return 0


def _set(settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    made = exports.put(_wanted(settings, exports, args), user.name(), args.version)
    return show_made(control.model(settings, _found(exports, made.name)), args.json)


def _validate(settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    return show_validity(control.validity(exports, _wanted(settings, exports, args)), args)


def show_validity(found: ExportValidity, args: argparse.Namespace) -> int:
    """Print whether an export could be stored, and what that would do. Returns the exit status."""
    if args.json:
        result.print_json(found if found.valid else {"valid": False, "error": found.error})
    else:
        for line in _validity(found):
            print(f"{shown(args.name)}: {line}")
        if found.ganesha is not None:
            print(found.ganesha.rstrip())
    return int(not found.valid)


def _validity(found: ExportValidity) -> Iterator[str]:
    if found.error is not None:
        yield found.error
        return
    if not found.is_news:
        yield "it is like this already"
        return
    yield "it would be new" if found.is_new else "it would change"
    if found.disconnects:
        yield "its clients would lose what they have open: its directory is another one"
    if found.clients_added:
        yield f"{', '.join(found.clients_added)}: may mount it then"
    if found.clients_removed:
        yield f"{', '.join(found.clients_removed)}: no longer"
    if found.squash_was is not None:
        yield f"its squash was {found.squash_was}"
    yield "at once" if found.at_once else "at the next start of the NFS server"


def _wanted(settings: Settings, exports: Exports, args: argparse.Namespace) -> Wanted:
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
        raise gone(args.name)
    return Wanted(args.name, path, clients or (), squash or Squash.NONE)


def gone(name: str) -> UserError:
    """Return the error of a change of an export that has no directory."""
    return UserError(f"the directory of {name} is not there any more: name one with --path")


def show_made(one: Export, as_json: bool) -> int:
    """Print that an export was made or changed. Returns the exit status."""
    result.show(one, f"{one.name}: version {one.version}", as_json)
    return 0


def _remove(_settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    _found(exports, args.name)
    exports.remove(args.name, user.name(), args.version)
    return show_removed(args.name, args.json)


def show_removed(name: str, as_json: bool) -> int:
    """Print that an export was removed. Returns the exit status."""
    result.show({"name": name, "removed": True}, f"{name}: removed", as_json)
    return 0


def _reload(_settings: Settings, exports: Exports, args: argparse.Namespace) -> int:
    exports.reload()
    _served, left_out = exports.servable()
    return show_reloaded([one.name for one in left_out], args.json)


def show_reloaded(left_out: Sequence[str], as_json: bool) -> int:
    """Print that the exports are in force. Returns the exit status. Parameters: left_out, those
    that the server cannot have."""
    lines = [f"{name}: left out: spillway export show {name}" for name in left_out]
    text = "\n".join([*lines, "the exports are in force"])
    result.show({"left_out": list(left_out)}, text, as_json)
    return 1 if left_out else 0


def _found(exports: Exports, name: str) -> Listed:
    try:
        return control.found(exports, name)
    except NotThere as exc:
        raise UserError(str(exc)) from None


def _cells(one: Export) -> tuple[str, ...]:
    where = "its directory is gone" if one.path is None else one.path
    served = "no: spillway export reload" if one.served is False else "yes"
    served = "?" if one.served is None else served
    return one.name, where, ", ".join(one.clients), one.squash, str(one.version), served


def _line(one: Export) -> str:
    name, where, hosts, squash, version, _served = _cells(one)
    line = f"{name}: {where}, to {hosts}, squash {squash}, version {version}"
    return f"{line} (not served: spillway export reload)" if one.served is False else line
