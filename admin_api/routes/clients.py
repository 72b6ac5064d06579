"""The clients of the NFS server: who mounts, what each does, and who has a file open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator

from admin_api.access.roles import Viewer
from admin_api.gateway import Governed
from admin_api.paths import decoded
from admin_api.problems import describe
from admin_api.shapes import PATH_MAX
from gateway.control import clients as control
from gateway.control.clients import Clients, Opens
from gateway.escapes import text_of

router = APIRouter(prefix="/clients", tags=["status"])


@dataclass(frozen=True, slots=True)
class ClientsAnswer(Clients):
    """The clients of the NFS server, and who has a file open."""

    open: Opens | None
    """None: it was not asked for."""


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
) -> ClientsAnswer:
    """List the clients. A 503 says that no NFS server answers."""
    found = control.gather(gateway.settings)
    opens = None if opened is None else control.opens(gateway.settings, opened, text_of)
    return ClientsAnswer(found.clients, found.others, found.shared_names, opens)
