"""The file browser: directories and files as clients see them, and where their bytes are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.pages.render import page
from admin_api.pages.visitor import path_in
from gateway.control import paths
from gateway.control.paths import Place
from gateway.escapes import text_of
from gateway.namespace.browse import Browser
from gateway.settings import Settings

router = APIRouter(prefix="/files")
SORTED_MOST = 1000
"""The names of a directory that are read to be shown by name. Of more, the oldest are shown."""


@router.get("")
def show(request: Request, gateway: Governed, who: Viewer, path: str = "") -> HTMLResponse:
    """Show a directory with what is in it, or a file."""
    settings = gateway.settings
    with paths.browsing(settings) as browser:
        place = paths.resolve(browser, settings, path_in(path or settings.nfs.export))
        entry = place.found()
        facts = paths.facts(browser, place.path, entry)
        inside = list(islice(_inside(browser, place), SORTED_MOST + 1))
    is_cut = len(inside) > SORTED_MOST
    inside = inside[:SORTED_MOST] if is_cut else sorted(inside, key=_order)
    return page(
        request,
        "files.html",
        who,
        one=facts,
        path=place.path,
        crumbs=list(_crumbs(settings, place)),
        inside=inside,
        is_cut=is_cut,
        is_directory=place.is_directory,
    )


def _inside(browser: Browser, place: Place) -> Iterator[dict[str, Any]]:
    if not place.is_directory:
        return
    for child in browser.entries(place.found().attr.ino):
        name = text_of(child.name)
        facts = paths.facts(browser, f"{place.path.rstrip('/')}/{name}", child)
        yield {**facts, "name": name}


def _order(one: dict[str, Any]) -> tuple[bool, list[tuple[int, str]]]:
    """Directories first; shard-2 before shard-10."""
    parts = re.split("([0-9]{1,18})", one["name"])
    return one["kind"] != "directory", [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts
    ]


def _crumbs(settings: Settings, place: Place) -> Iterator[tuple[str, str]]:
    """Yield the names above a place and their addresses, the export first."""
    export = settings.nfs.export
    below = [name for name in place.path.removeprefix(export).split("/") if name]
    yield export, "/files"
    for count in range(1, len(below)):
        above = "/".join([export, *below[:count]])
        yield below[count - 1], f"/files?path={quote(above)}"
