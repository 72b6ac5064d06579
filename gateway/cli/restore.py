"""Command `spillway restore`: brings a namespace back from the bucket, on an empty machine."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli import caller, comparison, drill, init, output
from gateway.cli.options import moment
from gateway.cli.output import ProgressLine
from gateway.common import clock
from gateway.common.errors import StoreError, UserError
from gateway.common.models import to_json
from gateway.common.text import display
from gateway.common.units import size
from gateway.config import datadir, loader
from gateway.config.settings import GatewaySettings, Settings
from gateway.db.engine import Database
from gateway.namespace import identity
from gateway.nfs import ganesha_conf
from gateway.nfs.export_service import at_start
from gateway.recovery.segments import BadSegment

if TYPE_CHECKING:
    # boto3 and Alembic take long to be imported.
    from gateway.recovery.restore import Restored
    from gateway.recovery.settings_restore import SettingsRestore

SHOWN = 20
"""The files of each kind that are listed."""


def arguments(parser: argparse.ArgumentParser) -> None:
    init.setup_arguments(parser)
    output.option(parser)
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="as the names were then, like 2026-11-23T09:30, or like 90m for so long ago "
        "(default: the newest)",
    )
    parser.add_argument(
        "--from",
        dest="backup",
        metavar="DIR",
        type=Path,
        help="a backup that spillway backup made, in place of the copy in the bucket",
    )
    parser.add_argument(
        "--if-none",
        action="store_true",
        help="do nothing if there is a namespace already: for a first boot, which may be repeated",
    )
    parser.add_argument(
        "--is-gone",
        action="store_true",
        help="the former gateway is known to be off: do not wait until it has seen that it lost "
        "the bucket",
    )
    drill.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Restore, and print what came back. Returns 1 when something is lost. Raises UserError."""
    if args.drill:
        return drill.run(args)
    if args.dir is not None:
        raise UserError("--dir is for --drill: give both")
    # boto3 and Alembic take long to be imported, and other commands import this module too.
    from gateway.recovery.restore import Found, NamespaceRestore, look
    from gateway.recovery.settings_restore import SettingsRestore

    if _become_owner(args) and args.if_none:
        settings = loader.load(args.config)
        if look(settings) is Found.NAMESPACE:
            text = f"the database {Database(settings.database_url).url} has a namespace: kept"
            output.show({"restored": False}, text, args.json)
            return 0
    at_ns = None if args.at is None else int(moment("--at", args.at).timestamp() * clock.NS)
    line = ProgressLine(quiet=args.json)
    say = _silent if args.json else partial(_say, line)
    former = SettingsRestore(_backup(args.backup), at_ns)
    try:
        settings = init.prepared(args, say, completion=former)
        with datadir.locked(settings, "spillway restore"):
            former.put_tokens(settings)
            objects = former.objects(settings)
            restored = NamespaceRestore(settings, say, objects, line.show).run(at_ns, args.is_gone)
            restored.problems += former.problems
            say(identity.remember(settings))
            exports, _left_out = at_start(settings)
            ganesha_conf.write(settings, exports)
    except (StoreError, BadSegment) as exc:
        raise UserError(
            f"cannot restore: {exc}; nothing was changed but the owner of the bucket: run this "
            "again"
        ) from None
    finally:
        line.end()
    lines = [*_settings_lines(former), *_lines(settings, restored)]
    output.show(_facts(restored, former), "\n".join(lines), args.json)
    return 1 if restored.lost or restored.problems or restored.bucket is None else 0


def _become_owner(args: argparse.Namespace) -> bool:
    """Become the user of the gateway, if this is root, whose package made the data directory.
    Returns whether there is a configuration. Raises UserError."""
    if args.config.exists():
        settings = loader.load(args.config)
        caller.become_owner(settings.data_dir, settings.credentials_file)
        return True
    wanted = args.data_dir or os.environ.get(loader.variable_of("gateway", "data_dir"))
    caller.become_owner(Path(wanted or GatewaySettings.data_dir).expanduser().absolute())
    return False


def _backup(path: Path | None) -> Path | None:
    """Return the directory of a backup, as an absolute path. Raises UserError if it is none."""
    if path is None:
        return None
    path = path.expanduser().absolute()
    if not (path / "names").is_dir():
        raise UserError(f"--from {path}: it is no backup: give a directory that has names/")
    return path


def _silent(_line: str) -> None:
    """Say nothing."""


def _say(progress: ProgressLine, line: str) -> None:
    progress.end()
    print(line, file=sys.stderr, flush=True)


def _facts(restored: Restored, former: SettingsRestore) -> dict[str, object]:
    return {
        "restored": True,
        "settings": {
            "as_of": None if former.of_time is None else clock.rfc3339(former.of_time.time_ns),
            "taken": former.taken,
            "left": former.left,
            "tokens": former.tokens,
        },
        "as_of": clock.rfc3339(restored.as_of_ns),
        "files": restored.files,
        "older": [display(path) for path in restored.older],
        "lost": [{"path": display(file.path), "size": file.size} for file in restored.lost],
        "problems": restored.problems,
        "bucket": None if restored.bucket is None else to_json(restored.bucket),
    }


def _settings_lines(former: SettingsRestore) -> list[str]:
    if former.of_time is None:
        return ["the copy has no settings: they are as you gave them; make tokens: spillway token"]
    when = clock.iso(former.of_time.time_ns)
    lines = [f"settings of {when}: {', '.join(former.taken) or 'none is taken'}"]
    lines += [f"  not {key}: {why}" for key, why in former.left.items()]
    lines.append(f"tokens and audit log: {former.tokens}")
    return lines


def _lines(settings: Settings, restored: Restored) -> list[str]:
    lines = [f"{restored.files:,} files, as of {clock.iso(restored.as_of_ns)}"]
    if restored.older:
        lines.append(
            f"{_files(len(restored.older))} older than saved: the bucket had not got the last "
            "version:"
        )
        lines += _listed(restored.older)
    if restored.bucket is not None and restored.bucket.changes:
        changes = comparison.changes(restored.bucket)
        lines.append(
            f"the names follow the bucket: {changes}"
            if restored.bucket.is_changed
            else f"the bucket is of today, and files of then may not be readable: {changes}; to "
            "have the names follow it: spillway reconcile"
        )
    if restored.bucket is None:
        lines.append(
            "PROBLEM: the bucket did not answer: it is not taken, and the names may be older than "
            "it. When it answers, before the first start: spillway adopt bucket, then: spillway "
            "reconcile"
        )
    if restored.lost:
        lost = sum(file.size for file in restored.lost)
        lines.append(
            f"{_files(len(restored.lost))} lost, {size(lost)}: the bucket has nothing of them. The "
            "names stay, and reading them is an error until they are written again:"
        )
        runs = Counter(Path(file.path).parent.as_posix() for file in restored.lost)
        lines += _listed([f"{run}: {count:,}" for run, count in runs.most_common()])
    lines += [f"PROBLEM: {problem}" for problem in restored.problems]
    lines.append("policies delete nothing before a person approves it again: spillway policy plan")
    lines.append(f"next: spillway up --config {settings.source}")
    return lines


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count:,} files are"


def _listed(names: list[str]) -> list[str]:
    more = len(names) - SHOWN
    shown = [f"  {display(name)}" for name in names[:SHOWN]]
    return [*shown, f"  and {more:,} more"] if more > 0 else shown
