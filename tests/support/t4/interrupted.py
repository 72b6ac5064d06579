"""An upload in parts that a kill of the drain interrupted, and the parts that were sent."""

from __future__ import annotations

import os

from tests.support.drainsite import MIB, Site
from tests.support.s3proxy import Act
from tests.support.waiting import until


def killed_after_two_parts(site: Site) -> bytes:
    """Write a file "f" of four parts, and kill the drain when the bucket has parts 1 and 2 alone.
    Returns the bytes of the file."""
    data = os.urandom(17 * MIB)
    site.configure(part_concurrency=1)
    site.write("f", data)
    held = site.proxy.inject(lambda r: r.query.get("partNumber") == "3", Act.HOLD)
    with site.process() as process:
        held.wait()
        until(lambda: len([r for r in site.proxy.operations("PART") if r.status]) == 2, "2 parts")
        site.kill(process)
    held.discard()
    return data


def parts_sent(site: Site) -> list[str]:
    """Return the numbers of the parts that were sent since the proxy forgot its requests."""
    return sorted(r.query["partNumber"] for r in site.proxy.operations("PART"))
