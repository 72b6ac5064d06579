"""Files: what is known of one, and orders about names and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.calls import Recorded
from admin_api.gateway import Gateway, Governed
from admin_api.jobs import files as jobs
from admin_api.jobs.runner import Working
from admin_api.paths import PathQuery, PathText, encoded
from admin_api.problems import Problem, describe
from admin_api.routes.jobs import accepted
from admin_api.shapes import INTEGER_MAX, Body, Id, Octal
from gateway.control import files
from gateway.control.files import FileInfo
from gateway.control.guarding import require_not_hidden
from gateway.control.jobs import Job
from gateway.control.names import Asker, Names
from gateway.control.paths import Place, browsing
from gateway.door.door import BACKGROUND_SECONDS, opened
from gateway.namespace.browse import Browser
from gateway.types import Attr, SetAttr

router = APIRouter(prefix="/files", tags=["files"])


class Renaming(Body):
    """A rename. Nothing is replaced."""

    path: PathText
    to: PathText = Field(description="The whole new path.")
    force: bool = Field(False, description="Also to a name that the drain holds.")


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

    def act(names: Names, _browser: Browser) -> Place:
        place = names.find(path)
        require_inode(place, ino)
        names.remove(place)
        return place

    place = _changed(gateway, act)
    call.before = {"path": encoded(path), "ino": place.found().attr.ino}
    return Response(status_code=204)


@router.post("/rename", responses=describe(403, 404, 409, 503))
def rename_file(gateway: Governed, call: Recorded, _operator: Operator, body: Renaming) -> FileInfo:
    """Rename or move a file or directory. Clients see it at once."""
    require_not_hidden(gateway.settings, gateway.database, body.path, body.to, insists=body.force)
    _changed(gateway, lambda names, _browser: names.rename(body.path, body.to))
    call.before, call.after = encoded(body.path), encoded(body.to)
    return read_file(gateway, _operator, body.to)


@router.post("/attributes", responses=describe(403, 404, 409, 503))
def set_attributes(gateway: Governed, call: Recorded, admin: Admin, body: Attributes) -> FileInfo:
    """Set mode, user or group, as root may. Symbolic links are not followed.

    Setuid and setgid of a file go with its owner.
    """
    mode = None if body.mode is None else int(body.mode, 8)
    wanted = SetAttr(mode, body.uid, body.gid)
    place = _changed(gateway, lambda names, _browser: names.set_attributes(body.path, wanted))
    call.before = {"path": encoded(body.path), **_permissions(place.found().attr)}
    found = read_file(gateway, admin, body.path)
    call.after = {"mode": found.mode, "uid": found.uid, "gid": found.gid}
    return found


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


def require_inode(place: Place, ino: int | None) -> None:
    """Raise Problem if a name is not that of the inode that was asked for."""
    if ino is not None and place.found().attr.ino != ino:
        raise Problem(409, f"{place.path}: it is another file now: look again")


@contextmanager
def changing(gateway: Gateway) -> Iterator[tuple[Names, Browser]]:
    """Open what changes names, for a request: it does not wait long. Raises UserError."""
    with (
        browsing(gateway.settings) as browser,
        opened(gateway.settings, BACKGROUND_SECONDS) as door,
    ):
        yield Names(gateway.settings, browser, Asker(door, BACKGROUND_SECONDS)), browser


def _changed(gateway: Gateway, act: Callable[[Names, Browser], Any]) -> Any:
    with changing(gateway) as (names, browser):
        return act(names, browser)
