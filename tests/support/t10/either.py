"""The nouns of a gateway as commands have them: on its machine, and by its admin API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.cli import target
from gateway.cli.api import Api
from gateway.cli.client import RemoteGateway
from gateway.cli.local import CommandGateway
from gateway.cli.main import program_parser
from gateway.config import loader
from gateway.service.gateway import Gateway
from tests.support.t10.afar import Afar

WAYS = ("here", "afar")


@contextmanager
def either(site: Afar, way: str, role: str = "admin") -> Iterator[Gateway]:
    """Open a gateway. Args: way, one of ``WAYS``; role, of the token from afar."""
    if way == "here":
        with CommandGateway(loader.load(site.site.settings.source), "mara") as local:
            yield local
        return
    args = program_parser().parse_args([*site.options(role), "status"])
    with Api(target.reach_of(args, args.gateway)) as api:
        yield RemoteGateway(api)
