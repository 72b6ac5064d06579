"""The state of the whole gateway."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from admin_api.access.roles import Viewer
from admin_api.figures import Figured
from admin_api.problems import describe

router = APIRouter(prefix="/status", tags=["status"])


class Process(BaseModel):
    """A process of the gateway."""

    alive: bool
    pid: int | None
    phase: str = Field(examples=["ready"])
    restarts: int = 0
    last_exit: str = ""
    running_seconds: float | None = None


class Oldest(BaseModel):
    """The file that has waited longest for the bucket."""

    path: str
    age_seconds: float
    size_bytes: int


class Dirty(BaseModel):
    """What only this gateway has."""

    files: int
    bytes: int
    open_for_writing_files: int
    open_for_writing_bytes: int
    oldest: Oldest | None


class Stuck(BaseModel):
    """A file that needs a person."""

    path: str
    reason: str


class Stucks(BaseModel):
    """The files that need a person."""

    files: int
    first: list[Stuck]


class HeldFile(BaseModel):
    """A file with a name that a hold pattern holds."""

    path: str
    age_seconds: float = Field(description="Since it was closed.")
    size_bytes: int


class Held(BaseModel):
    """What hold patterns have kept from the bucket for over an hour."""

    files: int
    bytes: int
    first: list[HeldFile] = Field(description="The oldest of them.")


class Queued(BaseModel):
    """What the drain has to do about objects."""

    deletions: int
    moves: int


class Unsettled(BaseModel):
    """The objects of files whose request got no answer, so the store may still carry it out. These
    files are not durable until the drain has looked at their keys once more."""

    objects: int
    last_seconds: float | None = Field(
        description="Time until the drain looks at the last of them.", examples=[170.5]
    )


class Configured(BaseModel):
    """The bucket as it is configured. ``/bucket`` tells whether it answers."""

    name: str = Field(examples=["checkpoints"])
    endpoint_url: str
    prefix: str


class Counted(BaseModel):
    """Files and their bytes."""

    files: int
    bytes: int


class Evicting(BaseModel):
    """The shares of the disk between which files are evicted now."""

    above: float
    down_to: float
    used: float
    saved_bytes: int = Field(description="The largest save of the last day: so much is kept free.")
    is_early: bool = Field(description="Whether that makes it begin below `evict_from`.")


class Cache(BaseModel):
    """The local disk as a cache."""

    resident: Counted | None = Field(description="On the disk. None: not counted yet.")
    absent: Counted | None = Field(description="Only in the bucket. None: not counted yet.")
    evicting: Evicting | None = Field(description="None: nothing because of the disk.")
    evict_from: float = Field(description="As configured.")
    evict_to: float
    hydrator: dict[str, Any] | None = Field(description="Its last report.")
    dropped_readers: list[str]


class LostCopy(BaseModel):
    """A local copy that the disk lost."""

    path: str
    reason: str
    age_seconds: float


class LostCopies(BaseModel):
    """Local copies that the disk lost, of files that the bucket has."""

    files: int
    last: LostCopy | None
    is_recent: bool = Field(description="Whether the last was lost in the last 24 hours.")


class Limited(BaseModel):
    """What the NFS server uses of what it may have. Null: not known, as while it does not run."""

    open: int | None
    most: int | None
    near: bool = Field(description="Whether nine of ten are in use.")


class SharedName(BaseModel):
    """A name that clients share: the NFS server takes each for the other, and ends its lease."""

    name: str = Field(examples=["Linux NFSv4.1 node7"])
    addresses: list[str] = Field(examples=[["10.0.0.7", "10.0.0.8"]])
    age_seconds: float = Field(description="Since it was seen last, an hour at most.")


class Disk(BaseModel):
    """The local disk."""

    path: str = Field(examples=["/var/lib/spillway"])
    total_bytes: int
    used_bytes: int
    free_bytes: int
    other_bytes: int | None = Field(
        description="Used, and not by bytes of files. Null before files are counted."
    )
    lost_copies: LostCopies
    has_descriptors: bool = Field(
        description="Whether the NFS server had a descriptor for each file lately."
    )


class Status(BaseModel):
    """The state of the gateway. What ends in _ns is nanoseconds since 1970."""

    healthy: bool = Field(description="Whether no person must act.")
    config: str
    data_dir: str
    processes: dict[str, Process]
    bucket: Configured
    drain: dict[str, Any] | None = Field(description="Its last report.")
    dirty: Dirty
    stuck: Stucks
    held: Held
    queued: Queued
    unsettled: Unsettled
    cache: Cache
    catalogue: dict[str, Any] = Field(description="Runs and checkpoints, and what is at risk.")
    retention: dict[str, Any]
    trash: dict[str, Any]
    promotions: dict[str, int] = Field(description="Their number by state.")
    connections: Limited = Field(
        description="TCP connections of clients. Above `nfs.max_connections` one is closed at once."
    )
    threads: Limited = Field(
        description="Threads that answer calls, of `nfs.threads`, or did in the last half minute."
    )
    descriptors: Limited = Field(
        description="Of the process of the NFS server. Each file that a client has open has one."
    )
    shared_names: list[SharedName]
    disk: Disk
    space: dict[str, Any] | None = Field(description="As the NFS server reported it.")


@router.get("", responses=describe(409, 503))
def read_status(figures: Figured, _viewer: Viewer) -> Status:
    """Read the state of the gateway, as it was a second ago at most. The bucket is not asked."""
    return Status(**figures.status())
