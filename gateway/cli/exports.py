"""Command `spillway export`: lets hosts mount further directories, changed while clients work."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator

from gateway.cli import options, output
from gateway.common.errors import ExportChanged, UserError
from gateway.common.network import Squash
from gateway.common.text import bytes_of, display, shown
from gateway.service.exports import Export, Exports, ExportValidity, Rights, missing
from gateway.service.gateway import Gateway

COLUMNS = ("export", "directory", "hosts", "squash", ">version", "served")
_Act = Callable[[Exports, argparse.Namespace], int]


def arguments(parser: argparse.ArgumentParser) -> None:
    verb = options.adder(parser)

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
        output.option(sub)


def run(args: argparse.Namespace, gateway: Gateway) -> int:
    """Run one verb. Returns its exit status. Raises UserError."""
    act: _Act = args.act
    return act(gateway.exports, args)


def _list(exports: Exports, args: argparse.Namespace) -> int:
    listed = list(exports.every())
    if args.json:
        output.print_json(listed)
        return 0
    main = exports.main()
    print(f"{main.name}: everything, to {', '.join(main.clients)} (nfs.clients)")
    if listed:
        output.show_table(COLUMNS, map(_cells, listed))
    return 0


def _show(exports: Exports, args: argparse.Namespace) -> int:
    export = _found(exports, args.name)
    output.show(export, _line(export), args.json)
    return 0


def _set(exports: Exports, args: argparse.Namespace) -> int:
    before = exports.find(args.name)
    version = _version(args, before)
    made = exports.set(args.name, _rights(exports, args, before), version)
    output.show(made, f"{made.name}: version {made.version}", args.json)
    return 0


def _validate(exports: Exports, args: argparse.Namespace) -> int:
    validity = exports.validate(args.name, _rights(exports, args, exports.find(args.name)))
    if args.json:
        output.print_json(validity)
    else:
        for line in _validity(validity):
            print(f"{shown(args.name)}: {line}")
        if validity.ganesha is not None:
            print(validity.ganesha.rstrip())
    return int(not validity.valid)


def _validity(validity: ExportValidity) -> Iterator[str]:
    if validity.error is not None:
        yield validity.error
        return
    if not validity.is_news:
        yield "it is like this already"
        return
    yield "it would be new" if validity.is_new else "it would change"
    if validity.disconnects:
        yield "its clients would lose what they have open: its directory is another one"
    if validity.clients_added:
        yield f"{', '.join(validity.clients_added)}: may mount it then"
    if validity.clients_removed:
        yield f"{', '.join(validity.clients_removed)}: no longer"
    if validity.squash_was is not None:
        yield f"its squash was {validity.squash_was}"
    yield "at once" if validity.at_once else "at the next start of the NFS server"


def _rights(exports: Exports, args: argparse.Namespace, before: Export | None) -> Rights:
    """Return what an export is to be: what is not given stays. Raises UserError."""
    if args.path is not None:
        path: str = args.path
    elif before is None:
        path = exports.main().name
    elif before.path is not None:
        path = os.fsdecode(bytes_of(before.path))
    else:
        raise UserError(f"the directory of {args.name} is not there any more: name one with --path")
    clients, squash = args.client, args.squash
    if before is not None:
        clients, squash = clients or before.clients, squash or before.squash
    return Rights(path, clients or (), squash or Squash.NONE)


def _remove(exports: Exports, args: argparse.Namespace) -> int:
    version = _version(args, _found(exports, args.name))
    output.show(exports.remove(args.name, version), f"{args.name}: removed", args.json)
    return 0


def _reload(exports: Exports, args: argparse.Namespace) -> int:
    done = exports.reload()
    lines = [f"{name}: left out: spillway export show {name}" for name in done.left_out]
    output.show(done, "\n".join([*lines, "the exports are in force"]), args.json)
    return 1 if done.left_out else 0


def _found(exports: Exports, name: str) -> Export:
    export = exports.find(name)
    if export is None:
        raise missing(name)
    return export


def _version(args: argparse.Namespace, before: Export | None) -> int:
    """Return the version that is changed. Raises ExportChanged if it is not the wanted one."""
    version = 0 if before is None else before.version
    if args.version not in (None, version):
        state = f"has version {version}" if version else "does not exist"
        raise ExportChanged(f"{shown(args.name)} {state}, not {args.version}: spillway export show")
    return version


def _cells(export: Export) -> tuple[str, ...]:
    where = "its directory is gone" if export.path is None else display(export.path)
    served = "no: spillway export reload" if export.served is False else "yes"
    served = "?" if export.served is None else served
    return export.name, where, ", ".join(export.clients), export.squash, str(export.version), served


def _line(export: Export) -> str:
    name, where, hosts, squash, version, _served = _cells(export)
    line = f"{name}: {where}, to {hosts}, squash {squash}, version {version}"
    return f"{line} (not served: spillway export reload)" if export.served is False else line
