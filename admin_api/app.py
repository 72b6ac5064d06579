"""Puts the application together. ``ROUTERS`` has every noun of the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import Depends, FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from admin_api import openapi, problems
from admin_api.access import roles
from admin_api.apart import Threads
from admin_api.calls import Replayed
from admin_api.envelope import Envelope
from admin_api.events.checkpoints import Looker
from admin_api.events.hub import Hub
from admin_api.figures import Figures
from admin_api.gateway import open_gateway
from admin_api.jobs import files as file_jobs
from admin_api.jobs import trash as trash_jobs
from admin_api.jobs.rows import Row, model
from admin_api.jobs.runner import Runner
from admin_api.pages import site
from admin_api.routes import (
    audit,
    bucket,
    checkpointorders,
    checkpoints,
    clients,
    configuration,
    directories,
    events,
    exports,
    files,
    health,
    history,
    jobs,
    metrics,
    pins,
    policies,
    promotions,
    queue,
    retention,
    runs,
    session,
    statistics,
    status,
    tokens,
    trash,
)
from admin_api.shapes import known_query
from admin_api.strangers import Strangers
from admin_api.yielding import Machine, Share, Yielding
from gateway.settings import Settings

PREFIX = "/api/v1"
ROUTERS = (
    health.router,
    session.router,
    tokens.router,
    audit.router,
    openapi.router,
    checkpoints.router,
    checkpointorders.router,
    promotions.router,
    trash.router,
    runs.router,
    pins.router,
    policies.router,
    retention.router,
    status.router,
    statistics.router,
    clients.router,
    files.router,
    directories.router,
    exports.router,
    queue.router,
    bucket.router,
    jobs.router,
    configuration.router,
    history.router,
    events.router,
)
KINDS = (*file_jobs.KINDS, *trash_jobs.KINDS)
"""Every kind of job."""


def create_app(settings: Settings) -> FastAPI:
    """Return the application that governs one gateway. Raises UserError."""
    app = FastAPI(
        title="Spillway admin API",
        version=version("spillway"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        responses=problems.describe(422),
        lifespan=_serving,
    )
    gateway = app.state.gateway = open_gateway(settings)
    app.state.figures = Figures(settings, gateway.database)
    looker = Looker(settings, gateway.database)
    hub = app.state.hub = Hub(looker.look, lambda: ("status", app.state.figures.summary()))

    def publish(row: Row) -> None:
        hub.publish("job", model(row))

    app.state.runner = Runner(settings, gateway.database, gateway.store, KINDS, publish)
    problems.install(app, roles.require_sender)
    app.add_exception_handler(Replayed, _again)
    probes = [f"{PREFIX}{health.router.prefix}/"]
    if metrics.is_public(settings):
        probes.append(metrics.PATH)
    share = settings.admin.busy_share
    if share < 1:
        yields = Share(share, Machine().is_busy)
        app.add_middleware(Yielding, share=yields, exempt=probes)
    app.add_middleware(Strangers, gateway=gateway, exempt=probes)
    app.add_middleware(Envelope, gateway=gateway)
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX, dependencies=[Depends(known_query)])
    app.include_router(metrics.router_of(settings))
    openapi.complete(app)
    app.state.pages = site.add(app, PREFIX)
    return app


@asynccontextmanager
async def _serving(app: FastAPI) -> AsyncIterator[None]:
    """Run jobs and take events as long as requests are served."""
    runner: Runner = app.state.runner
    hub: Hub = app.state.hub
    app.state.threads = Threads()
    hub.open()
    await run_in_threadpool(runner.start)
    try:
        yield
    finally:
        hub.close()
        await run_in_threadpool(runner.stop)


async def _again(_request: Request, exc: Exception) -> Response:
    """Answer a repetition as the first call was answered."""
    assert isinstance(exc, Replayed)
    return Response(exc.body, exc.status, {**exc.headers, "Idempotency-Replayed": "true"})
