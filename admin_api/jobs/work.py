"""Work of the jobs about files (evict, warm, remove, wait for the bucket) and about the trash.

The jobs about files can begin again after a restart: what was done is found done.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from admin_api.access.principal import Principal
from admin_api.audit import RequestRecord
from admin_api.jobs.kinds import JobKind, RunningJob
from admin_api.jobs.rows import JobRow
from admin_api.jobs.runner import JobThreads
from admin_api.requests import decoded, encoded
from gateway.common.errors import NotPossible, NotThere
from gateway.common.models import Model, to_json
from gateway.db.models import RESERVED_NAME
from gateway.lifecycle.promotion.store import paths_of
from gateway.lifecycle.trash.trash import Trash
from gateway.rpc.control import opened
from gateway.service import durability, queue
from gateway.service import trash as control
from gateway.service.names import Guarded, Names, RemovedTree, RpcCaller
from gateway.service.paths import browsing, shown_path
from gateway.service.residency import Warming, evicting

EVICT, WARM, REMOVE, WAIT = "evict", "warm", "remove", "wait"


def _evict(work: RunningJob) -> dict[str, Any]:
    with (
        browsing(work.settings) as browser,
        opened(work.settings) as connection,
        evicting(work.settings, work.database, browser, connection) as eviction,
    ):
        return _json(eviction.run(_paths(work), work.tell))


def _warm(work: RunningJob) -> dict[str, Any]:
    if "warming" not in work.memory:
        asked = Warming(work.settings, work.database)
        with browsing(work.settings) as browser:
            asked.ask(browser, _paths(work))
        work.memory["warming"] = asked
    warming: Warming = work.memory["warming"]
    done = warming.wait(work.tell, work.rest)
    text = f"{done.files - done.left_files:,} files came"
    if done.resident_before_files:
        text += f", {done.resident_before_files:,} were there before"
    work.tell(replace(warming.progress, text=text))
    return _json(done)


def _remove(work: RunningJob) -> dict[str, Any]:
    [path] = [decoded(text) for text in work.arguments["paths"]]
    with browsing(work.settings) as browser, opened(work.settings) as connection:
        names = Names(work.settings, browser, RpcCaller(connection))
        trees = Guarded(work.settings, work.database, browser, names, connection)
        try:
            place = names.find(path)
        except NotThere:
            # An earlier run removed it, or a client did.
            return _json(RemovedTree(encoded(path), False, 0, [], {}))
        if place.found().attr.ino != work.arguments["ino"]:
            raise NotPossible(f"{encoded(path)}: it is another directory now: look again")
        insists = work.arguments.get("force", False)
        return _json(trees.remove(path, place, work.tell, author=work.who, insists=insists))


def _wait(work: RunningJob) -> dict[str, Any]:
    [path] = _paths(work)
    top = durability.find(work.settings, path)
    with queue.opened(work.settings) as context:
        work.tell(durability.wait(context, top, path, work.tell, work.rest))
    return {"durable": True}


def _json(done: Model) -> dict[str, Any]:
    document: dict[str, Any] = to_json(done)
    return document


def _paths(work: RunningJob) -> list[str]:
    """Return the paths of a job. A checkpoint has the path that it has now. Raises NotThere."""
    given = [decoded(path) for path in work.arguments["paths"]]
    if "ino" not in work.arguments:
        return given
    with work.database.reading() as session:
        below = next(iter(paths_of(session, work.arguments["ino"])), None)
    if below is None or below.split(b"/")[0] == RESERVED_NAME:
        raise NotThere(f"{shown_path(given[0])}: it was removed, or is in the trash: look again")
    return [f"{work.settings.nfs.export}/{os.fsdecode(below)}"]


FILE_KINDS = (
    JobKind(EVICT, _evict),
    JobKind(WARM, _warm, waits=True),
    JobKind(REMOVE, _remove),
    JobKind(WAIT, _wait, waits=True),
)


EMPTY = "empty"


def empty(
    runner: JobThreads,
    who: Principal,
    call: RequestRecord,
    ids: Sequence[str] | None,
    until_ns: int,
) -> JobRow:
    """Begin the job. Returns it. Raises Problem when too many jobs wait.

    Args:
        ids, until_ns: those of ``control.trash.removable``.
    """
    # A text, as in the version of an entry (gateway.service.trash).
    arguments = {"ids": None if ids is None else list(ids), "until": str(until_ns)}
    return runner.submit(EMPTY, arguments, who, call.request_id)


def _empty(work: RunningJob) -> dict[str, Any]:
    trash = Trash(work.settings, work.database)
    until_ns = int(work.arguments["until"])
    entries = control.removable(trash, work.arguments["ids"], until_ns)
    total = len(entries)

    def on_removed(count: int, names: int) -> None:
        more = f", {names:,} names of the next one" if names else ""
        work.progress(count, total, f"{count:,} of {total:,} checkpoints are done{more}")

    failures = control.remove(trash, entries, on_removed, by=work.who)
    removed = total - len(failures)
    work.progress(total, total, f"{removed:,} of {total:,} checkpoints removed for good")
    made: dict[str, Any] = to_json(control.Emptied(removed, failures))
    return made


# What was removed before a restart is not found again.
TRASH_KINDS = (JobKind(EMPTY, _empty),)
