"""Exports: directories that hosts may mount beside the whole namespace, changed while clients work.

A change is checked, then taken by the NFS server, then stored. If any of this fails, the former
exports are in force (gateway.exports).
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from pydantic import AfterValidator, BaseModel, Field

from admin_api.access.roles import Admin, Viewer
from admin_api.calls import Call, Recorded
from admin_api.etags import IfMatch, changed, etag_of, require_match
from admin_api.gateway import Gateway, Governed
from admin_api.paging import LIMIT, Cursor, Limit, Page, cursor_of, key_of
from admin_api.paths import PathText
from admin_api.problems import Problem, describe
from admin_api.shapes import Body
from gateway.clients import parse
from gateway.control import exports as control
from gateway.control.exports import Export, ExportValidity
from gateway.control.paths import names_of
from gateway.errors import ExportChanged
from gateway.escapes import text_of
from gateway.exports.export import CLIENTS_MAX
from gateway.exports.keeper import Exports, Listed, Wanted

router = APIRouter(prefix="/exports", tags=["exports"])

_WORD = "[A-Za-z0-9_+@=.-]{1,64}"
_NAME = f"{_WORD}(/{_WORD}){{0,7}}"
Name = Annotated[
    str,
    Path(
        pattern=f"^{_NAME}$",
        description="Its name without the first slash.",
        examples=["datasets", "team/data"],
    ),
]


def _entry(text: str) -> str:
    """Return hosts as they were written. Raises ValueError, which becomes the problem 422."""
    parse(text)
    return text


class Rights(Body):
    """Which directory an export has, and who may do what with it."""

    path: PathText
    clients: list[Annotated[str, Field(max_length=200), AfterValidator(_entry)]] = Field(
        min_length=1,
        max_length=CLIENTS_MAX,
        description="Hosts and their rights. The first entry that fits a host counts.",
        examples=[["10.0.0.0/8 rw", "192.168.7.4 ro all_squash"]],
    )
    squash: Literal["none", "root", "all"] = Field(
        "none",
        description="Maps these users to the user nobody, unless the entry of a host differs.",
    )


class NewExport(Rights):
    """An export to be made."""

    name: str = Field(
        pattern=f"^/{_NAME}$", description="What clients mount.", examples=["/datasets"]
    )


class Reloaded(BaseModel):
    """What the NFS server took."""

    left_out: list[str] = Field(
        description="Exports that it cannot have: their directory is gone, or in the trash.",
        examples=[["/datasets"]],
    )


@router.get("", responses=describe(400, 409, 503))
def list_exports(
    gateway: Governed, _viewer: Viewer, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[Export]:
    """List the exports beside ``nfs.export``, which the configuration has, by name."""
    key = key_of(cursor, str)
    rest = [one for one in _exports(gateway).listed() if key is None or one.export.name > key[0]]
    shown = rest[:limit]
    return Page(
        items=[_model(gateway, one) for one in shown],
        next=cursor_of([shown[-1].export.name]) if len(rest) > limit else None,
    )


@router.post("", status_code=201, responses=describe(403, 409, 503))
def create_export(
    gateway: Governed, call: Recorded, admin: Admin, body: NewExport, response: Response
) -> Export:
    """Make an export. Hosts may mount it at once."""
    exports = _exports(gateway)
    try:
        exports.put(_wanted(gateway, body.name, body), admin.name, 0)
    except ExportChanged:
        raise Problem(
            409,
            f"there is an export {body.name}: change it with PUT, or choose another name",
            current=_model(gateway, control.found(exports, body.name)),
        ) from None
    response.headers["Location"] = f"/api/v1/exports{body.name}"
    return _answer(gateway, call, control.found(exports, body.name), response)


@router.post("/validate", responses=describe(503))
def validate_export(gateway: Governed, _viewer: Viewer, body: NewExport) -> ExportValidity:
    """Say whether an export could be made or replaced, what that would do to its clients, and what
    NFS-Ganesha would be told. Nothing is stored."""
    return control.validity(_exports(gateway), _wanted(gateway, body.name, body))


@router.post("/reload", responses=describe(403, 409, 503))
def reload_exports(gateway: Governed, call: Recorded, _admin: Admin) -> Reloaded:
    """Have the NFS server take the exports as they are stored, and ``nfs.clients`` and
    ``nfs.squash`` as they are configured. Clients notice nothing."""
    exports = _exports(gateway)
    exports.reload()
    _served, left_out = exports.servable()
    call.after = made = Reloaded(left_out=[one.name for one in left_out])
    return made


@router.get("/{name:path}", responses=describe(404, 409, 503))
def read_export(gateway: Governed, _viewer: Viewer, name: Name, response: Response) -> Export:
    """Read an export."""
    found = control.found(_exports(gateway), f"/{name}")
    response.headers["ETag"] = etag_of(found.export.version)
    return _model(gateway, found)


@router.put("/{name:path}", responses=describe(403, 404, 409, 412, 428, 503))
def replace_export(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    name: Name,
    body: Rights,
    response: Response,
    if_match: IfMatch = None,
) -> Export:
    """Replace an export. Its clients stay connected, unless its directory is another one.

    A wrong export changes nothing: the NFS server keeps the former ones.
    """
    exports = _exports(gateway)
    before = _matched(gateway, call, exports, f"/{name}", if_match)
    wanted = _wanted(gateway, f"/{name}", body)
    try:
        exports.put(wanted, admin.name, before.export.version)
    except ExportChanged:
        raise _changed(gateway, exports, f"/{name}") from None
    return _answer(gateway, call, control.found(exports, f"/{name}"), response)


@router.delete("/{name:path}", status_code=204, responses=describe(403, 404, 409, 412, 428, 503))
def remove_export(
    gateway: Governed, call: Recorded, admin: Admin, name: Name, if_match: IfMatch = None
) -> Response:
    """Remove an export. Its clients lose what they have open on it. Its files stay."""
    exports = _exports(gateway)
    before = _matched(gateway, call, exports, f"/{name}", if_match)
    try:
        exports.remove(f"/{name}", admin.name, before.export.version)
    except (ExportChanged, KeyError):
        raise _changed(gateway, exports, f"/{name}") from None
    return Response(status_code=204)


def _exports(gateway: Gateway) -> Exports:
    return Exports(gateway.settings, gateway.database)


def _wanted(gateway: Gateway, name: str, body: Rights) -> Wanted:
    path = b"/".join(names_of(gateway.settings.nfs.export, body.path))
    return Wanted(name, path, body.clients, body.squash)


def _matched(
    gateway: Gateway, call: Call, exports: Exports, name: str, if_match: str | None
) -> Listed:
    """Return the export as it was read before its change. Raises Problem, NotThere."""
    found = control.found(exports, name)
    call.before = _model(gateway, found)
    require_match(if_match, found.export.version, call.before)
    return found


def _changed(gateway: Gateway, exports: Exports, name: str) -> Problem:
    """Return the problem of a change that came after another one."""
    now = exports.get(name)
    return changed(
        None if now is None else now.export.version, None if now is None else _model(gateway, now)
    )


def _answer(gateway: Gateway, call: Call, made: Listed, response: Response) -> Export:
    call.after = answer = _model(gateway, made)
    response.headers["ETag"] = etag_of(made.export.version)
    return answer


def _model(gateway: Gateway, one: Listed) -> Export:
    return control.model(gateway.settings, one, text_of)
