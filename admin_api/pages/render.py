"""Makes a page of a template and the facts that it shows."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from admin_api.access import sessions
from admin_api.access.principal import Principal, Role
from admin_api.pages import flash
from gateway import clock, units
from gateway.checkpoints.shown import MEANING
from gateway.escapes import display
from gateway.text import shown

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

    Parameters: template, its file; who is logged in; status of HTTP; facts that the template shows.
    """
    theme = request.cookies.get(THEME)
    message = flash.read(request)
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
            navigation=NAVIGATION,
            **{"here": template.partition(".")[0], **facts},
        )
    )
    response = HTMLResponse(text, status, {"Cache-Control": "no-store"})
    if message is not None:
        flash.clear(response)
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


def _moment(value: int | str) -> datetime:
    """Return a moment of facts, which have ISO 8601 or nanoseconds, in the gateway's time zone."""
    if isinstance(value, str):
        return datetime.fromisoformat(value).astimezone()
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


def _when(value: int | str) -> str:
    return _moment(value).strftime("%Y-%m-%d %H:%M")


def _iso(value: int | str) -> str:
    return _moment(value).isoformat(timespec="seconds")
