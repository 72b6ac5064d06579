"""Service for the tokens of the admin API, which say who its callers are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.common.errors import NotThere
from gateway.common.models import Model, Nanoseconds
from gateway.common.text import shown


@dataclass(frozen=True, slots=True)
class TokenInfo(Model):
    """A token, without its secret."""

    id: str = field(metadata={"examples": ["0123456789ab"]})
    name: str = field(metadata={"examples": ["ci"]})
    role: str = field(metadata={"examples": ["operator"]})
    """viewer, operator or admin."""
    state: str = field(metadata={"examples": ["valid"]})
    """valid, expired or revoked."""
    created_ns: Nanoseconds
    created_by: str
    expires_ns: Nanoseconds | None
    """None: it does not expire."""
    last_used_ns: Nanoseconds | None
    """The last use, to the minute."""
    revoked_ns: Nanoseconds | None


@dataclass(frozen=True, slots=True)
class MadeToken(Model):
    """A token that was just made."""

    token: TokenInfo
    secret: str = field(metadata={"examples": ["spw_0123456789ab_..."]})
    """What its owner sends. It is shown this once."""


@dataclass(frozen=True, slots=True)
class AddedToken(TokenInfo):
    """A token whose secret was made elsewhere."""

    changed: bool
    """False: it was there already."""


@dataclass(frozen=True, slots=True)
class Caller(Model):
    """Whose token a call is made with."""

    name: str
    role: str
    token_id: str


class Tokens(Protocol):
    """The tokens of the admin API. Methods that take an id raise NotThere."""

    def every(self) -> Iterable[TokenInfo]:
        """Return the tokens, also those that ended, the oldest first."""

    def create(self, name: str, role: str, life_seconds: float | None) -> MadeToken:
        """Make a token. Args: name, for people; life_seconds, after which it ends, or None."""

    def add(self, name: str, token_id: str, hashed: str) -> AddedToken:
        """Add an admin's token whose secret was made elsewhere. Args: hashed, the secret's hash."""

    def revoke(self, token_id: str) -> TokenInfo:
        """End a token and its sessions at once."""

    def whoami(self) -> Caller:
        """Return whose token is used."""


def missing(token_id: str) -> NotThere:
    """Return the error of a token that there is not."""
    return NotThere(f"there is no token {shown(token_id)}: see spillway token list")
