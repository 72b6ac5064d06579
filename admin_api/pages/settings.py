"""Pages of settings: the configuration of the gateway, and the tokens that give access to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from admin_api.access.authentication import Admin, Viewer
from admin_api.access.principal import Role
from admin_api.access.tokens import LocalTokens
from admin_api.audit import Recorded
from admin_api.pages.render import Sent, after, page
from admin_api.problems import Problem, ProblemCode
from admin_api.requests import Governed
from gateway.common.text import shown
from gateway.common.units import size
from gateway.service import configuration
from gateway.service.configuration import Key

router = APIRouter(prefix="/settings")
DAYS_MAX = 36_500


@router.get("")
def show(request: Request, gateway: Governed, who: Viewer) -> HTMLResponse:
    """Show the configuration that this process was started with, without secrets."""
    model = configuration.model(gateway.settings)
    sections = {
        section: [_row(name, key) for name, key in keys.items()]
        for section, keys in model.sections.items()
    }
    return page(request, "settings.html", who, sections=sections, source=model.source)


class SettingLine(NamedTuple):
    """A key of the configuration, for the page."""

    name: str
    key: Key
    value: str
    in_units: str | None
    is_default: bool


def _row(name: str, key: Key) -> SettingLine:
    in_units = size(key.value) if name.endswith("_bytes") and key.value else None
    return SettingLine(name, key, _text(key.value), in_units, key.value == key.default)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_text(part)}" for name, part in value.items()) or "none"
    return str(value) if value != "" else "none"


@router.get("/tokens")
def list_tokens(request: Request, gateway: Governed, who: Admin) -> HTMLResponse:
    """Show the tokens, those that are valid first."""
    return _tokens(request, gateway, who, None)


@router.post("/tokens")
def create_token(
    request: Request, gateway: Governed, who: Admin, call: Recorded, sent: Sent
) -> HTMLResponse:
    """Make a token, and show its secret this once."""
    call.keeps_answer = False
    name, role = shown(sent.get("name", "").strip()), sent.get("role", "")
    if not 1 <= len(name) <= 100:
        raise Problem(ProblemCode.INVALID_REQUEST, "name: it must have 1 to 100 characters")
    if role not in {user_role.word for user_role in Role}:
        raise Problem(ProblemCode.INVALID_REQUEST, "role: choose viewer, operator or admin")
    days = sent.get("days", "").strip()
    if days and not (days.isascii() and days.isdecimal() and 1 <= int(days[:6]) <= DAYS_MAX):
        raise Problem(
            ProblemCode.INVALID_REQUEST,
            f"days: a whole number up to {DAYS_MAX:,}, or empty: it does not expire",
        )
    life_seconds = int(days) * 86_400 if days else None
    made = LocalTokens(gateway.store, who.name).create(name, role, life_seconds)
    call.after = made.token
    return _tokens(request, gateway, who, (name, made.secret))


@router.post("/tokens/{token_id}/revoke")
def revoke_token(
    gateway: Governed, who: Admin, call: Recorded, token_id: str, _sent: Sent
) -> RedirectResponse:
    """End a token and its sessions."""
    tokens = LocalTokens(gateway.store, who.name)
    call.before = tokens.get(token_id)
    call.after = ended = tokens.revoke(token_id)
    return after("/settings/tokens", "ok", f"The token {ended.name} and its sessions have ended.")


def _tokens(
    request: Request, gateway: Governed, who: Admin, made: tuple[str, str] | None
) -> HTMLResponse:
    """Return the page of tokens.

    Args:
        made: name and secret of one that was just made.
    """
    tokens = LocalTokens(gateway.store, who.name).every()
    tokens.sort(key=lambda token: token.state != "valid")
    return page(
        request,
        "tokens.html",
        who,
        tokens=tokens,
        made=made,
        roles=[role.word for role in Role],
        here="settings",
    )
