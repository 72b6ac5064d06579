"""Pages of checkpoints and runs, promotions, and the trash.

Each order about one of them has a page of its own, which says what happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from admin_api.access.authentication import Admin, Operator, Viewer
from admin_api.access.principal import Principal, Role
from admin_api.audit import Recorded, RequestRecord
from admin_api.dashboard import Figured
from admin_api.jobs import work as jobs
from admin_api.jobs.runner import JobThreads, Working
from admin_api.pages.dashboard import RunLine, line_of
from admin_api.pages.files import ORDERS
from admin_api.pages.render import Sent, after, begun, number_in, page, path_in
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import Governed, GovernedGateway, Ino, cursor_of, key_of
from gateway.catalogue.display_state import CATALOGUED, EXPIRED
from gateway.catalogue.risk import measure
from gateway.catalogue.store import catalogue_of
from gateway.common.errors import NotPossible, SpillwayError
from gateway.common.text import bytes_of, text_of
from gateway.db.compiled import Session
from gateway.lifecycle.promotion import store
from gateway.lifecycle.trash.trash import Trash
from gateway.namespace import lookup
from gateway.service import checkpoints, deletion, pins, policies, trash
from gateway.service import promotions as control
from gateway.service.checkpoints import Checkpoint, ListFilter, Sort
from gateway.service.trash import LocalTrashBin, Trashed

router = APIRouter(prefix="/checkpoints")

RUNS_SHOWN = 20
DOTS = 40
"""The newest checkpoints of a run that are drawn."""
NEWEST = 4
"""Those of them that are listed."""
ROWS = 50
MEMBERS_SHOWN = 100
"""The files of a checkpoint that its page lists."""


@router.get("")
def show(
    request: Request, gateway: Governed, who: Viewer, first: Annotated[int, Query(ge=0)] = 0
) -> HTMLResponse:
    """Show the runs, those at risk first, each with its newest checkpoints."""
    with gateway.database.reading() as session:
        waiting = checkpoints.waiting_bytes(session)
        risks = checkpoints.models(gateway.settings, measure(session), waiting)
        risks.sort(key=lambda risk: (risk.alarm is None, -risk.at_risk_seconds, risk.run))
        shown = [
            (risk, *_newest(gateway, session, risk.run))
            for risk in risks[first : first + RUNS_SHOWN]
        ]
        is_made = checkpoints.is_made(session)
    more = first + RUNS_SHOWN if len(risks) > first + RUNS_SHOWN else None
    return page(
        request, "checkpoints.html", who, runs=shown, count=len(risks), is_made=is_made, more=more
    )


def _newest(
    gateway: GovernedGateway, session: Session, run: str
) -> tuple[RunLine, list[Checkpoint]]:
    """Return the line of a run, and its newest checkpoints."""
    rows = checkpoints.page(
        session,
        gateway.settings,
        DOTS,
        wanted=ListFilter(run=bytes_of(run)),
        sort=Sort.COMPLETE,
        is_descending=True,
    )
    models = [row.model for row in rows]
    return line_of(models), models[:NEWEST]


class _Asked(NamedTuple):
    """What a list is asked for, as its address says it. Empty: any."""

    run: str
    state: str
    text: str
    sort: Sort
    is_descending: bool

    def address(self, **other: Any) -> str:
        """Return the query of the same list with something else."""
        asked = self._replace(**other)
        values = {"run": asked.run, "state": asked.state, "text": asked.text}
        values = {name: value for name, value in values.items() if value}
        if asked.sort is not Sort.COMPLETE or not asked.is_descending:
            values["sort"] = str(asked.sort)
            values["order"] = "down" if asked.is_descending else "up"
        return urlencode(values)

    def turned(self, sort: Sort) -> str:
        """Return the query of the list in another order, or in the same one turned round."""
        is_descending = not self.is_descending if sort is self.sort else sort is not Sort.RUN
        return self.address(sort=sort, is_descending=is_descending)


@router.get("/list")
def listing(
    request: Request,
    gateway: Governed,
    who: Viewer,
    run: str = "",
    state: str = "",
    text: str = "",
    sort: Sort = Sort.COMPLETE,
    order: str = "down",
    cursor: str | None = None,
) -> Response:
    """Show a page of checkpoints, of all runs or of one. Expired ones are on the page of the
    trash."""
    asked = _Asked(run, state, text, sort, order == "down")
    if state == EXPIRED:
        return RedirectResponse("/trash", 303)
    if state and state not in CATALOGUED:
        raise Problem(
            ProblemCode.INVALID_REQUEST, f"there is no state {state}: choose one of the list"
        )
    with gateway.database.reading() as session:
        rows = checkpoints.page(
            session,
            gateway.settings,
            ROWS + 1,
            wanted=ListFilter(
                run=_bytes(run) if run else None,
                state=state or None,
                text=_bytes(text) if text else None,
            ),
            sort=sort,
            is_descending=asked.is_descending,
            after=_after(sort, cursor),
        )
        waiting = checkpoints.waiting_bytes(session)
        risks = checkpoints.models(gateway.settings, measure(session), waiting) if run else []
    facts: dict[str, Any] = {
        "found": [row.model for row in rows[:ROWS]],
        "next": _cursor(rows[ROWS - 1].key) if len(rows) > ROWS else None,
        "is_first": cursor is None,
        "asked": asked,
        "risk": next((risk for risk in risks if risk.run == run), None),
        "states": (*CATALOGUED, EXPIRED),
        "here": "checkpoints",
    }
    return page(request, "checkpoint-list.html", who, **facts)


def _bytes(text: str) -> bytes:
    try:
        return bytes_of(text)
    except UnicodeEncodeError:
        raise Problem(
            ProblemCode.INVALID_REQUEST, "half a surrogate pair is no character: write bytes as %XX"
        ) from None


def _cursor(key: Sequence[Any]) -> str:
    return cursor_of([text_of(part) if isinstance(part, bytes) else part for part in key])


def _after(sort: Sort, cursor: str | None) -> tuple[Any, ...] | None:
    kinds = checkpoints.kinds_of(sort)
    key = key_of(cursor, *(str if kind is bytes else kind for kind in kinds))
    if key is None:
        return None
    return tuple(
        _bytes(part) if kind is bytes else part for part, kind in zip(key, kinds, strict=True)
    )


@router.get("/{ino}")
def one(request: Request, gateway: Governed, who: Viewer, ino: Ino) -> HTMLResponse:
    """Show a checkpoint."""
    with gateway.database.reading() as session:
        checkpoint = found_in(gateway, session, ino)
        is_held = lookup.PinLookup(session).cover(ino)
        copies = checkpoints.promotions(session, ino)
        pin = pins.of(gateway.settings, session, ino)
    place = checkpoints.place(gateway.settings, bytes_of(checkpoint.path))
    members = checkpoints.members(gateway.settings, gateway.database, ino, MEMBERS_SHOWN + 1)
    facts: dict[str, Any] = {"one": checkpoint, "pin": pin, "is_held": is_held, "copies": copies}
    return page(
        request,
        "checkpoint.html",
        who,
        **facts,
        place=place,
        members=members[:MEMBERS_SHOWN],
        more_members=len(members) > MEMBERS_SHOWN,
        is_kept=who.role >= Role.ADMIN and _is_kept(gateway, ino),
        here="checkpoints",
    )


def _is_kept(gateway: GovernedGateway, ino: int) -> bool:
    try:
        return why_kept(gateway, ino) is not None
    except (SpillwayError, OSError):
        return True  # it can be shown, and the page that asks says what is wrong


def why_kept(gateway: GovernedGateway, ino: int) -> str | None:
    """Return why a person may not delete a checkpoint without insisting, or None."""
    try:
        deletion.check(gateway.settings, gateway.database, ino, insists=False)
    except NotPossible as exc:
        return str(exc).removesuffix(deletion.INSIST)
    return None


@router.get("/{ino}/fate")
def fate(
    request: Request, gateway: Governed, figures: Figured, who: Viewer, ino: Ino
) -> HTMLResponse:
    """Show what the policies make of a checkpoint now, and why."""
    with gateway.database.reading() as session:
        checkpoint = found_in(gateway, session, ino)
    plan = policies.action_model(gateway.settings, figures.plan(), bytes_of(checkpoint.run))
    mine = next((other for other in plan.checkpoints if other.path == checkpoint.path), None)
    return page(request, "checkpoint-fate.html", who, one=checkpoint, fate=mine, here="checkpoints")


def found_in(gateway: GovernedGateway, session: Session, ino: int) -> Checkpoint:
    """Return a checkpoint. Raises Problem if there is none."""
    checkpoint = checkpoints.one(session, gateway.settings, ino)
    if checkpoint is None:
        raise Problem(
            ProblemCode.MISSING_RESOURCE,
            "this checkpoint is not there any more: look for it in the trash",
        )
    return checkpoint


orders_router = APIRouter(prefix="/checkpoints/{ino}")


@orders_router.get("/pin")
def ask_to_pin(request: Request, gateway: Governed, who: Operator, ino: Ino) -> HTMLResponse:
    """Ask why a checkpoint is pinned."""
    return page(request, "checkpoint-pin.html", who, one=_one(gateway, ino), here="checkpoints")


@orders_router.post("/pin")
def pin(gateway: Governed, call: Recorded, who: Operator, ino: Ino, sent: Sent) -> RedirectResponse:
    """Keep a checkpoint on the local disk and from all policies."""
    with gateway.database.writing() as session:
        checkpoint = found_in(gateway, session, ino)
        note = sent.get("note", "")[:1000]
        call.before = pins.of(gateway.settings, session, ino)
        row = pins.pin(session, lookup.get(session, ino), checkpoint.path, note, who.name)
        call.after = pins.model(gateway.settings, session, row)
    return after(f"/checkpoints/{ino}", "ok", "It is pinned: no policy deletes or evicts it.")


@orders_router.post("/unpin")
def unpin(
    gateway: Governed, call: Recorded, _who: Operator, ino: Ino, _sent: Sent
) -> RedirectResponse:
    """End the pin of a checkpoint."""
    with gateway.database.writing() as session:
        call.before = pins.of(gateway.settings, session, ino)
        pins.unpin(session, ino, found_in(gateway, session, ino).path)
    return after(f"/checkpoints/{ino}", "ok", "It is not pinned any more. Policies hold for it.")


@orders_router.get("/delete")
def ask_to_delete(request: Request, gateway: Governed, who: Admin, ino: Ino) -> HTMLResponse:
    """Show what a deletion does, and which deletion guard it would break."""
    checkpoint, kept = _one(gateway, ino), why_kept(gateway, ino)
    is_possible = kept is None or _may_insist(gateway, ino)
    with gateway.database.reading() as session:
        copies = checkpoints.promotions(session, ino)
    return page(
        request,
        "checkpoint-delete.html",
        who,
        one=checkpoint,
        kept=kept,
        is_possible=is_possible,
        copies=copies,
        grace_seconds=gateway.settings.retention.trash_seconds,
        here="checkpoints",
    )


def _may_insist(gateway: GovernedGateway, ino: int) -> bool:
    try:
        deletion.check(gateway.settings, gateway.database, ino, insists=True)
    except NotPossible:
        return False
    return True


@orders_router.post("/delete")
def delete(gateway: Governed, call: Recorded, who: Admin, ino: Ino, sent: Sent) -> RedirectResponse:
    """Put a checkpoint into the trash, unless it changed since the page that asked was made."""
    call.before = checkpoint = _one(gateway, ino)
    call.after = deletion.delete(
        gateway.settings,
        gateway.database,
        ino,
        author=who.name,
        reason=sent.get("reason", "")[:1000] or "a person deleted it",
        insists=sent.get("insists") == "yes",
        seen=(sent.get("evidence", ""),),
    )
    return after("/trash", "ok", f"{checkpoint.path} is in the trash, and can be restored.")


@orders_router.post("/warm")
def warm(
    gateway: Governed, call: Recorded, runner: Working, who: Operator, ino: Ino, _sent: Sent
) -> RedirectResponse:
    """Begin a job that brings the bytes of a checkpoint to the local disk."""
    return _begin(gateway, call, runner, who, ino, "warm")


@orders_router.post("/evict")
def evict(
    gateway: Governed, call: Recorded, runner: Working, who: Operator, ino: Ino, _sent: Sent
) -> RedirectResponse:
    """Begin a job that frees the local disk of a checkpoint."""
    return _begin(gateway, call, runner, who, ino, "evict")


def _begin(
    gateway: GovernedGateway,
    call: RequestRecord,
    runner: JobThreads,
    who: Principal,
    ino: int,
    order: str,
) -> RedirectResponse:
    path = _one(gateway, ino).path
    kind, text = ORDERS[order]
    row = runner.submit(kind, {"paths": [path], "ino": ino}, who, call.request_id)
    return begun(call, row, f"{text}: {path}")


def _one(gateway: GovernedGateway, ino: int) -> checkpoints.Checkpoint:
    with gateway.database.reading() as session:
        return found_in(gateway, session, ino)


promotions_router = APIRouter()


@promotions_router.get("/promotions")
def show_promotions(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the promotions."""
    with gateway.database.reading() as session:
        promotions = control.every(gateway.settings, session)
    return page(request, "promotions.html", who, found=promotions)


@promotions_router.get("/promotions/{name}/demote")
def ask_to_demote(request: Request, gateway: Governed, who: Admin, name: str) -> HTMLResponse:
    """Ask before a copy is removed."""
    with gateway.database.reading() as session:
        promotion = control.as_is(gateway.settings, session, control.named(session, name))
    return page(request, "promotion-demote.html", who, one=promotion, here="promotions")


@promotions_router.post("/promotions/{name}/demote")
def demote(
    gateway: Governed, call: Recorded, _who: Admin, name: str, _sent: Sent
) -> RedirectResponse:
    """Remove a copy, also from the bucket."""
    with gateway.database.writing() as session:
        before = control.named(session, name)
        call.before = control.as_is(gateway.settings, session, before)
        call.after = control.as_is(
            gateway.settings, session, store.demote(session, before, releases=False)
        )
    return after("/promotions", "ok", f"{name} is being removed.")


@promotions_router.get("/checkpoints/{ino}/promote")
def ask_to_promote(request: Request, gateway: Governed, who: Operator, ino: Ino) -> HTMLResponse:
    """Ask for the name of a copy."""
    with gateway.database.reading() as session:
        checkpoint = found_in(gateway, session, ino)
    why = _reason_against(gateway, ino)
    name = "-".join(part for part in checkpoint.path.split("/")[2:] if part.isprintable())
    return page(
        request,
        "checkpoint-promote.html",
        who,
        one=checkpoint,
        why_not=why,
        name=name,
        here="checkpoints",
    )


@promotions_router.post("/checkpoints/{ino}/promote")
def promote(
    gateway: Governed, call: Recorded, who: Operator, ino: Ino, sent: Sent
) -> RedirectResponse:
    """Record a promotion. The gateway copies by itself."""
    name, note = sent.get("name", "").strip(), sent.get("note", "")[:1000]
    made = control.promote(gateway.settings, gateway.database, ino, name, note, who.name)
    with gateway.database.reading() as session:
        call.after = control.as_is(gateway.settings, session, made)
    text = f"{made.name} is being copied. Nothing is uploaded again."
    return after("/promotions", "ok", text)


def _reason_against(gateway: GovernedGateway, ino: int) -> str | None:
    """Return why a checkpoint cannot be promoted now, or None."""
    try:
        source = control.source_of(catalogue_of(gateway.settings, gateway.database), ino)
        return control.reason_not_ready(source)
    except NotPossible as exc:
        return str(exc)


trash_router = APIRouter(prefix="/trash")


@trash_router.get("")
def show_trash(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show what is in the trash."""
    return _page(request, gateway, who, "trash.html", _every(gateway))


@trash_router.get("/empty")
def ask_to_empty(request: Request, gateway: Governed, who: Admin) -> HTMLResponse:
    """Ask before everything in the trash is removed."""
    entries = [entry for entry in _every(gateway) if not entry.held]
    return _page(request, gateway, who, "trash-remove.html", entries)


@trash_router.post("/empty")
def empty(
    gateway: Governed, call: Recorded, runner: Working, who: Admin, sent: Sent
) -> RedirectResponse:
    """Begin to remove what was in the trash when the page that asked was made."""
    return _remove(gateway, call, runner, who, sent, None)


@trash_router.get("/{trash_id}/remove")
def ask_to_remove(request: Request, gateway: Governed, who: Admin, trash_id: str) -> HTMLResponse:
    """Ask before a checkpoint is removed for good."""
    return _page(request, gateway, who, "trash-remove.html", [_one_trashed(gateway, trash_id)])


@trash_router.post("/{trash_id}/remove")
def remove(
    gateway: Governed, call: Recorded, runner: Working, who: Admin, trash_id: str, sent: Sent
) -> RedirectResponse:
    """Begin to remove a checkpoint for good."""
    call.before = _one_trashed(gateway, trash_id)
    return _remove(gateway, call, runner, who, sent, [trash_id])


@trash_router.get("/{trash_id}/release")
def ask_to_release(request: Request, gateway: Governed, who: Admin, trash_id: str) -> HTMLResponse:
    """Ask before a checkpoint leaves the bucket without a newer one."""
    return page(
        request, "trash-release.html", who, one=_one_trashed(gateway, trash_id), here="trash"
    )


@trash_router.post("/{trash_id}/release")
def release(gateway: Governed, call: Recorded, who: Admin, trash_id: str) -> RedirectResponse:
    """Let a checkpoint leave the bucket without a newer one."""
    call.before = entry = _one_trashed(gateway, trash_id)
    call.after = LocalTrashBin(gateway.settings, gateway.database, who.name).release(trash_id)
    return after("/trash", "ok", f"{entry.path} leaves the bucket within some minutes.")


@trash_router.get("/{trash_id}/undelete")
def ask_to_undelete(
    request: Request, gateway: Governed, who: Operator, trash_id: str
) -> HTMLResponse:
    """Ask for the path to which a checkpoint is taken back."""
    entry = _one_trashed(gateway, trash_id)
    return page(request, "trash-undelete.html", who, one=entry, here="trash")


@trash_router.post("/{trash_id}/undelete")
def undelete(
    gateway: Governed, call: Recorded, who: Operator, trash_id: str, sent: Sent
) -> RedirectResponse:
    """Take a checkpoint back."""
    call.before = _one_trashed(gateway, trash_id)
    to = path_in(sent.get("to", "").strip()) or None
    made = trash.undelete(gateway.settings, _trash(gateway), trash_id, to, by=who.name)
    call.after = made
    return after(
        "/trash", "ok", f"{made.path} is back. Policies hold for it again: a pin keeps it."
    )


def _page(
    request: Request,
    gateway: GovernedGateway,
    who: Principal,
    template: str,
    entries: Sequence[Trashed],
) -> HTMLResponse:
    return page(
        request,
        template,
        who,
        found=entries,
        local_bytes=sum(entry.local_bytes for entry in entries),
        bucket_bytes=sum(entry.bucket_bytes for entry in entries),
        until_ns=_trash(gateway).now_ns(),
        grace_seconds=gateway.settings.retention.trash_seconds,
        here="trash",
    )


def _remove(
    gateway: GovernedGateway,
    call: RequestRecord,
    runner: JobThreads,
    who: Principal,
    sent: Mapping[str, str],
    ids: Sequence[str] | None,
) -> RedirectResponse:
    until_ns = number_in(sent, "until_ns") or _trash(gateway).now_ns()
    row = jobs.empty(runner, who, call, ids, until_ns)
    return begun(call, row, "What was chosen is being removed for good")


def _one_trashed(gateway: GovernedGateway, trash_id: str) -> Trashed:
    kept = _trash(gateway)
    [entry] = trash.model(gateway.settings, kept, [trash.found(kept, trash_id)])
    return entry


def _every(gateway: GovernedGateway) -> list[Trashed]:
    return trash.model(gateway.settings, _trash(gateway))


def _trash(gateway: GovernedGateway) -> Trash:
    return Trash(gateway.settings, gateway.database)
