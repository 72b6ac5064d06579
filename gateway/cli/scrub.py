"""Command `spillway scrub`: compares files and objects with their checksums, on a running gateway.

It does what the scrub does in the background, at the same rate.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from gateway.cli import local, output, policies
from gateway.cli.output import ProgressLine
from gateway.common import clock, process
from gateway.common.errors import NotPossible, UserError
from gateway.common.text import display
from gateway.common.units import size
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.db.schema import explained, require_current
from gateway.namespace import identity
from gateway.recovery import scrub_rows
from gateway.recovery.scrub_rows import ScrubKind, ScrubPass
from gateway.rpc import control
from gateway.service.paths import browsing, files_below
from gateway.service.scrub import Passes, ScrubStatus
from gateway.service.status import path_in_export

if TYPE_CHECKING:
    # The imports are for types only: boto3 takes half a second to import.
    from gateway.recovery.scrub import ScrubWork
    from gateway.recovery.scrub_local import ScrubContext, ScrubFinding

HEALTHY, NEEDS_A_PERSON = 0, 1
HEALED = "healed"
"""The verdict of a file that is fetched or sent again."""
LOOKS_MAX = 60
"""A file that cannot be judged, as while a request for its object is under way, is looked at so
often."""
LOOK_SECONDS = 5.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", nargs="?", metavar="PATH", help="only this file, or what is below this directory"
    )
    parser.add_argument(
        "--deep", action="store_true", help="also read the objects: the bucket may charge for it"
    )
    output.option(parser)


def run(args: argparse.Namespace) -> int:
    """Compare, heal and show what was found. Exit status 1 when damage is left. Raises UserError,
    StoreError."""
    settings = loader.load(args.config)
    local.require_data_dir(settings)
    process.yield_to_clients()
    with closing(Database(settings.database_url)) as database, explained(database):
        require_current(database)
        identity.require_surroundings(settings)
        with control.opened(settings):
            pass  # without a server nothing could be healed
        return _Command(settings, database, args).run()


class _Command:
    def __init__(self, settings: Settings, database: Database, args: argparse.Namespace) -> None:
        self._settings = settings
        self._database = database
        self._args = args
        self._line = ProgressLine(quiet=args.json)
        self._found: dict[int, ScrubFinding] = {}
        """One for each file, by its number: passes of several kinds find the same one."""
        self._counts: Counter[str] = Counter()

    def run(self) -> int:
        """Make the passes. Returns the exit status."""
        # The imports are here because boto3 takes half a second to import.
        from gateway.objectstore.ownership import guarded
        from gateway.objectstore.s3 import S3Store
        from gateway.recovery.scrub_local import ScrubContext
        from gateway.recovery.scrub_reading import ReadRate

        settings, database = self._settings, self._database
        store = guarded(S3Store(settings), settings, database)
        rate = ReadRate(settings.scrub.bytes_per_second)
        opened = partial(control.opened, settings)
        context = ScrubContext(settings, database, store, opened, rate)
        inos = None if self._args.path is None else self._inos(self._args.path)
        try:
            for kind in ScrubKind:
                if kind is not ScrubKind.DEEP or self._args.deep:
                    self._pass(context, kind, inos)
        finally:
            self._line.end()
        return self._show()

    def _inos(self, path: str) -> list[int]:
        try:
            with browsing(self._settings) as browser:
                files = files_below(browser, self._settings, path)
                return sorted({entry.attr.ino for _path, entry in files})
        except NotPossible as exc:
            raise UserError(str(exc)) from None

    def _pass(self, context: ScrubContext, kind: ScrubKind, inos: list[int] | None) -> None:
        from gateway.recovery.scrub import ScrubWork

        present = ScrubPass(kind, number=self._number(kind), began_ns=clock.now_ns())
        work = ScrubWork(context, kind, present, self._note, inos)
        while self._work(work):
            present = work.present()
            self._line.show(
                f"{kind}: {present.files:,} files compared, {size(present.bytes)} read; "
                f"{present.found} found, {present.healed} healed, {present.damaged} damaged"
            )
            time.sleep(context.rate.wait_seconds())
        present = work.present()
        self._counts["files"] += present.files
        self._counts["bytes"] += present.bytes
        if inos is None:
            # The pass in the background continues beside it.
            scrub_rows.save(self._database, scrub_rows.ended(present))

    def _note(self, finding: ScrubFinding) -> None:
        before = self._found.get(finding.ino)
        if before is None or before.verdict == HEALED:
            self._found[finding.ino] = finding

    def _work(self, work: ScrubWork) -> bool:
        from gateway.recovery.scrub_local import LookAgain

        for _look in range(LOOKS_MAX):
            try:
                return work.run()
            except LookAgain as exc:
                reason = str(exc)
                time.sleep(LOOK_SECONDS)
            except OSError as exc:
                raise UserError(f"cannot read the data files: {exc}: check the disk") from None
        raise UserError(f"it cannot be decided what is wrong: {reason}: try again later")

    def _number(self, kind: ScrubKind) -> int:
        with self._database.reader() as connection:
            passes = scrub_rows.passes(Session(connection, self._database.dialect))
        last = passes.get((kind, True))
        return 1 if last is None else last.number + 1

    def _show(self) -> int:
        found = list(self._found.values())
        with self._database.reader() as connection:
            session = Session(connection, self._database.dialect)
            export = self._settings.nfs.export
            paths = [path_in_export(session, finding.ino, export) for finding in found]
        damaged = sum(finding.verdict != HEALED for finding in found)
        files, read_bytes, healed = (
            self._counts["files"],
            self._counts["bytes"],
            len(found) - damaged,
        )
        if self._args.json:
            findings = [
                {"path": path, "verdict": str(finding.verdict), "text": finding.text}
                for path, finding in zip(paths, found, strict=True)
            ]
            counts = {"found": len(found), "healed": healed, "damaged": damaged}
            looked = {"files": files, "bytes": read_bytes}
            output.print_json({**looked, **counts, "findings": findings})
        else:
            for path, finding in zip(paths, found, strict=True):
                print(f"{finding.verdict}: {display(path)}: {finding.text}")
            print(
                f"{files:,} files and objects compared, {size(read_bytes)} read: "
                f"{len(found)} found, {healed} healed, {damaged} damaged"
            )
        return NEEDS_A_PERSON if damaged else HEALTHY


NAMES = {
    ScrubKind.LOCAL: "files on the disk",
    ScrubKind.OBJECTS: "objects",
    ScrubKind.DEEP: "bytes of objects",
}


def lines(scrub: ScrubStatus) -> Iterator[tuple[str, str]]:
    """Yield the lines of ``spillway status``."""
    for kind, passes in scrub.kinds.items():
        if passes.every_days or passes.last is not None:
            yield "scrub", f"{NAMES[kind]}: {_text(passes)}"
    if scrub.is_late:
        yield "scrub", "LATE: the whole disk was not compared for long; look in the scrub's log"


def _text(passes: Passes) -> str:
    texts = ["no whole pass yet"]
    if (last := passes.last) is not None and last.ended_ns is not None:
        damage = f", {last.damaged} DAMAGED" if last.damaged else ""
        texts = [
            f"last whole pass {policies.moment(last.ended_ns)}, {last.files:,} looked at, "
            f"{last.found} found, {last.healed} healed{damage}"
        ]
    if (present := passes.present) is not None:
        damage = f", {present.damaged} DAMAGED" if present.damaged else ""
        texts.append(
            f"pass {present.number}: {present.files:,} looked at, {size(present.bytes)} read, "
            f"{present.found} found, {present.healed} healed{damage}"
        )
    return "; ".join(texts)
