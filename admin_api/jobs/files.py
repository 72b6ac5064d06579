"""The jobs about files: evict, warm, remove, and wait until the bucket could restore them.

All of them can begin again after a restart: what was done is found done.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from admin_api.jobs.kinds import Kind, Work
from admin_api.paths import decoded, encoded
from gateway.control import durability, queue
from gateway.control.evicting import evicting
from gateway.control.guarding import Guarded, Removed
from gateway.control.names import Asker, Names
from gateway.control.paths import browsing, shown
from gateway.control.warming import Warming
from gateway.db.models import RESERVED_NAME
from gateway.door.door import opened
from gateway.errors import NotPossible, NotThere
from gateway.promotion.store import paths_of
from gateway.serialize import Model, to_json

EVICT, WARM, REMOVE, WAIT = "evict", "warm", "remove", "wait"


def _evict(work: Work) -> dict[str, Any]:
    with (
        browsing(work.settings) as browser,
        opened(work.settings) as door,
        evicting(work.settings, work.database, browser, door) as eviction,
    ):
        return _json(eviction.run(_paths(work), work.tell))


def _warm(work: Work) -> dict[str, Any]:
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


def _remove(work: Work) -> dict[str, Any]:
    [path] = [decoded(one) for one in work.arguments["paths"]]
    with browsing(work.settings) as browser, opened(work.settings) as door:
        names = Names(work.settings, browser, Asker(door))
        trees = Guarded(work.settings, work.database, browser, names, door)
        try:
            place = names.find(path)
        except NotThere:
            # An earlier run removed it, or a client did.
            return _json(Removed(encoded(path), False, 0, [], {}))
        if place.found().attr.ino != work.arguments["ino"]:
            raise NotPossible(f"{encoded(path)}: it is another directory now: look again")
        insists = work.arguments.get("force", False)
        return _json(trees.remove(path, place, work.tell, author=work.who, insists=insists))


def _wait(work: Work) -> dict[str, Any]:
    [path] = _paths(work)
    top = durability.find(work.settings, path)
    with queue.opened(work.settings) as context:
        work.tell(durability.wait(context, top, path, work.tell, work.rest))
    return {"durable": True}


def _json(done: Model) -> dict[str, Any]:
    found: dict[str, Any] = to_json(done)
    return found


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
