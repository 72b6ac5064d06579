"""The jobs about files: evict, warm, remove, and wait until the bucket could restore them.

All of them can begin again after a restart: what was done is found done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from admin_api.jobs.kinds import Kind, Work
from admin_api.paths import decoded, encoded
from gateway.control import durability, queue
from gateway.control.evicting import evicting
from gateway.control.names import Asker, Names, reason
from gateway.control.paths import browsing
from gateway.control.warming import Warming
from gateway.door.door import opened
from gateway.errors import NotPossible, NotThere

EVICT, WARM, REMOVE, WAIT = "evict", "warm", "remove", "wait"


def _evict(work: Work) -> dict[str, Any]:
    def told(count: int) -> None:
        work.progress(count, None, f"{count:,} files evicted")

    with evicting(work.settings) as eviction:
        failures = _each(work, lambda path: eviction.path(path, told))
        facts = eviction.facts()
    return {**facts, "failures": failures}


def _warm(work: Work) -> dict[str, Any]:
    warming = Warming(work.settings, work.database)
    with browsing(work.settings) as browser:
        failures = _each(work, lambda path: warming.ask(browser, path))

    def rest(seconds: float) -> None:
        text = f"{warming.left_files:,} of {warming.files:,} files are not there yet"
        if not warming.has_room:
            text += "; the disk is short of room"
        work.progress(warming.done_bytes, warming.total_bytes, text)
        work.rest(seconds)

    error = warming.wait(rest)
    if error is not None:
        failures.append(error)
    return {**warming.facts(), "failures": failures}


def _remove(work: Work) -> dict[str, Any]:
    def told(count: int) -> None:
        work.progress(count, None, f"{count:,} names removed")

    [path] = _paths(work)
    with browsing(work.settings) as browser, opened(work.settings) as door:
        names = Names(work.settings, browser, Asker(door))
        try:
            place = names.find(path)
        except NotThere:
            # An earlier run removed it, or a client did.
            return {"removed_names": 0, "failures": []}
        if place.found().attr.ino != work.arguments["ino"]:
            raise NotPossible(f"{encoded(path)}: it is another directory now: look again")
        removal = names.remove_tree(place, told)
    failures = [f"{encoded(path)}{below}: {reason(why)}" for below, why in removal.failures]
    return {"removed_names": removal.removed, "failures": failures}


def _wait(work: Work) -> dict[str, Any]:
    [path] = _paths(work)
    top = durability.find(work.settings, path)
    with queue.opened(work.settings) as context:

        def rest(seconds: float) -> None:
            work.progress(0, None, "it is not durable yet")
            work.rest(seconds)

        durability.wait(context, top, path, rest)
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
    return [decoded(path) for path in work.arguments["paths"]]


KINDS = (Kind(EVICT, _evict), Kind(WARM, _warm), Kind(REMOVE, _remove), Kind(WAIT, _wait))
