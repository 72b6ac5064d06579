"""The queue: the files that the bucket lacks, why, and the orders of people about them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from admin_api.access.roles import Operator, Viewer
from admin_api.calls import Call, Recorded
from admin_api.gateway import Gateway, Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.paths import PathOrAll, PathQuery, PathText
from admin_api.problems import describe
from admin_api.shapes import INTEGER_MAX, Body
from gateway import clock
from gateway.control import queue as control
from gateway.control.queue import LocalQueue, Order, Retried, Waiting, Wanted
from gateway.db.models import ROOT_INO
from gateway.drain import queue

router = APIRouter(prefix="/queue", tags=["queue"])


class Ordering(Body):
    """An order. hold: it is not drained. bump: it is drained before everything else."""

    path: PathText
    order: Wanted


class Queued(Body):
    """A file, or a directory with what is in it."""

    path: PathText


@router.get("", responses=describe(400, 404, 409, 503))
def list_queue(
    gateway: Governed,
    _viewer: Viewer,
    path: PathOrAll = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[Waiting]:
    """List the files that wait for the bucket, the newest first.

    With a path, only what is at or below it. A page may then have fewer files than the limit, even
    none, although others follow: as long as there is a `next`, there may be more.
    """
    key = key_of(cursor, int, int)
    after = queue.NEWEST if key is None else (_bounded(key[0]), _bounded(key[1]))
    settings, now_ns = gateway.settings, clock.now_ns()
    # With a path most files may be elsewhere: more of them are looked at for one page.
    most = limit if path is None else queue.PAGE
    with control.opened(settings) as context:
        top = ROOT_INO if path is None else control.find(context, path)
        with context.reading() as view:
            found, more = queue.page(view, after, top, settings.drain_ahead_ns, most, limit)
    return Page(
        items=[control.model(settings, one, now_ns) for one in found],
        next=None if more is None else cursor_of(list(more)),
    )


@router.get("/orders", responses=describe(409, 503))
def list_orders(gateway: Governed, _viewer: Viewer) -> list[Order]:
    """List the orders that people gave and did not withdraw."""
    with control.opened(gateway.settings) as context:
        return LocalQueue(context).orders()


@router.put("/orders", responses=describe(404, 409, 503))
def give_order(gateway: Governed, call: Recorded, _operator: Operator, body: Ordering) -> Order:
    """Hold a file or directory, or put it first. An earlier order for it is replaced."""
    return _ordered(gateway, call, body.path, body.order)


@router.post("/cancel", responses=describe(404, 409, 503))
def cancel_upload(gateway: Governed, call: Recorded, _operator: Operator, body: Queued) -> Order:
    """End the upload of a file, or the uploads below a directory: what is named is held until it is
    released (`DELETE /queue/orders`), as by the order hold.

    The drain looks for that after each part of a multipart upload. It then aborts the upload, and
    nothing of it stays in the bucket; the parts that are on their way are sent to their end. A file
    of at most 16 MiB, or `drain.part_bytes` if that is less, is sent by one request, which is not
    interrupted: it may be in the bucket although it is held.
    """
    return _ordered(gateway, call, body.path, "hold")


@router.delete("/orders", status_code=204, responses=describe(404, 409, 503))
def withdraw_order(
    gateway: Governed, call: Recorded, _operator: Operator, path: PathQuery
) -> Response:
    """Release a file or directory: it waits for its turn again."""
    with control.opened(gateway.settings) as context:
        call.before = control.order_of(context, control.find(context, path))
        LocalQueue(context).release(path)
    return Response(status_code=204)


@router.post("/retry", responses=describe(404, 409, 503))
def try_again(gateway: Governed, call: Recorded, _operator: Operator, body: Queued) -> Retried:
    """Have what failed about a file tried again now, although its pause is not over."""
    with control.opened(gateway.settings) as context:
        call.after = made = LocalQueue(context).retry(body.path)
    return made


def _ordered(gateway: Gateway, call: Call, path: str, order: Wanted) -> Order:
    with control.opened(gateway.settings) as context:
        call.before = control.order_of(context, control.find(context, path))
        call.after = made = LocalQueue(context).order(path, order)
    return made


def _bounded(number: int) -> int:
    return max(0, min(number, INTEGER_MAX))
