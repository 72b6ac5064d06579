"""Commands about files and directories.

- `spillway ls` and `stat` show what is in the namespace, without a mount.
- `mkdir`, `chown`, `chmod`, `mv` and `rm` change names and who may use them.
- `checkpoint pin`, `unpin` and `pins` keep files on the local disk and from all policies.
- `evict` frees the local disk of files that are in the bucket; `warm` asks for evicted files, and
  waits until their bytes are on the disk.
- `wait --durable` waits until the bucket alone could restore a file or a tree. Files that are open,
  held or renamed are waited for too, unlike by `spillway drain --wait`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from stat import filemode
from typing import Any, NamedTuple

from gateway.cli import output, policies
from gateway.cli.output import print_json, showing
from gateway.common import clock
from gateway.common.errors import START, ControlSocketClosed, NotPossible, NotThere, UserError
from gateway.common.models import Model, to_json
from gateway.common.text import bytes_of, display, encoded, shown
from gateway.common.types import SetAttr
from gateway.common.units import duration, size
from gateway.service.files import FileInfo, Files
from gateway.service.gateway import Gateway
from gateway.service.names import RemovedTree
from gateway.service.paths import FORMATS, REMOVED, Child, as_child, shown_path
from gateway.service.residency import Evicted, Requested, Warmed

DONE = 0
NOT_POSSIBLE = 1
RESIDENT = "resident"
DIRECTORY = "directory"
LINK = "symbolic link"
COLUMNS = ("mode", ">names", ">uid", ">gid", ">size", "modified", "name")


def ls_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-l", dest="long", action="store_true", help="with size, owner and time")
    parser.add_argument("--json", action="store_true", help="everything that is known, as JSON")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", default=["/"], help="default: the whole export's root"
    )


def ls(args: argparse.Namespace, gateway: Gateway) -> int:
    """List paths. Returns exit status 1 if a path does not exist. Raises UserError."""
    status = DONE
    listed: list[Child] = []
    for number, path in enumerate(args.paths):
        try:
            file_info = gateway.files.get(path)
            if file_info.kind == DIRECTORY:
                children = gateway.files.children(path, details=args.long or args.json)
            else:
                # People see the path of a file as they wrote it.
                alone = as_child(file_info)
                children = iter([alone if args.json else replace(alone, name=encoded(path))])
            if args.json:
                listed += sorted(children, key=_name)
                continue
            rows = _rows(children, args.long)
        except NotPossible as exc:
            status = refuse(exc)
            continue
        if len(args.paths) > 1 and file_info.kind == DIRECTORY:
            print(f"{chr(10) if number else ''}{shown_path(path)}:")
        if args.long and rows:
            output.show_table(COLUMNS, rows)
            continue
        for [name] in rows:
            print(name)
    if args.json:
        print_json(listed)
    return status


def _name(child: Child) -> bytes:
    return bytes_of(child.name)


def _rows(children: Iterable[Child], long: bool) -> list[tuple[str, ...]]:
    """Return the cells of the names in a directory."""
    # Only the shown cells are kept: a directory may have a million names.
    rows = [(_name(child), _cells(child, long)) for child in children]
    return [cells for _key, cells in sorted(rows)]


def _cells(child: Child, long: bool) -> tuple[str, ...]:
    """Return the cells of one row: of all that is known, or only the name."""
    text = display(child.name)
    if not long:
        return (text,)
    mode = filemode(FORMATS[child.kind] | int(child.mode, 8))
    if child.kind == LINK:
        text += f" -> {REMOVED if child.target is None else display(child.target)}"
    remarks = [] if child.bytes in (None, RESIDENT) else [child.bytes]
    remarks += ["pinned"] if child.pinned else []
    if remarks:
        text += f" ({', '.join(remarks)})"
    numbers = map(str, (child.names, child.uid, child.gid, child.size_bytes))
    return mode, *numbers, policies.moment(child.modified_ns)[:19], text


def stat_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH")


def stat(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the facts about paths. Returns exit status 1 if a path does not exist. Raises
    UserError."""

    def found(path: str) -> FileInfo:
        file_info = gateway.files.get(path)
        # People see the path as they wrote it.
        return file_info if args.json else replace(file_info, path=encoded(path))

    return show_found(found, args)


def show_found(
    find: Callable[[str], Model],
    args: argparse.Namespace,
    writers: Mapping[str, Callable[[Any], Iterator[str]]] | None = None,
) -> int:
    """Print the facts about the paths. Returns the exit status.

    Args:
        find: returns those of one, and raises NotPossible.
        writers: yields the lines of facts that are no plain values, by name.
    """
    ways = _WRITERS if writers is None else writers
    status = DONE
    results = []
    for path in args.paths:
        try:
            results.append(to_json(find(path)))
        except NotPossible as exc:
            status = refuse(exc)
    if args.json:
        print_json(results)
        return status
    for result in results:
        for name, value in result.items():
            label = name.removesuffix("_at").removesuffix("_seconds").replace("_", " ")
            if name.endswith("_at") and value is not None:
                value = _local(value)
            if name.endswith("_seconds") and value is not None:
                value = duration(value)
            for text in ways.get(name, _texts)(value):
                print(f"{label:<17} {text}")
    return status


def _local(text: str) -> str:
    """Return a moment of JSON as people write it."""
    return policies.moment(clock.nanoseconds_of(text))


def _texts(value: Any) -> Iterator[str]:
    yield ", ".join(value) or "none" if isinstance(value, list) else str(value)


def _known(text: str | None) -> Iterator[str]:
    if text is not None:
        yield text


def _path(text: str | None) -> Iterator[str]:
    if text is not None:
        yield display(text)


def _waiting(wait_state: dict[str, Any] | None) -> Iterator[str]:
    """Yield what the drain does with a file, if it waits."""
    if wait_state is not None:
        text = f"{wait_state['state']} (bumped)" if wait_state["bumped"] else wait_state["state"]
        if wait_state["tries"]:
            text += (
                f", {wait_state['tries']} tries, next in {duration(wait_state['next_try_seconds'])}"
            )
        why = wait_state["error"] or wait_state.get("waits_for")
        yield shown(f"{text}: {why}" if why else text)


def _object(stored_object: dict[str, Any] | None) -> Iterator[str]:
    """Yield what the bucket has of a file."""
    if stored_object is None:
        yield "none"
        return
    yield shown(stored_object["key"])
    yield f"{stored_object['size_bytes']} bytes, stored {_local(stored_object['stored_at'])}"
    yield shown(f"{stored_object['checksum'] or 'no checksum'}, etag {stored_object['etag']}")


def _history(acts: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what was done lately with the checkpoint that has a path."""
    for act in acts:
        when, result = _local(act["began_at"]), act["result"] or "under way"
        word = policies.DONE_WORDS.get(act["what"], act["what"])
        yield shown(f"{when}  {word}: {result}: {act['reason']} [{act['author']}]")


_WRITERS: dict[str, Callable[[Any], Iterator[str]]] = {
    "path": _path,
    "bytes": _known,
    "target": _path,
    "waiting": _waiting,
    "object": _object,
    "history": _history,
}
"""How the facts are shown that are no plain values."""


def refuse_each(failures: Iterable[str]) -> int:
    """Say of each why it could not be done. Returns the exit status."""
    return max((refuse(NotPossible(failure)) for failure in failures), default=DONE)


def refuse(exc: Exception) -> int:
    """Say why something could not be done. Returns the exit status."""
    print(f"spillway: {exc}", file=sys.stderr)
    return NOT_POSSIBLE


LARGEST_ID = (1 << 32) - 2
"""The largest number of a user or group. The one above it means "no user" (chown(2))."""


class OwnerIds(NamedTuple):
    """A user and a group, by number. None: as it is."""

    uid: int | None
    gid: int | None


def mkdir_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", dest="parents", action="store_true", help="with what leads to it")
    parser.add_argument(
        "-m", dest="mode", type=mode, default=0o755, metavar="MODE", help="default: 755"
    )
    parser.add_argument(
        "--owner", type=owner, default=OwnerIds(None, None), metavar="UID:GID", help="default: root"
    )
    output.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def mkdir(args: argparse.Namespace, gateway: Gateway) -> int:
    """Make directories. Returns exit status 1 if one could not be made. Raises UserError."""
    wanted = SetAttr(args.mode, *args.owner)

    def make(path: str) -> None:
        results.add(gateway.files.make(path, wanted, parents=args.parents))

    with output.Results(args.json) as results:
        return each(args.paths, make)


def chown_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("owner", type=owner, metavar="UID:GID", help="also UID, or :GID")
    output.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def chmod_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mode", type=mode, metavar="MODE", help="octal, like 2775")
    output.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def chown(args: argparse.Namespace, gateway: Gateway) -> int:
    """Give files and directories to a user or group. Returns 1 if one failed. Raises UserError."""
    return _set(args, gateway, SetAttr(None, *args.owner))


def chmod(args: argparse.Namespace, gateway: Gateway) -> int:
    """Set the permissions of files and directories. Returns 1 if one failed. Raises UserError."""
    return _set(args, gateway, SetAttr(args.mode))


def _set(args: argparse.Namespace, gateway: Gateway, wanted: SetAttr) -> int:
    with output.Results(args.json) as results:
        return each(
            args.paths, lambda path: results.add(gateway.files.set_attributes(path, wanted))
        )


def mv_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="a checkpoint in the bucket to a name that is held"
    )
    output.option(parser)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET", help="a new name, or a directory to move to")


def mv(args: argparse.Namespace, gateway: Gateway) -> int:
    """Rename as rename(2) does, or move into a directory. Returns 1 if one failed. Raises
    UserError."""
    _require_different(args.sources)
    is_alone = len(args.sources) == 1

    def move(path: str) -> None:
        made = gateway.files.move(path, args.target, is_alone=is_alone, force=args.force)
        results.add({"from": encoded(path), **to_json(made)})

    with output.Results(args.json) as results:
        return each(args.sources, move)


def _require_different(sources: Sequence[str]) -> None:
    """Raise UserError if two sources would get one name in the directory they are moved to."""
    named = [PurePosixPath(source).name for source in sources]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise UserError(
            f"{shown_path(twice)} is named twice, and one would replace the other: move them apart"
        )


def rm_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", dest="recursive", action="store_true", help="directories, with all")
    parser.add_argument("-f", dest="is_calm", action="store_true", help="what is not there is fine")
    parser.add_argument(
        "--force", action="store_true", help="although it has the newest checkpoint of a run in it"
    )
    output.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH")


def rm(args: argparse.Namespace, gateway: Gateway) -> int:
    """Remove files or trees. Returns exit status 1 if something is left. Raises UserError."""
    left: list[int] = []

    def remove(path: str) -> None:
        try:
            with showing(args.json) as tell:
                done = gateway.files.remove(path, tell, recursive=args.recursive, force=args.force)
        except NotThere:
            if not args.is_calm:
                raise
            done = RemovedTree(encoded(path), False, 0, [], {})
        results.add(done, _removed(path, done) if done.was_directory else None)
        left.append(refuse_each(done.failures))

    with output.Results(args.json) as results:
        return max([each(args.paths, remove), *left])


def _removed(path: str, done: RemovedTree) -> str:
    """Return what people are told of a tree that was removed."""
    lines = [
        f"{display(at)}: in the trash as {id}: spillway trash restore {id}"
        for id, at in done.trashed.items()
    ]
    return "\n".join([*lines, f"{shown_path(path)}: {done.removed_names:,} names removed"])


def each(paths: Sequence[str], act: Callable[[str], object]) -> int:
    """Do the same with each path. Returns the exit status: a path that is not possible does not
    stop the others."""
    status = DONE
    for path in paths:
        try:
            act(path)
        except NotPossible as exc:
            status = refuse(exc)
        except ControlSocketClosed as exc:
            stays = f"{exc}: what was done stays done: look with spillway ls, and repeat"
            return refuse(NotPossible(stays))
    return status


def mode(text: str) -> int:
    """Return permission bits from the octal form that people write. Raises ValueError."""
    bits = int(text, 8)
    if not 0 <= bits <= 0o7777:
        raise ValueError
    return bits


def owner(text: str) -> OwnerIds:
    """Return the owner that ``UID``, ``UID:GID`` or ``:GID`` names. Raises ArgumentTypeError.

    Names would be those of this machine, and the gateway tells clients numbers.
    """
    uid, _, gid = text.partition(":")
    parts = [int(part) if part.isascii() and part.isdigit() else None for part in (uid, gid)]
    named = [part for part in (uid, gid) if part]
    numbers = [part for part in parts if part is not None and part <= LARGEST_ID]
    if not named or len(numbers) != len(named):
        raise argparse.ArgumentTypeError(
            f"{text!r}: numbers, UID:GID, UID or :GID, as `id` shows them on a client"
        )
    return OwnerIds(*parts)


def pin_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for other people")
    output.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def pin(args: argparse.Namespace, gateway: Gateway) -> int:
    """Pin files and directories. Returns exit status 1 if one is not there. Raises UserError."""

    def act(path: str) -> None:
        made = gateway.pins.add(path, args.note)
        hint = f"; its bytes are only in the bucket: spillway warm {shown(path)}"
        results.add(made, f"{shown(path)}: pinned{'' if made.on_disk else hint}")

    with output.Results(args.json) as results:
        return each(args.paths, act)


def unpin_arguments(parser: argparse.ArgumentParser) -> None:
    output.option(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what was pinned")


def unpin(args: argparse.Namespace, gateway: Gateway) -> int:
    """End pins. Returns exit status 1 if there was none. Raises UserError."""

    def act(path: str) -> None:
        results.add(gateway.pins.remove(path), f"{shown(path)}: not pinned any more")

    with output.Results(args.json) as results:
        return each(args.paths, act)


def pins_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def list_pins(args: argparse.Namespace, gateway: Gateway) -> int:
    """List the pins. Raises UserError."""
    pins = list(gateway.pins.every())
    if args.json:
        output.print_json(pins)
        return DONE
    rows = [
        (display(row.path), row.pinned_by, policies.moment(row.pinned_ns)[:10], shown(row.note))
        for row in pins
    ]
    if rows:
        output.show_table(("path", "by", "since", "why"), rows)
    else:
        print("nothing is pinned")
    return DONE


def evict_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def evict(args: argparse.Namespace, gateway: Gateway) -> int:
    """Evict files. Returns exit status 1 if a named path could not be evicted. Raises UserError."""
    with showing(args.json) as tell:
        done = gateway.files.evict(args.paths, tell)
    status = refuse_each(done.failures)
    if args.json:
        print_json(done)
    else:
        _show(done)
    return status


def _show(done: Evicted) -> None:
    print(f"{done.evicted_files:,} files evicted, {size(done.freed_bytes)} freed")
    if done.absent_before_files:
        print(f"{done.absent_before_files:,} files were evicted before")
    for why, count in done.skipped_files.items():
        print(f"{count:,} files skipped: {why}")
    for skipped_file in done.skipped_first:
        print(f"  {display(skipped_file.path)}: {skipped_file.reason}")


DAMAGED_SHOWN = 10


def warm_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="until all bytes are on the disk")
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a directory")


def warm(args: argparse.Namespace, gateway: Gateway) -> int:
    """Ask for files. Returns exit status 1 if a path was not found or a file cannot be fetched.

    Raises UserError.
    """
    return (_wait if args.wait else _request)(gateway.files, args)


def _request(files: Files, args: argparse.Namespace) -> int:
    asked = files.request(args.paths)
    status = refuse_each(asked.failures)
    output.show(asked, _asked_for(asked), args.json)
    return status


def _asked_for(asked: Requested) -> str:
    """Return one line about what was asked for."""
    if asked.job is not None:
        return f"asked for: spillway job show {asked.job} shows how far it is"
    note = "" if asked.hydrator_alive else f"; the hydrator does not run: start it: {START}"
    there = _there(asked.resident_before_files or 0)
    return f"asked for: {_counted(asked.files or 0, asked.bytes or 0)}{there}{note}"


def _wait(files: Files, args: argparse.Namespace) -> int:
    with showing(args.json) as tell:
        done = files.warm(args.paths, tell)
    status = refuse_each([*done.failures, *filter(None, [done.error])])
    if args.json:
        output.print_json(done)
    elif done.error is None:
        print(_fetched(done))
    for unfetched_file in done.damaged[:DAMAGED_SHOWN]:
        status = NOT_POSSIBLE
        if not args.json:
            print(
                f"spillway: {display(unfetched_file.path)}: {shown(unfetched_file.reason)}",
                file=sys.stderr,
            )
    return status


def _fetched(done: Warmed) -> str:
    """Return one line about what was done."""
    there = _there(done.resident_before_files)
    return f"fetched: {_counted(done.files, done.bytes)} in {duration(done.seconds)}{there}"


def _counted(files: int, size_bytes: int) -> str:
    return f"{files:,} files, {size(size_bytes)}"


def _there(files: int) -> str:
    return f"; {files:,} files are on the disk" if files else ""


def wait_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--durable", action="store_true", help="until the bucket alone could restore it"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="give up after this long (exit status 1)"
    )
    parser.add_argument("path", metavar="PATH", help="a checkpoint, a file or a directory")


def wait(args: argparse.Namespace, gateway: Gateway) -> int:
    """Wait. Returns 0 when everything is durable, 1 when the time is over. Raises UserError."""
    if not args.durable:
        raise UserError("it is not said what to wait for: spillway wait --durable PATH")
    started = clock.monotonic_seconds()
    error = None
    try:
        with showing(args.json) as tell:
            gateway.files.wait(args.path, tell, timeout_seconds=args.timeout)
    except NotPossible as exc:
        error = exc
    if args.json:
        seconds = round(clock.monotonic_seconds() - started, 3)
        why = None if error is None else str(error)
        output.print_json({"durable": error is None, "error": why, "seconds": seconds})
        return DONE if error is None else NOT_POSSIBLE
    return DONE if error is None else refuse(error)
