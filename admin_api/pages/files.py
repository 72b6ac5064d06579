"""Pages of files and of the queue.

The file browser shows directories and files as clients see them, and where their bytes are. The
queue has the files that the bucket lacks, why, and the orders of people about them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.authentication import Operator, Viewer
from admin_api.audit import Recorded
from admin_api.jobs import work as jobs
from admin_api.jobs.runner import Working
from admin_api.pages.render import Sent, after, begun, number_in, page, path_in
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import (
    Governed,
    GovernedGateway,
    cursor_of,
    cursor_of_name,
    encoded,
    key_of,
    name_of,
    path_of,
)
from gateway.common import clock
from gateway.common.text import text_of
from gateway.common.types import InodeKind
from gateway.config.settings import Settings
from gateway.db.compiled import Session
from gateway.db.models import ROOT_INO
from gateway.drain import queue
from gateway.drain.context import Context
from gateway.namespace.lookup import Browser, NamedInode
from gateway.service import files, paths, status
from gateway.service import queue as control

router = APIRouter(prefix="/files")
ROWS = 250
"""The names of a page."""
ORDERS = {
    "warm": (jobs.WARM, "Bytes come back to the local disk"),
    "evict": (jobs.EVICT, "The local disk becomes free of what the bucket has"),
}
"""The kind of job that each order begins, and what people are told."""


class DirectoryLine(NamedTuple):
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
    shown_path = path_of(settings, b"/".join(names))
    with paths.browsing(settings) as browser:
        place = paths.resolve(browser, settings, wanted)
        entry = place.found()
        inodes: list[NamedInode] = []
        path_info: paths.PathInfo
        if place.is_directory:
            path_info = paths.path_info(browser, shown_path, entry)
            inodes = browser.page(entry.attr.ino, name_of(cursor), ROWS + 1)
        else:
            with gateway.database.reading() as session:
                path_info = files.model(settings, session, browser, entry, b"/".join(names))
        with gateway.database.reading() as session:
            inside = [_row(browser, session, shown_path, inode) for inode in inodes[:ROWS]]
    is_whole = cursor is None and len(inodes) <= ROWS
    return page(
        request,
        "files.html",
        who,
        one=path_info,
        path=shown_path,
        crumbs=_crumbs(settings, names),
        inside=sorted(inside, key=_order) if is_whole else inside,
        is_whole=is_whole,
        is_first=cursor is None,
        next=cursor_of_name(inodes[ROWS - 1].name) if len(inodes) > ROWS else None,
        is_directory=place.is_directory,
    )


@router.post("/{order}")
def order(
    call: Recorded, runner: Working, who: Operator, order: str, sent: Sent
) -> RedirectResponse:
    """Begin a job about a file, or about all files below a directory."""
    if order not in ORDERS:
        raise Problem(
            ProblemCode.INVALID_REQUEST,
            f"there is no such order: choose one of {', '.join(ORDERS)}",
        )
    kind, text = ORDERS[order]
    path = encoded(path_in(sent.get("path", "")))
    row = runner.submit(kind, {"paths": [path]}, who, call.request_id)
    return begun(call, row, f"{text}: {path}")


def _row(browser: Browser, session: Session, above: str, entry: NamedInode) -> DirectoryLine:
    is_sent = entry.attr.kind == InodeKind.REGULAR and not entry.attr.reserved
    in_bucket = files.in_bucket(session, entry.attr.ino) if is_sent else None
    return DirectoryLine(paths.child(above, entry, browser), is_sent, in_bucket)


def _order(row: DirectoryLine) -> tuple[bool, list[tuple[int, str]]]:
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


queue_router = APIRouter(prefix="/queue")
QUEUE_ROWS = 100
QUEUE_ORDERS = {
    "bump": (False, "It goes before everything else."),
    "hold": (True, "It is not drained until a person releases it."),
    "cancel": (True, "Its upload ends, and it is held until a person releases it."),
    "release": (None, "It waits for its turn again."),
}
"""What each order does: hold (True), put first (False), or neither; and what people are told."""


@queue_router.get("")
def show_queue(
    request: Request, gateway: Governed, who: Viewer, cursor: str | None = None
) -> HTMLResponse:
    """Show the files that wait, the newest first, and the orders about them."""
    key = key_of(cursor, int, int)
    waiting_files, more, orders = _page(gateway, None if key is None else (key[0], key[1]))
    with gateway.database.reading() as session:
        waiting = status.measure(gateway.settings, session)
    return page(
        request,
        "queue.html",
        who,
        found=waiting_files,
        next=None if more is None else cursor_of(list(more)),
        is_first=cursor is None,
        orders=orders,
        waiting=waiting,
    )


def _page(
    gateway: GovernedGateway, place: tuple[int, int] | None
) -> tuple[list[tuple[int, control.WaitingFile]], tuple[int, int] | None, list[control.QueueOrder]]:
    """Return the files of a page with their inodes, the place of the next one, and the orders of
    people."""
    now_ns = clock.now_ns()
    with control.opened(gateway.settings) as context:
        with context.reading() as view:
            entries, more = queue.page(
                view, place or queue.NEWEST, ROOT_INO, gateway.settings.drain_ahead_ns, QUEUE_ROWS
            )
        orders = control.LocalQueue(context).orders()
    settings = gateway.settings
    waiting_files = [(entry.ino, control.model(settings, entry, now_ns)) for entry in entries]
    return waiting_files, more, orders


@queue_router.post("/order")
def order_in_queue(
    gateway: Governed, call: Recorded, _who: Operator, sent: Sent
) -> RedirectResponse:
    """Take an order about a file, or about everything below a directory."""
    if sent.get("order") not in QUEUE_ORDERS:
        raise Problem(
            ProblemCode.INVALID_REQUEST,
            f"there is no such order: choose one of {', '.join(QUEUE_ORDERS)}",
        )
    hold, text = QUEUE_ORDERS[sent["order"]]
    with control.opened(gateway.settings) as context:
        ino = _chosen(context, sent)
        call.before = control.order_of(context, ino)
        had_order = queue.say(context, ino, hold)
        call.after = control.order_of(context, ino)
    if hold is None and not had_order:
        return after("/queue", "info", "There was no order for it.")
    return after("/queue", "ok", f"{sent.get('path', '')}: {text}")


@queue_router.post("/retry")
def retry(gateway: Governed, call: Recorded, _who: Operator, sent: Sent) -> RedirectResponse:
    """Have what failed about a file tried again now."""
    path = sent.get("path", "")
    with control.opened(gateway.settings) as context:
        had_failed = queue.retry(context, _chosen(context, sent))
    call.after = {"path": path, "had_failed": had_failed}
    if not had_failed:
        return after("/queue", "info", f"{path}: Nothing of it has failed, so nothing changes.")
    return after("/queue", "ok", f"{path}: It is tried again now.")


def _chosen(context: Context, sent: Mapping[str, str]) -> int:
    """Return the inode of a form, which has it or a path. Raises UserError, Problem."""
    if ino := number_in(sent, "ino"):
        return ino
    return control.find(context, path_in(sent.get("path", "")))
