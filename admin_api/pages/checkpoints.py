"""The checkpoints: runs with their newest ones, lists, and one with all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from admin_api.access.principal import Role
from admin_api.access.roles import Viewer
from admin_api.figures import Figured
from admin_api.gateway import Gateway, Governed
from admin_api.pages.render import page
from admin_api.pages.timeline import Line, line_of
from admin_api.paging import cursor_of, key_of
from admin_api.problems import Problem
from admin_api.shapes import Ino
from gateway.checkpoints.risk import measure
from gateway.checkpoints.shown import CATALOGUED, EXPIRED
from gateway.control import checkpoints, deletion, pins, retention, runs
from gateway.control.checkpoints import Checkpoint, Sort, Wanted
from gateway.db.compiled import Session
from gateway.errors import NotPossible, SpillwayError
from gateway.escapes import bytes_of, text_of
from gateway.namespace import pins as pinned

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
        risks = runs.models(gateway.settings, measure(session))
        risks.sort(key=lambda one: (one.alarm is None, -one.at_risk_seconds, one.run))
        shown = [
            (one, *_newest(gateway, session, one.run)) for one in risks[first : first + RUNS_SHOWN]
        ]
        is_made = checkpoints.is_made(session)
    more = first + RUNS_SHOWN if len(risks) > first + RUNS_SHOWN else None
    return page(
        request, "checkpoints.html", who, runs=shown, count=len(risks), is_made=is_made, more=more
    )


def _newest(gateway: Gateway, session: Session, run: str) -> tuple[Line, list[Checkpoint]]:
    """Return the line of a run, and its newest checkpoints."""
    rows = checkpoints.page(
        session,
        gateway.settings,
        DOTS,
        wanted=Wanted(run=bytes_of(run)),
        sort=Sort.COMPLETE,
        is_descending=True,
    )
    found = [row.model for row in rows]
    return line_of(found), found[:NEWEST]


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
        raise Problem(422, f"there is no state {state}: choose one of the list")
    with gateway.database.reading() as session:
        rows = checkpoints.page(
            session,
            gateway.settings,
            ROWS + 1,
            wanted=Wanted(
                run=_bytes(run) if run else None,
                state=state or None,
                text=_bytes(text) if text else None,
            ),
            sort=sort,
            is_descending=asked.is_descending,
            after=_after(sort, cursor),
        )
        risks = runs.models(gateway.settings, measure(session)) if run else []
    facts: dict[str, Any] = {
        "found": [row.model for row in rows[:ROWS]],
        "next": _cursor(rows[ROWS - 1].key) if len(rows) > ROWS else None,
        "is_first": cursor is None,
        "asked": asked,
        "risk": next((one for one in risks if one.run == run), None),
        "states": (*CATALOGUED, EXPIRED),
        "here": "checkpoints",
    }
    return page(request, "checkpoint-list.html", who, **facts)


def _bytes(text: str) -> bytes:
    try:
        return bytes_of(text)
    except UnicodeEncodeError:
        raise Problem(422, "half a surrogate pair is no character: write bytes as %XX") from None


def _cursor(key: Sequence[Any]) -> str:
    return cursor_of([text_of(one) if isinstance(one, bytes) else one for one in key])


def _after(sort: Sort, cursor: str | None) -> tuple[Any, ...] | None:
    kinds = checkpoints.kinds_of(sort)
    key = key_of(cursor, *(str if kind is bytes else kind for kind in kinds))
    if key is None:
        return None
    return tuple(
        _bytes(one) if kind is bytes else one for one, kind in zip(key, kinds, strict=True)
    )


@router.get("/{ino}")
def one(request: Request, gateway: Governed, who: Viewer, ino: Ino) -> HTMLResponse:
    """Show a checkpoint."""
    with gateway.database.reading() as session:
        found = found_in(gateway, session, ino)
        is_held = pinned.Pins(session).cover(ino)
        copies = checkpoints.promotions(session, ino)
        pin = pins.of(gateway.settings, session, ino)
    place = checkpoints.place(gateway.settings, bytes_of(found.path))
    members = checkpoints.members(gateway.settings, gateway.database, ino, MEMBERS_SHOWN + 1)
    facts: dict[str, Any] = {"one": found, "pin": pin, "is_held": is_held, "copies": copies}
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


def _is_kept(gateway: Gateway, ino: int) -> bool:
    try:
        return why_kept(gateway, ino) is not None
    except (SpillwayError, OSError):
        return True  # it can be shown, and the page that asks says what is wrong


def why_kept(gateway: Gateway, ino: int) -> str | None:
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
        found = found_in(gateway, session, ino)
    plan = retention.model(gateway.settings, figures.plan(), bytes_of(found.run))
    mine = next((other for other in plan.checkpoints if other.path == found.path), None)
    return page(request, "checkpoint-fate.html", who, one=found, fate=mine, here="checkpoints")


def found_in(gateway: Gateway, session: Session, ino: int) -> Checkpoint:
    """Return a checkpoint. Raises Problem if there is none."""
    found = checkpoints.one(session, gateway.settings, ino)
    if found is None:
        raise Problem(404, "this checkpoint is not there any more: look for it in the trash")
    return found
