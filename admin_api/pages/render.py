"""Rendering of pages from templates, with the visitor, the colours, and the message of an order.

An order leaves one sentence for the page that follows it, in a cookie that is read once. The
colours are a cookie of the browser too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from admin_api.access import sessions
from admin_api.access.principal import Principal, Role
from admin_api.audit import RequestRecord
from admin_api.jobs.rows import JobRow
from admin_api.problems import Problem, ProblemCode
from gateway.catalogue.display_state import MEANING
from gateway.common import clock, units
from gateway.common.text import bytes_of, display, shown

_COOKIE = "spillway_said"
_KINDS = ("ok", "info", "warn", "bad")
_MOST = 1000
"""Browsers refuse cookies of more than 4 KiB, and a quoted letter may take nine."""


class Message(NamedTuple):
    """What is shown above the next page."""

    kind: str
    text: str


def after(path: str, kind: str, text: str) -> RedirectResponse:
    """Return the answer to an order: the browser goes to a page, which says what happened.

    Args:
        path: path of the page.
        kind: ok, info, warn or bad.
        text: one sentence.
    """
    response = RedirectResponse(path, 303)
    value = quote(f"{kind}:{text[:_MOST]}"[: 3 * _MOST])[:3500]
    response.set_cookie(_COOKIE, value, max_age=60, httponly=True, samesite="strict", path="/")
    return response


def begun(call: RequestRecord, row: JobRow, text: str) -> RedirectResponse:
    """Return the answer to an order that began a job: the browser goes to the jobs.

    Args:
        text: what it does.
    """
    call.after = {"job": row.id, "kind": row.kind, "arguments": json.loads(row.arguments)}
    return after("/jobs", "info", f"{text}. This page shows how far it is.")


def read(request: Request) -> Message | None:
    """Return what the order before this page said."""
    kind, _, text = unquote(request.cookies.get(_COOKIE, "")).partition(":")
    return Message(kind, text) if kind in _KINDS and text else None


def clear(response: Response) -> None:
    """Have the browser forget it."""
    response.delete_cookie(_COOKIE, path="/")


STATIC = Path(__file__).parent / "static"
THEME = "theme"
"""The cookie with the colours that a person chose: light or dark. None: as the system says."""
THEMES = ("light", "dark")

NAVIGATION = (
    (
        "Watch",
        (
            ("dashboard", "Dashboard", "/"),
            ("checkpoints", "Checkpoints", "/checkpoints"),
            ("files", "Files", "/files"),
            ("queue", "Queue", "/queue"),
            ("clients", "Clients", "/clients"),
            ("recovery", "Recovery", "/recovery"),
        ),
    ),
    (
        "Keep",
        (
            ("policies", "Policies", "/policies"),
            ("promotions", "Promotions", "/promotions"),
            ("trash", "Trash", "/trash"),
        ),
    ),
    (
        "Govern",
        (
            ("exports", "Exports", "/exports"),
            ("jobs", "Jobs", "/jobs"),
            ("audit", "Audit", "/audit"),
            ("settings", "Settings", "/settings"),
        ),
    ),
)

LOCALTIME = Path("/etc/localtime")


def page(
    request: Request, template: str, who: Principal | None, status: int = 200, **facts: Any
) -> HTMLResponse:
    """Return a page.

    Args:
        template: its file.
        who: is logged in.
        status: status of HTTP.
        facts: that the template shows.
    """
    theme = request.cookies.get(THEME)
    message = read(request)
    text = (
        _environment()
        .get_template(template)
        .render(
            who=who,
            may_operate=who is not None and who.role >= Role.OPERATOR,
            may_govern=who is not None and who.role >= Role.ADMIN,
            csrf=sessions.csrf_of(request),
            theme=theme if theme in THEMES else None,
            flash=message,
            back=_address(request),
            at=request.url.path,
            gateway=request.app.state.gateway.settings.name,
            navigation=NAVIGATION,
            **{"here": template.partition(".")[0], **facts},
        )
    )
    response = HTMLResponse(text, status, {"Cache-Control": "no-store"})
    if message is not None:
        clear(response)
    return response


def _address(request: Request) -> str:
    """Return the address to which a person comes back: of the page, or of the list of what an order
    was about. An order itself has no page."""
    path = request.url.path
    if request.method != "GET":
        first = path.split("/")[1]
        return {"policy": "/policies", "logout": "/"}.get(first, f"/{first}")
    return path + (f"?{request.url.query}" if request.url.query else "")


@cache
def static(name: str) -> str:
    """Return the address of a static file. It changes with its content, so that no browser keeps an
    old one."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()
    return f"/static/{name}?v={digest[:12]}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("admin_api.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_visible,
    )
    made.filters |= {
        "size": _size,
        "rate": _rate,
        "duration": _duration,
        "plain": lambda number: f"{number:g}",
        "count": lambda number: f"{number:,}",
        "percent": lambda share: f"{100 * share:.0f} %",
        "when": _when,
        "iso": _iso,
        "capitalize_first": _sentence,
        "meaning": MEANING.__getitem__,
        "name": lambda path: path.rpartition("/")[2] or path,
        "above": lambda path: path.rpartition("/")[0] or "/",
        "plural": _plural,
        "display": display,
    }
    made.globals |= {"static": static, "zone": _zone, "place": _place}
    return made


def _sentence(text: str) -> str:
    """Begin a message as a sentence. What begins with a name, a path or a key of a setting keeps
    it as it is."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def _visible(value: Any) -> Any:
    """Escape characters that are not seen, in all text that a page shows: those of the direction of
    writing would have a person read another order than the one that is there."""
    if type(value) is not str or value.isprintable():
        return value
    return "".join(c if c in "\n\t" else shown(c) for c in value)


def _size(size_bytes: float) -> Markup:
    """Show bytes so that the number and its unit stay on one line."""
    number, _, unit = units.size(size_bytes).partition(" ")
    return escape(number) + Markup("&nbsp;") + escape(unit)


def _duration(seconds: float) -> Markup:
    """Show a duration. A whole number of minutes has no tenth."""
    number, _, unit = units.duration(seconds).partition(" ")
    return escape(number.removesuffix(".0")) + Markup("&nbsp;") + escape(unit)


def _plural(number: int, noun: str, nouns: str = "") -> str:
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def _rate(bytes_per_second: float) -> Markup:
    return _size(bytes_per_second) + Markup("/s")


def _moment(value: int) -> datetime:
    """Return a moment of a model in the gateway's time zone."""
    return datetime.fromtimestamp(value / clock.NS).astimezone()


def _zone() -> str:
    """Return the name of the gateway's time zone, in which pages show times."""
    return datetime.now().astimezone().tzname() or ""


def _place() -> str:
    """Return the gateway's time zone as a browser takes it: by its name, which knows of summers, or
    by what it is ahead of UTC now."""
    name = os.environ.get("TZ") or str(LOCALTIME.resolve()).partition("/zoneinfo/")[2]
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        ahead = datetime.now().astimezone().strftime("%z")
        return f"{ahead[:3]}:{ahead[3:5]}"


def _when(value: int) -> str:
    return _moment(value).strftime("%Y-%m-%d %H:%M")


def _iso(value: int) -> str:
    return _moment(value).isoformat(timespec="seconds")


async def _sent(request: Request) -> Mapping[str, str]:
    form = await request.form()
    sent = {name: value for name, value in form.items() if isinstance(value, str)}
    for name, value in sent.items():
        if "\0" in value:
            raise Problem(
                ProblemCode.INVALID_REQUEST,
                f"{name}: it has a NUL character, which no database keeps",
            )
    return sent


Sent = Annotated[Mapping[str, str], Depends(_sent)]
"""The parameter of a view that takes a form: its values by name."""


def number_in(sent: Mapping[str, str], name: str) -> int:
    """Return a whole number of a form, or 0 if there is none."""
    text = sent.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 18 else 0


def path_in(text: str) -> str:
    """Return a path as ``gateway.service`` takes it.

    Raises Problem.

    Args:
        text: text with %XX (gateway.common.text).
    """
    try:
        raw = bytes_of(text)
    except UnicodeEncodeError:
        raise Problem(
            ProblemCode.INVALID_REQUEST, "half a surrogate pair is no character: write bytes as %XX"
        ) from None
    if b"\0" in raw:
        raise Problem(ProblemCode.INVALID_REQUEST, "a path has no NUL byte")
    return os.fsdecode(raw)


def local(address: str) -> str:
    """Return an address if it is one of this site, and the dashboard's otherwise."""
    is_local = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_local and address.isprintable() else "/"


router = APIRouter()
_YEAR_SECONDS = 365 * 86_400


@router.post("/theme")
def choose(theme: Annotated[str, Form()], back: Annotated[str, Form()] = "/") -> RedirectResponse:
    """Keep the colours that a person chose. Anything but light and dark: what the system says."""
    response = RedirectResponse(local(back), 303)
    if theme in THEMES:
        response.set_cookie(THEME, theme, _YEAR_SECONDS, samesite="lax", httponly=True)
    else:
        response.delete_cookie(THEME)
    return response
