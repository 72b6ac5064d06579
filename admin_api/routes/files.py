"""Routes of files, directories, pins and the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from admin_api.access.authentication import Admin, Operator, Viewer
from admin_api.audit import Recorded
from admin_api.jobs import work as jobs
from admin_api.jobs.runner import Working
from admin_api.problems import Problem, ProblemCode, describe
from admin_api.requests import (
    INTEGER_MAX,
    LIMIT,
    Body,
    Cursor,
    Governed,
    GovernedGateway,
    Id,
    Ino,
    Limit,
    Note,
    Octal,
    Page,
    PathOrAll,
    PathQuery,
    PathText,
    cursor_of,
    cursor_of_name,
    encoded,
    key_of,
    name_of,
    path_of,
)
from admin_api.routes.jobs import accepted
from gateway.common import clock
from gateway.common.errors import NotPossible
from gateway.common.types import Attr, SetAttr
from gateway.db.models import ROOT_INO
from gateway.drain import queue
from gateway.namespace.lookup import Browser
from gateway.rpc.control import BACKGROUND_SECONDS, opened
from gateway.service import files, pins
from gateway.service import queue as control
from gateway.service.deletion import check_tree
from gateway.service.files import ChangedPath, FileInfo, changed_path
from gateway.service.jobs import Job
from gateway.service.names import Names, RpcCaller, require_not_hidden
from gateway.service.paths import Child, ResolvedPath, browsing, child, names_of, resolve
from gateway.service.pins import Pin
from gateway.service.queue import LocalQueue, QueueOrder, Retried, WaitingFile, Wanted

router = APIRouter(prefix="/files", tags=["files"])


class Renaming(Body):
    """A rename."""

    path: PathText
    to: PathText = Field(description="The whole new path.")
    force: bool = Field(False, description="Also to a name that the drain holds.")
    replace: bool = Field(
        False,
        description="What has the new name loses it, as in rename(2). Default: that is refused.",
    )


class Attributes(Body):
    """A mode, a user or a group for a file or directory. What is not given stays."""

    path: PathText
    mode: Octal | None = Field(None, examples=["2775"])
    uid: Id | None = Field(None, description="The user that it shall belong to.")
    gid: Id | None = Field(None, description="Its group.")


class Chosen(Body):
    """Files or directories."""

    paths: Annotated[list[PathText], Field(min_length=1, max_length=1000)]


class One(Body):
    """A file or a directory."""

    path: PathText


@router.get("", responses=describe(404, 409, 503))
def read_file(gateway: Governed, _viewer: Viewer, path: PathQuery) -> FileInfo:
    """Read what is known of a file or directory. Symbolic links are not followed."""
    with browsing(gateway.settings) as browser, gateway.database.reading() as session:
        return files.read(gateway.settings, session, browser, path)


@router.delete("", status_code=204, responses=describe(403, 404, 409, 503))
def remove_file(
    gateway: Governed,
    call: Recorded,
    _admin: Admin,
    path: PathQuery,
    ino: Annotated[
        int | None, Query(ge=1, le=INTEGER_MAX, description="Only if it is still this inode.")
    ] = None,
) -> Response:
    """Remove a file, or an empty directory. The object in the bucket is deleted soon afterwards."""

    def act(names: Names, _browser: Browser) -> ResolvedPath:
        place = names.find(path)
        require_inode(place, ino)
        names.remove(place)
        return place

    place = _changed(gateway, act)
    call.before = {"path": encoded(path), "ino": place.found().attr.ino}
    return Response(status_code=204)


@router.post("/rename", responses=describe(403, 404, 409, 503))
def rename_file(
    gateway: Governed, call: Recorded, _operator: Operator, body: Renaming
) -> ChangedPath:
    """Rename or move a file or directory. Clients see it at once."""
    require_not_hidden(gateway.settings, gateway.database, body.path, body.to, insists=body.force)
    _changed(
        gateway,
        lambda names, _browser: names.rename(body.path, body.to, replaces=body.replace),
    )
    call.before, call.after = encoded(body.path), encoded(body.to)
    return changed_path(gateway.settings, body.to)


@router.post("/attributes", responses=describe(403, 404, 409, 503))
def set_file_attributes(
    gateway: Governed, call: Recorded, _admin: Admin, body: Attributes
) -> ChangedPath:
    """Set mode, user or group, as root may. Symbolic links are not followed.

    Setuid and setgid of a file go with its owner.
    """
    mode = None if body.mode is None else int(body.mode, 8)
    wanted = SetAttr(mode, body.uid, body.gid)
    place = _changed(gateway, lambda names, _browser: names.set_attributes(body.path, wanted))
    call.before = {"path": encoded(body.path), **_permissions(place.found().attr)}
    call.after = {"mode": body.mode, "uid": body.uid, "gid": body.gid}
    return changed_path(gateway.settings, body.path)


@router.post("/evict", status_code=202, responses=describe(503))
def evict_files(
    call: Recorded, operator: Operator, runner: Working, body: Chosen, response: Response
) -> Job:
    """Free the local disk of files that the bucket has. Directories: of all files below."""
    arguments = {"paths": [encoded(path) for path in body.paths]}
    row = runner.submit(jobs.EVICT, arguments, operator, call.request_id)
    return accepted(response, call, row)


@router.post("/warm", status_code=202, responses=describe(503))
def warm_files(
    call: Recorded, operator: Operator, runner: Working, body: Chosen, response: Response
) -> Job:
    """Bring evicted files back to the local disk. Directories: all files below."""
    arguments = {"paths": [encoded(path) for path in body.paths]}
    return accepted(response, call, runner.submit(jobs.WARM, arguments, operator, call.request_id))


@router.post("/wait", status_code=202, responses=describe(503))
def wait_for_file(
    call: Recorded, operator: Operator, runner: Working, body: One, response: Response
) -> Job:
    """Begin a job that is done as soon as the bucket alone could restore a file or a tree."""
    arguments = {"paths": [encoded(body.path)]}
    return accepted(response, call, runner.submit(jobs.WAIT, arguments, operator, call.request_id))


def _permissions(attr: Attr) -> dict[str, Any]:
    return {"mode": f"{attr.mode:04o}", "uid": attr.uid, "gid": attr.gid}


def require_inode(place: ResolvedPath, ino: int | None) -> None:
    """Raise Problem if a name is not that of the inode that was asked for."""
    if ino is not None and place.found().attr.ino != ino:
        raise Problem(
            ProblemCode.REPLACED_FILE, f"{place.path}: it is another file now: look again"
        )


@contextmanager
def changing(gateway: GovernedGateway) -> Iterator[tuple[Names, Browser]]:
    """Open what changes names, for a request: it does not wait long. Raises UserError."""
    with (
        browsing(gateway.settings) as browser,
        opened(gateway.settings, BACKGROUND_SECONDS) as connection,
    ):
        yield Names(gateway.settings, browser, RpcCaller(connection, BACKGROUND_SECONDS)), browser


def _changed(gateway: GovernedGateway, act: Callable[[Names, Browser], Any]) -> Any:
    with changing(gateway) as (names, browser):
        return act(names, browser)


directories_router = APIRouter(prefix="/directories", tags=["directories"])


class Making(Body):
    """A directory to be made."""

    path: PathText
    mode: Octal = "0755"
    uid: Id | None = Field(None, description="The user that it belongs to. Default: root.")
    gid: Id | None = Field(None, description="Its group. Default: root's, or a setgid parent's.")
    parents: bool = Field(False, description="Also make those that lead to it; it may be there.")


@directories_router.get("", responses=describe(400, 404, 409, 503))
def list_directory(
    gateway: Governed,
    _viewer: Viewer,
    path: PathQuery,
    details: Annotated[bool, Query(description="Also what takes a query for each name.")] = False,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[Child]:
    """List a directory by name. A page costs the same wherever it is in the list."""
    with browsing(gateway.settings) as browser:
        place = resolve(browser, gateway.settings, path)
        place.found()
        if not place.is_directory:
            raise NotPossible(f"{place.path}: it is no directory: read it with /files")
        inodes = browser.page(place.found().attr.ino, name_of(cursor), limit + 1)
        above = path_of(gateway.settings, b"/".join(names_of(gateway.settings.nfs.export, path)))
        children = [child(above, entry, browser if details else None) for entry in inodes[:limit]]
    return Page(
        items=children,
        next=cursor_of_name(inodes[limit - 1].name) if len(inodes) > limit else None,
    )


@directories_router.post("", status_code=201, responses=describe(403, 404, 409, 503))
def make_directory(
    gateway: Governed, call: Recorded, _operator: Operator, body: Making
) -> ChangedPath:
    """Make a directory. Clients see it at once."""
    with changing(gateway) as (names, _browser):
        wanted = SetAttr(int(body.mode, 8), body.uid, body.gid)
        (names.make_all if body.parents else names.make)(body.path, wanted)
    call.after = {"path": encoded(body.path), "mode": body.mode, "uid": body.uid, "gid": body.gid}
    return changed_path(gateway.settings, body.path)


@directories_router.delete("", status_code=202, responses=describe(404, 409, 503))
def remove_directory(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    runner: Working,
    response: Response,
    path: PathQuery,
    ino: Annotated[
        int | None, Query(ge=1, le=INTEGER_MAX, description="Only if it is still this inode.")
    ] = None,
    force: Annotated[bool, Query(description="Also the newest checkpoint of a run.")] = False,
) -> Job:
    """Begin a job that removes a directory with everything in it, from the bottom up.

    Complete checkpoints go into the trash, as if each was deleted as a checkpoint. The objects of
    everything else are deleted too.
    """
    with changing(gateway) as (names, _browser):
        place = names.find(path)
        require_inode(place, ino)
        if not place.is_directory:
            raise NotPossible(f"{place.path}: it is no directory: remove it with /files")
        directory_ino = place.found().attr.ino
    below = b"/".join(names_of(gateway.settings.nfs.export, path))
    doomed = check_tree(gateway.settings, gateway.database, below, insists=force)
    checkpoints = [path_of(gateway.settings, checkpoint.path) for checkpoint in doomed]
    call.before = {"path": encoded(path), "ino": directory_ino, "checkpoints": checkpoints}
    arguments = {"paths": [encoded(path)], "ino": directory_ino, "force": force}
    return accepted(response, call, runner.submit(jobs.REMOVE, arguments, admin, call.request_id))


pins_router = APIRouter(prefix="/pins", tags=["checkpoints"])


class NewPin(Body):
    """A path to be pinned."""

    path: PathText
    note: Note = ""


@pins_router.get("", responses=describe(400, 503))
def list_pins(
    gateway: Governed, _viewer: Viewer, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[Pin]:
    """List the pins, the oldest first."""
    key = key_of(cursor, int, int)
    with gateway.database.reading() as session:
        rest = [
            row
            for row in pins.in_order(session)
            if key is None or (row.pinned_ns, row.ino) > tuple(key)
        ]
        shown = rest[:limit]
        items = [pins.model(gateway.settings, session, row) for row in shown]
    last = cursor_of([shown[-1].pinned_ns, shown[-1].ino]) if len(rest) > limit else None
    return Page(items=items, next=last)


@pins_router.post("", status_code=201, responses=describe(403, 404, 409, 503))
def create_pin(gateway: Governed, call: Recorded, operator: Operator, body: NewPin) -> Pin:
    """Pin a file or directory. A pin that it has is replaced."""
    with browsing(gateway.settings) as browser:
        place = resolve(browser, gateway.settings, body.path)
        attr = place.found().attr
    with gateway.database.writing() as session:
        call.before = pins.of(gateway.settings, session, attr.ino)
        row = pins.pin(session, attr, place.path, body.note, operator.name)
        call.after = made = pins.model(gateway.settings, session, row)
    return made


@pins_router.delete("/{ino}", status_code=204, responses=describe(403, 404, 503))
def remove_pin(gateway: Governed, call: Recorded, _operator: Operator, ino: Ino) -> None:
    """End a pin, also of what has no path any more."""
    with gateway.database.writing() as session:
        call.before = pins.of(gateway.settings, session, ino)
        pins.unpin(session, ino, str(ino))


queue_router = APIRouter(prefix="/queue", tags=["queue"])


class Ordering(Body):
    """An order. hold: it is not drained. bump: it is drained before everything else."""

    path: PathText
    order: Wanted


class PathBody(Body):
    """A file, or a directory with what is in it."""

    path: PathText


@queue_router.get("", responses=describe(400, 404, 409, 503))
def list_queue(
    gateway: Governed,
    _viewer: Viewer,
    path: PathOrAll = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page[WaitingFile]:
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
            entries, more = queue.page(view, after, top, settings.drain_ahead_ns, most, limit)
    return Page(
        items=[control.model(settings, entry, now_ns) for entry in entries],
        next=None if more is None else cursor_of(list(more)),
    )


@queue_router.get("/orders", responses=describe(409, 503))
def list_orders(gateway: Governed, _viewer: Viewer) -> list[QueueOrder]:
    """List the orders that people gave and did not withdraw."""
    with control.opened(gateway.settings) as context:
        return LocalQueue(context).orders()


@queue_router.put("/orders", responses=describe(404, 409, 503))
def set_order(gateway: Governed, call: Recorded, _operator: Operator, body: Ordering) -> QueueOrder:
    """Hold a file or directory, or put it first. An earlier order for it is replaced.

    hold ends the uploads of what is named, until it is released (`DELETE /queue/orders`). The drain
    looks for that after each part of a multipart upload. It then aborts the upload, and nothing of
    it stays in the bucket; the parts that are on their way are sent to their end. A file of at most
    16 MiB, or `drain.part_bytes` if that is less, is sent by one request, which is not interrupted:
    it may be in the bucket although it is held.
    """
    with control.opened(gateway.settings) as context:
        call.before = control.order_of(context, control.find(context, body.path))
        call.after = made = LocalQueue(context).order(body.path, body.order)
    return made


@queue_router.delete("/orders", status_code=204, responses=describe(404, 409, 503))
def remove_order(
    gateway: Governed, call: Recorded, _operator: Operator, path: PathQuery
) -> Response:
    """Release a file or directory: it waits for its turn again."""
    with control.opened(gateway.settings) as context:
        call.before = control.order_of(context, control.find(context, path))
        LocalQueue(context).release(path)
    return Response(status_code=204)


@queue_router.post("/retry", responses=describe(404, 409, 503))
def retry_upload(gateway: Governed, call: Recorded, _operator: Operator, body: PathBody) -> Retried:
    """Have what failed about a file tried again now, although its pause is not over."""
    with control.opened(gateway.settings) as context:
        call.after = made = LocalQueue(context).retry(body.path)
    return made


def _bounded(number: int) -> int:
    return max(0, min(number, INTEGER_MAX))
