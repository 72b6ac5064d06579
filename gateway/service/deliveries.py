"""Service for what the gateway delivers to others: events to webhooks, and the audit log.

The process of the admin API delivers, and reports how far each receiver is. The report of a process
that ended tells what waits for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.common.models import Model
from gateway.common.text import shown
from gateway.common.units import duration
from gateway.config import datadir
from gateway.config.settings import Settings
from gateway.service.reports import age_seconds

AUDIT = "audit_export"
LATE_SECONDS = 3600.0
DROPPED_SECONDS = 86_400.0
"""For so long after events were dropped, a person must know it."""


@dataclass(frozen=True, slots=True)
class DeliveryStatus(Model):
    """How far a receiver is."""

    waiting: int
    """The events or entries that it does not have yet."""
    age_seconds: float | None = field(metadata={"examples": [12.5]})
    """Time since the first of them happened. None: none waits."""
    dropped: int
    """The events that it never gets, because too many waited."""
    is_dropping: bool
    """Whether some were dropped in the last 24 hours."""
    is_late: bool
    """Whether something waits for over an hour, or the receiver wants nothing more."""
    error: str = field(metadata={"examples": ["it answers 503"]})
    """Why it did not take the last one. Empty: it did."""


def gather(settings: Settings) -> dict[str, DeliveryStatus]:
    """Return how far each receiver of the configuration is, by its name."""
    report = datadir.read(settings, datadir.DELIVERIES) or {}
    names = [table["name"] for table in settings.webhooks.receiver]
    if settings.admin.audit_export:
        names.append(AUDIT)
    return {name: _status(report.get(name)) for name in names}


def _status(found: Any) -> DeliveryStatus:
    reported: Mapping[str, Any] = found if isinstance(found, dict) else {}
    age = age_seconds(reported.get("oldest_ns"))
    dropped_ago = age_seconds(reported.get("dropped_ns"))
    return DeliveryStatus(
        waiting=reported.get("waiting", 0),
        age_seconds=age,
        dropped=reported.get("dropped", 0),
        is_dropping=dropped_ago is not None and dropped_ago < DROPPED_SECONDS,
        is_late=bool(reported.get("is_gone")) or (age is not None and age > LATE_SECONDS),
        error=shown(reported.get("error", "")),
    )


def lines(found: Mapping[str, DeliveryStatus]) -> Iterator[str]:
    """Yield a line for each receiver that does not have everything, for people."""
    for name, delivery in found.items():
        texts = []
        if delivery.waiting:
            age = duration(delivery.age_seconds or 0.0)
            texts.append(f"{delivery.waiting:,} wait, the first for {age}")
        if delivery.dropped:
            texts.append(f"{delivery.dropped:,} were dropped")
        if delivery.error:
            texts.append(delivery.error)
        if texts:
            yield f"{name}: {'; '.join(texts)}{' (LATE)' if delivery.is_late else ''}"
