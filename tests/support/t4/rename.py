"""Check after each change of the bucket that all contents are still in it."""

from __future__ import annotations

from tests.support.drainsite import Site
from tests.support.s3proxy import Request

WRITES = {"PUT", "COPY", "PART COPY", "COMPLETE", "DELETE"}


def watch(site: Site, contents: set[bytes]) -> list[str]:
    """Check after each change of the bucket that all contents are still in it.

    Returns the list to which losses are added.
    """
    lost: list[str] = []

    def look(request: Request) -> None:
        missing = contents - set(site.objects().values())
        if missing and request.operation in WRITES:
            lost.append(f"{request.operation} {request.key} lost {missing}")

    site.proxy.on_applied = look
    return lost
