"""Remembers which checksum a store verifies.

A person may name the checksum (``bucket.checksum``). Otherwise the store is asked once: by the
drain before its first upload, or by ``spillway bucket setup``.
"""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from gateway import clock
from gateway.db.compiled import Session, Statement, b
from gateway.db.statements import endpoint
from gateway.objectstore.checksums import Kind
from gateway.settings import CHECKSUM_AUTO, BucketSettings

ENDPOINT = Statement(
    select(endpoint.c.checksum).where(endpoint.c.url == b("url"), endpoint.c.bucket == b("bucket"))
)
ENDPOINT_INSERT = Statement(insert(endpoint))
ENDPOINT_DELETE = Statement(
    delete(endpoint).where(endpoint.c.url == b("the_url"), endpoint.c.bucket == b("the_bucket"))
)


def configured(bucket: BucketSettings) -> Kind | None:
    """Return the checksum that a person chose, or None if the store is to be asked."""
    return None if bucket.checksum == CHECKSUM_AUTO else Kind(bucket.checksum)


def known(session: Session, bucket: BucketSettings) -> Kind | None:
    """Return the checksum for a store, or None if the store was not asked yet or its answers did
    not tell."""
    if (chosen := configured(bucket)) is not None:
        return chosen
    row = session.one(ENDPOINT, url=bucket.endpoint_url, bucket=bucket.name)
    return None if row is None else Kind(row[0])


def remember(session: Session, bucket: BucketSettings, kind: Kind) -> None:
    """Record the kind of checksum that a store was found to verify."""
    session.run(ENDPOINT_DELETE, the_url=bucket.endpoint_url, the_bucket=bucket.name)
    session.run(
        ENDPOINT_INSERT,
        url=bucket.endpoint_url,
        bucket=bucket.name,
        checksum=kind.value,
        asked_ns=clock.now_ns(),
    )
