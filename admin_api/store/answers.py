"""The answers of calls with an Idempotency-Key, which a repetition of the call gets again."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import delete, insert, select, update

from admin_api.store import models
from gateway import clock
from gateway.db.compiled import Session, Statement, b

INTERRUPTED = 0
"""The status of a call in which this process died: it is not known whether it was done."""

_answer: Any = models.Idempotency.__table__


class Answer(NamedTuple):
    """What is known of a call."""

    fingerprint: str
    status: int | None
    """None: it is under way."""
    headers: str | None
    body: bytes | None
    """None: it is not kept."""


_WANTED = (_answer.c.token_id == b("token")) & (_answer.c.key == b("its_key"))
_FIND = Statement(select(*(_answer.c[name] for name in Answer._fields)).where(_WANTED))
_CLAIM = Statement(
    insert(_answer).values(
        token_id=b("token"),
        key=b("its_key"),
        fingerprint=b("print"),
        request_id=b("request"),
        created_ns=b("created"),
    )
)
_KEEP = Statement(
    update(_answer)
    .where(_WANTED)
    .values(status=b("its_status"), headers=b("its_headers"), body=b("its_body"))
)
_FORGET = Statement(delete(_answer).where(_WANTED))
_INTERRUPT = Statement(update(_answer).where(_answer.c.status.is_(None)).values(status=INTERRUPTED))


def find(session: Session, token_id: str, key: str) -> Answer | None:
    """Return what is known of the call with a key."""
    row = session.one(_FIND, token=token_id, its_key=key)
    return None if row is None else Answer(*row)


def claim(session: Session, token_id: str, key: str, fingerprint: str, request_id: str) -> None:
    """Note that the call with a key begins."""
    session.run(
        _CLAIM,
        token=token_id,
        its_key=key,
        print=fingerprint,
        request=request_id,
        created=clock.now_ns(),
    )


def keep(
    session: Session, token_id: str, key: str, status: int, headers: str, body: bytes | None
) -> None:
    """Keep the answer of a call."""
    session.run(
        _KEEP,
        token=token_id,
        its_key=key,
        its_status=status,
        its_headers=headers,
        its_body=body,
    )


def forget(session: Session, token_id: str, key: str) -> None:
    """Have the next call with a key begin again."""
    session.run(_FORGET, token=token_id, its_key=key)


def interrupt(session: Session) -> None:
    """Note at the start of the process that no call is under way."""
    session.run(_INTERRUPT)
