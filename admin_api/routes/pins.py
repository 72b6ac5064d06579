"""Pins: what people keep on the local disk and from all policies."""

from __future__ import annotations

from fastapi import APIRouter

from admin_api.access.roles import Operator, Viewer
from admin_api.calls import Recorded
from admin_api.gateway import Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.paths import PathText
from admin_api.problems import describe
from admin_api.shapes import Body, Ino, Note
from gateway.control import pins
from gateway.control.paths import browsing, resolve
from gateway.control.pins import Pin

router = APIRouter(prefix="/pins", tags=["checkpoints"])


class NewPin(Body):
    """A path to be pinned."""

    path: PathText
    note: Note = ""


@router.get("", responses=describe(400, 503))
def list_pins(
    gateway: Governed, _viewer: Viewer, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[Pin]:
    """List the pins, the oldest first."""
    key = key_of(cursor, int, int)
    with gateway.database.reading() as session:
        rest = [
            one
            for one in pins.in_order(session)
            if key is None or (one.pinned_ns, one.ino) > tuple(key)
        ]
        shown = rest[:limit]
        items = [pins.model(gateway.settings, session, one) for one in shown]
    last = cursor_of([shown[-1].pinned_ns, shown[-1].ino]) if len(rest) > limit else None
    return Page(items=items, next=last)


@router.post("", status_code=201, responses=describe(403, 404, 409, 503))
def pin(gateway: Governed, call: Recorded, operator: Operator, body: NewPin) -> Pin:
    """Pin a file or directory. A pin that it has is replaced."""
    with browsing(gateway.settings) as browser:
        place = resolve(browser, gateway.settings, body.path)
        attr = place.found().attr
    with gateway.database.writing() as session:
        call.before = pins.of(gateway.settings, session, attr.ino)
        row = pins.pin(session, attr, place.path, body.note, operator.name)
        call.after = made = pins.model(gateway.settings, session, row)
    return made


@router.delete("/{ino}", status_code=204, responses=describe(403, 404, 503))
def unpin(gateway: Governed, call: Recorded, _operator: Operator, ino: Ino) -> None:
    """End a pin, also of what has no path any more."""
    with gateway.database.writing() as session:
        call.before = pins.of(gateway.settings, session, ino)
        pins.unpin(session, ino, str(ino))
