"""Requests of people for whole files on the local disk, and their progress in the hydrator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import BigInteger, and_, bindparam, delete, exists, insert, literal_column, select

from gateway.common import clock
from gateway.db.compiled import Session, Statement, b, given_numbers, numbers_of
from gateway.db.drain_models import HYDRATE
from gateway.db.statements import IS_ABSENT, inode, present_blocks, retry, warm_request
from gateway.namespace.residency import WARM_REQUEST_DELETE

_INOS = given_numbers("inos")
REQUEST_WHOLE = Statement(
    insert(warm_request).from_select(
        ["ino", "asked_ns"],
        select(inode.c.ino, bindparam("now_ns", type_=BigInteger))
        .select_from(_INOS.join(inode, inode.c.ino == _INOS.c.value))
        .where(
            IS_ABSENT,
            inode.c.nlink > 0,
            ~exists().where(warm_request.c.ino == inode.c.ino),
        ),
    )
)
FORGIVE = Statement(
    delete(retry).where(retry.c.work == HYDRATE, retry.c.ino.in_(select(_INOS.c.value)))
)
ASKED = Statement(select(warm_request.c.asked_ns).where(warm_request.c.ino == b("ino")))
LEFT = Statement(
    select(
        inode.c.ino,
        inode.c.size,
        present_blocks.c.block_bytes,
        present_blocks.c.blocks,
        retry.c.error,
    )
    .select_from(
        _INOS.join(inode, inode.c.ino == _INOS.c.value)
        .join(warm_request, warm_request.c.ino == inode.c.ino)
        .outerjoin(
            present_blocks,
            and_(present_blocks.c.ino == inode.c.ino, present_blocks.c.epoch == inode.c.epoch),
        )
        .outerjoin(
            retry,
            and_(retry.c.ino == inode.c.ino, retry.c.work == literal_column(f"'{HYDRATE}'")),
        )
    )
    .where(IS_ABSENT)
)
"""Selects those of some files that are wanted whole and are not yet."""


class AbsentLeft(NamedTuple):
    """An absent file that is wanted whole."""

    ino: int
    missing_bytes: int
    error: str | None
    """Why the last try to fetch it failed, or None."""


def request_whole(session: Session, inos: Iterable[int]) -> None:
    """Record that those of some files that are absent are wanted whole, inside a write
    transaction.

    Failures of earlier tries are forgotten: the person may have restored the objects.
    """
    numbers = numbers_of(inos)
    session.run(REQUEST_WHOLE, inos=numbers, now_ns=clock.now_ns())
    session.run(FORGIVE, inos=numbers)


def restoring(session: Session, ino: int, is_new: bool) -> int:
    """Record that a file is wanted whole whose object is asked back from an archive, inside a write
    transaction: a start of the hydrator finds it by that. Returns since when it is asked back.

    Args:
        is_new: whether it was asked back just now, and not earlier.
    """
    now_ns = clock.now_ns()
    if is_new:
        session.run(WARM_REQUEST_DELETE, the_ino=ino)
    session.run(REQUEST_WHOLE, inos=numbers_of((ino,)), now_ns=now_ns)
    row = session.one(ASKED, ino=ino)
    return now_ns if row is None else int(row[0])


def left(session: Session, inos: Iterable[int]) -> list[AbsentLeft]:
    """Return those of some files that are still wanted and have not arrived."""
    absent_files = {}
    for ino, size, block_bytes, blocks, error in session.all(LEFT, inos=numbers_of(inos)):
        fetched_bytes = (
            0 if blocks is None else int.from_bytes(bytes(blocks)).bit_count() * block_bytes
        )
        absent_files[ino] = AbsentLeft(ino, max(0, size - fetched_bytes), error)
    return list(absent_files.values())
