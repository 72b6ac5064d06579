"""Pages of exports: which hosts mount which directories, with a preview of each change."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from admin_api.access.authentication import Admin, Viewer
from admin_api.access.principal import Principal
from admin_api.audit import Recorded
from admin_api.pages.render import Sent, after, number_in, page, path_in
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import Governed, GovernedGateway
from gateway.common.errors import ExportChanged, ExportRefused
from gateway.common.network import Squash
from gateway.nfs.export_service import ExportService, WantedExport
from gateway.service import exports as control
from gateway.service.exports import Export
from gateway.service.paths import names_of

router = APIRouter(prefix="/exports")
FIELDS = ("name", "path", "clients", "squash")


@router.get("")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the exports, that of the whole namespace first."""
    settings = gateway.settings
    exports = [control.model(settings, export) for export in _exports(gateway).listed()]
    main = {
        "name": settings.nfs.export,
        "clients": settings.nfs.clients,
        "squash": settings.nfs.squash,
    }
    return page(request, "exports.html", who, found=exports, main=main)


@router.get("/new")
def new(request: Request, gateway: Governed, who: Admin) -> HTMLResponse:
    """Show the editor for an export that there is not yet."""
    values = {"name": "", "path": "", "clients": "", "squash": str(Squash.NONE)}
    return _editor(request, gateway, who, values, 0)


@router.get("/edit")
def edit(request: Request, gateway: Governed, who: Admin, name: str) -> HTMLResponse:
    """Show the editor for an export."""
    export = _model(gateway, name)
    return _editor(request, gateway, who, _values_of(export), export.version)


@router.get("/preview")
def preview(request: Request, gateway: Governed, who: Admin) -> HTMLResponse:
    """Show the editor with what was typed, and with what that would do."""
    typed = request.query_params
    version = number_in(typed, "version")
    return _editor(request, gateway, who, _values(typed), version, previews=True)


@router.post("")
def save(request: Request, gateway: Governed, call: Recorded, who: Admin, sent: Sent) -> Response:
    """Add or change an export, unless it is wrong or was changed meanwhile."""
    values, version = _values(sent), number_in(sent, "version")
    exports = _exports(gateway)
    try:
        wanted = _wanted(gateway, values)
        before = exports.get(wanted.name)
        made = exports.put(wanted, who.name, version)
    except ExportChanged:
        theirs = control.model(gateway.settings, control.found(exports, values["name"]))
        return _editor(request, gateway, who, values, theirs.version, status=412, theirs=theirs)
    except ExportRefused as exc:
        return _editor(request, gateway, who, values, version, status=422, wrong=str(exc))
    call.before = None if before is None else control.model(gateway.settings, before)
    call.after = now = _model(gateway, made.name)
    when = "from now on" if now.served else "from the next start of the NFS server on"
    return after("/exports", "ok", f"Its hosts can mount {made.name} {when}.")


@router.get("/remove")
def ask_to_remove(request: Request, gateway: Governed, who: Admin, name: str) -> HTMLResponse:
    """Ask before an export is removed."""
    export = _model(gateway, name)
    return page(request, "export-remove.html", who, one=export, here="exports")


@router.post("/remove")
def remove(gateway: Governed, call: Recorded, who: Admin, sent: Sent) -> RedirectResponse:
    """Remove an export. Its files stay."""
    name = sent.get("name", "")
    call.before = _model(gateway, name)
    try:
        _exports(gateway).remove(name, who.name, number_in(sent, "version"))
    except (ExportChanged, KeyError):
        text = f"{name} was changed meanwhile: look at it, and remove it again"
        raise Problem(ProblemCode.VERSION_CONFLICT, text) from None
    return after("/exports", "ok", f"{name} is no export any more. Its files stay.")


@router.post("/reload")
def reload(gateway: Governed, _who: Admin, _call: Recorded, _sent: Sent) -> RedirectResponse:
    """Have the NFS server take the exports as they are stored."""
    _exports(gateway).reload()
    return after("/exports", "ok", "The exports are in force as they are stored.")


def _editor(
    request: Request,
    gateway: GovernedGateway,
    who: Principal,
    values: Mapping[str, str],
    version: int,
    *,
    status: int = 200,
    wrong: str | None = None,
    theirs: Export | None = None,
    previews: bool = False,
) -> HTMLResponse:
    """Return the page of the editor.

    Args:
        values: values of the fields.
        version: that the form is made for, 0 for a new export.
        wrong: why what was typed cannot be.
        theirs: the export as another person stored it.
        previews: whether the page says what a change would do.
    """
    change = None
    if previews:
        try:
            change = control.change(_exports(gateway).preview(_wanted(gateway, values), version))
        except (ExportRefused, ExportChanged) as exc:
            wrong = str(exc)
    return page(
        request,
        "export-editor.html",
        who,
        status,
        values=values,
        version=version,
        wrong=wrong,
        change=change,
        theirs=None if theirs is None else _values_of(theirs),
        their_author=None if theirs is None else theirs.changed_by,
        squashes=list(Squash),
        export=gateway.settings.nfs.export,
        here="exports",
    )


def _wanted(gateway: GovernedGateway, values: Mapping[str, str]) -> WantedExport:
    """Return what was typed. Raises ExportRefused."""
    clients = [line.strip() for line in values["clients"].splitlines() if line.strip()]
    names = names_of(gateway.settings.nfs.export, path_in(values["path"].strip()))
    if not values["path"].strip():
        raise ExportRefused(
            f"its directory is missing: name one below {gateway.settings.nfs.export}"
        )
    return WantedExport(values["name"].strip(), b"/".join(names), clients, values["squash"])


def _values(sent: Mapping[str, str]) -> dict[str, str]:
    return {name: sent.get(name, "") for name in FIELDS}


def _values_of(export: Export) -> dict[str, str]:
    clients = "\n".join(export.clients)
    return {
        "name": export.name,
        "path": export.path or "",
        "clients": clients,
        "squash": export.squash,
    }


def _model(gateway: GovernedGateway, name: str) -> Export:
    """Return an export. Raises NotThere."""
    export = control.found(_exports(gateway), name)
    return control.model(gateway.settings, export)


def _exports(gateway: GovernedGateway) -> ExportService:
    return ExportService(gateway.settings, gateway.database)
