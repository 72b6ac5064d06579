"""Command `spillway restore`: brings a namespace back from the bucket, on an empty machine."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli import comparison, init, output
from gateway.cli.options import moment
from gateway.common import clock
from gateway.common.errors import StoreError, UserError
from gateway.common.models import to_json
from gateway.common.text import display
from gateway.common.units import size
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.namespace import identity
from gateway.nfs import ganesha_conf
from gateway.nfs.export_service import at_start
from gateway.recovery.segments import BadSegment

if TYPE_CHECKING:
    # boto3 and Alembic take long to be imported.
    from gateway.recovery.restore import Restored

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
        "--is-gone",
        action="store_true",
        help="the former gateway is known to be off: do not wait until it has seen that it lost "
        "the bucket",
    )


def run(args: argparse.Namespace) -> int:
    """Restore, and print what came back. Returns 1 when something is lost. Raises UserError."""
    # boto3 and Alembic take long to be imported, and other commands import this module too.
    from gateway.recovery.restore import NamespaceRestore

    at_ns = None if args.at is None else int(moment("--at", args.at).timestamp() * clock.NS)
    say = _silent if args.json else _say
    settings = init.prepared(args, say)
    with datadir.locked(settings, "spillway restore"):
        try:
            restored = NamespaceRestore(settings, say).run(at_ns, args.is_gone)
        except (StoreError, BadSegment) as exc:
            raise UserError(
                f"cannot restore: {exc}; nothing was changed but the owner of the bucket: run this "
                "again"
            ) from None
        say(identity.remember(settings))
        exports, _left_out = at_start(settings)
        ganesha_conf.write(settings, exports)
    output.show(_facts(restored), "\n".join(_lines(settings, restored)), args.json)
    return 1 if restored.lost or restored.problems else 0


def _silent(_line: str) -> None:
    """Say nothing."""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _facts(restored: Restored) -> dict[str, object]:
    return {
        "as_of": clock.rfc3339(restored.as_of_ns),
        "files": restored.files,
        "older": [display(path) for path in restored.older],
        "lost": [{"path": display(file.path), "size": file.size} for file in restored.lost],
        "problems": restored.problems,
        "bucket": None if restored.bucket is None else to_json(restored.bucket),
    }


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
