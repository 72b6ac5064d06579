"""Puts the application together. ``ROUTERS`` has every noun of the API."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from importlib.metadata import version

from fastapi import FastAPI, Request, Response

from admin_api import problems
from admin_api.gateway import Gateway
from admin_api.pages import site
from admin_api.routes import checkpoints, health, policies, retention, runs
from admin_api.store.opening import open_store
from gateway.db.engine import Database
from gateway.settings import Settings

PREFIX = "/api/v1"
ROUTERS = (
    health.router,
    checkpoints.router,
    runs.router,
    policies.router,
    retention.router,
)


def create_app(settings: Settings) -> FastAPI:
    """Return the application that governs one gateway. Raises UserError."""
    app = FastAPI(
        title="Spillway admin API",
        version=version("spillway"),
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        responses=problems.describe(422),
    )
    app.state.gateway = Gateway(settings, Database(settings.database_url), open_store(settings))
    problems.install(app)
    app.middleware("http")(_with_request_id)
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX)
    site.add(app, PREFIX)
    return app


async def _with_request_id(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Give each request an id, which its answer, its log lines and its problem have."""
    request.state.request_id = uuid.uuid4().hex
    response = await call_next(request)
    response.headers["X-Request-Id"] = request.state.request_id
    return response
