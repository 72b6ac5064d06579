"""Puts the application together. ``ROUTERS`` has every noun of the API."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI, Request, Response

from admin_api import openapi, problems
from admin_api.calls import Replayed
from admin_api.envelope import Envelope
from admin_api.gateway import open_gateway
from admin_api.routes import audit, health, session, tokens
from gateway.settings import Settings

PREFIX = "/api/v1"
ROUTERS = (health.router, session.router, tokens.router, audit.router, openapi.router)


def create_app(settings: Settings) -> FastAPI:
    """Return the application that governs one gateway. Raises UserError."""
    app = FastAPI(
        title="Spillway admin API",
        version=version("spillway"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        responses=problems.describe(422),
    )
    app.state.gateway = open_gateway(settings)
    problems.install(app)
    app.add_exception_handler(Replayed, _again)
    app.add_middleware(Envelope, gateway=app.state.gateway)
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX)
    openapi.complete(app)
    return app


async def _again(_request: Request, exc: Exception) -> Response:
    """Answer a repetition as the first call was answered."""
    assert isinstance(exc, Replayed)
    return Response(exc.body, exc.status, {**exc.headers, "Idempotency-Replayed": "true"})
