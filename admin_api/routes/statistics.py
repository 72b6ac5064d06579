"""What the NFS server was asked since its start, and how long that took."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, Field

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.problems import describe
from gateway.door import statistics

router = APIRouter(prefix="/statistics", tags=["status"])


class Histogram(BaseModel):
    """Counts by value."""

    bounds: list[float] = Field(description="Inclusive upper bounds. The last bucket has none.")
    buckets: list[int] = Field(description="One more than bounds. They are not cumulative.")
    sum: float = Field(description="Of all values.")


class Operations(BaseModel):
    """The operations of one kind."""

    latency: Histogram = Field(description="Seconds, of what was answered for good.")
    delayed: int = Field(description='Answered "ask again later".')
    errors: dict[str, int]
    bytes: int = Field(description="That clients read or wrote.")


class Statistics(BaseModel):
    """What the NFS server counted since its start."""

    started_ns: int = Field(description="Another value means that the counts began again.")
    operations: dict[str, Operations]
    commit_sizes: Histogram = Field(description="Changes in a transaction.")
    commit_seconds: Histogram


@router.get("", responses=describe(503))
def read_statistics(gateway: Governed, _viewer: Viewer) -> Statistics:
    """Read the counts. A 503 says that no NFS server answers."""
    return Statistics(**asdict(statistics.read(gateway.settings)))
