"""The metrics for Prometheus, at ``/metrics``."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from admin_api.access.roles import Viewer
from admin_api.figures import Figured
from admin_api.gateway import Governed
from admin_api.metrics import scrape
from admin_api.problems import describe
from gateway.loopback import is_loopback
from gateway.settings import Settings

PATH = "/metrics"
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
        router.get(PATH, responses=responses, response_class=Response)(_read)
    else:
        router.get(PATH, responses=responses, response_class=Response)(_read_by_viewer)
    return router


def _read(gateway: Governed, figures: Figured) -> Response:
    """Read the metrics in the text format of Prometheus."""
    return Response(scrape.text(gateway, figures), media_type=CONTENT_TYPE_LATEST)


def _read_by_viewer(gateway: Governed, figures: Figured, _viewer: Viewer) -> Response:
    """Read the metrics in the text format of Prometheus."""
    return _read(gateway, figures)
