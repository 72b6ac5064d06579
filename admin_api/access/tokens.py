"""Makes tokens and verifies them: ``spw_<id>_<secret>``.

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

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError

from admin_api.access.known import Known
from admin_api.access.limiter import Limiter, origin_of
from admin_api.access.principal import Principal, Role
from admin_api.store import tokens
from admin_api.store.tokens import Token
from gateway import adminsettings, clock
from gateway.control.tokens import AddedToken, Caller, MadeToken, TokenInfo, missing
from gateway.db.compiled import Session
from gateway.db.engine import Database
from gateway.errors import NamespaceError, SpillwayError, UserError
from gateway.serialize import values_of
from gateway.text import shown

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


class Refused(SpillwayError):
    """A token is not valid. The message is one line, and has nothing of the token."""


class MustWait(SpillwayError):
    """Too many tokens from an address were wrong. Parameters: seconds until the next try."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many wrong tokens from this address: wait for {seconds} s")
        self.seconds = seconds


def create(
    session: Session, name: str, role: Role, expires_ns: int | None, by: str
) -> tuple[Token, str]:
    """Make and add a token. Parameters, result and errors as of ``made``."""
    token, text = made(name, role, expires_ns, by)
    tokens.add(session, token)
    return token, text


def made(name: str, role: Role, expires_ns: int | None, by: str) -> tuple[Token, str]:
    """Make a token. Returns its row, and the text that its owner sends, which is not kept.

    Parameters: name, for people; expires_ns, or None; by, who asked for it. Raises UserError if it
    would last for longer than a calendar can say.
    """
    now_ns = clock.now_ns()
    if expires_ns is not None and expires_ns - now_ns > LIFE_SECONDS_MAX * clock.NS:
        raise UserError("a token lasts for 100 years at most: let it expire earlier, or never")
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    token = Token(
        *(token_id, name, role.word, _HASHER.hash(secret), now_ns, by, expires_ns),
        *(None, None),
    )
    return token, f"spw_{token_id}_{secret}"


def prepared(name: str, token_id: str, hashed: str, by: str) -> Token:
    """Return the row of an admin's token that was made elsewhere. Raises UserError if id or hash
    have not the form of ours."""
    for problem in (adminsettings.token_id(token_id), adminsettings.token_hash(hashed)):
        if problem is not None:
            raise UserError(f"the id and the hash of a token {problem}")
    return Token(
        *(token_id, name, Role.ADMIN.word, hashed, clock.now_ns(), by), *(None, None, None)
    )


class LocalTokens:
    """The tokens of this machine's gateway (``gateway.control.tokens.Tokens``).

    Args:
        store: the admin API's own database.
        author: of new tokens, for the record.
    """

    def __init__(self, store: Database, author: str) -> None:
        self._store = store
        self._author = author

    def every(self) -> list[TokenInfo]:
        with self._store.reading() as session:
            return [tokens.model(one) for one in tokens.every(session)]

    def get(self, token_id: str) -> TokenInfo:
        """Return one token. Raises NotThere."""
        with self._store.reading() as session:
            found = tokens.find(session, token_id)
        if found is None:
            raise missing(token_id)
        return tokens.model(found)

    def create(self, name: str, role: str, life_seconds: float | None) -> MadeToken:
        ends = None if life_seconds is None else clock.now_ns() + int(life_seconds * clock.NS)
        with self._store.writing() as session:
            row, text = create(session, shown(name), Role[role.upper()], ends, self._author)
        return MadeToken(tokens.model(row), text)

    def add(self, name: str, token_id: str, hashed: str) -> AddedToken:
        row = prepared(shown(name), token_id, hashed, self._author)
        with self._store.writing() as session:
            known = tokens.find(session, row.id)
            if known is None:
                tokens.add(session, row)
        return AddedToken(**values_of(tokens.model(known or row)), changed=known is None)

    def revoke(self, token_id: str) -> TokenInfo:
        with self._store.writing() as session:
            ended = tokens.revoke(session, token_id, clock.now_ns())
        if ended is None:
            raise missing(token_id)
        return tokens.model(ended)

    def whoami(self) -> Caller:
        raise UserError(
            "a command on the gateway uses no token: spillway --gateway http://127.0.0.1:8780 "
            "token whoami says whose the token is"
        )


class Verifier:
    """Verifies tokens. Parameters: store, the admin API's own database."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self.known = Known()
        """Tokens that were verified, and the sessions of their owners."""
        self._tries = Limiter(TRIES, TRIES_PER_SECOND)
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, str] = OrderedDict()
        """The hash in the row of each token that was verified, by a digest of its text."""
        self._lock = threading.Lock()

    def verify(self, text: str, address: str) -> Principal:
        """Return whose token a text is.

        Parameters: address of the client, in whose name failures are counted. Raises Refused,
        MustWait, TryAgain.
        """
        form, origin = _FORM.fullmatch(text), origin_of(address)
        token = None
        if form is not None:
            with self._store.reading() as session:
                token = tokens.find(session, form[1])
        digest = hashlib.blake2b(text.encode(errors="replace"), key=self._key).digest()
        if token is None or self._remembered.get(digest) != token.hash:
            # One at a time: each hash takes 19 MiB. Who is known passes without a turn.
            with self._lock:
                self._require_turn(origin)
                if form is None or token is None or not _is_of(token, form[2]):
                    self._tries.failed(origin)
                    raise Refused("the token is not valid")
                self._remember(digest, token.hash)
                self.known.add(text)
        # One that has ended is no guess: a program that still sends it must not lock its host out.
        return self.principal(token)

    def principal(self, token: Token) -> Principal:
        """Return whose a token is that was verified, and note its use. Raises Refused if it has
        ended."""
        now_ns = clock.now_ns()
        if token.revoked_ns is not None:
            raise Refused("the token was revoked: ask for another one")
        if token.is_expired(now_ns):
            raise Refused("the token has expired: ask for another one")
        if token.used_ns is None or abs(now_ns - token.used_ns) >= USE_NS:
            try:
                with self._store.writing() as session:
                    tokens.used(session, token.id, now_ns)
            except (NamespaceError, sqlite3.Error) as exc:
                # A full disk must not lock people out who want to see why.
                log.warning("the use of token %s is not noted: %s", token.id, exc)
        return Principal(token.name, Role[token.role.upper()], token.id)

    def _require_turn(self, origin: str) -> None:
        if seconds := self._tries.wait_seconds(origin):
            raise MustWait(seconds)

    def _remember(self, digest: bytes, hashed: str) -> None:
        self._remembered[digest] = hashed
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)


def _is_of(token: Token, secret: str) -> bool:
    try:
        return _HASHER.verify(token.hash, secret)
    except VerificationError:
        return False
