"""The queue: the files that the bucket lacks, why, and the orders of people about them."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.roles import Operator, Viewer
from admin_api.calls import Recorded
from admin_api.gateway import Gateway, Governed
from admin_api.pages.flash import after
from admin_api.pages.render import page
from admin_api.pages.visitor import Sent, number_in, path_in
from admin_api.paging import cursor_of, key_of
from admin_api.problems import Problem
from gateway import clock
from gateway.control import backlog
from gateway.control import queue as control
from gateway.db.models import ROOT_INO
from gateway.drain import queue
from gateway.drain.context import Context

router = APIRouter(prefix="/queue")
ROWS = 100
ORDERS = {
    "bump": (False, "It goes before everything else."),
    "hold": (True, "It is not drained until a person releases it."),
    "cancel": (True, "Its upload ends, and it is held until a person releases it."),
    "release": (None, "It waits for its turn again."),
}
"""What each order does: hold (True), put first (False), or neither; and what people are told."""


@router.get("")
def show(
    request: Request, gateway: Governed, who: Viewer, cursor: str | None = None
) -> HTMLResponse:
    """Show the files that wait, the newest first, and the orders about them."""
    key = key_of(cursor, int, int)
    found, more, orders = _page(gateway, None if key is None else (key[0], key[1]))
    with gateway.database.reading() as session:
        waiting = backlog.measure(gateway.settings, session)
    return page(
        request,
        "queue.html",
        who,
        found=found,
        next=None if more is None else cursor_of(list(more)),
        is_first=cursor is None,
        orders=orders,
        waiting=waiting,
    )


def _page(
    gateway: Gateway, place: tuple[int, int] | None
) -> tuple[list[tuple[int, control.Waiting]], tuple[int, int] | None, list[control.Order]]:
    """Return the files of a page with their inodes, the place of the next one, and the orders of
    people."""
    now_ns = clock.now_ns()
    with control.opened(gateway.settings) as context:
        with context.reading() as view:
            entries, more = queue.page(
                view, place or queue.NEWEST, ROOT_INO, gateway.settings.drain_ahead_ns, ROWS
            )
        orders = control.LocalQueue(context).orders()
    settings = gateway.settings
    found = [(one.ino, control.model(settings, one, now_ns)) for one in entries]
    return found, more, orders


@router.post("/order")
def order(gateway: Governed, call: Recorded, _who: Operator, sent: Sent) -> RedirectResponse:
    """Take an order about a file, or about everything below a directory."""
    if sent.get("order") not in ORDERS:
        raise Problem(422, f"there is no such order: choose one of {', '.join(ORDERS)}")
    hold, text = ORDERS[sent["order"]]
    with control.opened(gateway.settings) as context:
        ino = _chosen(context, sent)
        call.before = control.order_of(context, ino)
        had_order = queue.say(context, ino, hold)
        call.after = control.order_of(context, ino)
    if hold is None and not had_order:
        return after("/queue", "info", "There was no order for it.")
    return after("/queue", "ok", f"{sent.get('path', '')}: {text}")


@router.post("/retry")
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
