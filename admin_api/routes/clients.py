"""The clients of the NFS server: who mounts, what each does, and who has a file open."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, Field

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.paths import decoded
from admin_api.problems import describe
from admin_api.routes.status import SharedName
from admin_api.shapes import PATH_MAX
from gateway.control import clients as control
from gateway.escapes import text_of

router = APIRouter(prefix="/clients", tags=["status"])


class Counts(BaseModel):
    """What the clients of an address did since the start of the NFS server."""

    operations: int = Field(description="That were answered for good.")
    bytes_read: int
    bytes_written: int
    operations_rate: int = Field(description="In a second, of the last 5 seconds or so.")
    read_rate: int = Field(description="Bytes in a second.")
    written_rate: int = Field(description="Bytes in a second.")
    open_reading: int = Field(description="Opens that may read.")
    open_writing: int = Field(description="Opens that may write.")


class Client(Counts):
    """A client that has a lease. What it did is counted by its address."""

    address: str
    name: str = Field(description="What it calls itself.", examples=["Linux NFSv4.1 node7.example"])
    minor_version: int = Field(description="Of NFSv4.", examples=[1])
    seen_seconds: int = Field(description="Since its last request.")


class Open(BaseModel):
    """The opens of a file by one address."""

    path: str
    address: str = Field(description="Empty: it is not known.")
    open_reading: int
    open_writing: int


class Opens(BaseModel):
    """Who has a file open, or what is below a directory."""

    is_whole: bool = Field(description="False: more files are open than were looked at.")
    opens: list[Open]


class Clients(BaseModel):
    """The clients of the NFS server."""

    clients: list[Client]
    others: Counts | None = Field(description="Of the addresses beyond 16,384.")
    shared_names: list[SharedName]
    open: Opens | None = Field(description="None: it was not asked for.")


@router.get("", responses=describe(404, 503))
def read_clients(
    gateway: Governed,
    _viewer: Viewer,
    opened: Annotated[
        str | None,
        Query(
            alias="open",
            min_length=1,
            max_length=PATH_MAX,
            description="Say too who has this file open, or files below this directory.",
            examples=["/checkpoints/run-7/step-100"],
        ),
        AfterValidator(lambda text: None if text is None else decoded(text)),
    ] = None,
) -> Clients:
    """List the clients. A 503 says that no NFS server answers."""
    found = control.gather(gateway.settings)
    opens = None if opened is None else control.opens(gateway.settings, opened, text_of)
    return Clients.model_validate({**found, "open": opens})
