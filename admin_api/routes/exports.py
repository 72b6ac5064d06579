"""Routes of exports: directories that hosts mount beside the whole namespace, changed at run time.

A change is checked, then taken by the NFS server, then stored. If any of this fails, the former
exports are in force (gateway.nfs).
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from pydantic import AfterValidator, Field

from admin_api.access.authentication import Admin, Viewer
from admin_api.access.principal import Principal
from admin_api.audit import Recorded, RequestRecord
from admin_api.problems import Problem, ProblemCode, describe
from admin_api.requests import (
    LIMIT,
    Body,
    Cursor,
    Governed,
    GovernedGateway,
    IfMatch,
    Limit,
    Page,
    PathText,
    changed,
    cursor_of,
    etag_of,
    key_of,
    require_match,
)
from gateway.common.errors import ExportChanged, NotThere
from gateway.common.network import parse
from gateway.nfs.export import CLIENTS_MAX
from gateway.service import exports as control
from gateway.service.exports import Export, ExportValidity, LocalExports, ReloadedExports

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


class ExportBody(Body):
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

    def rights(self) -> control.Rights:
        """Return what ``gateway.service`` takes."""
        return control.Rights(self.path, self.clients, self.squash)


class NewExport(ExportBody):
    """An export to be made."""

    name: str = Field(
        pattern=f"^/{_NAME}$", description="What clients mount.", examples=["/datasets"]
    )


@router.get("", responses=describe(400, 409, 503))
def list_exports(
    gateway: Governed, viewer: Viewer, limit: Limit = LIMIT, cursor: Cursor = None
) -> Page[Export]:
    """List the exports beside ``nfs.export``, which the configuration has, by name."""
    key = key_of(cursor, str)
    exports = _exports(gateway, viewer).every()
    rest = [export for export in exports if key is None or export.name > key[0]]
    return Page(
        items=rest[:limit],
        next=cursor_of([rest[limit - 1].name]) if len(rest) > limit else None,
    )


@router.post("", status_code=201, responses=describe(403, 409, 503))
def create_export(
    gateway: Governed, call: Recorded, admin: Admin, body: NewExport, response: Response
) -> Export:
    """Make an export. Hosts may mount it at once."""
    exports = _exports(gateway, admin)
    try:
        made = exports.set(body.name, body.rights(), 0)
    except ExportChanged:
        raise Problem(
            ProblemCode.EXISTING_RESOURCE,
            f"there is an export {body.name}: change it with PUT, or choose another name",
            current=exports.get(body.name),
        ) from None
    response.headers["Location"] = f"/api/v1/exports{body.name}"
    return _answer(call, made, response)


@router.post("/validate", responses=describe(503))
def validate_export(gateway: Governed, viewer: Viewer, body: NewExport) -> ExportValidity:
    """Say whether an export could be made or replaced, what that would do to its clients, and what
    NFS-Ganesha would be told. Nothing is stored."""
    return _exports(gateway, viewer).validate(body.name, body.rights())


@router.post("/reload", responses=describe(403, 409, 503))
def reload_exports(gateway: Governed, call: Recorded, admin: Admin) -> ReloadedExports:
    """Have the NFS server take the exports as they are stored, and ``nfs.clients`` and
    ``nfs.squash`` as they are configured. Clients notice nothing."""
    call.after = made = _exports(gateway, admin).reload()
    return made


@router.get("/{name:path}", responses=describe(404, 409, 503))
def read_export(gateway: Governed, viewer: Viewer, name: Name, response: Response) -> Export:
    """Read an export."""
    export = _exports(gateway, viewer).get(f"/{name}")
    response.headers["ETag"] = etag_of(export.version)
    return export


@router.put("/{name:path}", responses=describe(403, 404, 409, 412, 428, 503))
def replace_export(
    gateway: Governed,
    call: Recorded,
    admin: Admin,
    name: Name,
    body: ExportBody,
    response: Response,
    if_match: IfMatch = None,
) -> Export:
    """Replace an export. Its clients stay connected, unless its directory is another one.

    A wrong export changes nothing: the NFS server keeps the former ones.
    """
    exports = _exports(gateway, admin)
    before = _matched(call, exports, f"/{name}", if_match)
    try:
        made = exports.set(f"/{name}", body.rights(), before.version)
    except ExportChanged:
        raise _changed(exports, f"/{name}") from None
    return _answer(call, made, response)


@router.delete("/{name:path}", status_code=204, responses=describe(403, 404, 409, 412, 428, 503))
def remove_export(
    gateway: Governed, call: Recorded, admin: Admin, name: Name, if_match: IfMatch = None
) -> Response:
    """Remove an export. Its clients lose what they have open on it. Its files stay."""
    exports = _exports(gateway, admin)
    before = _matched(call, exports, f"/{name}", if_match)
    try:
        exports.remove(f"/{name}", before.version)
    except (ExportChanged, NotThere):
        raise _changed(exports, f"/{name}") from None
    return Response(status_code=204)


def _exports(gateway: GovernedGateway, who: Principal) -> LocalExports:
    return LocalExports(gateway.settings, gateway.database, who.name)


def _matched(call: RequestRecord, exports: LocalExports, name: str, if_match: str | None) -> Export:
    """Return the export as it was read before its change. Raises Problem, NotThere."""
    call.before = export = exports.get(name)
    require_match(if_match, export.version, export)
    return export


def _changed(exports: LocalExports, name: str) -> Problem:
    """Return the problem of a change that came after another one."""
    now = exports.find(name)
    return changed(None if now is None else now.version, now)


def _answer(call: RequestRecord, made: Export, response: Response) -> Export:
    call.after = made
    response.headers["ETag"] = etag_of(made.version)
    return made
