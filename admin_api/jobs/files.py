"""The jobs about files: evict, warm, remove, and wait until the bucket could restore them.

All of them can begin again after a restart: what was done is found done.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from admin_api.jobs.kinds import Kind, Work
from admin_api.paths import decoded, encoded
from gateway.control import durability, queue
from gateway.control.evicting import evicting
from gateway.control.guarding import Guarded
from gateway.control.names import Asker, Names
from gateway.control.paths import browsing, shown
from gateway.control.warming import Warming
from gateway.db.models import RESERVED_NAME
from gateway.door.door import opened
from gateway.errors import NotPossible, NotThere
from gateway.promotion.store import paths_of
from gateway.serialize import to_json

EVICT, WARM, REMOVE, WAIT = "evict", "warm", "remove", "wait"


def _evict(work: Work) -> dict[str, Any]:
    def told(count: int) -> None:
        work.progress(count, None, f"{count:,} files evicted")

    with evicting(work.settings) as eviction:
        failures = _each(work, lambda path: eviction.path(path, told))
        done = eviction.model()
    return {**to_json(done), "failures": failures}


def _warm(work: Work) -> dict[str, Any]:
    if "warming" not in work.memory:
        warming = Warming(work.settings, work.database)
        with browsing(work.settings) as browser:
            failures = _each(work, lambda path: warming.ask(browser, path))
        work.memory.update(warming=warming, failures=failures)
    warming, failures = work.memory["warming"], work.memory["failures"]

    def rest(seconds: float) -> None:
        text = f"{warming.left_files:,} of {warming.files:,} files are not there yet"
        if not warming.has_room:
            text += "; the disk is short of room"
        work.progress(warming.done_bytes, warming.total_bytes, text)
        work.rest(seconds)

    error = warming.wait(rest)
    if error is not None:
        failures.append(error)
    done = warming.model()
    text = f"{done.files - done.left_files:,} files came"
    if done.resident_before_files:
        text += f", {done.resident_before_files:,} were there before"
    work.progress(warming.done_bytes, warming.total_bytes, text)
    return {**to_json(done), "failures": failures}


def _remove(work: Work) -> dict[str, Any]:
    def told(count: int) -> None:
        work.progress(count, None, f"{count:,} names removed")

    [path] = [decoded(one) for one in work.arguments["paths"]]
    with browsing(work.settings) as browser, opened(work.settings) as door:
        names = Names(work.settings, browser, Asker(door))
        trees = Guarded(work.settings, work.database, browser, names, door)
        try:
            place = names.find(path)
        except NotThere:
            # An earlier run removed it, or a client did.
            return {"removed_names": 0, "failures": [], "trashed": {}}
        if place.found().attr.ino != work.arguments["ino"]:
            raise NotPossible(f"{encoded(path)}: it is another directory now: look again")
        insists = work.arguments.get("force", False)
        return trees.remove(place, told, author=work.who, insists=insists)._asdict()


def _wait(work: Work) -> dict[str, Any]:
    [path] = _paths(work)
    top = durability.find(work.settings, path)
    with queue.opened(work.settings) as context:
        course = durability.Course(context, top)

        def rest(seconds: float) -> None:
            course.look()
            work.progress(course.done_bytes, course.total_bytes or None, course.text)
            work.rest(seconds)

        durability.wait(context, top, path, rest)
    work.progress(course.total_bytes, course.total_bytes or None, "it is durable")
    return {"durable": True}


def _each(work: Work, do: Callable[[str], object]) -> list[str]:
    """Do something for each path. Returns why it was not possible for some."""
    failures = []
    for path in _paths(work):
        try:
            do(path)
        except NotPossible as exc:
            failures.append(str(exc))
    return failures


def _paths(work: Work) -> list[str]:
    """Return the paths of a job. A checkpoint has the path that it has now. Raises NotThere."""
    given = [decoded(path) for path in work.arguments["paths"]]
    if "ino" not in work.arguments:
        return given
    with work.database.reading() as session:
        below = next(iter(paths_of(session, work.arguments["ino"])), None)
    if below is None or below.split(b"/")[0] == RESERVED_NAME:
        raise NotThere(f"{shown(given[0])}: it was removed, or is in the trash: look again")
    return [f"{work.settings.nfs.export}/{os.fsdecode(below)}"]


KINDS = (
    Kind(EVICT, _evict),
    Kind(WARM, _warm, waits=True),
    Kind(REMOVE, _remove),
    Kind(WAIT, _wait, waits=True),
)
