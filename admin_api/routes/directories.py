"""Directories: what is in one, new ones, and the removal of whole trees."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.calls import Recorded
from admin_api.gateway import Governed
from admin_api.jobs import files as jobs
from admin_api.jobs.runner import Working
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of_name, name_of
from admin_api.paths import PathQuery, PathText, encoded, path_of
from admin_api.problems import describe
from admin_api.routes.files import changing, read_file, require_inode
from admin_api.routes.jobs import accepted
from admin_api.shapes import INTEGER_MAX, Body, Id, Octal
from gateway.control.deletion import check_tree
from gateway.control.files import FileInfo
from gateway.control.jobs import Job
from gateway.control.paths import Child, browsing, child, names_of, resolve
from gateway.errors import NotPossible
from gateway.types import SetAttr

router = APIRouter(prefix="/directories", tags=["directories"])


class Making(Body):
    """A directory to be made."""

    path: PathText
    mode: Octal = "0755"
    uid: Id | None = Field(None, description="The user that it belongs to. Default: root.")
    gid: Id | None = Field(None, description="Its group. Default: root's, or a setgid parent's.")
    parents: bool = Field(False, description="Also make those that lead to it; it may be there.")


@router.get("", responses=describe(400, 404, 409, 503))
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
        found = browser.page(place.found().attr.ino, name_of(cursor), limit + 1)
        above = path_of(gateway.settings, b"/".join(names_of(gateway.settings.nfs.export, path)))
        children = [child(above, entry, browser if details else None) for entry in found[:limit]]
    return Page(
        items=children,
        next=cursor_of_name(found[limit - 1].name) if len(found) > limit else None,
    )


@router.post("", status_code=201, responses=describe(403, 404, 409, 503))
def make_directory(
    gateway: Governed, call: Recorded, operator: Operator, body: Making, response: Response
) -> FileInfo:
    """Make a directory. Clients see it at once."""
    with changing(gateway) as (names, _browser):
        wanted = SetAttr(int(body.mode, 8), body.uid, body.gid)
        (names.make_all if body.parents else names.make)(body.path, wanted)
    made = read_file(gateway, operator, body.path)
    call.after = {"path": made.path, "ino": made.ino, "uid": made.uid, "gid": made.gid}
    return made


@router.delete("", status_code=202, responses=describe(404, 409, 503))
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
        found = place.found().attr.ino
    below = b"/".join(names_of(gateway.settings.nfs.export, path))
    doomed = check_tree(gateway.settings, gateway.database, below, insists=force)
    checkpoints = [path_of(gateway.settings, one.path) for one in doomed]
    call.before = {"path": encoded(path), "ino": found, "checkpoints": checkpoints}
    arguments = {"paths": [encoded(path)], "ino": found, "force": force}
    return accepted(response, call, runner.submit(jobs.REMOVE, arguments, admin, call.request_id))
