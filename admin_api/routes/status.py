"""Routes of the gateway's state: status, statistics, clients, bucket, health and metrics.

Health, whether the admin API lives and whether the gateway can be governed, needs no token. The
metrics for Prometheus are at ``/metrics``.
"""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field

from admin_api import metrics
from admin_api.access.authentication import Admin, Operator, Viewer
from admin_api.audit import Recorded
from admin_api.cpu_budget import Apart
from admin_api.dashboard import Figured
from admin_api.problems import describe
from admin_api.requests import Body, Governed, PathQuery
from gateway.common.network import is_loopback
from gateway.config.settings import Settings
from gateway.db import schema
from gateway.rpc import statistics
from gateway.rpc.statistics import Statistics
from gateway.service import bucket, clients, recovery, usage
from gateway.service.bucket import Reachability, SetUp
from gateway.service.clients import ClientList, Opens
from gateway.service.recovery import RecoveryFacts
from gateway.service.status import Status
from gateway.service.usage import UsageFacts

router = APIRouter(prefix="/status", tags=["status"])


@router.get("", responses=describe(409, 503))
def read_status(figures: Figured, _viewer: Viewer) -> Status:
    """Read the state of the gateway, as it was a second ago at most.

    The bucket is asked, and files are counted, after the answer: what they said for the last time
    is in the next one.
    """
    return figures.status()


recovery_router = APIRouter(prefix="/recovery", tags=["status"])


@recovery_router.get("", responses=describe(409, 503))
def read_recovery(gateway: Governed, figures: Figured, _viewer: Viewer) -> RecoveryFacts:
    """Read what would be lost if this machine were lost now, and what would bring the rest back."""
    return recovery.gather(gateway.settings, gateway.database, figures.gathered())


statistics_router = APIRouter(prefix="/statistics", tags=["status"])


@statistics_router.get("", responses=describe(503))
def read_statistics(gateway: Governed, _viewer: Viewer) -> Statistics:
    """Read the counts. A 503 says that no NFS server answers."""
    return statistics.read(gateway.settings)


clients_router = APIRouter(prefix="/clients", tags=["status"])


@clients_router.get("", responses=describe(503))
def list_clients(gateway: Governed, _viewer: Viewer) -> ClientList:
    """List the clients. A 503 says that no NFS server answers."""
    return clients.gather(gateway.settings)


@clients_router.get("/opens", responses=describe(404, 409, 503))
def list_opens(gateway: Governed, _viewer: Viewer, path: PathQuery) -> Opens:
    """Read who has a file open, or files below a directory. A 503 says that no NFS server
    answers."""
    return clients.opens(gateway.settings, path)


usage_router = APIRouter(prefix="/usage", tags=["status"])


@usage_router.get("", responses=describe(404, 409, 503))
def read_usage(gateway: Governed, _viewer: Viewer, path: PathQuery) -> UsageFacts:
    """Read what a directory has with all below it, and what owners have in the whole namespace.

    No file is read for it: the sums are kept with each change.
    """
    return usage.gather(gateway.settings, path)


bucket_router = APIRouter(prefix="/bucket", tags=["bucket"])


class SettingUp(Body):
    """What is to be changed in the bucket."""

    apply: bool = Field(
        False, description="Add the rule that ends unfinished uploads, beside all others."
    )
    adopt: bool = Field(
        False, description="Also if the prefix has another owner, or objects and no owner."
    )


@bucket_router.post("/test")
async def test_bucket(gateway: Governed, _operator: Operator, apart: Apart) -> Reachability:
    """Ask the bucket now. A bucket that does not answer takes up to 10 seconds."""
    return await apart.ask_bucket(bucket.test, gateway.settings)


@bucket_router.post("/setup", responses=describe(409, 502, 503))
async def set_up_bucket(
    gateway: Governed, call: Recorded, _admin: Admin, body: SettingUp, apart: Apart
) -> SetUp:
    """Look at the bucket's own settings, find out which checksum it verifies, and, if that is
    asked for, add the rule that ends unfinished uploads."""
    made = await apart.ask_bucket(bucket.set_up, gateway.settings, body.apply, body.adopt)
    if body.apply:
        call.after = made
    return made


health_router = APIRouter(prefix="/health", tags=["health"])


class HealthAnswer(BaseModel):
    """An answer of a health check."""

    status: str = Field(examples=["ok"])


@health_router.get("/live")
async def check_liveness() -> HealthAnswer:
    """Answer as long as this process can answer at all."""
    return HealthAnswer(status="ok")


@health_router.get("/ready", responses=describe(409, 503))
async def check_readiness(gateway: Governed, apart: Apart) -> HealthAnswer:
    """Answer once the database of the namespace can be used."""
    await apart.probe(schema.require_current, gateway.database)
    return HealthAnswer(status="ok")


PATH, NAME = "/metrics", "read_metrics"
_EXAMPLE = "# TYPE spillway_dirty_bytes gauge\nspillway_dirty_bytes 0.0\n"


def is_public(settings: Settings) -> bool:
    """Return whether no token is needed: ``admin.metrics_public`` is set, and only this machine can
    connect."""
    return settings.admin.metrics_public and is_loopback(settings.admin.bind)


def router_of(settings: Settings) -> APIRouter:
    """Return the route. It needs a token, unless it is public."""
    router = APIRouter(tags=["metrics"])
    content = {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}, "example": _EXAMPLE}}
    responses = {200: {"content": content}, **describe(409, 503)}
    if is_public(settings):
        router.get(PATH, responses=responses, response_class=Response, name=NAME)(_read)
    else:
        router.get(PATH, responses=responses, response_class=Response, name=NAME)(_read_by_viewer)
    return router


def _read(gateway: Governed, figures: Figured) -> Response:
    """Read the metrics in the text format of Prometheus."""
    return Response(metrics.text(gateway, figures), media_type=CONTENT_TYPE_LATEST)


def _read_by_viewer(gateway: Governed, figures: Figured, _viewer: Viewer) -> Response:
    """Read the metrics in the text format of Prometheus."""
    return _read(gateway, figures)
