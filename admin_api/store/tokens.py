"""The rows of tokens and of the sessions that were opened with them."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import delete, func, insert, select, update

from admin_api.store import models
from gateway import clock
from gateway.control.tokens import TokenInfo
from gateway.db.compiled import Session, Statement, b

SESSIONS_MAX = 32
"""The sessions of one token: its owner's browsers."""
IN_USE_NS = 7 * 86_400 * clock.NS
"""A token that was used within this time is in use."""
_token: Any = models.Token.__table__
_session: Any = models.Login.__table__


class Token(NamedTuple):
    """A row of ``token``."""

    id: str
    name: str
    role: str
    hash: str
    created_ns: int
    created_by: str
    expires_ns: int | None
    used_ns: int | None
    revoked_ns: int | None

    def is_expired(self, now_ns: int) -> bool:
        """Return whether it has expired by the clock."""
        return self.expires_ns is not None and self.expires_ns <= now_ns


_COLUMNS = tuple(_token.c[name] for name in Token._fields)
_INSERT = Statement(insert(_token).values({name: b(name) for name in Token._fields}))
_ALL = Statement(select(*_COLUMNS).order_by(_token.c.created_ns, _token.c.id))
_NEXT_END = Statement(
    select(func.min(_token.c.expires_ns)).where(
        _token.c.revoked_ns.is_(None), _token.c.expires_ns > b("now"), _token.c.used_ns > b("since")
    )
)
_FIND = Statement(select(*_COLUMNS).where(_token.c.id == b("wanted")))
_REVOKE = Statement(
    update(_token)
    .where(_token.c.id == b("wanted"), _token.c.revoked_ns.is_(None))
    .values(revoked_ns=b("at"))
)
_USE = Statement(update(_token).where(_token.c.id == b("wanted")).values(used_ns=b("at")))
_OPEN = Statement(
    insert(_session).values(
        id=b("session"), token_id=b("token"), created_ns=b("created"), expires_ns=b("expires")
    )
)
_OF_SESSION = Statement(
    select(*_COLUMNS, _session.c.expires_ns)
    .join(_session, _session.c.token_id == _token.c.id)
    .where(_session.c.id == b("session"))
)
_CLOSE = Statement(delete(_session).where(_session.c.id == b("session")))
_newest = (
    select(_session.c.id)
    .where(_session.c.token_id == b("token"))
    .order_by(_session.c.created_ns.desc(), _session.c.id)
    .limit(b("kept"))
)
_CLOSE_OLDEST = Statement(
    delete(_session).where(_session.c.token_id == b("token"), _session.c.id.not_in(_newest))
)
_CLOSE_ALL = Statement(delete(_session).where(_session.c.token_id == b("wanted")))


def model(token: Token) -> TokenInfo:
    """Return what people and programs are told of a token."""
    state = "expired" if token.is_expired(clock.now_ns()) else "valid"
    return TokenInfo(
        id=token.id,
        name=token.name,
        role=token.role,
        state=state if token.revoked_ns is None else "revoked",
        created=clock.iso(token.created_ns),
        created_by=token.created_by,
        expires=None if token.expires_ns is None else clock.iso(token.expires_ns),
        last_used=None if token.used_ns is None else clock.iso(token.used_ns),
        revoked=None if token.revoked_ns is None else clock.iso(token.revoked_ns),
    )


def add(session: Session, token: Token) -> None:
    """Add a token."""
    session.run(_INSERT, **token._asdict())


def every(session: Session) -> list[Token]:
    """Return all tokens, also those that ended, the oldest first."""
    return [Token(*row) for row in session.all(_ALL)]


def find(session: Session, token_id: str) -> Token | None:
    """Return the token with an id."""
    row = session.one(_FIND, wanted=token_id)
    return None if row is None else Token(*row)


def next_end_ns(session: Session) -> int | None:
    """Return when the first of the valid tokens ends that are in use, or None."""
    now_ns = clock.now_ns()
    row = session.one(_NEXT_END, now=now_ns, since=now_ns - IN_USE_NS)
    return None if row is None else row[0]


def revoke(session: Session, token_id: str, at_ns: int) -> Token | None:
    """End a token and its sessions. Returns it as it is now, or None without such a token."""
    session.run(_REVOKE, wanted=token_id, at=at_ns)
    session.run(_CLOSE_ALL, wanted=token_id)
    return find(session, token_id)


def used(session: Session, token_id: str, at_ns: int) -> None:
    """Note the last use of a token."""
    session.run(_USE, wanted=token_id, at=at_ns)


def open_session(
    session: Session, session_id: str, token_id: str, created_ns: int, expires_ns: int
) -> None:
    """Add a session of a token. Of too many the oldest ends."""
    session.run(_CLOSE_OLDEST, token=token_id, kept=SESSIONS_MAX - 1)
    session.run(_OPEN, session=session_id, token=token_id, created=created_ns, expires=expires_ns)


def of_session(session: Session, session_id: str) -> tuple[Token, int] | None:
    """Return the token of a session, and when the session ends."""
    row = session.one(_OF_SESSION, session=session_id)
    return None if row is None else (Token(*row[:-1]), row[-1])


def close_session(session: Session, session_id: str) -> bool:
    """Remove a session. Returns whether it was there."""
    return bool(session.run(_CLOSE, session=session_id))
