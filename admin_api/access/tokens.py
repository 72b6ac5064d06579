"""Tokens, ``spw_<id>_<secret>``: made, verified, and kept as rows with the sessions opened by them.

The secret has 256 random bits. It is shown once, and only its Argon2id hash is kept. A token that
was verified is remembered in memory, because the hash costs a hundred times a request. Its row is
read for each request nevertheless, so it ends at once when it is revoked, also by another process.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import sqlite3
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from sqlalchemy import delete, func, insert, select, update

from admin_api import store
from admin_api.access.principal import Limiter, Principal, Role, VerifiedSecrets, origin_of
from gateway.common import clock
from gateway.common.errors import NamespaceError, SpillwayError, UserError
from gateway.common.models import values_of
from gateway.common.text import shown
from gateway.config import settings
from gateway.db.compiled import Session, Statement, b
from gateway.db.engine import Database
from gateway.service.tokens import AddedToken, Caller, MadeToken, TokenInfo, missing

SESSIONS_MAX = 32
"""The sessions of one token: its owner's browsers."""
IN_USE_NS = 7 * 86_400 * clock.NS
"""A token that was used within this time is in use."""
_token: Any = store.TokenTable.__table__
_session: Any = store.LoginTable.__table__


class TokenRow(NamedTuple):
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


_COLUMNS = tuple(_token.c[name] for name in TokenRow._fields)
_INSERT = Statement(insert(_token).values({name: b(name) for name in TokenRow._fields}))
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


def model(token: TokenRow) -> TokenInfo:
    """Return what people and programs are told of a token."""
    state = "expired" if token.is_expired(clock.now_ns()) else "valid"
    return TokenInfo(
        id=token.id,
        name=token.name,
        role=token.role,
        state=state if token.revoked_ns is None else "revoked",
        created_ns=token.created_ns,
        created_by=token.created_by,
        expires_ns=token.expires_ns,
        last_used_ns=token.used_ns,
        revoked_ns=token.revoked_ns,
    )


def add(session: Session, token: TokenRow) -> None:
    """Add a token."""
    session.run(_INSERT, **token._asdict())


def every(session: Session) -> list[TokenRow]:
    """Return all tokens, also those that ended, the oldest first."""
    return [TokenRow(*row) for row in session.all(_ALL)]


def find(session: Session, token_id: str) -> TokenRow | None:
    """Return the token with an id."""
    row = session.one(_FIND, wanted=token_id)
    return None if row is None else TokenRow(*row)


def next_end_ns(session: Session) -> int | None:
    """Return when the first of the valid tokens ends that are in use, or None."""
    now_ns = clock.now_ns()
    row = session.one(_NEXT_END, now=now_ns, since=now_ns - IN_USE_NS)
    return None if row is None else row[0]


def revoke(session: Session, token_id: str, at_ns: int) -> TokenRow | None:
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


def of_session(session: Session, session_id: str) -> tuple[TokenRow, int] | None:
    """Return the token of a session, and when the session ends."""
    row = session.one(_OF_SESSION, session=session_id)
    return None if row is None else (TokenRow(*row[:-1]), row[-1])


def close_session(session: Session, session_id: str) -> bool:
    """Remove a session. Returns whether it was there."""
    return bool(session.run(_CLOSE, session=session_id))


log = logging.getLogger("admin")

TRIES = 10
"""The wrong tokens that one address may send at once."""
TRIES_PER_SECOND = 1 / 6
REMEMBERED_MAX = 1024
USE_NS = 60 * clock.NS
"""The last use of a token is noted so often."""

LIFE_SECONDS = 90 * 86_400
"""The life of a token if no other is asked for."""
LIFE_SECONDS_MAX = 100 * 366 * 86_400

_FORM = re.compile("spw_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
"""The least that OWASP advises for passwords. The secret is random, so it cannot be guessed."""


class InvalidToken(SpillwayError):
    """A token is not valid. The message is one line, and has nothing of the token."""


class MustWait(SpillwayError):
    """Too many tokens from an address were wrong.

    Args:
        seconds: until the next try.
    """

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many wrong tokens from this address: wait for {seconds} s")
        self.seconds = seconds


def create(
    session: Session, name: str, role: Role, expires_ns: int | None, by: str
) -> tuple[TokenRow, str]:
    """Make and add a token. Parameters, result and errors as of ``made``."""
    token, text = made(name, role, expires_ns, by)
    add(session, token)
    return token, text


def made(name: str, role: Role, expires_ns: int | None, by: str) -> tuple[TokenRow, str]:
    """Make a token. Returns its row, and the text that its owner sends, which is not kept.

    Raises UserError if it would last for longer than a calendar can say.

    Args:
        name: for people.
        expires_ns: None if there is none.
        by: who asked for it.
    """
    now_ns = clock.now_ns()
    if expires_ns is not None and expires_ns - now_ns > LIFE_SECONDS_MAX * clock.NS:
        raise UserError("a token lasts for 100 years at most: let it expire earlier, or never")
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    token = TokenRow(
        *(token_id, name, role.word, _HASHER.hash(secret), now_ns, by, expires_ns),
        *(None, None),
    )
    return token, f"spw_{token_id}_{secret}"


def prepared(name: str, token_id: str, hashed: str, by: str) -> TokenRow:
    """Return the row of an admin's token that was made elsewhere. Raises UserError if id or hash
    have not the form of ours."""
    for problem in (settings.token_id(token_id), settings.token_hash(hashed)):
        if problem is not None:
            raise UserError(f"the id and the hash of a token {problem}")
    return TokenRow(
        *(token_id, name, Role.ADMIN.word, hashed, clock.now_ns(), by), *(None, None, None)
    )


class LocalTokens:
    """The tokens of this machine's gateway (``gateway.service.tokens.Tokens``).

    Args:
        store: the admin API's own database.
        author: of new tokens, for the record.
    """

    def __init__(self, store: Database, author: str) -> None:
        self._store = store
        self._author = author

    def every(self) -> list[TokenInfo]:
        with self._store.reading() as session:
            return [model(row) for row in every(session)]

    def get(self, token_id: str) -> TokenInfo:
        """Return one token. Raises NotThere."""
        with self._store.reading() as session:
            row = find(session, token_id)
        if row is None:
            raise missing(token_id)
        return model(row)

    def create(self, name: str, role: str, life_seconds: float | None) -> MadeToken:
        ends = None if life_seconds is None else clock.now_ns() + int(life_seconds * clock.NS)
        with self._store.writing() as session:
            row, text = create(session, shown(name), Role[role.upper()], ends, self._author)
        return MadeToken(model(row), text)

    def add(self, name: str, token_id: str, hashed: str) -> AddedToken:
        row = prepared(shown(name), token_id, hashed, self._author)
        with self._store.writing() as session:
            known = find(session, row.id)
            if known is None:
                add(session, row)
        return AddedToken(**values_of(model(known or row)), changed=known is None)

    def revoke(self, token_id: str) -> TokenInfo:
        with self._store.writing() as session:
            ended = revoke(session, token_id, clock.now_ns())
        if ended is None:
            raise missing(token_id)
        return model(ended)

    def whoami(self) -> Caller:
        raise UserError(
            "a command on the gateway uses no token: spillway --gateway http://127.0.0.1:8780 "
            "token whoami says whose the token is"
        )


class Verifier:
    """Verifies tokens.

    Args:
        store: the admin API's own database.
    """

    def __init__(self, store: Database) -> None:
        self._store = store
        self.known = VerifiedSecrets()
        """Tokens that were verified, and the sessions of their owners."""
        self._tries = Limiter(TRIES, TRIES_PER_SECOND)
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, str] = OrderedDict()
        """The hash in the row of each token that was verified, by a digest of its text."""
        self._lock = threading.Lock()

    def verify(self, text: str, address: str) -> Principal:
        """Return whose token a text is.

        Raises Refused, MustWait, TryAgain.

        Args:
            address: address of the client, in whose name failures are counted.
        """
        form, origin = _FORM.fullmatch(text), origin_of(address)
        token = None
        if form is not None:
            with self._store.reading() as session:
                token = find(session, form[1])
        digest = hashlib.blake2b(text.encode(errors="replace"), key=self._key).digest()
        if token is None or self._remembered.get(digest) != token.hash:
            # One at a time: each hash takes 19 MiB. Who is known passes without a slot.
            with self._lock:
                self._require_slot(origin)
                if form is None or token is None or not _is_of(token, form[2]):
                    self._tries.failed(origin)
                    raise InvalidToken("the token is not valid")
                self._remember(digest, token.hash)
                self.known.add(text)
        # One that has ended is no guess: a program that still sends it must not lock its host out.
        return self.principal(token)

    def principal(self, token: TokenRow) -> Principal:
        """Return whose a token is that was verified, and note its use. Raises Refused if it has
        ended."""
        now_ns = clock.now_ns()
        if token.revoked_ns is not None:
            raise InvalidToken("the token was revoked: ask for another one")
        if token.is_expired(now_ns):
            raise InvalidToken("the token has expired: ask for another one")
        if token.used_ns is None or abs(now_ns - token.used_ns) >= USE_NS:
            try:
                with self._store.writing() as session:
                    used(session, token.id, now_ns)
            except (NamespaceError, sqlite3.Error) as exc:
                # A full disk must not lock people out who want to see why.
                log.warning("the use of token %s is not noted: %s", token.id, exc)
        return Principal(token.name, Role[token.role.upper()], token.id)

    def _require_slot(self, origin: str) -> None:
        if seconds := self._tries.wait_seconds(origin):
            raise MustWait(seconds)

    def _remember(self, digest: bytes, hashed: str) -> None:
        self._remembered[digest] = hashed
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)


def _is_of(token: TokenRow, secret: str) -> bool:
    try:
        return _HASHER.verify(token.hash, secret)
    except VerificationError:
        return False
