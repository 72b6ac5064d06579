"""The file browser: directories and files as clients see them, and where their bytes are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
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


class Row(NamedTuple):
    """A name in a directory."""

    child: paths.Child
    is_sent: bool
    """Whether it is a file that goes to the bucket."""
    in_bucket: str | None
    """What the bucket has of it, as ``files.in_bucket`` says."""


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
        one: paths.PathInfo
        if place.is_directory:
            one = paths.model(browser, here, entry)
            found = browser.page(entry.attr.ino, name_of(cursor), ROWS + 1)
        else:
            with gateway.database.reading() as session:
                one = files.model(settings, session, browser, entry, b"/".join(names))
        with gateway.database.reading() as session:
            inside = [_row(browser, session, here, each) for each in found[:ROWS]]
    is_whole = cursor is None and len(found) <= ROWS
    return page(
        request,
        "files.html",
        who,
        one=one,
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


def _row(browser: Browser, session: Session, above: str, entry: Entry) -> Row:
    is_sent = entry.attr.kind == Kind.REGULAR and not entry.attr.reserved
    in_bucket = files.in_bucket(session, entry.attr.ino) if is_sent else None
    return Row(paths.child(above, entry, browser), is_sent, in_bucket)


def _order(row: Row) -> tuple[bool, list[tuple[int, str]]]:
    """Directories first; shard-2 before shard-10."""
    parts = re.split("([0-9]{1,18})", row.child.name)
    return row.child.kind != "directory", [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts
    ]


def _crumbs(settings: Settings, names: Sequence[bytes]) -> list[tuple[str, str]]:
    """Return the names above a place and their addresses, the export first."""
    crumbs = [(settings.nfs.export, "/files")]
    for count in range(1, len(names)):
        above = path_of(settings, b"/".join(names[:count]))
        crumbs.append((text_of(names[count - 1]), f"/files?path={quote(above)}"))
    return crumbs
