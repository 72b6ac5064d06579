"""The file browser: directories and files as clients see them, and where their bytes are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.roles import Operator, Viewer
from admin_api.calls import Recorded
from admin_api.gateway import Governed
from admin_api.jobs import files as jobs
from admin_api.jobs.runner import Working
from admin_api.pages.flash import begun
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent, path_in
from admin_api.paging import cursor_of_name, name_of
from admin_api.paths import encoded, path_of
from admin_api.problems import Problem
from gateway.control import files, paths
from gateway.db.compiled import Session
from gateway.escapes import text_of
from gateway.namespace.browse import Browser, Entry
from gateway.settings import Settings
from gateway.types import Kind

router = APIRouter(prefix="/files")
ROWS = 250
"""The names of a page."""
ORDERS = {
    "warm": (jobs.WARM, "Bytes come back to the local disk"),
    "evict": (jobs.EVICT, "The local disk becomes free of what the bucket has"),
}
"""The kind of job that each order begins, and what people are told."""


@router.get("")
def show(
    request: Request, gateway: Governed, who: Viewer, path: str = "", cursor: str | None = None
) -> HTMLResponse:
    """Show a directory with what is in it, page by page, or a file."""
    settings = gateway.settings
    wanted = path_in(path or settings.nfs.export)
    names = paths.names_of(settings.nfs.export, wanted)
    here = path_of(settings, b"/".join(names))
    with paths.browsing(settings) as browser:
        place = paths.resolve(browser, settings, wanted)
        entry = place.found()
        found: list[Entry] = []
        if place.is_directory:
            facts = paths.facts(browser, here, entry, text_of)
            found = browser.page(entry.attr.ino, name_of(cursor), ROWS + 1)
        else:
            below = b"/".join(names)
            with gateway.database.reading() as session:
                facts = files.of(settings, session, browser, place, below, text_of)
        with gateway.database.reading() as session:
            inside = [_child(browser, session, here, one) for one in found[:ROWS]]
    is_whole = cursor is None and len(found) <= ROWS
    return page(
        request,
        "files.html",
        who,
        one=facts,
        path=here,
        crumbs=_crumbs(settings, names),
        inside=sorted(inside, key=_order) if is_whole else inside,
        is_whole=is_whole,
        is_first=cursor is None,
        next=cursor_of_name(found[ROWS - 1].name) if len(found) > ROWS else None,
        is_directory=place.is_directory,
    )


@router.post("/{order}")
def order(
    call: Recorded, runner: Working, who: Operator, order: str, sent: Sent
) -> RedirectResponse:
    """Begin a job about a file, or about all files below a directory."""
    if order not in ORDERS:
        raise Problem(422, f"there is no such order: choose one of {', '.join(ORDERS)}")
    kind, text = ORDERS[order]
    path = encoded(path_in(sent.get("path", "")))
    row = runner.submit(kind, {"paths": [path]}, who, call.request_id)
    return begun(call, row, f"{text}: {path}")


def _child(browser: Browser, session: Session, above: str, entry: Entry) -> dict[str, Any]:
    name = text_of(entry.name)
    found = {**paths.facts(browser, f"{above}/{name}", entry, text_of), "name": name}
    if entry.attr.kind == Kind.REGULAR and not entry.attr.reserved:
        found["in_bucket"] = files.in_bucket(session, entry.attr.ino)
    return found


def _order(one: dict[str, Any]) -> tuple[bool, list[tuple[int, str]]]:
    """Directories first; shard-2 before shard-10."""
    parts = re.split("([0-9]{1,18})", one["name"])
    return one["kind"] != "directory", [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts
    ]


def _crumbs(settings: Settings, names: Sequence[bytes]) -> list[tuple[str, str]]:
    """Return the names above a place and their addresses, the export first."""
    crumbs = [(settings.nfs.export, "/files")]
    for count in range(1, len(names)):
        above = path_of(settings, b"/".join(names[:count]))
        crumbs.append((text_of(names[count - 1]), f"/files?path={quote(above)}"))
    return crumbs
